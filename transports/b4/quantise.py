"""Quantisation of splits: tunnel groups in multiples of what a switch, or a sender's scheduler, can express.

Jain et al., SIGCOMM 2013, §4.3. The problem is an integer program; the paper is greedy and so is this. Each split is
rounded down, and each quantum left over goes to the tunnel that makes the allocation most max-min fair: the fair shares
of all flow groups, in ascending order, compared lexicographically.

The paper leaves some rules open. These reproduce its example (groups FG2, then FG1):
- Groups are quantised one after the other, in ascending order of their unquantised fair shares.
- For each candidate, the network is filled again. Groups that are quantised already keep their splits, the present one
  has the candidate's split, and all others use their tunnels as before.
- Of equally fair candidates, the quantum goes to the tunnel that lost most by rounding, then to the preferred tunnel.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from math import floor

from bicoastal.transports.b4.bandwidth import BandwidthFunction
from bicoastal.transports.b4.filling import TOLERANCE, Filling, Usage
from bicoastal.transports.b4.tunnels import Route
from bicoastal.wan.checks import FieldError, check_positive
from bicoastal.wan.units import INFINITY

MOST_STAGES = 8
"""How many stages are kept. Each must be changed with every decision, and saves the filling up to it."""

SAME_FAIRNESS = 1e-9
"""Relative: fair shares closer than this are equal when two candidates are compared."""


def quanta_in_one(quantum: float) -> int:
    """Return how many quanta make the whole. Raises FieldError unless it is a whole number of them."""
    check_positive("quantum", quantum)
    quanta = round(1 / quantum)
    if quanta < 1 or abs(quanta * quantum - 1) > TOLERANCE:
        raise FieldError("quantum", f"{quantum!r} does not divide 1")
    return quanta


class Quantiser:
    """The greedy quantisation of all splits of one allocation.

    routes: the tunnels of each group that carry traffic unquantised, in the order in which they were filled.
    rates_bps: of each of these tunnels. fair_shares: of the groups, unquantised. full: edges that no group may use.
    """

    def __init__(
        self,
        *,
        capacities_bps: Sequence[float],
        functions: Sequence[BandwidthFunction],
        routes: Sequence[Sequence[Route]],
        rates_bps: Sequence[Sequence[float]],
        fair_shares: Sequence[float],
        quanta: int,
        full: Collection[int],
    ) -> None:
        self._capacities = capacities_bps
        self._functions = functions
        self._routes = routes
        self._rates = rates_bps
        self._shares = fair_shares
        self._quanta = quanta
        self._closed = full
        self._fixed = [len(own) < 2 for own in routes]
        self._at_hand = -1
        self._alone = [[(route, spread([route], [1.0])) for route in own] for own in routes]
        usages = [spread(own[:1], [1.0]) if own else None for own in routes]
        self._stages = [Filling(capacities_bps, functions, usages, self._advance, full=full)]
        """Fillings that stopped at rising fair shares. All have the splits that are decided, from the start."""

    def _advance(self, moved: int, full: Set[int]) -> Usage | None:
        """Return the next usage of a group that is not quantised yet."""
        if self._fixed[moved] or moved == self._at_hand:
            return None
        return next((usage for route, usage in self._alone[moved] if full.isdisjoint(route)), None)

    def splits(self) -> list[list[float]]:
        """Return the quantised splits of every group; they sum to 1 unless the group has no tunnel."""
        quantised = [[1.0] * len(own) for own in self._routes]
        for group in sorted(range(len(self._routes)), key=lambda group: self._shares[group]):
            if len(self._routes[group]) > 1:
                quantised[group] = self._split(group)
                self._fixed[group] = True
                self._decide(group, spread(self._routes[group], quantised[group]))
        return quantised

    def fill(self, splits: Sequence[Sequence[float]]) -> Filling:
        """Return the filling in which every group has this split."""
        usages = [spread(routes, own) if routes else None for routes, own in zip(self._routes, splits, strict=True)]
        return Filling(
            self._capacities, self._functions, usages, lambda _group, _full: None, full=self._closed
        ).finish()

    def _split(self, group: int) -> list[float]:
        routes = self._routes[group]
        total = sum(self._rates[group])
        wanted = [self._quanta * rate / total for rate in self._rates[group]]
        counts = [floor(each + TOLERANCE) for each in wanted]  # §4.3: down-quantise
        for _ in range(self._quanta - sum(counts)):
            order = sorted(range(len(counts)), key=lambda tunnel: (round(counts[tunnel] - wanted[tunnel], 9), tunnel))
            usages = [
                spread(routes, [(count + (index == tunnel)) / self._quanta for index, count in enumerate(counts)])
                for tunnel in order
            ]
            counts[order[_fairest(self._trunk(group, _most_of(usages)), group, usages)]] += 1
        return [count / self._quanta for count in counts]

    def _trunk(self, group: int, most: Usage) -> Filling:
        """Return the part of the filling that is the same for all candidates of the group.

        Each of the group's edges carries the most that any candidate puts there. Until the first of these edges would
        be full, there is no difference between the candidates. The filling starts from the last stage before that.
        """
        self._drop_stages(group, most)
        self._at_hand = group
        trunk = self._stages[-1].copy()
        trunk.divert(group, most)
        for _ in trunk.run(before=[edge for edge, _ in most]):
            pass
        if trunk.now > self._stages[-1].now:
            self._stages.append(trunk.copy())
            if len(self._stages) > MOST_STAGES:
                del self._stages[MOST_STAGES // 2]
        return trunk

    def _decide(self, group: int, usage: Usage) -> None:
        """Give every stage the group's split, as if it had been there from the start."""
        self._drop_stages(group, usage)
        for stage in self._stages:
            stage.divert(group, usage)

    def _drop_stages(self, group: int, usage: Usage) -> None:
        """Drop the stages that this usage of the group would have changed. The first stage always remains."""
        while not self._stages[-1].admits(group, usage):
            self._stages.pop()


