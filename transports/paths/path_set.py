"""The paths of one connection: patience in the handshake, silence, probes, failure of one and of all, and sums."""

from collections.abc import Iterable, Sequence

from bicoastal.transports.base import Sample
from bicoastal.transports.paths.health import Belief, PathHealth
from bicoastal.wan.units import INFINITY


class PathSet:
    """The health of all paths of a connection, and what follows from one path for the others.

    Paths are named by their index in `healths`; all have one policy. unsettled: indices of paths for which `advance`
    is to be called, because not all that precedes their first message is done. failures: why a path has ended, by
    index. begun: the connection may carry messages. probe_at_s: when `due_probes` is to be called (inf: no probe).
    """

    def __init__(self, healths: Sequence[PathHealth]) -> None:
        self.healths = tuple(healths)
        self.unsettled = set(range(len(self.healths)))
        self.failures: dict[int, str] = {}
        self.begun = False
        self.probe_at_s = INFINITY
        self._policy = self.healths[0].policy
        self._waits_until_s = INFINITY
        self._others_probed = len(self.healths) == 1  # it has no others

    # -- the handshake ------------------------------------------------------------------------------------------------

    def advance(
        self,
        index: int,
        now: float,
        *,
        ready: bool,
        confirmed: bool,
        measured: bool = True,
        measured_by_s: float = -INFINITY,
        rtt_s: float | None = None,
    ) -> None:
        """Take note of how far a path has come.

        ready, confirmed, measured: as in `PathHealth`. measured_by_s: when it is measured at the latest. rtt_s: its
        round trip; once the first path is confirmed, all that are unsettled are probed so often. None: not yet.
        """
        health = self.healths[index]
        if ready and not health.ready:
            health.ready = True
            if not self.begun and self._waits_until_s == INFINITY:
                self._waits_until_s = now + self._policy.patience_s
        health.confirmed = health.confirmed or confirmed
        health.measured = measured
        health.measured_by_s = measured_by_s
        if ready and confirmed and measured:
            self._settle(index)
        if confirmed and rtt_s is not None:
            self.probe_others(now, rtt_s)

    def _settle(self, index: int) -> None:
        self.unsettled.discard(index)
        self.end_probing(index)

    def probe_others(self, now: float, interval_s: float) -> None:
        """Probe all paths that are not settled, every `interval_s`; a second call has no effect."""
        if self._others_probed:
            return
        self._others_probed = True
        for index in self.unsettled:
            if self.healths[index].belief is Belief.NEVER_HEARD:
                self.healths[index].since_s = now
            self.begin_probing(index, now, interval_s)

    @property
    def any_ready(self) -> bool:
        """Tell whether the handshake is over on any path."""
        return any(health.ready for health in self.healths)

    @property
    def none_up(self) -> bool:
        """Tell whether no path is believed to be up."""
        return not any(health.belief is Belief.UP for health in self.healths)

    def begins(self, now: float) -> bool:
        """Tell, once, that the connection may carry messages.

        That is when every path is open or has failed, or when one that is open has waited long enough for the others.
        Paths that are ready by then are still waited for until they are measured.
        """
        if self.begun:
            return False
        if not all(health.open or health.failed for health in self.healths):
            if now < self._waits_until_s:
                return False
            measuring = [h.measured_by_s for h in self.healths if h.ready and not h.measured and not h.failed]
            until_s = max(measuring, default=-INFINITY)
            if until_s > now:
                self._waits_until_s = until_s
                return False
        if not any(health.open for health in self.healths):
            if now >= self._waits_until_s:
                self._waits_until_s = INFINITY  # until the next path is ready
            return False
        self.begun = True
        return True

    @property
    def waits_until_s(self) -> float:
        """When `begins` is to be asked at the latest (inf: nothing is waited for)."""
        return INFINITY if self.begun else self._waits_until_s

    # -- silence and failure ------------------------------------------------------------------------------------------

    def on_heard(self, index: int, heard_s: float) -> Belief | None:
        """Take note that a path was last heard at `heard_s`; return the belief that this ends, None if none."""
        before = self.healths[index].on_heard(heard_s)
        if before is Belief.DOWN or (before is Belief.SUSPECT and self._policy.probing.of_suspects):
            self.end_probing(index)
        return before

    def overdue_at_s(self, index: int) -> float:
        """Return when `judge` is due for a path (inf: never)."""
        if not self._policy.evidence.suspects and not self._has_companion(index):
            return INFINITY
        return self.healths[index].overdue_at_s()

    def _has_companion(self, index: int) -> bool:
        healths = self.healths
        return any(health.usable and at != index for at, health in enumerate(healths))

    def judge(self, index: int, now: float) -> Belief | None:
        """Decide what the silence of a path means, and probe it if need be. See `PathHealth.judge`."""
        health, probing = self.healths[index], self._policy.probing
        witnessed = any(other.vouches_for(health, now) for other in self.healths if other is not health)
        belief = health.judge(now, witnessed=witnessed)
        if belief is Belief.DOWN or (belief is Belief.SUSPECT and probing.of_suspects):
            if not probing.at_once:
                self.begin_probing(index, now, (health.record.rtt.srtt_s or 0.0) + health.margin_s())
            elif health.probe_at_s == INFINITY:
                self.probe_from(index, now)
        return belief

    def fail(self, index: int, reason: str, now: float) -> bool:
        """Give up a path for good; tell whether that is the last one."""
        self.failures.setdefault(index, reason)
        self.healths[index].fall(now, for_good=True)
        self._settle(index)
        return len(self.failures) == len(self.healths)

    # -- probes -------------------------------------------------------------------------------------------------------

    def begin_probing(self, index: int, now: float, interval_s: float) -> None:
        """Probe a path every `interval_s`, a round trip of its own or of another path, from one interval on."""
        interval_s = max(interval_s, self._policy.probing.least_interval_s)
        self.healths[index].begin_probing(now + interval_s, interval_s)
        self._find_probe()

    def probe_from(self, index: int, first_at_s: float) -> None:
        """Probe a path from `first_at_s` on, at the intervals of the policy."""
        self.healths[index].begin_probing(first_at_s)
        self._find_probe()

    def end_probing(self, index: int) -> None:
        """Probe a path no more: it has answered, or its connection has ended."""
        health = self.healths[index]
        if health.probe_at_s < INFINITY or health.probes:
            health.end_probing()
            self._find_probe()

    def due_probes(self, now: float, *, idle: bool = False) -> list[int]:
        """Return the indices of the paths that are to be probed now. idle: nothing waits to be sent."""
        alone = self.none_up
        due = [
            index
            for index, health in enumerate(self.healths)
            if health.probe_at_s <= now and health.take_probe(now, alone=alone, idle=idle)
        ]
        self._find_probe()
        return due

    def _find_probe(self) -> None:
        self.probe_at_s = min(health.probe_at_s for health in self.healths)


def sum_samples(samples: Iterable[Sample]) -> Sample:
    """Return windows, bytes in flight and paces of all paths together, and the shortest round trip; None: unknown."""
    each = list(samples)

    def total(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    return Sample(
        cwnd_bytes=total(one.cwnd_bytes for one in each),
        in_flight_bytes=total(one.in_flight_bytes for one in each),
        pacing_rate_bps=total(one.pacing_rate_bps for one in each),
        srtt_s=min((one.srtt_s for one in each if one.srtt_s is not None), default=None),
    )
