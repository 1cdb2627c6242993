"""Quantisation of splits: tunnel groups in multiples of what a switch, or a sender's scheduler, can express.

Jain et al., SIGCOMM 2013, §4.3. The problem is an integer program; the paper is greedy and so is this. Each split is
rounded down, and each quantum left over goes to the tunnel that makes the allocation most max-min fair: the fair shares
of all flow groups, in ascending order, compared lexicographically.

What the paper leaves open is settled here, and reproduces its example (groups FG2, then FG1):
- Groups take their turn in ascending order of the fair share that they got unquantised.
- A candidate is judged by filling the network again: groups that had their turn keep to their quantised splits, the one
  at hand to the candidate, all others are free to use their tunnels as before.
- Candidates that are equally fair: the quantum goes where rounding took most away, then to the preferred tunnel.
"""

from collections import deque
from collections.abc import Collection, Sequence, Set
from math import floor, inf

from transports.b4.bandwidth import BandwidthFunction
from transports.b4.filling import TOLERANCE, Filling, Usage
from transports.b4.tunnels import Route, first_open
from wan.checks import check_positive

MOST_STAGES = 8
"""That are kept: each costs a change for every decision, and saves the filling up to it."""

SAME_FAIRNESS = 1e-9
"""Relative: fair shares closer than this are equal when two candidates are compared."""


def quanta_in_one(quantum: float) -> int:
    """Return how many quanta make the whole. Raises ValueError unless it is a whole number of them."""
    check_positive("quantum", quantum)
    quanta = round(1 / quantum)
    if quanta < 1 or abs(quanta * quantum - 1) > TOLERANCE:
        raise ValueError(f"quantum: {quantum!r} does not divide 1")
    return quanta


class Quantiser:
    """The greedy quantisation of all splits of one allocation.

    routes: the tunnels of each group that carry something unquantised, in the order in which they were filled.
    rates_bps: what each of them carries. fair_shares: of the groups, unquantised. full: edges that nothing may use.
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
        self._alone = {route: spread([route], [1.0]) for own in routes for route in own}
        usages = [spread(own[:1], [1.0]) if own else None for own in routes]
        self._stages = [Filling(capacities_bps, functions, usages, self._advance, full=full)]
        """Fillings that have got so far, in ascending order, with the splits that are decided as if from the start."""

    def _advance(self, moved: int, full: Set[int]) -> Usage | None:
        """Let the groups that have not had their turn go on to another tunnel."""
        if self._fixed[moved] or moved == self._at_hand:
            return None
        route = first_open(self._routes[moved], full)
        return None if route is None else self._alone[route]

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
        """Return the filling in which every group keeps to its split."""
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
            trunk = self._trunk(group, [(count + 1) / self._quanta for count in counts])
            candidates = []
            for tunnel in order:
                candidate = trunk.copy()
                split = [(count + (index == tunnel)) / self._quanta for index, count in enumerate(counts)]
                candidate.divert(group, spread(routes, split))
                candidates.append(candidate)
            counts[order[_fairest(candidates)]] += 1
        return [count / self._quanta for count in counts]

    def _trunk(self, group: int, most: Sequence[float]) -> Filling:
        """Return the filling up to where the group's split begins to matter, which all its candidates share.

        With each of the group's edges carrying the most that any candidate puts there, nothing differs between them
        until the first of these edges would be full. It goes on from the last stage at which that is still to come.
        """
        usage = tuple((edge, min(1.0, part)) for edge, part in spread(self._routes[group], most))
        self._drop_stages(group, usage)
        self._at_hand = group
        trunk = self._stages[-1].copy()
        trunk.divert(group, usage)
        for _ in trunk.run(before=[edge for edge, _ in usage]):
            pass
        if trunk.now > self._stages[-1].now:
            self._stages.append(trunk.copy())
            if len(self._stages) > MOST_STAGES:
                del self._stages[MOST_STAGES // 2]
        return trunk

    def _decide(self, group: int, usage: Usage) -> None:
        """Let every stage be as if the group had had this split from the start."""
        self._drop_stages(group, usage)
        for stage in self._stages:
            stage.divert(group, usage)

    def _drop_stages(self, group: int, usage: Usage) -> None:
        """Drop the stages that would not be what they are, did the group go this way; there is always a first one."""
        while not self._stages[-1].admits(group, usage):
            self._stages.pop()


def _fairest(candidates: Sequence[Filling]) -> int:
    """Return which filling is the most max-min fair; the first of several.

    They go on side by side, the one that is least far first. As the fair shares at which groups get stuck come in
    ascending order, the first that differs decides, and it is enough to know that all others are past it.
    """
    runners = [_Runner(index, candidate) for index, candidate in enumerate(candidates)]
    while len(runners) > 1:
        furthest = max(runner.at_least for runner in runners)
        if furthest == inf and all(runner.ended for runner in runners):
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
            min(behind, key=lambda runner: runner.at_least).step()
        elif all(runner.stuck_at for runner in runners):
            for runner in runners:
                runner.stuck_at.popleft()
    return runners[0].index


class _Runner:
    """A filling that others race. stuck_at: fair shares of groups that got stuck and were not compared yet."""

    __slots__ = ("_filling", "_run", "ended", "index", "stuck_at")

    def __init__(self, index: int, filling: Filling) -> None:
        self.index = index
        self.ended = False
        self.stuck_at: deque[float] = deque()
        self._filling = filling
        self._run = filling.run()

    @property
    def at_least(self) -> float:
        """The least fair share at which its next group can get stuck."""
        if self.stuck_at:
            return self.stuck_at[0]
        return inf if self.ended else self._filling.now

    def step(self) -> None:
        """Go on to the next full edge."""
        stuck = next(self._run, None)
        if stuck is None:
            self.ended = True
        else:
            self.stuck_at += stuck


def spread(routes: Sequence[Route], split: Sequence[float]) -> Usage:
    """Return how much of a group's traffic crosses each edge when it is split over routes."""
    if len(routes) == 1 and split[0] == 1.0:
        return tuple((edge, 1.0) for edge in routes[0])
    usage: dict[int, float] = {}
    for route, part in zip(routes, split, strict=True):
        if part > 0:
            for edge in route:
                usage[edge] = usage.get(edge, 0.0) + part
    return tuple(usage.items())