def _fairest(trunk: Filling, group: int, usages: Sequence[Usage]) -> int:
    """Return which usage of a group makes the filling the most max-min fair; the first of equally fair ones.

    The candidates are filled side by side, the one with the lowest fair share first. The fair shares at which groups
    stop come in ascending order, so the first one that differs decides.
    """
    runners = [_Runner(trunk, group, dict(enumerate(usages)))]
    while len(runners) > 1 or len(runners[0].candidates) > 1:
        furthest = max(runner.at_least for runner in runners)
        if furthest == INFINITY and all(runner.ended for runner in runners):
            break
        runners = [
            runner
            for runner in runners
            if not runner.stuck_at
            or runner.stuck_at[0] == furthest
            or runner.stuck_at[0] >= furthest * (1 - SAME_FAIRNESS)
        ]
        behind = [runner for runner in runners if not runner.stuck_at and not runner.ended]
        if behind:
            last = min(behind, key=lambda runner: runner.at_least)
            runners += last.catch_up(
                min((runner.at_least for runner in runners if runner is not last), default=INFINITY)
            )
        elif all(runner.stuck_at for runner in runners):
            for runner in runners:
                runner.stuck_at.popleft()
    return min(index for runner in runners for index in runner.candidates)


class _Runner:
    """The filling of one candidate, or of several between which there is no difference so far.

    With several, every edge carries the most that any of them puts there. They are separated before an edge would be
    full that they use differently. candidates: a group's usages, by number.
    stuck_at: fair shares at which groups stopped, and which were not compared yet.
    """

    __slots__ = ("_filling", "_group", "_most", "_run", "_unlike", "candidates", "ended", "stuck_at")

    def __init__(
        self, filling: Filling, group: int, candidates: Mapping[int, Usage], stuck_at: Iterable[float] = ()
    ) -> None:
        self.ended = False
        self.stuck_at = deque(stuck_at)
        self._filling = filling
        self._group = group
        self._represent(candidates)

    def _represent(self, candidates: Mapping[int, Usage]) -> None:
        self.candidates = candidates
        self._most = _most_of(candidates.values())
        alike = frozenset.intersection(*map(frozenset, candidates.values()))
        self._unlike = {edge for edge, part in self._most if (edge, part) not in alike}
        self._filling.divert(self._group, self._most)
        self._run = self._filling.run(before=self._unlike)

    @property
    def at_least(self) -> float:
        """The least fair share at which its next group can stop."""
        if self.stuck_at:
            return self.stuck_at[0]
        return INFINITY if self.ended else self._filling.now

    def catch_up(self, share: float) -> "list[_Runner]":
        """Continue to the next full edge, and further until a group stops or this fair share is passed.

        Returns the runners of candidates that are separated here.
        """
        for stuck in self._run:
            self.stuck_at += stuck
            if self.stuck_at or self._filling.now > share:
                return []
        if self._unlike.isdisjoint(self._filling.stopped_by):
            self.ended = True
            return []
        return [self._part(min(self._unlike & self._filling.stopped_by))]

    def _part(self, edge: int) -> "_Runner":
        """Keep the candidates that put the most on an edge, and return a runner of the others."""
        most = next(part for other, part in self._most if other == edge)
        kept = {index: usage for index, usage in self.candidates.items() if (edge, most) in usage}
        parting = {index: usage for index, usage in self.candidates.items() if index not in kept}
        other = _Runner(self._filling.copy(), self._group, parting, self.stuck_at)
        self._represent(kept)
        return other


def _most_of(usages: Iterable[Usage]) -> Usage:
    """Return the most that any of the usages puts on each edge."""
    most: dict[int, float] = {}
    for usage in usages:
        for edge, part in usage:
            if part > most.get(edge, 0.0):
                most[edge] = part
    return tuple(most.items())


def spread(routes: Sequence[Route], split: Sequence[float]) -> Usage:
    """Return the part of a group's traffic that crosses each edge when it is split over routes."""
    if len(routes) == 1 and split[0] == 1.0:
        return tuple((edge, 1.0) for edge in routes[0])
    usage: dict[int, float] = {}
    for route, part in zip(routes, split, strict=True):
        if part > 0:
            for edge in route:
                usage[edge] = usage.get(edge, 0.0) + part
    return tuple(usage.items())
