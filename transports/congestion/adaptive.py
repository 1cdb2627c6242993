"""A controller for periodic bursts of known size: it starts each burst at the rate that the last one has shown.

What is known of a path stays from one burst to the next: the rate at which it delivers, its least round trip, and the
share of packets it loses without congestion. `modes` has the four modes and the table of transitions between them.

startup     No rate is known. `startup` has its slow start, which ends when the flights' dispersion shows the
            bottleneck's rate and the window covers it. Until then one loss reduces the window, and another soon after
            ends slow start. Idle time counts as for any TCP. A window that has lost twice is paced.
cruise      No other sender is seen. Packets are paced at the learned rate, under a window of little more than one BDP:
            even a shallow queue holds that. Short, small probes look for more rate. `cruise` has the rules.
compete     The queue stays occupied although the window would leave it empty, or it overflows: another sender is there.
            `competition` takes CUBIC's window (RFC 9438), with CUBIC's answer to congestion. One overflow may have
            been due to this sender alone: a round trip later it cruises again, at a little less. Another overflow soon
            after is due to a sender that grows as CUBIC does, and a learned rate would leave it too little. Then the
            mode stays, until the rate it cruised at before is regained, or the window has far outgrown the one that
            was too much.
silent      Acknowledgements have stopped. One packet is sent at a time until they return.

Loss is congestion in three cases: the queueing delay beside it is a good part of what a full queue showed; a round
loses far more than chance explains; no rate is known. All other losses are repaired and counted, without a reduction.
"""

from bicoastal.transports.congestion.base import Ack, CongestionControl, Limits, RepairTimeout
from bicoastal.transports.congestion.competition import FREE_ROUNDS, Competition
from bicoastal.transports.congestion.cruise import Cruise
from bicoastal.transports.congestion.cubic import BETA
from bicoastal.transports.congestion.measurement import Point, QueueDelay
from bicoastal.transports.congestion.modes import Action, Event, Mode, ModeMachine
from bicoastal.transports.congestion.repair_timing import RepairTiming
from bicoastal.transports.congestion.rounds import Rounds
from bicoastal.transports.congestion.startup import Startup
from bicoastal.transports.recovery.round_trips import RoundTrips
from bicoastal.wan.units import INFINITY

REPEATED_RTTS = 3  # between two losses before a rate is known: they are not due to chance
SHORT_PAUSE = 4  # round trips between two bursts that leave the path as it was
OCCUPIED_ROUNDS = 2  # in a row, until another sender counts as seen


