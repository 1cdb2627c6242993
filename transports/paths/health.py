"""The health of one path: when an answer is overdue, what its silence means, and when to probe it.

`PathHealth` is a pure state machine. It is told what was heard and when; it reads round trips and sent packets from a
`PathRecord`; it answers when it is due next and what it believes of the path. It does no I/O and knows no wire format.
Everything in which the transports differ is a field of `HealthPolicy`; `multipath.health_policies` and
`paced.health_policy` hold the values.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from bicoastal.transports.recovery.rtt import RttEstimator
from bicoastal.wan.units import INFINITY

DEVIATIONS = 4  # of the round trip that count as its usual variation, RFC 6298 §2
MOST_GROWTHS = 32  # of the time between probes


class Belief(Enum):
    """What is believed of a path.

    NEVER_HEARD: nothing has arrived on it yet. UP: it answers. SUSPECT: an answer is late. DOWN: it carries nothing and
    is only probed.
    """

    NEVER_HEARD = "never heard"
    UP = "up"
    SUSPECT = "suspect"
    DOWN = "down"


class Witness(Enum):
    """Which other path shows that the silence of a path is its own, and not that of the far end or of all paths."""

    UP = "up"
    """One that is believed to be up."""

    HEARD_LATELY = "heard lately"
    """One that may carry data and was heard within the last eighth of the silent path's round trip."""

    HEARD_SINCE_DUE = "heard since due"
    """One that was heard after the answer of the silent path was due, and was not as late itself at its last answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """When an answer is late: a round trip and a margin after the first packet that awaits one.

    least_margin_s: the least margin, seconds.
    seen_share: the least margin as a share of the round trip. unseen_share: the same while nothing has been heard since
    that packet left, because then a queue may have grown that no sample shows.
    most_variation_rtts: the variation of the round trip adds no more than so many round trips to the margin.
    latest_counts: use the latest round trip where it is above the mean, which lags behind while a queue fills.
    assumed_rtt_s: the round trip before there is a sample; None: no answer is late before there is one.
    ack_delay_s: how long the far end holds an answer back; None: as long as the record says.
    skips_passed_over: packets that left more than a round trip before the path was last heard are lost, not awaited.
    hearing_extends: whatever is heard postpones the time at which the answer is late.
    most_doublings: the wait doubles with every late answer since the last sample, so many times at most.
    """

    least_margin_s: float
    seen_share: float = 0.0
    unseen_share: float = 0.0
    most_variation_rtts: float = INFINITY
    latest_counts: bool = False
    assumed_rtt_s: float | None = None
    ack_delay_s: float | None = None
    skips_passed_over: bool = False
    hearing_extends: bool = True
    most_doublings: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What late answers prove.

    witness: which other path confirms that this one is silent.
    late_packets: so many late packets are enough. few_packets, reports: so are fewer that left over the time of so many
    reports: all of them, or all reports on them, would have to be lost by chance.
    late_with_margin: a packet counts as late only after the margin; otherwise after the round trip and the report.
    waits_for_newest: conclude nothing from fewer packets while some are in flight that are not late yet.
    falls_alone: a second late answer takes a path down without a witness. Otherwise it is judged again later.
    hold_s, hold_lateness, hold_margins: until then, at least so many seconds, shares of the time since the answer was
    due, and margins.
    suspects: late packets that are not enough make a path suspect. Otherwise a path without a companion is not judged.
    """

    witness: Witness
    late_packets: float = INFINITY
    few_packets: int = 1
    reports: int = 0
    late_with_margin: bool = True
    waits_for_newest: bool = False
    falls_alone: bool = False
    hold_s: float = 0.0
    hold_lateness: float = 0.0
    hold_margins: float = 0.0
    suspects: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """When a path that does not answer is probed.

    least_interval_s, longest_interval_s, growth: between two probes, which grows by that factor with every probe.
    rtts, alone_rtts: the interval in the path's own round trips, the second where no path is up; None: the interval
    that is given when probing begins.
    quiet_rtts: a confirmed path that was heard within so many round trips is not probed; None: it always is.
    most_probes: in a row. idle_limit_s: while nothing waits to be sent, probing ends so long after the belief changed.
    at_once: the first probe leaves at once; otherwise after one interval. of_suspects: suspect paths are probed too.
    """

    least_interval_s: float
    longest_interval_s: float = INFINITY
    growth: float = 1.0
    rtts: float | None = None
    alone_rtts: float | None = None
    quiet_rtts: float | None = None
    most_probes: float = INFINITY
    idle_limit_s: float = INFINITY
    at_once: bool = False
    of_suspects: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthPolicy:
    """Everything in which transports differ about the health of a path.

    patience_s: how long the connection waits for other paths after the first one is ready.
    """

    lateness: Lateness
    evidence: Evidence
    probing: Probing
    patience_s: float


