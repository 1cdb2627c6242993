"""Progressive filling, from event to event: all groups rise with one fair share until an edge is full.

Jain et al., SIGCOMM 2013, §4.3. The fair share jumps from one event to the next: an application is satisfied, which
flattens the function of its group, or an edge is full, which freezes every tunnel across it. Between events every load
is linear in the fair share, so no step size is involved and the number of events is at most edges + applications.

The fair share at which an edge will be full is computed only when this edge may be the next full one. Until then an
earlier slope gives a lower bound, because the slope of an edge only decreases until a group joins it.

Arithmetic is in binary64. Each edge has a load, which is updated only when its slope changes. A slope is summed again
before cancellation costs it too many digits. A load equals a capacity, and a bandwidth equals a demand, when they agree
within `TOLERANCE`, relative to their size. So events that coincide in exact arithmetic coincide here too. The error is
at most that share of a capacity or of a demand.
"""

from collections.abc import Callable, Collection, Iterator, Sequence, Set
from copy import copy
from itertools import pairwise
from math import fsum

from bicoastal.transports.b4.bandwidth import BandwidthFunction
from bicoastal.wan.units import INFINITY

TOLERANCE = 1e-9
"""Relative: far above the rounding of some thousand additions, far below any rate that matters."""

SAME_SHARE = 1e-12
"""Relative: a satisfied application comes before an edge that fills at the same fair share."""

DIGITS_KEPT = 1e-3
"""A slope is summed again when it has fallen to this share of itself: it has then lost three of sixteen digits."""

Usage = tuple[tuple[int, float], ...]
"""The edges that a group's traffic crosses, and how much of its traffic crosses each."""

Advance = Callable[[int, Set[int]], Usage | None]
"""Given a group and the full edges: the group's next usage, or None."""


