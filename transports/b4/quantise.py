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

from collections.abc import Collection, Sequence
from itertools import chain
from math import floor, inf

from transports.b4.bandwidth import BandwidthFunction
from transports.b4.filling import TOLERANCE, Filling, Usage
from transports.b4.tunnels import Route, first_open
from wan.checks import check_positive

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
        self._usages: list[Usage | None] = [spread(own[:1], [1.0]) if own else None for own in routes]
        self._fixed = [len(own) < 2 for own in routes]

    def splits(self) -> list[list[float]]:
        """Return the quantised splits of every group; they sum to 1 unless the group has no tunnel."""
        quantised = [[1.0] * len(own) for own in self._routes]
        for group in sorted(range(len(self._routes)), key=lambda group: self._shares[group]):
            if len(self._routes[group]) > 1:
                quantised[group] = self._split(group)
                self._fixed[group] = True
                self._usages[group] = spread(self._routes[group], quantised[group])
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
        left = self._quanta - sum(counts)
        if left:
            trunk = self._trunk(group, [(count + left) / self._quanta for count in counts])
        for _ in range(left):
            order = sorted(range(len(counts)), key=lambda tunnel: (round(counts[tunnel] - wanted[tunnel], 9), tunnel))
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
        until the first of these edges would be full.
        """
        usages = self._usages.copy()
        own = tuple((edge, min(1.0, part)) for edge, part in spread(self._routes[group], most))
        usages[group] = own

        def advance(moved: int, full: Collection[int]) -> Usage | None:
            if self._fixed[moved] or moved == group:
                return None
            route = first_open(self._routes[moved], full)
            return None if route is None else spread([route], [1.0])

        trunk = Filling(self._capacities, self._functions, usages, advance, full=self._closed)
        for _ in trunk.run(before=[edge for edge, _ in own]):
            pass
        return trunk


def _fairest(candidates: Sequence[Filling]) -> int:
    """Return which filling is the most max-min fair; the first of several.

    They go on side by side, one stuck group at a time. As the fair shares come in ascending order, the first that
    differs decides, and the rest need not be computed.
    """
    runs = [(index, chain.from_iterable(candidate.run())) for index, candidate in enumerate(candidates)]
    best = 0.0
    while len(runs) > 1 and best < inf:
        heads = [next(run, inf) for _, run in runs]
        best = max(heads)
        runs = [
            run for run, head in zip(runs, heads, strict=True) if head == best or head >= best * (1 - SAME_FAIRNESS)
        ]
    return runs[0][0]


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
