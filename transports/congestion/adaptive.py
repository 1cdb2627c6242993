"""TCP for periodic bursts of known size: it opens where it left off, and gives way only to congestion.

What a path has taught stays from one burst to the next: the rate at which it delivers, its least round trip, and how
much it loses without being congested. Four modes:

startup     Nothing is known. Slow start, until trains of acknowledgements show the bottleneck's rate (packet-train
            dispersion, Dovrolis et al., "Packet-dispersion techniques and a capacity-estimation methodology",
            IEEE/ACM ToN 2004) and the window covers it.
cruise      Alone, as far as can be seen: paced at the learned rate under a window of little more than one BDP, so that
            even a shallow queue holds. Short, small probes look for more rate, and are doubled while they find it.
compete     The queue stays occupied although the window would leave it empty, or it overflows: somebody else sends.
            Then the window is CUBIC's (RFC 9438), with the same answer to congestion.
silent      Acknowledgements have stopped: one packet at a time until they come back.

Loss is congestion when the queueing delay beside it is a good part of what a full queue showed, or when a round loses
far more than chance would. Everything else is repaired, and counted, but not yielded to.
"""

from collections import deque
from enum import Enum

from transports.congestion.base import Ack, CongestionControl, RepairTimeout
from transports.congestion.cubic import Cubic

HEAVY_LOSS_SHARE = 0.02
HEAVY_LOSS_SEGMENTS = 32
FREE_ROUNDS = 4  # with an empty queue, until whoever occupied it counts as gone
SHORT_PAUSE = 4  # round trips between two bursts that leave the path as it was
FIRST_PROBE = 0.05
MAX_PROBE = 0.5
PROBE_QUEUE_S = 0.0005  # a probe may put this much delay into the queue, or 1/64 of the RTT if that is less
MIN_TRAIN_POINTS = 8


class Mode(Enum):
    """What the algorithm believes; see the module's text."""

    STARTUP = "startup"
    CRUISE = "cruise"
    COMPETE = "compete"
    SILENT = "silent"


class AckTrain:
    """The rate at which the latest acknowledgements deliver, bit/s, over a window of time that moves with them.

    The window is as long as `span_s` and holds at least MIN_TRAIN_POINTS acknowledgements. The rate is what was
    delivered over the longer of the time it took to send and the time it took to acknowledge.
    """

    __slots__ = ("_points", "span_s")

    def __init__(self) -> None:
        self.span_s = 0.001
        self._points: deque[tuple[float, int, float]] = deque()

    def clear(self) -> None:
        """Begin anew: what comes next does not continue what came before."""
        self._points.clear()

    def add(self, now: float, delivered_bytes: int, sent_s: float) -> float | None:
        """Note that by `now` `delivered_bytes` were delivered in all, the newest of them sent at `sent_s`."""
        points = self._points
        points.append((now, delivered_bytes, sent_s))
        while len(points) > MIN_TRAIN_POINTS and now - points[1][0] >= self.span_s:
            points.popleft()
        if len(points) < MIN_TRAIN_POINTS or now - points[0][0] < self.span_s:
            return None
        return _rate_between(points[0], points[-1])


def _rate_between(first: tuple[float, int, float], last: tuple[float, int, float]) -> float:
    """Return the rate, bit/s, from one (time of acknowledgement, bytes delivered, time of sending) to another."""
    took_s = max(last[0] - first[0], last[2] - first[2])
    return 8 * (last[1] - first[1]) / took_s if took_s > 0 else 0.0


