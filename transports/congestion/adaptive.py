"""TCP for periodic bursts of known size: it opens where it left off, and gives way only to congestion.

What a path has taught stays from one burst to the next: the rate at which it delivers, its least round trip, and how
much it loses without being congested. Four modes:

startup     Nothing is known. Slow start, until the flights' dispersion shows the bottleneck's rate and the window
            covers it. Until then a loss takes a share of the window, soon another ends slow start, idle time is as for
            any TCP, and a window that has lost twice is paced.
cruise      Alone, as far as can be seen: paced at the learned rate under a window of little more than one BDP, so that
            even a shallow queue holds. Short, small probes look for more rate, and are doubled while they find it.
compete     The queue stays occupied although the window would leave it empty, or it overflows: somebody else sends.
            Then the window is CUBIC's (RFC 9438), with the same answer to congestion. A queue that has overflowed once
            may have been ours alone: a round trip later it cruises again, at a little less. One that overflows again
            soon is shared with somebody who grows as CUBIC does, and grabbing what he gives up would starve him: then
            it stays, until the rate it cruised at before is its own again, or its window has far outgrown the one that
            was too much.
silent      Acknowledgements have stopped: one packet at a time until they come back.

Loss is congestion when the queueing delay beside it is a good part of what a full queue showed, when a round loses far
more than chance would, or as long as nothing is known. Everything else is repaired, and counted, but not yielded to.
"""

from enum import Enum

from bicoastal.transports.congestion.base import Ack, CongestionControl, RepairTimeout
from bicoastal.transports.congestion.cubic import BETA, Cubic, regrowth_s
from bicoastal.transports.congestion.measurement import (
    AckTrain,
    BurstRate,
    FlightDispersion,
    Point,
    QueueDelay,
    RateProbe,
    Round,
)
from bicoastal.transports.congestion.own_queue import OwnQueue
from bicoastal.wan.units import INFINITY

LOSING_RTTS = 3  # between two losses before a rate is known: they are no chance
FREE_ROUNDS = 4  # with an empty queue, until whoever occupied it counts as gone
SHORT_PAUSE = 4  # round trips between two bursts that leave the path as it was
PROBE_PAUSE = 4  # round trips between two probes
DRAINED = 0.95  # of the rate, at least, is left by a round that drains the queue
FREE_PACE = 2.0  # windows per round trip as long as nothing overflows: the window, not the pace, is to hold back
CLOSE_PACE = 1.1  # the same, but without bursts, which would fill a shallow queue before their time
REGAINED_SHARE = 0.9  # of the rate it cruised at: nobody else can have much
OUTGROWN = 1.5  # times the window that was too much: what was in the way has gone
CONTESTED = 2.0  # times CUBIC takes to regrow: two overflows within are due to somebody who regrows as well


class Mode(Enum):
    """What the algorithm believes; see the module's text."""

    STARTUP = "startup"
    CRUISE = "cruise"
    COMPETE = "compete"
    SILENT = "silent"