class Adaptive(CongestionControl):
    """Congestion control at a learned rate. All its numbers are payload bytes, payload bit/s and seconds.

    headroom: by how much the window exceeds the learned BDP. startup: how it begins; None: `Startup`, for frequent
    acknowledgements. verify_probes: a rate that a probe has found counts as proven only after rounds without a queue;
    a queue before that brings back the proven rate. Acknowledgements that come in trains, or wait behind the data of
    the other direction, can make a probe show too much.
    """

    governs_recovery = True

    def __init__(
        self,
        *,
        mss_bytes: int,
        initial_window_segments: int = 10,
        headroom: float = 0.02,
        startup: Startup | None = None,
        verify_probes: bool = False,
    ) -> None:
        super().__init__(mss_bytes=mss_bytes, initial_window_segments=initial_window_segments)
        initial_window_bytes = self.initial_window_bytes
        self._modes = ModeMachine()
        self._queue = QueueDelay(self.rtt)
        self._rounds = Rounds()
        self._startup = startup or Startup(mss_bytes=mss_bytes)
        self._cruise = Cruise(
            mss_bytes=mss_bytes, initial_window_bytes=initial_window_bytes, headroom=headroom, queue=self._queue
        )
        self._competition = Competition(mss_bytes=mss_bytes, initial_window_bytes=initial_window_bytes)
        self._repairs = RepairTiming()
        self._verify_probes = verify_probes
        self._proven_bps: float | None = None  # the rate before unproven probes; None: the present rate is proven
        self._full_queue_s = 0.0  # the queueing delay at which the queue overflowed
        self._last_ack_s = -INFINITY
        self._before_silence_bps: float | None = None

    def follow(self, rtt: RoundTrips) -> None:
        """Read the round trips from `rtt` from now on."""
        super().follow(rtt)
        self._queue.rtt = rtt

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def mode(self) -> Mode:
        """The present mode."""
        return self._modes.mode

    @property
    def starting(self) -> bool:
        """Whether no rate is known yet."""
        return self.mode is Mode.STARTUP

    @property
    def learned_rate_bps(self) -> float | None:
        """The rate at which the path delivers; None until a burst has shown it."""
        return self._cruise.rate_bps

    @property
    def learned_loss(self) -> float:
        """The share of packets lost without congestion."""
        return self._cruise.loss

    def repair_timeout(self) -> RepairTimeout | None:
        """Return how late an acknowledgement may be; None in startup. `RepairTiming.timeout` has the rule."""
        if self.starting:
            return None
        competing = self.mode is Mode.COMPETE
        return self._repairs.timeout(self._queue, self._cruise.own_queue, self.learned_rate_bps, competing=competing)

    @property
    def _srtt_s(self) -> float:
        return self.rtt.steady.srtt_s or 0.0

    @property
    def _min_rtt_s(self) -> float:
        return self.rtt.min_rtt_s or 0.0

    @property
    def _limits(self) -> Limits:
        return Limits(self.cwnd_bytes, self.ssthresh_bytes, self.pacing_rate_bps)

    # -- transitions --------------------------------------------------------------------------------------------------

    def _set(self, limits: Limits) -> None:
        """Set the window and the pacing rate: here and nowhere else (but for the base's rule for idle time)."""
        self.cwnd_bytes, self.ssthresh_bytes, self.pacing_rate_bps = limits

    def _take(
        self,
        event: Event,
        now: float,
        *,
        rate_bps: float = 0.0,
        in_flight_bytes: int = 0,
        delivering_bps: float = 0.0,
        repeated: bool = False,
    ) -> None:
        """Change the mode by the table, and do the row's action.

        rate_bps: to cruise at. delivering_bps: the rate of delivery at a congestion (0: not known). repeated: the same
        happened soon before.
        """
        action = self._modes.take(event)
        if action is Action.SHRINK:
            self._set(self._startup.on_early_loss(self._limits, repeated=repeated))
        elif action is Action.RESTART:
            self._set(self._startup.on_timeout(self._limits, in_flight_bytes, first=not repeated))
        elif action is Action.WAIT:
            self._set(self._limits._replace(cwnd_bytes=float(self.mss_bytes)))
        elif action is Action.OPEN:
            self._cruise.start_probe(now, self._rounds.train.span_s)
            self._set(self._cruise.limits(now, self._limits))
        elif action in (Action.CRUISE, Action.LEAVE_STARTUP, Action.RESUME):
            if action is Action.LEAVE_STARTUP and self._startup.frequent_acks:
                self._repairs.wait_for_packets_after(now)
            self._cruise.begin(rate_bps, now)
            self._set(self._cruise.limits(now, self._limits))
            if action is Action.RESUME:
                self._cruise.probe_soon(now)
        else:
            self._compete(action, now, in_flight_bytes, delivering_bps, again=repeated)

    def _compete(self, action: Action, now: float, in_flight_bytes: int, delivering_bps: float, *, again: bool) -> None:
        competition, cruise = self._competition, self._cruise
        if action is not Action.REDUCE:
            self._proven_bps = None
            cruise.cancel_probe()
            competition.begin(self.cwnd_bytes, cruise.rate_bps or 0.0, self.rtt)
        if action is not Action.COMPETE:
            if action is Action.COMPETE_REDUCED:
                competition.begin_reduced(again=again)
            else:
                competition.contested = not competition.overflowed
            if cruise.rate_bps is not None:
                cruise.rate_bps = competition.reduced_rate_bps(cruise.rate_bps, delivering_bps)
            competition.reduce(now, in_flight_bytes)
        self._set(competition.limits(now, self._srtt_s, self._limits))

    # -- bursts -------------------------------------------------------------------------------------------------------

    def on_burst(self, now: float, burst_bytes: int) -> None:
        """Begin a burst at the rate that the last one has shown. In competition a short pause changes nothing."""
        self._rounds.train.clear()
        if now - self._last_ack_s >= SHORT_PAUSE * self._srtt_s:
            self._competition.forget()
        elif self.mode is Mode.COMPETE:
            return
        self._repairs.narrow()
        self._learn()
        self._cruise.begin_burst(burst_bytes)
        self.rtt.begin_burst()
        self._before_silence_bps = None
        self._rounds.begin_burst()
        self._queue.low_s = None
        if self.learned_rate_bps is not None and self.rtt.min_rtt_s is not None:
            self._take(Event.BURST, now)

    def _learn(self) -> None:
        """Take from the burst that is over what it has shown of the rate."""
        best_bps = self._rounds.best_bps
        if self.mode is Mode.STARTUP:
            self._cruise.rate_bps = self._startup.rate_bps
        elif self.mode is Mode.COMPETE:
            self._cruise.rate_bps = self._competition.learned_bps(best_bps, self._cruise.rate_bps)
        elif self.mode is Mode.CRUISE:
            self._cruise.correct(best_bps)

    def restart_after_idle(self, now: float, idle_s: float, rto_s: float, *, policy: str) -> None:
        """Change nothing once a rate is known: the first acknowledgements of the burst check it."""
        if self.starting and self._startup.frequent_acks:
            super().restart_after_idle(now, idle_s, rto_s, policy=policy)

    def take_rate(self, rate_bps: float | None) -> None:
        """Replace what startup has found by a rate that the far end has measured (None: it has found none).

        The next burst begins at it.
        """
        self._set(self._limits._replace(pacing_rate_bps=self._startup.take_rate(rate_bps)))

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    def on_ack(self, ack: Ack) -> None:
        """Take one acknowledgement."""
        now = self._last_ack_s = ack.now
        cruising_bps = self.learned_rate_bps if self.mode is Mode.CRUISE else None
        self._rounds.on_ack(now, ack.delivered_bytes)
        if ack.rtt_s is not None:
            self._queue.add(ack.rtt_s)
            self._rounds.train.span_s = self._min_rtt_s / 32
        if self.mode is Mode.SILENT:
            self._rounds.train.clear()
            self._competition.yielded_s = now  # the losses of the silence have been answered
            # at half the rate: the path may have changed
            self._take(Event.RESUMED, now, rate_bps=0.5 * (self.learned_rate_bps or 0.0))
        if ack.newest_sent_s is not None:
            self._measure(Point(now, self._rounds.delivered_bytes, ack.newest_sent_s), new_flight=ack.round_started)
        if ack.round_started:
            self._end_round(now)
        if self.mode is Mode.STARTUP:
            self._start_up(ack)
        elif self.mode is Mode.CRUISE:
            self._set(self._cruise.limits(now, self._limits))
        elif self.mode is Mode.COMPETE:
            self._competition.on_ack(ack)
            self._set(self._competition.limits(now, self._srtt_s, self._limits))
        if self._verify_probes:
            self._verify(cruising_bps, now)

    def _measure(self, point: Point, *, new_flight: bool) -> None:
        self._repairs.on_sent(point.sent_s)
        self._rounds.on_point(point)
        self._cruise.measure(point)
        if self.mode is Mode.STARTUP:
            self._startup.on_point(point, new_flight=new_flight, min_rtt_s=self._min_rtt_s)
        elif self.mode is Mode.CRUISE:
            self._cruise.judge_probe(point)

    def _start_up(self, ack: Ack) -> None:
        limits = self._startup.on_ack(
            ack,
            self._limits,
            delivered_bytes=self._rounds.delivered_bytes,
            min_rtt_s=self._min_rtt_s,
            srtt_s=self._srtt_s,
            best_bps=self._rounds.best_bps,
        )
        self._set(limits)
        if self._startup.finished and self._startup.rate_bps is not None:
            self._take(Event.RATE_FOUND, ack.now, rate_bps=self._startup.rate_bps)

    def _end_round(self, now: float) -> None:
        rounds, srtt_s = self._rounds, self._srtt_s
        occupied = self._cruise.own_queue.is_occupied(self.learned_rate_bps)
        rounds.count(occupied=occupied)
        if self.mode is Mode.COMPETE:
            rate_bps = self._competition.rate_when_over(
                now,
                free_rounds=rounds.free,
                srtt_s=srtt_s,
                learned_bps=self.learned_rate_bps or 0.0,
                average_bps=rounds.average_bps(now, srtt_s),
                cwnd_bytes=self.cwnd_bytes,
            )
            if rate_bps is not None:
                self._take(Event.QUEUE_DRAINED, now, rate_bps=rate_bps)
        elif self.mode is Mode.CRUISE and rounds.occupied >= OCCUPIED_ROUNDS:
            self._answer_standing_queue(now)
        if self.mode is Mode.CRUISE:
            self._cruise.end_round(now, rounds.current, occupied=occupied, train_span_s=rounds.train.span_s)
        rounds.end(now, srtt_s)
        self._queue.low_s = None

    # -- verification of probes ---------------------------------------------------------------------------------------

    def _verify(self, cruising_bps: float | None, now: float) -> None:
        """Keep a higher rate that this acknowledgement has brought until a queue refutes it; beside a queue, refuse it.

        cruising_bps: the rate before the acknowledgement, None if another mode was on.
        """
        if cruising_bps is not None and self.mode is Mode.CRUISE and (self.learned_rate_bps or 0.0) > cruising_bps:
            if self._queue.now_s <= self._cruise.own_queue.most_s:
                self._proven_bps = self._proven_bps or cruising_bps
                self._rounds.free = 0
            else:
                self._take(Event.PROBE_REFUTED, now, rate_bps=cruising_bps)
        elif self._rounds.free >= FREE_ROUNDS:
            self._proven_bps = None

    def _answer_standing_queue(self, now: float) -> None:
        """Return to the proven rate if an unproven one may have caused the queue; compete otherwise."""
        proven_bps, self._proven_bps = self._proven_bps, None
        if proven_bps is None:
            self._take(Event.QUEUE_STANDS, now)
        else:
            self._rounds.occupied = 0
            self._take(Event.PROBE_REFUTED, now, rate_bps=proven_bps)

    # -- loss and congestion ------------------------------------------------------------------------------------------

    def on_loss(self, now: float, lost_bytes: int, in_flight_bytes: int, sent_s: float) -> None:
        """Decide whether lost packets were due to congestion, and answer it."""
        this_round, competition, srtt_s = self._rounds.current, self._competition, self._srtt_s
        this_round.lost_bytes += lost_bytes
        heavy = this_round.lost_bytes > this_round.lost_by_chance_bytes(self.learned_loss, self.mss_bytes)
        own_s = 0.0 if self.mode is Mode.COMPETE else self._cruise.own_queue.filled_s(self.learned_rate_bps)
        full = self._queue.now_s > max(own_s, self._full_queue_s / 2)
        early = self.starting and self._startup.frequent_acks and self._startup.rate_bps is None
        congested = heavy or full or early
        rare = not congested and self.mode is not Mode.SILENT and now - competition.yielded_s > srtt_s
        self.duplicate_repair_after_s = max(0.001, srtt_s / 32) if rare else None
        if not congested or sent_s < competition.yielded_s:
            return
        again = competition.overflowed_lately(now, self.cwnd_bytes)
        repeated = now - competition.yielded_s < REPEATED_RTTS * srtt_s
        competition.note_congestion(now, self.cwnd_bytes, again=again and self.mode is Mode.CRUISE)
        if full:
            self._full_queue_s += (self._queue.now_s - self._full_queue_s) / (4 if self._full_queue_s else 1)
        if self.starting:
            self._answer_congestion_at_startup(now, repeated=repeated)
            return
        competition.note_overflow(now)
        delivering_bps = self._rounds.average_bps(now, srtt_s)
        if heavy and this_round.overloaded and delivering_bps and self.mode is not Mode.COMPETE:
            # What arrives is what the path has, unless another sender's overshoot takes a part of it for a moment.
            rate_bps = max(0.95 * delivering_bps, BETA * (self.learned_rate_bps or 0.0))
            self._take(Event.OVERLOAD, now, rate_bps=rate_bps)
            return
        self._take(
            Event.CONGESTION, now, in_flight_bytes=in_flight_bytes, delivering_bps=delivering_bps, repeated=again
        )

    def _answer_congestion_at_startup(self, now: float, *, repeated: bool) -> None:
        if self._startup.rate_bps:
            self._take(Event.CONGESTION, now, rate_bps=0.95 * self._startup.rate_bps)
        else:
            self._take(Event.EARLY_LOSS, now, repeated=repeated)

    def on_timeout(self, now: float, in_flight_bytes: int, *, first: bool) -> None:
        """Send one packet at a time until an acknowledgement arrives."""
        if self.mode in (Mode.CRUISE, Mode.COMPETE):
            self._before_silence_bps = self.learned_rate_bps
        self.duplicate_repair_after_s = None
        self._take(Event.TIMEOUT, now, in_flight_bytes=in_flight_bytes, repeated=not first)

    def on_congestion(self, now: float, in_flight_bytes: int) -> None:
        """Do nothing: `on_loss` has judged already, and the sender's episodes do not change this window."""

    def on_recovery_end(self, now: float) -> None:
        """Do nothing: no reduction has to end."""

    def undo(self) -> None:
        """Repairs were needless: wait longer for acknowledgements, and restore the rate from before a timeout."""
        self._repairs.widen()
        if self._before_silence_bps is not None:
            self._cruise.rate_bps, self._before_silence_bps = self._before_silence_bps, None