class Filling:
    """One run of the filling. `advance` decides which tunnels a group takes, one after the other.

    capacities_bps: of the edges, by position. functions: of the groups. usages: the first usage of each group; None
    when it has no tunnel. advance: called when one of a group's present edges is full. full: edges that no group may
    use.
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
        """By group: the fair share at which it stopped, infinite when it is satisfied, None while it rises."""
        self.turns: list[tuple[float, ...]] = [()] * len(functions)
        """By group: the fair share at which each of its usages began."""
        self.bottlenecks: list[tuple[int, float]] = []
        """Edges that limited a group, with the fair share at which they were full, in that order."""
        self.stopped_by: Set[int] = frozenset()
        """The edges that were about to be full when `run` stopped before one of them; none at the end."""
        self._capacities = capacities_bps
        self._nearly = [capacity * (1 - TOLERANCE) for capacity in capacities_bps]
        self._functions = functions
        self._advance = advance
        self._usages: list[Usage] = [()] * len(functions)
        self._now = 0.0
        self._enough = [_enough(function) for function in functions]
        self._rising = [function.slopes_bps[0] for function in functions]  # present slopes of the groups
        self._full = set(full)
        self._limit = limit
        self._carrying = [0] * len(functions)
        edges = range(len(capacities_bps))
        self._members = [0] * len(edges)  # one bit for each group that rises on the edge
        self._loads = [0.0] * len(edges)
        self._slopes = [0.0] * len(edges)
        self._coarse = [0.0] * len(edges)  # a slope below this has lost too many digits
        self._settled_at = [0.0] * len(edges)
        self._not_before = [INFINITY] * len(edges)  # a fair share before which the edge is not nearly full
        self._soonest = INFINITY  # the least of them
        self._nearly_full: set[int] = set()  # edges that were nearly full when their last group stopped rising
        for group, usage in enumerate(usages):
            self._start(group, usage)
        breaks = [
            (share, group, slope_bps)
            for group, function in enumerate(functions)
            for share, slope_bps in zip(function.shares[1:], function.slopes_bps[1:], strict=True)
        ]
        self._breaks = [*sorted(breaks), (INFINITY, -1, 0.0)]
        self._next_break = 0
        self._expect(edges)

    def run(self, *, before: Collection[int] = ()) -> Iterator[list[float]]:
        """Fill to the end; yields the fair shares of the groups that stop, in ascending order, edge by edge.

        before: stop at the last event before one of these edges is full. `stopped_by` then has these edges. After that,
        `divert` may still change their traffic, and `run` continues.
        """
        breaks, fair_shares = self._breaks, self.fair_shares
        while True:
            share, group, slope_bps = breaks[self._next_break]
            if self._soonest < share:
                full_at, filled = self._next_full(share)
                if share > full_at * (1 + SAME_SHARE):
                    if not filled.isdisjoint(before):
                        self.stopped_by = filled
                        return
                    self._now = full_at
                    yield self._fill_up(full_at, filled)
                    continue
            if group < 0:
                self.stopped_by = frozenset()
                return
            self._next_break += 1
            self._now = max(self._now, share)
            if fair_shares[group] is None:
                self._flatten(share, group, slope_bps)

    def copy(self) -> "Filling":
        """Return an independent copy in the same state."""
        other = copy(self)
        other.fair_shares = self.fair_shares.copy()
        other.turns = self.turns.copy()
        other.bottlenecks = self.bottlenecks.copy()
        other._usages = self._usages.copy()
        other._rising = self._rising.copy()
        other._carrying = self._carrying.copy()
        other._full = self._full.copy()
        other._members = self._members.copy()
        other._loads = self._loads.copy()
        other._slopes = self._slopes.copy()
        other._coarse = self._coarse.copy()
        other._settled_at = self._settled_at.copy()
        other._not_before = self._not_before.copy()
        other._nearly_full = self._nearly_full.copy()
        return other

    @property
    def now(self) -> float:
        """The fair share of the last event."""
        return self._now

    def admits(self, group: int, usage: Usage) -> bool:
        """Return whether `divert` may still be called: the new usage would have changed no event so far."""
        full = self._full
        if any(edge in full for edge, _ in self._usages[group]):
            return False
        before = dict(self._usages[group])
        received = self._received(group)
        for edge, fraction in usage:
            if edge in full:
                return False
            load = self._loads[edge] + self._slopes[edge] * (self._now - self._settled_at[edge])
            load += (fraction - before.get(edge, 0.0)) * received
            if load >= self._nearly[edge]:
                return False
        return True

    def divert(self, group: int, usage: Usage) -> None:
        """Replace a group's usage, as if the new one had been its usage from the start.

        The group must be on its first usage, and none of the edges that this changes may be full. See `admits`.
        """
        rises = self.fair_shares[group] is None
        received, rising = self._received(group), self._rising[group]
        before, after = dict(self._usages[group]), dict(usage)
        changed = []
        for edge in {**before, **after}:
            fraction = after.get(edge, 0.0)
            more = fraction - before.get(edge, 0.0)
            if not more:
                continue
            changed.append(edge)
            self._settle(edge, self._now)
            self._loads[edge] += more * received
            if rises:
                self._slopes[edge] += more * rising
                if (edge in before) != (edge in after):
                    self._members[edge] ^= 1 << group
        self._usages[group] = usage
        self._expect(changed)

    def finish(self) -> "Filling":
        """Fill to the end and return the filling."""
        for _ in self.run():
            pass
        return self

    def rates_bps(self, group: int) -> list[float]:
        """Return the rates on the usages of a group that has stopped rising, bit/s, in their order."""
        function = self._functions[group]
        end = self.fair_shares[group]
        levels = [function.bps_at(share) for share in (*self.turns[group], INFINITY if end is None else end)]
        return [max(0.0, after - before) for before, after in pairwise(levels)]

    def _received(self, group: int) -> float:
        share = self.fair_shares[group]
        return self._functions[group].bps_at(self._now if share is None else share)

    def _start(self, group: int, usage: Usage | None) -> None:
        if self._functions[group].demand_bps == 0:
            self.fair_shares[group] = INFINITY
        elif usage is None:
            self.fair_shares[group] = 0.0
        else:
            self._join(group, usage, 0.0)

    def _next_full(self, limit: float) -> tuple[float, set[int]]:
        """Return the fair share at which the next edges will be full, and these edges; infinity from `limit` on."""
        not_before, nearly, slopes = self._not_before, self._nearly, self._slopes
        loads, settled_at = self._loads, self._settled_at
        while True:
            if self._soonest >= limit:
                return INFINITY, set()
            edge = not_before.index(self._soonest)
            if slopes[edge] > 0:
                nearly_at = settled_at[edge] + (nearly[edge] - loads[edge]) / slopes[edge]
                if nearly_at <= self._soonest:
                    break
                not_before[edge] = nearly_at
            else:
                self._expect_nothing(edge)
            self._soonest = min(not_before)
        latest = self._full_at(edge) * (1 + SAME_SHARE)
        near: dict[int, float] = {}
        while (bound := min(not_before)) <= latest:
            edge = not_before.index(bound)
            near[edge], not_before[edge] = bound, INFINITY
        for edge, bound in near.items():
            not_before[edge] = bound
        full_at, first = min((self._full_at(edge), edge) for edge in near)
        filled = {first}
        for edge in (*near, *self._nearly_full):
            if loads[edge] + slopes[edge] * (full_at - settled_at[edge]) >= nearly[edge]:
                filled.add(edge)
        return full_at, filled

    def _full_at(self, edge: int) -> float:
        slope, room_bps = self._slopes[edge], max(0.0, self._capacities[edge] - self._loads[edge])
        return self._settled_at[edge] + room_bps / slope if slope > 0 else INFINITY

    def _expect_nothing(self, edge: int) -> None:
        """Note that no group rises on an edge: unless it is full already, it will not be before a group joins it."""
        self._not_before[edge] = INFINITY
        if self._loads[edge] >= self._nearly[edge] and edge not in self._full:
            self._nearly_full.add(edge)

    def _flatten(self, share: float, group: int, slope_bps: float) -> None:
        """Continue with the next segment of a group's function, of this slope; after the last one it is satisfied."""
        loads, slopes, coarse, settled_at = self._loads, self._slopes, self._coarse, self._settled_at
        drop = self._rising[group] - slope_bps
        self._rising[group] = slope_bps
        if slope_bps == 0:
            self.fair_shares[group] = INFINITY
            members, bit = self._members, 1 << group
            for edge, _ in self._usages[group]:
                members[edge] ^= bit
        for edge, fraction in self._usages[group]:
            slope = slopes[edge]
            loads[edge] += slope * (share - settled_at[edge])
            settled_at[edge] = share
            slopes[edge] = slope = slope - fraction * drop
            if slope < coarse[edge]:
                self._sum_slope(edge)

    def _fill_up(self, share: float, filled: Set[int]) -> list[float]:
        """Close the edges that are full at this fair share and move the groups that crossed them.

        Returns the fair share once for each group that stopped.
        """
        members, slopes, loads, settled_at = self._members, self._slopes, self._loads, self._settled_at
        self._full |= filled
        self._nearly_full -= filled
        affected = 0
        for edge in sorted(filled):
            if members[edge]:
                self.bottlenecks.append((edge, share))
                affected |= members[edge]
        touched: set[int] = set()
        stuck = []
        for group in _bits_of(affected):
            rising, bit = self._rising[group], 1 << group
            for edge, fraction in self._usages[group]:
                if edge not in touched:
                    touched.add(edge)  # the same as `_settle`, repeated here to save time
                    loads[edge] += slopes[edge] * (share - settled_at[edge])
                    settled_at[edge] = share
                slopes[edge] -= fraction * rising
                members[edge] ^= bit
            if share >= self._enough[group]:
                self.fair_shares[group] = INFINITY
                continue
            usage = self._advance(group, self._full) if self._may_advance(group, share) else None
            if usage is None:
                self.fair_shares[group] = share
                stuck.append(share)
                continue
            for edge, _ in usage:
                if edge not in touched:
                    touched.add(edge)
                    self._settle(edge, share)
            self._join(group, usage, share)
        self._expect(touched | filled)
        return stuck

    def _may_advance(self, group: int, share: float) -> bool:
        """Count the tunnel that froze, if it carries traffic, and return whether the group may take another."""
        if self._limit is None:
            return True
        function = self._functions[group]
        reached = function.bps_at(share)
        self._carrying[group] += reached - function.bps_at(self.turns[group][-1]) > TOLERANCE * reached
        return self._carrying[group] < self._limit

    def _join(self, group: int, usage: Usage, share: float) -> None:
        self._usages[group] = usage
        self.turns[group] += (share,)
        rising, slopes, members, bit = self._rising[group], self._slopes, self._members, 1 << group
        for edge, fraction in usage:
            members[edge] |= bit
            slopes[edge] += fraction * rising

    def _settle(self, edge: int, share: float) -> None:
        self._loads[edge] += self._slopes[edge] * (share - self._settled_at[edge])
        self._settled_at[edge] = share

    def _sum_slope(self, edge: int) -> None:
        parts = [dict(self._usages[group])[edge] * self._rising[group] for group in _bits_of(self._members[edge])]
        total = fsum(parts)
        self._slopes[edge] = total
        self._coarse[edge] = total * DIGITS_KEPT

    def _expect(self, edges: Collection[int]) -> None:
        """Compute again when these edges, whose loads or members have changed, may be full."""
        slopes, coarse, not_before = self._slopes, self._coarse, self._not_before
        for edge in edges:
            slope = slopes[edge]
            if slope < coarse[edge]:
                self._sum_slope(edge)
                slope = slopes[edge]
            elif slope * DIGITS_KEPT > coarse[edge]:
                coarse[edge] = slope * DIGITS_KEPT
            if slope > 0:
                not_before[edge] = self._settled_at[edge] + (self._nearly[edge] - self._loads[edge]) / slope
            else:
                self._expect_nothing(edge)
        self._soonest = min(not_before)


def _enough(function: BandwidthFunction) -> float:
    """Return the fair share that satisfies a group, but for `TOLERANCE` of its demand.

    All its applications but one must be satisfied before, even those with small demands.
    """
    all_but_one = function.shares[-2] * (1 - SAME_SHARE) if len(function.shares) > 1 else 0.0
    return max(all_but_one, function.fair_share_at(function.demand_bps * (1 - TOLERANCE)))


def _bits_of(number: int) -> Iterator[int]:
    """Return the positions of the bits that are set, in ascending order."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
