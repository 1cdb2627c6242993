"""Progressive filling, from event to event: all groups rise with one fair share until an edge is full.

Jain et al., SIGCOMM 2013, §4.3. The fair share jumps from one event to the next: an application is satisfied, which
flattens the function of its group, or an edge is full, which freezes every tunnel across it. Between events every load
is linear in the fair share, so no step size is involved and the number of events is at most edges + applications.

Arithmetic is in binary64. Loads are kept per edge and settled only when its slope changes; a slope is summed afresh
before cancellation can eat its digits. Two things count as equal within `TOLERANCE`, relative to their size: the load
and the capacity of an edge, and the bandwidth and the demand of a group. Events that coincide in exact arithmetic thus
coincide here too; what is lost by it is at most that share of a capacity or of a demand.
"""

from collections.abc import Callable, Collection, Iterator, Sequence, Set
from copy import copy
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import inf

from transports.b4.bandwidth import BandwidthFunction

TOLERANCE = 1e-9
"""Relative: far above the rounding of some thousand additions, far below any rate that matters."""

SAME_SHARE = 1e-12
"""Relative: a satisfied application comes before an edge that fills at the same fair share."""

Usage = tuple[tuple[int, float], ...]
"""The edges that a group's traffic crosses, and how much of its traffic crosses each."""

Advance = Callable[[int, Set[int]], Usage | None]
"""Given a group and the full edges: where its traffic goes on, if anywhere."""