class Adaptive(CongestionControl):
    """Learned-rate congestion control. All its numbers are payload bytes, payload bit/s and seconds.

    headroom: by how much the window exceeds the learned BDP. learned_* may be read by whoever wants to know.
    """

    governs_recovery = True

    def __init__(self, *, mss_bytes: int, initial_window_segments: int = 10, headroom: float = 0.02) -> None:
        super().__init__(mss_bytes=mss_bytes, initial_window_segments=initial_window_segments)
        self._headroom = headroom
        self.mode = Mode.STARTUP
        self.learned_rate_bps: float | None = None
        self.learned_min_rtt_s: float | None = None
        self.learned_loss = 0.0  # share of packets lost without congestion
        self._srtt_s: float | None = None
        self._rttvar_s = 0.0
        self._burst_min_rtt_s: float | None = None
        self._old_min_rtts: deque[float] = deque(maxlen=4)  # one for each of the latest bursts
        self._queues_s: deque[float] = deque(maxlen=4)  # shown by the latest acknowledgements
        self._full_queue_s = 0.0  # the queueing delay that overflow has shown
        self._queue_s = 0.0
        self._queue_low_s: float | None = None  # least queueing delay of the present round
        self._train = AckTrain()
        self._flight_bps: float | None = None  # the dispersion of startup's latest flight
        self._flight_first = (0.0, 0)
        self._flight_last_s = 0.0
        self._flight_acks = 0
        self._flight_bytes = 0  # of the longest flight that was measured
        self._delivered = 0
        self._last_ack_s = -float("inf")
        self._round_delivered = 0
        self._round_lost = 0
        self._round_best_bps = self._last_best_bps = 0.0
        self._round_s: float | None = None  # when it began; None until a burst's first acknowledgement
        self._last_average_bps = 0.0
        self._yielded_s = -float("inf")  # when the answer to the last congestion took effect
        self._occupied_rounds = 0
        self._free_rounds = 0
        self._overflowed = False  # a loss, not the delay, made it compete
        self._cubic = Cubic(mss_bytes=mss_bytes, initial_window_segments=initial_window_segments, hystart=False)
        self._probe_gain = FIRST_PROBE
        self._probe_from_s = float("inf")
        self._probe_to_s = float("inf")
        self._probe_first: tuple[float, int, float] | None = None
        self._probe_last = (0.0, 0, 0.0)
        self._next_probe_s = 0.0
        self._before_silence_bps: float | None = None
        self._margin = 1.0  # widened when repairs turn out to have been needless

    # -- the sender's questions ---------------------------------------------------------------------------------------

    def repair_timeout(self) -> RepairTimeout | None:
        """Return SRTT and a little: sooner than RFC 8985's probe at 2 SRTT, later than any acknowledgement expected."""
        if self._srtt_s is None or self.mode is Mode.STARTUP:
            return None  # flights end on odd segments then, whose acknowledgement the receiver delays
        little_s = max(4 * self._rttvar_s, self._srtt_s / 32) + self._own_queue_s()
        return RepairTimeout(self._srtt_s, self._margin * little_s)

    # -- bursts -------------------------------------------------------------------------------------------------------

    def on_burst(self, now: float, burst_bytes: int) -> None:
        """Open at what the last burst has taught; in mid-competition, and after no pause to speak of, just go on."""
        if self.mode is Mode.COMPETE and now - self._last_ack_s < SHORT_PAUSE * (self._srtt_s or 0.0):
            self._train.clear()
            return
        self._margin = max(1.0, 0.9 * self._margin)
        if self._burst_min_rtt_s is not None:
            self._old_min_rtts.append(self._burst_min_rtt_s)
            self.learned_min_rtt_s = min(self._old_min_rtts)
            self._burst_min_rtt_s = None
        best_bps = max(self._round_best_bps, self._last_best_bps)
        if best_bps and self.mode is Mode.COMPETE:
            self.learned_rate_bps = best_bps
        elif best_bps and self.mode is Mode.CRUISE and self.learned_rate_bps and self._occupied():
            self.learned_rate_bps = min(self.learned_rate_bps, best_bps)  # the path delivered less than it was given
        elif self.mode is Mode.STARTUP:
            self.learned_rate_bps = self._flight_bps
        self._before_silence_bps = None
        self._train.clear()
        self._next_round(now)
        self._last_best_bps = self._last_average_bps = 0.0
        self._round_s = None
        if self.learned_rate_bps is None or self.learned_min_rtt_s is None:
            return
        self.mode = Mode.CRUISE
        self._probe_gain = min(self._probe_gain, MAX_PROBE)
        self._start_probe(now)
        self._cruise(now)

    def restart_after_idle(self, now: float, idle_s: float, rto_s: float, *, policy: str) -> None:
        """Idle time changes nothing: what was learned is checked by the first acknowledgements of the burst."""

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    def on_ack(self, ack: Ack) -> None:
        """Take one acknowledgement."""
        now = self._last_ack_s = ack.now
        self._delivered += ack.delivered_bytes
        if self._round_s is None:
            self._round_s = now
        else:
            self._round_delivered += ack.delivered_bytes
        if ack.rtt_s is not None:
            self._take_rtt(ack.rtt_s)
        if self.mode is Mode.SILENT:
            self._speak_again(now)
        rate_bps = None
        if ack.newest_sent_s is not None:
            rate_bps = self._train.add(now, self._delivered, ack.newest_sent_s)
            if rate_bps is not None:
                self._round_best_bps = max(self._round_best_bps, rate_bps)
            self._judge_probe(ack.newest_sent_s, now)
        if ack.round_started:
            self._end_round(now)
        if self.mode is Mode.STARTUP:
            self._start_up(ack)
        elif self.mode is Mode.CRUISE:
            self._cruise(now)
        elif self.mode is Mode.COMPETE:
            self._cubic.on_ack(ack._replace(in_recovery=False))
            self._compete()

    def _take_rtt(self, rtt_s: float) -> None:
        if self._srtt_s is None:
            self._srtt_s, self._rttvar_s = rtt_s, rtt_s / 2
        else:  # RFC 6298 §2.3
            self._rttvar_s += (abs(self._srtt_s - rtt_s) - self._rttvar_s) / 4
            self._srtt_s += (rtt_s - self._srtt_s) / 8
        if self._burst_min_rtt_s is None or rtt_s < self._burst_min_rtt_s:
            self._burst_min_rtt_s = rtt_s
        if self.learned_min_rtt_s is None or rtt_s < self.learned_min_rtt_s:
            self.learned_min_rtt_s = rtt_s
            self._train.span_s = rtt_s / 32
        # an acknowledgement that the receiver delayed looks like a queue: only what several show counts
        self._queues_s.append(rtt_s - self.learned_min_rtt_s)
        self._queue_s = min(self._queues_s)
        if self._queue_low_s is None or self._queue_s < self._queue_low_s:
            self._queue_low_s = self._queue_s

    # -- rounds -------------------------------------------------------------------------------------------------------

    def _next_round(self, now: float) -> None:
        self._last_average_bps = self._average_bps(now)
        self._round_s = now
        self._round_delivered = self._round_lost = 0
        self._last_best_bps, self._round_best_bps = self._round_best_bps, 0.0
        self._queue_low_s = None

    def _average_bps(self, now: float) -> float:
        """Return the rate of delivery over this round, or over the last while this one is young."""
        since_s = self._round_s
        if since_s is not None and now - since_s > 0.5 * (self._srtt_s or 0.0):
            return 8 * self._round_delivered / (now - since_s)
        return self._last_average_bps

    def _own_queue_s(self) -> float:
        """Return the queueing delay that cruising alone may cause: what the window leaves beyond the BDP."""
        return self._headroom * (self.learned_min_rtt_s or 0.0) + self._probe_queue_s()

    def _probe_queue_s(self) -> float:
        return min(PROBE_QUEUE_S, (self.learned_min_rtt_s or 0.0) / 64)

    def _occupied(self) -> bool:
        """Tell whether this round's least queueing delay is more than cruising alone would cause."""
        return self._queue_low_s is not None and self._queue_low_s > 2 * self._own_queue_s() + 2 * self._rttvar_s

    def _end_round(self, now: float) -> None:
        occupied = self._occupied()
        self._occupied_rounds = self._occupied_rounds + 1 if occupied else 0
        self._free_rounds = 0 if occupied else self._free_rounds + 1
        if self.mode is Mode.CRUISE and self._occupied_rounds >= 2:
            self._begin_competing()
        elif (
            self.mode is Mode.COMPETE
            and self._free_rounds >= (1 if self._overflowed else FREE_ROUNDS)
            and now - self._yielded_s > (self._srtt_s or 0.0)
        ):
            # the queue has drained: it overflowed because the rate was a little too much, or others have made room
            learned_bps, found_bps = self.learned_rate_bps or 0.0, self._average_bps(now)
            self._settle(0.95 * learned_bps if self._overflowed else max(learned_bps, found_bps), now)
        if self.mode is Mode.CRUISE and now >= self._next_probe_s and not occupied:
            self._start_probe(now)
        total = self._round_lost + self._round_delivered
        if total > 0 and self.mode is Mode.CRUISE:
            self.learned_loss += (self._round_lost / total - self.learned_loss) / 8
        self._next_round(now)

    # -- startup ------------------------------------------------------------------------------------------------------

    def _start_up(self, ack: Ack) -> None:
        now, base_s = ack.now, self.learned_min_rtt_s or 0.0
        first_s, first_bytes = self._flight_first
        pause_s = max(base_s / 64, 8 * (self._flight_last_s - first_s) / max(self._flight_acks, 1))
        if self._flight_acks == 0 or now - self._flight_last_s > pause_s:
            first_s, first_bytes = self._flight_first = (now, self._delivered)  # another flight's first
            self._flight_acks = 0
        self._flight_acks += 1
        self._flight_last_s = now
        train_bytes = self._delivered - first_bytes
        # a flight of slow start is twice its predecessor: what is much shorter is a fragment, and says little
        if now > first_s and train_bytes >= max(2 * MIN_TRAIN_POINTS * self.mss_bytes, self._flight_bytes / 2):
            self._flight_bytes = max(self._flight_bytes, train_bytes)
            self._flight_bps = 8 * train_bytes / (now - first_s)
            self.pacing_rate_bps = self._flight_bps  # faster would only fill the queue
        if ack.cwnd_limited:
            self.cwnd_bytes += min(ack.delivered_bytes, 2 * self.mss_bytes)
        if self._flight_bps is not None and self.cwnd_bytes >= self._flight_bps * base_s / 8:
            self._settle(self._flight_bps, now)

    def _settle(self, rate_bps: float, now: float) -> None:
        """Cruise at a rate that was found, not remembered."""
        self.learned_rate_bps = rate_bps
        self.mode = Mode.CRUISE
        self._probe_gain = FIRST_PROBE
        self._next_probe_s = now + 4 * (self._srtt_s or 0.0)
        self._cruise(now)

    # -- cruise -------------------------------------------------------------------------------------------------------

    def _cruise(self, now: float) -> None:
        rate_bps, base_s = self.learned_rate_bps, self.learned_min_rtt_s
        if rate_bps is None or base_s is None:
            return
        # never less than an initial window per round trip, which needs no permission (RFC 6928)
        rate_bps = self.learned_rate_bps = max(rate_bps, 8 * self.initial_window_bytes / base_s)
        little_s = max(self._headroom * base_s, 2 * self._rttvar_s if self._rttvar_s < base_s / 8 else 0.0)
        gain = 1.0
        if self._probe_from_s <= now < self._probe_to_s:
            gain = 1 + self._probe_gain
        window_s = base_s + little_s + self._probe_queue_s()
        self.cwnd_bytes = max(gain * rate_bps * window_s / 8, 0.0) + 4 * self.mss_bytes
        self.pacing_rate_bps = gain * rate_bps

    def _start_probe(self, now: float) -> None:
        packets_s = 2 * MIN_TRAIN_POINTS * 8 * self.mss_bytes / (self.learned_rate_bps or float("inf"))
        length_s = max(self._probe_queue_s() / self._probe_gain, 1.25 * self._train.span_s, packets_s)
        self._probe_from_s, self._probe_to_s = now, now + length_s
        self._probe_first = None
        self._next_probe_s = float("inf")

    def _judge_probe(self, sent_s: float, now: float) -> None:
        """Compare, from the first to the last acknowledgement of the probe, what was delivered with what was tried."""
        learned_bps = self.learned_rate_bps
        if sent_s < self._probe_from_s or self.mode is not Mode.CRUISE or learned_bps is None:
            return
        if sent_s <= self._probe_to_s:
            if self._probe_first is None:
                self._probe_first = (now, self._delivered, sent_s)
            self._probe_last = (now, self._delivered, sent_s)
            return
        self._probe_from_s = self._probe_to_s = float("inf")
        rate_bps = _rate_between(self._probe_first, self._probe_last) if self._probe_first else 0.0
        self._next_probe_s = now + 4 * (self._srtt_s or 0.0)
        if rate_bps < (1 + 0.5 * self._probe_gain) * learned_bps:
            self._probe_gain = FIRST_PROBE
            return
        if rate_bps < (1 + 0.7 * self._probe_gain) * learned_bps:
            self._probe_gain = FIRST_PROBE  # more was tried than there is: this is the ceiling
        else:
            self._probe_gain = min(2 * self._probe_gain, MAX_PROBE)
            self._next_probe_s = now
        self.learned_rate_bps = rate_bps

    # -- loss and congestion ------------------------------------------------------------------------------------------

    def on_loss(self, now: float, lost_bytes: int, in_flight_bytes: int, sent_s: float) -> None:
        """Packets are lost: decide whether it was congestion, and answer it."""
        self._round_lost += lost_bytes
        total = self._round_lost + self._round_delivered
        heavy = self._round_lost > max(
            HEAVY_LOSS_SEGMENTS * self.mss_bytes, (HEAVY_LOSS_SHARE + 4 * self.learned_loss) * total
        )
        full = self._queue_s > max(1.25 * self._own_queue_s() + 2 * self._rttvar_s, self._full_queue_s / 2)
        congested = heavy or full
        srtt_s = self._srtt_s or 0.0
        rare = not congested and self.mode is not Mode.SILENT and now - self._yielded_s > srtt_s
        self.duplicate_repair_after_s = max(0.001, srtt_s / 32) if rare else None
        if not congested or sent_s < self._yielded_s:
            return
        self._yielded_s = now
        if full:
            self._full_queue_s += (self._queue_s - self._full_queue_s) / (1 if not self._full_queue_s else 4)
        delivering_bps = (self._flight_bps or 0.0) if self.mode is Mode.STARTUP else self._average_bps(now)
        if self.mode is not Mode.COMPETE and heavy and self._round_lost > 0.2 * total and delivering_bps:
            self._settle(0.95 * delivering_bps, now)  # too much by far: what arrives is what there is
            return
        if self.mode is Mode.STARTUP:
            if delivering_bps:
                self._settle(0.95 * delivering_bps, now)
            return
        if self.mode is Mode.CRUISE:
            self._begin_competing()
            self._overflowed = True
        if self._overflowed and delivering_bps and self.learned_rate_bps is not None:
            self.learned_rate_bps = min(
                self.learned_rate_bps, delivering_bps
            )  # a full queue is drained at what there is
        self._cubic.on_congestion(now, in_flight_bytes)
        self._cubic.on_recovery_end(now)
        self._compete()

    def on_congestion(self, now: float, in_flight_bytes: int) -> None:
        """Nothing: `on_loss` has judged already, and the sender's episodes are not ours."""

    def on_recovery_end(self, now: float) -> None:
        """Nothing: there was no reduction that would have to end."""

    def undo(self) -> None:
        """The repairs were needless: wait longer for acknowledgements, and take nothing for lost that is only late."""
        self._margin = min(2 * self._margin, 32.0)
        if self._before_silence_bps is not None:
            self.learned_rate_bps, self._before_silence_bps = self._before_silence_bps, None

    def _begin_competing(self) -> None:
        rate_bps, srtt_s = self.learned_rate_bps, self._srtt_s
        if rate_bps is None or srtt_s is None:
            return
        self.mode = Mode.COMPETE
        self._overflowed = False
        self._probe_from_s = self._probe_to_s = float("inf")
        self._cubic = Cubic(mss_bytes=self.mss_bytes, hystart=False)
        self._cubic.cwnd_bytes = self._cubic.ssthresh_bytes = max(self.cwnd_bytes, float(self.initial_window_bytes))
        self._compete()

    def _compete(self) -> None:
        self.cwnd_bytes = self._cubic.cwnd_bytes
        if self._srtt_s:
            self.pacing_rate_bps = 2 * 8 * self.cwnd_bytes / self._srtt_s

    # -- silence ------------------------------------------------------------------------------------------------------

    def on_timeout(self, now: float, in_flight_bytes: int, *, first: bool) -> None:
        """Acknowledgements have stopped: one packet at a time until they come back."""
        if self.learned_rate_bps is not None:
            if self.mode is not Mode.SILENT:
                self._before_silence_bps = self.learned_rate_bps
            self.mode = Mode.SILENT
        else:
            self.mode = Mode.STARTUP
            self._flight_bps = self.pacing_rate_bps = None
            self._flight_bytes = self._flight_acks = 0
        self.duplicate_repair_after_s = None
        self.cwnd_bytes = float(self.mss_bytes)

    def _speak_again(self, now: float) -> None:
        """Take up again, at half of what the path did before: it may have become another one."""
        if self.learned_rate_bps is not None:
            self._train.clear()
            self._yielded_s = now  # what was lost in the silence has been answered
            self._settle(0.5 * self.learned_rate_bps, now)
            self._probe_gain = MAX_PROBE
            self._next_probe_s = now