class PathRecord(Protocol):
    """What a transport keeps of the packets that it sent on one path. All times are seconds."""

    @property
    def rtt(self) -> RttEstimator:
        """Round trips of the path."""

    @property
    def latest_rtt_s(self) -> float:
        """The latest sample, 0 before the first."""

    @property
    def peer_ack_delay_s(self) -> float:
        """How long the far end may hold an answer back."""

    @property
    def oldest_in_flight_s(self) -> float | None:
        """When the oldest packet left that is in flight; None: there is none."""

    def awaited(self, after_s: float, until_s: float) -> tuple[int, float, float]:
        """Return how many packets in flight left after `after_s` and until `until_s`, and the first and last times."""


class PathHealth:
    """The health of one path.

    ready: its handshake is over. measured: all that precedes its first message is done. confirmed: both ends know that
    the handshake is over. failed: its connection has ended for good. since_s: when the belief last changed, or when it
    was last confirmed that an answer is late. heard_s: when something genuine last arrived. late_answers: in a row,
    since a round trip was measured. packet_s: how long a packet takes at the present pace. ahead_s: how long before its
    departure a packet is handed out. probe_at_s: when the next probe is due (inf: none). probes: sent since probing
    began.
    """

    __slots__ = (
        "_hold_until_s",
        "_interval_s",
        "ahead_s",
        "belief",
        "confirmed",
        "failed",
        "heard_s",
        "late_answers",
        "measured",
        "measured_by_s",
        "packet_s",
        "policy",
        "probe_at_s",
        "probes",
        "ready",
        "record",
        "since_s",
    )

    def __init__(self, policy: HealthPolicy, record: PathRecord) -> None:
        self.policy = policy
        self.record = record
        self.belief = Belief.NEVER_HEARD
        self.ready = self.measured = self.confirmed = self.failed = False
        self.measured_by_s = -INFINITY
        self.since_s = 0.0
        self.heard_s = -INFINITY
        self.late_answers = 0
        self.packet_s = self.ahead_s = 0.0
        self.probe_at_s = INFINITY
        self.probes = 0
        self._interval_s = 0.0
        self._hold_until_s = -INFINITY

    @property
    def open(self) -> bool:
        """Tell whether the path has come so far that it can carry data, whatever is believed of it now."""
        return self.ready and self.measured and not self.failed

    @property
    def usable(self) -> bool:
        """Tell whether the path may be given data: it is open and not down."""
        return self.ready and self.measured and self.belief is not Belief.DOWN

    # -- what is told -------------------------------------------------------------------------------------------------

    def on_heard(self, heard_s: float) -> Belief | None:
        """Take note that something genuine arrived at `heard_s`; return the belief that this ends, None if none."""
        self.heard_s = heard_s
        before = self.belief
        if before is Belief.UP or self.failed or (before is not Belief.NEVER_HEARD and heard_s < self.since_s):
            return None
        if heard_s == -INFINITY:
            return None
        self.belief = Belief.UP
        self.since_s = heard_s
        return before

    def on_round_trip(self) -> None:
        """Take note that a round trip has been measured: late answers before it count no more."""
        self.late_answers = 0

    def fall(self, now: float, *, for_good: bool = False) -> None:
        """Believe that the path is down. for_good: its connection has ended."""
        self.belief = Belief.DOWN
        self.since_s = now
        self.failed = self.failed or for_good

    # -- when an answer is late ---------------------------------------------------------------------------------------

    def overdue_at_s(self) -> float:
        """Return when an answer is late and `judge` is due (inf: none is awaited, or the path is down)."""
        record, lateness = self.record, self.policy.lateness
        first_s, srtt_s = record.oldest_in_flight_s, record.rtt.srtt_s
        if first_s is None or not self.ready or self.belief is Belief.DOWN or self.belief is Belief.NEVER_HEARD:
            return INFINITY
        if srtt_s is None and lateness.assumed_rtt_s is None:
            return INFINITY
        if lateness.skips_passed_over:
            count, first_s, _ = record.awaited(self.heard_s - self._rtt_s(), INFINITY)
            if not count:
                return INFINITY
        if lateness.hearing_extends:
            return max(self._due_s(first_s) + self.margin_s(), self._hold_until_s)
        wait_s = self._rtt_s() + self._ack_delay_s() + self.packet_s + self._doubt_s()
        if self.late_answers:
            wait_s *= 2.0 ** min(self.late_answers, lateness.most_doublings)
        return max((self.since_s if self.belief is Belief.SUSPECT else first_s) + wait_s, self._hold_until_s)

    def due_s(self) -> float:
        """Return when the next answer is due: that to the oldest packet, or the one after the last that was heard."""
        return self._due_s(self.record.oldest_in_flight_s or 0.0)

    def margin_s(self) -> float:
        """Return how much later than due an answer is late."""
        return self._ack_delay_s() + self.packet_s + self._doubt_s()

    def _due_s(self, first_s: float) -> float:
        rtt_s = self._rtt_s()
        if self.policy.lateness.latest_counts:
            rtt_s = max(rtt_s, self.record.latest_rtt_s)
        return max(first_s + rtt_s, self.heard_s)

    def _ack_delay_s(self) -> float:
        delay_s = self.policy.lateness.ack_delay_s
        return self.record.peer_ack_delay_s if delay_s is None else delay_s

    def _rtt_s(self) -> float:
        return self.record.rtt.srtt_s or self.policy.lateness.assumed_rtt_s or 0.0

    def _doubt_s(self) -> float:
        """Return the part of the margin that follows from the round trips."""
        lateness, rtt_s = self.policy.lateness, self._rtt_s()
        variation_s = DEVIATIONS * self.record.rtt.rttvar_s
        if lateness.most_variation_rtts < INFINITY:
            variation_s = min(variation_s, lateness.most_variation_rtts * rtt_s)
        share = lateness.seen_share
        if share != lateness.unseen_share and self.heard_s < (self.record.oldest_in_flight_s or 0.0):
            share = lateness.unseen_share
        return max(variation_s, share * rtt_s, lateness.least_margin_s)

    # -- what it means ------------------------------------------------------------------------------------------------

    def judge(self, now: float, *, witnessed: bool) -> Belief | None:
        """Decide what a late answer means; return the new belief, SUSPECT or DOWN, or None: judge again later.

        witnessed: another path shows that the silence is this path's own (see `vouches_for`).
        """
        evidence = self.policy.evidence
        enough, all_late = self._weigh(now)
        suspect = self.belief is Belief.SUSPECT
        if enough or all_late or not evidence.waits_for_newest:
            proven = enough or suspect
            if proven and (witnessed or (suspect and evidence.falls_alone)):
                self.late_answers += 1
                self.fall(now)
                return Belief.DOWN
            if evidence.falls_alone or not proven:
                self.late_answers += 1
                self.belief = Belief.SUSPECT
                self.since_s = now
                return Belief.SUSPECT
        lateness_s = evidence.hold_lateness * (now - self.due_s()) if evidence.hold_lateness else 0.0
        self._hold_until_s = now + max(evidence.hold_s, lateness_s, evidence.hold_margins * self.margin_s())
        return None

    def _weigh(self, now: float) -> tuple[bool, bool]:
        """Tell whether enough packets are late to conclude that the path is down, and whether all in flight are."""
        record, evidence = self.record, self.policy.evidence
        if evidence.late_packets <= 1:
            return True, False  # one is late, or there would be nothing to judge
        after_s = self.heard_s - self._rtt_s() if self.policy.lateness.skips_passed_over else -INFINITY
        until_s = now - self._rtt_s() - (self.margin_s() if evidence.late_with_margin else self._ack_delay_s())
        late, first_s, last_s = record.awaited(after_s, until_s)
        span_s = evidence.reports * (self._ack_delay_s() + self.ahead_s)
        enough = late >= evidence.late_packets or (late >= evidence.few_packets and last_s - first_s >= span_s)
        return enough, evidence.waits_for_newest and late == record.awaited(after_s, INFINITY)[0]

    def vouches_for(self, other: "PathHealth", now: float) -> bool:
        """Tell whether this path shows that the silence of `other` is its own (see `Witness`)."""
        witness = self.policy.evidence.witness
        if witness is Witness.UP:
            return self.belief is Belief.UP
        if witness is Witness.HEARD_LATELY:
            return self.usable and self.heard_s > now - other._rtt_s() / 8
        due_s = other.due_s()
        if not self.open or self.heard_s < due_s:
            return False
        # when all are late, bursts that meet on their way are the likelier cause
        lateness_s = max(self.record.latest_rtt_s - self._rtt_s(), 0.0)
        return now >= due_s + other.margin_s() + lateness_s

    # -- probes -------------------------------------------------------------------------------------------------------

    def begin_probing(self, first_at_s: float, interval_s: float = 0.0) -> None:
        """Let probes be due from `first_at_s` on. interval_s: between them, where the policy does not compute it."""
        self._interval_s = interval_s
        self.probes = 0
        self.probe_at_s = first_at_s

    def end_probing(self) -> None:
        """Let no probe be due any more."""
        self.probes = 0
        self.probe_at_s = INFINITY

    def take_probe(self, now: float, *, alone: bool, idle: bool) -> bool:
        """Tell whether the probe that is due is to be sent, and set the time of the next.

        alone: no path is up. idle: nothing waits to be sent or to be acknowledged.
        """
        probing, srtt_s = self.policy.probing, self.record.rtt.srtt_s
        if idle and now - self.since_s > probing.idle_limit_s:
            self.probe_at_s = INFINITY
            return False
        interval_s = self._interval_s
        if probing.quiet_rtts is not None and self.confirmed:
            next_s = self.heard_s + max(interval_s, probing.quiet_rtts * (srtt_s or 0.0))
            if next_s > now:
                self.probe_at_s = next_s
                return False
        rtts = probing.alone_rtts if alone else probing.rtts
        if rtts is not None:
            interval_s = max(rtts * self._rtt_s(), probing.least_interval_s)
        grown_s = interval_s * probing.growth ** min(self.probes, MOST_GROWTHS)
        self.probes += 1
        self.probe_at_s = now + min(grown_s, probing.longest_interval_s)
        if self.probes >= probing.most_probes:
            self.probe_at_s = INFINITY
        return True