class Adaptive(CongestionControl):
    """Learned-rate congestion control. All its numbers are payload bytes, payload bit/s and seconds.

    headroom: by how much the window exceeds the learned BDP. learned_rate_bps is None until a burst has taught it;
    learned_loss is the share of packets lost without congestion.
    """

    governs_recovery = True
    taught_by_acks = True  # many enough of them that a short flight tells, and that loss before one has is congestion

    def __init__(self, *, mss_bytes: int, initial_window_segments: int = 10, headroom: float = 0.02) -> None:
        super().__init__(mss_bytes=mss_bytes, initial_window_segments=initial_window_segments)
        self.mode = Mode.STARTUP
        self.learned_rate_bps: float | None = None
        self.learned_loss = 0.0
        self._queue = QueueDelay()
        self._own_queue = OwnQueue(headroom=headroom, mss_bytes=mss_bytes, queue=self._queue)
        self._train = AckTrain()
        self._flight = FlightDispersion()
        self._burst, self._probe = BurstRate(INFINITY), RateProbe()
        self._cubic = Cubic(mss_bytes=self.mss_bytes, hystart=False)
        self._delivered = 0
        self._last_ack_s = -INFINITY
        self._newest_s = self._started_up_s = 0.0  # when the newest acknowledged was sent, when startup ended mid-burst
        self._round = Round(None)
        self._last_best_bps = self._last_average_bps = 0.0  # of the round before
        self._occupied_rounds = self._free_rounds = 0
        self._full_queue_s = 0.0  # the queueing delay that overflow has shown
        self._overflowed = False  # a loss, not the delay, made it compete, and no other was soon before
        self._contested = False  # it competes, and the queue has overflowed more than once
        self._overflow_s = -INFINITY  # when the queue was last seen to overflow
        self._cruised_bps = 0.0  # the most it has cruised at since the last pause
        self._yielded_s = -INFINITY  # when the answer to the last congestion took effect
        self._yielded_bytes = 0.0  # the window that was too much then
        self._before_silence_bps: float | None = None
        self._margin = 1.0  # widened when repairs turn out to have been needless

    # -- the sender's questions ---------------------------------------------------------------------------------------

    def repair_timeout(self) -> RepairTimeout | None:
        """Return SRTT and a little: sooner than RFC 8985's probe at 2 SRTT, later than any acknowledgement expected."""
        srtt_s = self._queue.srtt_s
        if srtt_s is None or self.mode is Mode.STARTUP or self._newest_s < self._started_up_s:
            return None  # startup's flights end on odd segments, whose acknowledgement the receiver delays
        spare_s = self._own_queue.spare_s(self.learned_rate_bps)
        little_s = max(4 * self._queue.rttvar_s, srtt_s / 32, spare_s) + self._own_queue.most_s
        if self.mode is Mode.COMPETE:
            little_s = max(little_s, srtt_s)  # others' bursts may fill the queue at any time; RFC 8985 has 2 SRTT too
        return RepairTimeout(srtt_s, self._margin * little_s)

    # -- bursts -------------------------------------------------------------------------------------------------------

    def on_burst(self, now: float, burst_bytes: int) -> None:
        """Open at what the last burst has taught; in mid-competition, and after no pause to speak of, just go on."""
        self._train.clear()
        if now - self._last_ack_s >= SHORT_PAUSE * self._srtt_s:
            self._overflow_s, self._cruised_bps, self._yielded_bytes = -INFINITY, 0.0, 0.0
        elif self.mode is Mode.COMPETE:
            return
        self._margin = max(1.0, 0.9 * self._margin)
        self._learn()
        self._burst = BurstRate(burst_bytes)
        self._queue.begin_burst()
        self._before_silence_bps = None
        self._round = Round(None)
        self._last_best_bps = self._last_average_bps = 0.0
        self._queue.low_s = None
        if self.learned_rate_bps is not None and self._queue.min_rtt_s is not None:
            self.mode = Mode.CRUISE
            self._start_probe(now)
            self._cruise(now)

    def _learn(self) -> None:
        """Take from the burst that is over what it showed of the rate."""
        best_bps = max(self._round.best_bps, self._last_best_bps)
        if self.mode is Mode.STARTUP:
            self.learned_rate_bps = self._flight.rate_bps
        elif best_bps and self.mode is Mode.COMPETE:
            too_much_bps = self.learned_rate_bps if self._overflowed else None
            self.learned_rate_bps = min(best_bps, 0.95 * too_much_bps) if too_much_bps else best_bps
        elif self.mode is Mode.CRUISE and self.learned_rate_bps:  # the path may have delivered less than it was given
            exceeded_bps = best_bps if best_bps and self._own_queue.is_exceeded() else self.learned_rate_bps
            self.learned_rate_bps = min(self.learned_rate_bps, exceeded_bps, self._burst.rate_bps or INFINITY)

    def restart_after_idle(self, now: float, idle_s: float, rto_s: float, *, policy: str) -> None:
        """Idle time changes nothing that was learned: the first acknowledgements of the burst check it."""
        if self._ignorant:
            super().restart_after_idle(now, idle_s, rto_s, policy=policy)

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    def on_ack(self, ack: Ack) -> None:
        """Take one acknowledgement."""
        now = self._last_ack_s = ack.now
        self._delivered += ack.delivered_bytes
        if self._round.begun_s is None:
            self._round.begun_s = now
        else:
            self._round.delivered_bytes += ack.delivered_bytes
        if ack.rtt_s is not None:
            self._queue.add(ack.rtt_s)
            self._train.span_s = self._min_rtt_s / 32
        if self.mode is Mode.SILENT:
            self._speak_again(now)
        if ack.newest_sent_s is not None:
            self._newest_s = max(self._newest_s, ack.newest_sent_s)
            point = Point(now, self._delivered, ack.newest_sent_s)
            self._round.best_bps = max(self._round.best_bps, self._train.add(point))
            self._burst.add(point)
            if self._ignorant:
                self._flight.add_short(point, new_flight=ack.round_started, min_rtt_s=self._min_rtt_s)
            elif self.mode is Mode.CRUISE and self.learned_rate_bps is not None:
                found_bps = self._probe.judge(point, self.learned_rate_bps, PROBE_PAUSE * self._srtt_s)
                self.learned_rate_bps = found_bps or self.learned_rate_bps
        if ack.round_started:
            self._end_round(now)
        if self.mode is Mode.STARTUP:
            self._start_up(ack)
        elif self.mode is Mode.CRUISE:
            self._cruise(now)
        elif self.mode is Mode.COMPETE:
            self._cubic.on_ack(ack._replace(in_recovery=False))
            self._compete(now)

    @property
    def _ignorant(self) -> bool:
        return self.mode is Mode.STARTUP and self.taught_by_acks

    @property
    def _srtt_s(self) -> float:
        return self._queue.srtt_s or 0.0

    @property
    def _min_rtt_s(self) -> float:
        return self._queue.min_rtt_s or 0.0

    # -- rounds -------------------------------------------------------------------------------------------------------

    def _average_bps(self, now: float) -> float:
        """Return the rate of delivery over this round, or over the last while this one is young; 0: not known."""
        begun_s = self._round.begun_s
        if begun_s is not None and now - begun_s > 0.5 * self._srtt_s:
            return 8 * self._round.delivered_bytes / (now - begun_s)
        return self._last_average_bps

    def _end_round(self, now: float) -> None:
        occupied, ended = self._own_queue.is_occupied(self.learned_rate_bps), self._round
        self._occupied_rounds = self._occupied_rounds + 1 if occupied else 0
        self._free_rounds = 0 if occupied else self._free_rounds + 1
        if self.mode is Mode.COMPETE:
            self._see_whether_free(now)
        elif self.mode is Mode.CRUISE and self._occupied_rounds >= 2:
            self._begin_competing(now)
        if self.mode is Mode.CRUISE:
            if not occupied:
                self._drain()
            if now >= self._probe.next_s and not occupied:
                self._start_probe(now)
            if ended.total_bytes:
                self.learned_loss += (ended.lost_bytes / ended.total_bytes - self.learned_loss) / 8
        self._last_average_bps = self._average_bps(now)
        self._last_best_bps = ended.best_bps
        self._round = Round(now)
        self._queue.low_s = None

    # -- startup ------------------------------------------------------------------------------------------------------

    def _start_up(self, ack: Ack) -> None:
        self._flight.add(ack.now, self._delivered, min_rtt_s=self._min_rtt_s, mss_bytes=self.mss_bytes)
        slow_start = self.cwnd_bytes < self.ssthresh_bytes
        if ack.cwnd_limited:
            growth_bytes = min(ack.delivered_bytes, 2 * self.mss_bytes)
            self.cwnd_bytes += growth_bytes * (1.0 if slow_start else self.mss_bytes / self.cwnd_bytes)
        rate_bps = self._flight.rate_bps
        if rate_bps is None:
            if not slow_start and self._srtt_s:  # the queue that has overflowed may hold no more than a few
                self.pacing_rate_bps = CLOSE_PACE * 8 * self.cwnd_bytes / self._srtt_s
            return
        self.pacing_rate_bps = rate_bps  # faster would only fill the queue
        if not slow_start or self.cwnd_bytes >= rate_bps * self._min_rtt_s / 8:
            self._settle(rate_bps, ack.now)

    # -- cruise -------------------------------------------------------------------------------------------------------

    def _settle(self, rate_bps: float, now: float) -> None:
        """Cruise at a rate that was found, not remembered."""
        if self._ignorant:
            self._started_up_s = now
        self.learned_rate_bps = rate_bps
        self._burst = BurstRate(INFINITY)  # what this burst has been so far was sent at other rates
        self.mode = Mode.CRUISE
        self._probe.gain = RateProbe.FIRST_GAIN
        self._probe.next_s = now + PROBE_PAUSE * self._srtt_s
        self._cruise(now)

    def _cruise(self, now: float) -> None:
        base_s = self._queue.min_rtt_s
        if self.learned_rate_bps is None or base_s is None:
            return
        # never less than an initial window per round trip, which needs no permission (RFC 6928)
        self.learned_rate_bps = max(self.learned_rate_bps, 8 * self.initial_window_bytes / base_s)
        gain = 1 + self._probe.gain if self._probe.running(now) else 1.0
        self.pacing_rate_bps = gain * self.learned_rate_bps
        self.cwnd_bytes = self._own_queue.window_bytes(self.pacing_rate_bps)

    def _drain(self) -> None:
        """Give up what kept a queue standing through this round: acknowledgements that queued made a rate too high."""
        standing_s = self._own_queue.standing_s()
        if standing_s and self.learned_rate_bps is not None:
            self.learned_rate_bps *= max(1 - standing_s / self._srtt_s, DRAINED)

    def _start_probe(self, now: float) -> None:
        needed_s = self._own_queue.probe_length_s(self.learned_rate_bps, self._probe.gain)
        self._probe.start(now, max(needed_s, 1.25 * self._train.span_s))

    # -- loss and congestion ------------------------------------------------------------------------------------------

    def on_loss(self, now: float, lost_bytes: int, in_flight_bytes: int, sent_s: float) -> None:
        """Packets are lost: decide whether it was congestion, and answer it."""
        self._round.lost_bytes += lost_bytes
        heavy = self._round.lost_bytes > self._round.lost_by_chance_bytes(self.learned_loss, self.mss_bytes)
        own_s = 0.0 if self.mode is Mode.COMPETE else self._own_queue.filled_s(self.learned_rate_bps)
        full = self._queue.now_s > max(own_s, self._full_queue_s / 2)
        congested = heavy or full or (self._ignorant and self._flight.rate_bps is None)
        rare = not congested and self.mode is not Mode.SILENT and now - self._yielded_s > self._srtt_s
        self.duplicate_repair_after_s = max(0.001, self._srtt_s / 32) if rare else None
        if not congested or sent_s < self._yielded_s:
            return
        again = self.mode is Mode.CRUISE and self._overflowed_lately(now)
        losing = now - self._yielded_s < LOSING_RTTS * self._srtt_s
        self._yielded_s = now
        self._yielded_bytes = max(self.cwnd_bytes, self._yielded_bytes) if again else self.cwnd_bytes
        if full:
            self._full_queue_s += (self._queue.now_s - self._full_queue_s) / (4 if self._full_queue_s else 1)
        self._yield_to_congestion(now, in_flight_bytes, overload=heavy and self._round.overloaded, losing=losing)

    def _yield_to_congestion(self, now: float, in_flight_bytes: int, *, overload: bool, losing: bool) -> None:
        delivering_bps = self._average_bps(now)
        if self.mode is Mode.STARTUP:
            if self._flight.rate_bps:
                self._settle(0.95 * self._flight.rate_bps, now)
            elif self._ignorant:  # RFC 9438 §4.6; but one loss alone may be chance, and ends no slow start
                self.cwnd_bytes = max(BETA * self.cwnd_bytes, 2.0 * self.mss_bytes)
                if losing:
                    self.ssthresh_bytes = self.cwnd_bytes
            return
        again = self._overflowed_lately(now)
        self._overflow_s = now
        if overload and delivering_bps and self.mode is not Mode.COMPETE:
            # too much by far: what arrives is what there is, unless others' overshoot has taken it for a moment
            self._settle(max(0.95 * delivering_bps, BETA * (self.learned_rate_bps or 0.0)), now)
            return
        if self.mode is Mode.CRUISE:
            self._begin_competing(now)
            self._overflowed, self._contested = not again, again
            if again:
                # it grows back to the window that overflowed first, not to what is left of it
                self._cubic.cwnd_bytes = max(self._cubic.cwnd_bytes, self._yielded_bytes)
        else:
            self._contested = not self._overflowed
        if self._overflowed and delivering_bps and self.learned_rate_bps is not None:
            # a full queue is drained at what there is, as above
            self.learned_rate_bps = min(self.learned_rate_bps, max(delivering_bps, BETA * self.learned_rate_bps))
        self._cubic.on_congestion(now, in_flight_bytes)
        self._cubic.on_recovery_end(now)
        self._compete(now)

    def _overflowed_lately(self, now: float) -> bool:
        return now - self._overflow_s < CONTESTED * regrowth_s(self.cwnd_bytes / self.mss_bytes)

    def on_congestion(self, now: float, in_flight_bytes: int) -> None:
        """Nothing: `on_loss` has judged already, and the sender's episodes are not ours."""

    def on_recovery_end(self, now: float) -> None:
        """Nothing: there was no reduction that would have to end."""

    def undo(self) -> None:
        """The repairs were needless: wait longer for acknowledgements, and take nothing for lost that is only late."""
        self._margin = min(2 * self._margin, 32.0)
        if self._before_silence_bps is not None:
            self.learned_rate_bps, self._before_silence_bps = self._before_silence_bps, None

    # -- competition --------------------------------------------------------------------------------------------------

    def _begin_competing(self, now: float) -> None:
        self.mode = Mode.COMPETE
        self._overflowed = self._contested = False
        self._probe.cancel()
        self._cruised_bps = max(self._cruised_bps, self.learned_rate_bps or 0.0)
        self._cubic = Cubic(mss_bytes=self.mss_bytes, hystart=False)
        self._cubic.cwnd_bytes = self._cubic.ssthresh_bytes = max(self.cwnd_bytes, float(self.initial_window_bytes))
        self._compete(now)

    def _compete(self, now: float) -> None:
        window_bytes = self._cubic.cwnd_bytes
        yielding = self._contested and now - self._yielded_s < self._srtt_s
        # the pace drains what is too much: a window that shut at once would leave a hole, and bursts around it
        self.cwnd_bytes = max(window_bytes, self._yielded_bytes) if yielding else window_bytes
        gain = 1.0 if yielding else CLOSE_PACE if self._contested else FREE_PACE
        if self._srtt_s:
            self.pacing_rate_bps = gain * 8 * window_bytes / self._srtt_s

    def _see_whether_free(self, now: float) -> None:
        """Cruise again once the queue has drained: it had overflowed by a little, or others have made room."""
        if self._free_rounds < (1 if self._overflowed else FREE_ROUNDS) or now - self._yielded_s <= self._srtt_s:
            return
        learned_bps, average_bps = self.learned_rate_bps or 0.0, self._average_bps(now)
        if self._overflowed:
            self._settle(0.95 * learned_bps, now)
            return
        regrown = now - self._yielded_s > regrowth_s(self._yielded_bytes / self.mss_bytes)
        regained = regrown and average_bps >= REGAINED_SHARE * self._cruised_bps
        if regained or self.cwnd_bytes >= OUTGROWN * self._yielded_bytes:
            self._settle(max(learned_bps, average_bps), now)

    # -- silence ------------------------------------------------------------------------------------------------------

    def on_timeout(self, now: float, in_flight_bytes: int, *, first: bool) -> None:
        """Acknowledgements have stopped: one packet at a time until they come back."""
        if self.learned_rate_bps is not None:
            if self.mode is not Mode.SILENT:
                self._before_silence_bps = self.learned_rate_bps
            self.mode = Mode.SILENT
        else:
            self._flight, self.pacing_rate_bps = FlightDispersion(), None
            if first and self._ignorant:
                self.ssthresh_bytes = max(in_flight_bytes / 2, 2.0 * self.mss_bytes)  # RFC 5681 §3.1
        self.duplicate_repair_after_s = None
        self.cwnd_bytes = float(self.mss_bytes)

    def _speak_again(self, now: float) -> None:
        """Take up again, at half of what the path did before: it may have become another one."""
        if self.learned_rate_bps is not None:
            self._train.clear()
            self._yielded_s = now  # what was lost in the silence has been answered
            self._settle(0.5 * self.learned_rate_bps, now)
            self._probe.gain = RateProbe.MAX_GAIN
            self._probe.next_s = now