class Filling:
    """One run of the filling. The owner decides which tunnels a group takes, one after the other.

    capacities_bps: of the edges, by position. functions: of the groups. usages: where each group starts; None when it
    has no way. advance: asked when one of a group's present edges is full. full: edges that nothing may use.
    limit: how many of a group's usages may carry traffic, at most; None for no limit.
    """

    def __init__(
        self,
        capacities_bps: Sequence[float],
        functions: Sequence[BandwidthFunction],
        usages: Sequence[Usage | None],
        advance: Advance,
        *,
        full: Collection[int] = (),
        limit: int | None = None,
    ) -> None:
        self.fair_shares: list[float | None] = [None] * len(functions)
        """By group: where it got stuck, infinite when it is satisfied, None while it rises."""
        self.turns: list[list[float]] = [[] for _ in functions]
        """By group: the fair share at which each of its usages began."""
        self.bottlenecks: list[tuple[int, float]] = []
        """Edges that stopped a group, with the fair share at which they were full, in that order."""
        self._capacities = capacities_bps
        self._nearly = [capacity * (1 - TOLERANCE) for capacity in capacities_bps]
        self._functions = functions
        self._advance = advance
        self._usages: list[Usage] = [()] * len(functions)
        self._now = 0.0
        self._segments = [0] * len(functions)
        self._rising = [function.slopes_bps[0] for function in functions]  # slopes of the groups where they stand
        self._full = set(full)
        self._limit = limit
        self._carrying = [0] * len(functions)
        edges = range(len(capacities_bps))
        self._members: list[dict[int, float]] = [{} for _ in edges]
        self._loads = [0.0] * len(edges)
        self._slopes = [0.0] * len(edges)
        self._peaks = [0.0] * len(edges)  # the slope when it was last summed afresh
        self._settled_at = [0.0] * len(edges)
        self._versions = [0] * len(edges)
        self._fills: list[tuple[float, int, int]] = []  # fair share, edge, version
        self._breaks: list[tuple[float, int]] = []  # fair share, group
        for group, usage in enumerate(usages):
            self._start(group, usage)
        heapify(self._breaks)
        for edge in edges:
            if self._members[edge]:
                self._sum_slope(edge)
                self._predict(edge)

    def run(self, *, before: Collection[int] = ()) -> Iterator[list[float]]:
        """Fill to the end; yields the fair shares of the groups that get stuck, in ascending order, edge by edge.

        before: stop at the last event before one of these edges is full; then `divert` may still change what is on
        them, and `run` goes on.
        """
        while True:
            while self._fills and self._fills[0][2] != self._versions[self._fills[0][1]]:
                heappop(self._fills)
            full_at = self._fills[0][0] if self._fills else inf
            if self._breaks and self._breaks[0][0] <= full_at * (1 + SAME_SHARE):
                share, group = heappop(self._breaks)
                self._now = max(self._now, share)
                self._flatten(share, group)
            elif self._fills:
                if before and any(self._is_full(edge, full_at) for edge in before):
                    return
                self._now = full_at
                yield self._fill_up(full_at)
            else:
                return

    def copy(self) -> "Filling":
        """Return a filling that stands where this one does and goes on without it."""
        other = copy(self)
        other.fair_shares = self.fair_shares.copy()
        other.turns = [own.copy() for own in self.turns]
        other.bottlenecks = self.bottlenecks.copy()
        other._usages = self._usages.copy()
        other._segments = self._segments.copy()
        other._rising = self._rising.copy()
        other._carrying = self._carrying.copy()
        other._full = self._full.copy()
        other._members = [own.copy() for own in self._members]
        other._loads = self._loads.copy()
        other._slopes = self._slopes.copy()
        other._peaks = self._peaks.copy()
        other._settled_at = self._settled_at.copy()
        other._versions = self._versions.copy()
        other._fills = self._fills.copy()
        other._breaks = self._breaks.copy()
        return other

    @property
    def now(self) -> float:
        """The fair share of the last event."""
        return self._now

    def admits(self, group: int, usage: Usage) -> bool:
        """Tell whether `divert` may still be called: nothing would have happened otherwise so far."""
        full = self._full
        if any(edge in full for edge, _ in self._usages[group]):
            return False
        before = dict(self._usages[group])
        received = self._functions[group].bps_at(self._now)
        for edge, fraction in usage:
            if edge in full:
                return False
            load = self._loads[edge] + self._slopes[edge] * (self._now - self._settled_at[edge])
            load += (fraction - before.get(edge, 0.0)) * received
            if load >= self._nearly[edge]:
                return False
        return True

    def divert(self, group: int, usage: Usage) -> None:
        """Send a group's traffic another way, as if it had gone there from the start.

        For a group on its first usage, none of whose edges, old or new, is full; see `admits`.
        """
        rises = self.fair_shares[group] is None
        received = self._functions[group].bps_at(self._now)
        for sign, edges in ((-1, self._usages[group]), (1, usage)):
            for edge, fraction in edges:
                self._settle(edge, self._now)
                self._loads[edge] += sign * fraction * received
                if rises and sign < 0:
                    del self._members[edge][group]
                elif rises:
                    self._members[edge][group] = fraction
        for edge in {edge for edge, _ in (*self._usages[group], *usage)}:
            self._sum_slope(edge)
            self._predict(edge)
        self._usages[group] = usage

    def finish(self) -> "Filling":
        """Fill to the end and return the filling."""
        for _ in self.run():
            pass
        return self

    def rates_bps(self, group: int) -> list[float]:
        """Return what each usage of a group that rises no more received, bit/s, in their order."""
        function = self._functions[group]
        end = self.fair_shares[group]
        levels = [function.bps_at(share) for share in (*self.turns[group], inf if end is None else end)]
        return [max(0.0, after - before) for before, after in pairwise(levels)]

    def _start(self, group: int, usage: Usage | None) -> None:
        function = self._functions[group]
        if function.demand_bps == 0:
            self.fair_shares[group] = inf
        elif usage is None:
            self.fair_shares[group] = 0.0
        else:
            self._join(group, usage, 0.0)
            self._await_break(group)

    def _await_break(self, group: int) -> None:
        shares = self._functions[group].shares
        following = self._segments[group] + 1
        if following < len(shares):
            heappush(self._breaks, (shares[following], group))

    def _flatten(self, share: float, group: int) -> None:
        """Go on to the next segment of a group's function; after the last one it is satisfied."""
        if self.fair_shares[group] is not None:
            return  # it got stuck before
        before = self._rising[group]
        self._segments[group] += 1
        after = self._rising[group] = self._functions[group].slopes_bps[self._segments[group]]
        if after == 0:
            self.fair_shares[group] = inf
        for edge, fraction in self._usages[group]:
            self._settle(edge, share)
            if after == 0:
                del self._members[edge][group]
            self._slopes[edge] -= fraction * (before - after)
            if not self._members[edge] or self._slopes[edge] < self._peaks[edge] / 2:
                self._sum_slope(edge)
            self._predict(edge)
        self._await_break(group)

    def _fill_up(self, share: float) -> list[float]:
        """Close the edges that are full at this fair share and move the groups that crossed them.

        Returns the fair share once for each group that got stuck.
        """
        affected: set[int] = set()
        loads, slopes, settled_at, fills_first = self._loads, self._slopes, self._settled_at, self._fills[0][1]
        for edge, nearly in enumerate(self._nearly):
            load = loads[edge] + slopes[edge] * (share - settled_at[edge])  # as `_is_full` has it; most time goes here
            if (load < nearly and edge != fills_first) or edge in self._full:
                continue
            self._full.add(edge)
            if self._members[edge]:
                self.bottlenecks.append((edge, share))
                affected.update(self._members[edge])
        touched: set[int] = set()
        stuck = []
        for group in sorted(affected):
            for edge, _ in self._usages[group]:
                if edge not in touched:
                    self._settle(edge, share)
                    touched.add(edge)
                del self._members[edge][group]
            if self._is_satisfied(group, share):
                self.fair_shares[group] = inf
                continue
            usage = self._advance(group, self._full) if self._may_advance(group, share) else None
            if usage is None:
                self.fair_shares[group] = share
                stuck.append(share)
                continue
            for edge, _ in usage:
                if edge not in touched:
                    self._settle(edge, share)
                    touched.add(edge)
            self._join(group, usage, share)
        for edge in touched:
            self._sum_slope(edge)
            self._predict(edge)
        return stuck

    def _is_satisfied(self, group: int, share: float) -> bool:
        function = self._functions[group]
        if self._segments[group] < len(function.shares) - 2:
            return False  # another application's demand is still to be met
        return function.bps_at(share) >= function.demand_bps * (1 - TOLERANCE)

    def _may_advance(self, group: int, share: float) -> bool:
        """Count the tunnel that froze, if it carries anything, and tell whether the group may have another."""
        if self._limit is None:
            return True
        function = self._functions[group]
        reached = function.bps_at(share)
        self._carrying[group] += reached - function.bps_at(self.turns[group][-1]) > TOLERANCE * reached
        return self._carrying[group] < self._limit

    def _join(self, group: int, usage: Usage, share: float) -> None:
        self._usages[group] = usage
        self.turns[group].append(share)
        for edge, fraction in usage:
            self._members[edge][group] = fraction

    def _is_full(self, edge: int, share: float) -> bool:
        """Tell whether an edge is full at the fair share of the next event, which lies at the head of `_fills`."""
        load = self._loads[edge] + self._slopes[edge] * (share - self._settled_at[edge])
        return load >= self._nearly[edge] or self._fills[0][1] == edge

    def _settle(self, edge: int, share: float) -> None:
        self._loads[edge] += self._slopes[edge] * (share - self._settled_at[edge])
        self._settled_at[edge] = share

    def _sum_slope(self, edge: int) -> None:
        rising = self._rising
        total = sum([fraction * rising[group] for group, fraction in self._members[edge].items()])
        self._slopes[edge] = self._peaks[edge] = total

    def _predict(self, edge: int) -> None:
        """Note when the edge will be full as things stand; the version makes earlier notes void."""
        self._versions[edge] += 1
        slope = self._slopes[edge]
        if slope > 0:
            room = max(0.0, self._capacities[edge] - self._loads[edge])
            heappush(self._fills, (self._settled_at[edge] + room / slope, edge, self._versions[edge]))
