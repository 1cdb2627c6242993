"""What tests and the benchmark hold the allocator against: linear programs and exact rational filling.

Nothing here shares code with the allocator: the program knows edges, demands and weights only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor, inf

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array, vstack

SLACK = 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class Appetite:
    """One application: the commodity it belongs to, its weight and its demand."""

    commodity: int
    weight: float
    demand: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """A linear description of what can be carried: `flows @ columns` within capacities, and how flows make commodities.

    capacity_rows @ x <= capacities; balance_rows @ x == supplies @ carried, with one column of `supplies` a commodity.
    """

    capacity_rows: csr_array
    capacities: np.ndarray
    balance_rows: csr_array
    supplies: csr_array


def routing_on_paths(capacities: Sequence[float], paths: Sequence[Sequence[Sequence[int]]]) -> Routing:
    """Return the routing in which each commodity may use its own paths only."""
    columns = [(commodity, path) for commodity, own in enumerate(paths) for path in own]
    crossings = [(edge, column) for column, (_, path) in enumerate(columns) for edge in path]
    capacity_rows = coo_array(
        (np.ones(len(crossings)), ([edge for edge, _ in crossings], [column for _, column in crossings])),
        shape=(len(capacities), len(columns)),
    ).tocsr()
    balance_rows = coo_array(
        (np.ones(len(columns)), ([commodity for commodity, _ in columns], range(len(columns)))),
        shape=(len(paths), len(columns)),
    ).tocsr()
    supplies = coo_array((np.ones(len(paths)), (range(len(paths)), range(len(paths)))), shape=(len(paths),) * 2)
    return Routing(
        capacity_rows=capacity_rows,
        capacities=np.array(capacities),
        balance_rows=balance_rows,
        supplies=supplies.tocsr(),
    )


def routing_anywhere(
    sites: Sequence[str],
    edges: Sequence[tuple[str, str]],
    capacities: Sequence[float],
    commodities: Sequence[tuple[str, str]],
) -> Routing:
    """Return the routing over every path there is: flow conservation, commodities of one source merged."""
    sources = sorted({source for source, _ in commodities})
    place = {(source, site): row for row, (source, site) in enumerate((a, b) for a in sources for b in sites)}
    rows: list[tuple[int, int, float]] = []
    for at, source in enumerate(sources):
        for edge, (tail, head) in enumerate(edges):
            column = at * len(edges) + edge
            rows += [(place[source, head], column, 1.0), (place[source, tail], column, -1.0)]
    supplies: list[tuple[int, int, float]] = []
    for commodity, (source, destination) in enumerate(commodities):
        supplies += [(place[source, destination], commodity, 1.0), (place[source, source], commodity, -1.0)]
    width = len(sources) * len(edges)
    return Routing(
        capacity_rows=csr_array(np.hstack([np.eye(len(edges))] * len(sources))),
        capacities=np.array(capacities),
        balance_rows=_sparse(rows, (len(place), width)),
        supplies=_sparse(supplies, (len(place), len(commodities))),
    )


def max_min(routing: Routing, appetites: Sequence[Appetite]) -> np.ndarray:
    """Return the max-min fair rate of each application, by weight, from a sequence of linear programs.

    Each program raises the common fair share of all that still rise. Then whoever reached its demand stays there, and
    so does whoever cannot go further: its row has a positive price.
    """
    weights = np.array([each.weight for each in appetites])
    demands = np.array([each.demand for each in appetites])
    settled = np.where(demands > 0, np.nan, 0.0)
    while np.isnan(settled).any():
        rising = np.isnan(settled)
        # variables: flows, one rate for each application, the fair share
        share, prices = _raise(routing, appetites, weights, demands, settled)
        met = rising & (weights * share >= demands * (1 - SLACK))
        stuck = rising & ~met & (prices > 1e-9 * max(prices.max(), 1e-300))
        if not (met | stuck).any():
            raise RuntimeError("the linear program ended without a reason")
        settled[met] = demands[met]
        settled[stuck] = weights[stuck] * share
    return settled


def most_throughput(routing: Routing, appetites: Sequence[Appetite], at_least: np.ndarray | None = None) -> float:
    """Return the largest total that can be carried when each application gets between `at_least` and its demand."""
    flows = routing.capacity_rows.shape[1]
    count = len(appetites)
    least = np.zeros(count) if at_least is None else at_least * (1 - SLACK)
    answer = linprog(
        np.concatenate([np.zeros(flows), -np.ones(count)]),
        A_ub=_widen(routing.capacity_rows, count),
        b_ub=routing.capacities,
        A_eq=_balance(routing, appetites),
        b_eq=np.zeros(routing.balance_rows.shape[0]),
        bounds=[(0, None)] * flows + [(low, each.demand) for low, each in zip(least, appetites, strict=True)],
    )
    if answer.status != 0:
        raise RuntimeError(answer.message)
    return float(-answer.fun)


def _raise(
    routing: Routing, appetites: Sequence[Appetite], weights: np.ndarray, demands: np.ndarray, settled: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the largest common fair share, and for each application what a little less for it would be worth."""
    flows = routing.capacity_rows.shape[1]
    count = len(appetites)
    rising = np.flatnonzero(np.isnan(settled))
    rows = [(row, flows + app, -1.0) for row, app in enumerate(rising)]
    rows += [(row, flows + count, float(weights[app])) for row, app in enumerate(rising)]
    bounds: list[tuple[float, float | None]] = [(0, None)] * flows
    bounds += [(0, None) if np.isnan(rate) else (rate * (1 - 1e-10), rate) for rate in settled]
    bounds += [(0, float((demands[rising] / weights[rising]).min()))]
    answer = linprog(
        np.concatenate([np.zeros(flows + count), [-1.0]]),
        A_ub=vstack([_widen(routing.capacity_rows, count + 1), _sparse(rows, (len(rising), flows + count + 1))]),
        b_ub=np.concatenate([routing.capacities, np.zeros(len(rising))]),
        A_eq=_widen(_balance(routing, appetites), 1),
        b_eq=np.zeros(routing.balance_rows.shape[0]),
        bounds=bounds,
    )
    if answer.status != 0:
        raise RuntimeError(answer.message)
    prices = np.zeros(count)
    prices[rising] = -answer.ineqlin.marginals[len(routing.capacities) :]
    return float(answer.x[-1]), prices * weights


def _balance(routing: Routing, appetites: Sequence[Appetite]) -> csr_array:
    member = _sparse(
        [(each.commodity, app, 1.0) for app, each in enumerate(appetites)], (routing.supplies.shape[1], len(appetites))
    )
    return csr_array(np.hstack([routing.balance_rows.toarray(), -(routing.supplies @ member).toarray()]))


def _widen(rows: csr_array, by: int) -> csr_array:
    return csr_array((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], rows.shape[1] + by))


def _sparse(entries: Sequence[tuple[int, int, float]], shape: tuple[int, int]) -> csr_array:
    rows, columns, values = zip(*entries, strict=True) if entries else ((), (), ())
    return coo_array((values, (rows, columns)), shape=shape).tocsr()


Way = Mapping[int, Fraction]
"""How much of a group's traffic crosses each edge."""


def simple_paths(edges: Sequence[tuple[str, str, int]], source: str, destination: str) -> list[tuple[int, ...]]:
    """Return every loop-free path by brute force, as edge positions, by (cost, hops, positions)."""
    found: list[tuple[int, ...]] = []

    def walk(site: str, path: tuple[int, ...], seen: frozenset[str]) -> None:
        if site == destination:
            found.append(path)
            return
        for index, (tail, head, _) in enumerate(edges):
            if tail == site and head not in seen:
                walk(head, (*path, index), seen | {head})

    walk(source, (), frozenset({source}))
    return sorted(found, key=lambda path: (sum(edges[index][2] for index in path), len(path), path))


@dataclass(frozen=True, slots=True)
class ExactFilling:
    """By group: what each way carries, and the fair share, None when it is satisfied."""

    rates: list[dict[int, Fraction]]
    shares: list[Fraction | None]


def fill_exactly(
    capacities: Sequence[Fraction],
    groups: Sequence[Sequence[tuple[Fraction, Fraction]]],
    ways: Sequence[Sequence[Way]],
) -> ExactFilling:
    """Fill in rational arithmetic. A group is its applications' (weight, demand); it takes its first open way.

    A stage ends at the least fair share at which the load of some edge, a piecewise linear function, is its capacity.
    """

    def bandwidth(group: int, share: Fraction) -> Fraction:
        return sum((min(weight * share, demand) for weight, demand in groups[group]), Fraction(0))

    def demand(group: int) -> Fraction:
        return sum((demand for _, demand in groups[group]), Fraction(0))

    rates: list[dict[int, Fraction]] = [{} for _ in groups]
    shares: list[Fraction | None] = [None] * len(groups)
    settled = [Fraction(0)] * len(capacities)
    full = {edge for edge, capacity in enumerate(capacities) if capacity == 0}
    share = Fraction(0)
    at: dict[int, int] = {}

    def next_way(group: int) -> int | None:
        return next((index for index, way in enumerate(ways[group]) if not full & set(way)), None)

    for group in range(len(groups)):
        if demand(group) > 0:
            first = next_way(group)
            if first is None:
                shares[group] = share
            else:
                at[group] = first

    def load(edge: int, level: Fraction, since: Fraction) -> Fraction:
        rising = (
            ways[group][way].get(edge, Fraction(0)) * (bandwidth(group, level) - bandwidth(group, since))
            for group, way in at.items()
        )
        return settled[edge] + sum(rising, Fraction(0))

    while at:
        levels = sorted({d / w for group in at for w, d in groups[group] if d / w > share})
        ends = []
        for edge, capacity in enumerate(capacities):
            if edge in full:
                continue
            low = share
            for high in levels:
                if load(edge, high, share) >= capacity and load(edge, high, share) > load(edge, low, share):
                    before, after = load(edge, low, share), load(edge, high, share)
                    ends.append(low + (capacity - before) * (high - low) / (after - before))
                    break
                low = high
        end = min(ends, default=levels[-1] if levels else share)
        loads = [load(edge, end, share) for edge in range(len(capacities))]
        for group, way in at.items():
            rates[group][way] = rates[group].get(way, Fraction(0)) + bandwidth(group, end) - bandwidth(group, share)
        settled, share = loads, end
        full |= {edge for edge, capacity in enumerate(capacities) if loads[edge] == capacity}
        for group in list(at):
            if bandwidth(group, share) == demand(group):
                del at[group]
            elif full & set(ways[group][at[group]]):
                following = next_way(group)
                if following is None:
                    del at[group]
                    shares[group] = share
                else:
                    at[group] = following
    return ExactFilling([{way: rate for way, rate in own.items() if rate} for own in rates], shares)


def quantise_exactly(
    capacities: Sequence[Fraction],
    groups: Sequence[Sequence[tuple[Fraction, Fraction]]],
    paths: Sequence[Sequence[tuple[int, ...]]],
    quanta: int,
) -> list[list[Fraction]]:
    """Quantise greedily as the paper says, judging every candidate by an exact filling from the start."""
    ways: list[list[Way]] = [[dict.fromkeys(path, Fraction(1)) for path in own] for own in paths]
    exact = fill_exactly(capacities, groups, ways)
    used = [[paths[group][way] for way in own] for group, own in enumerate(exact.rates)]
    free: list[list[Way]] = [[dict.fromkeys(path, Fraction(1)) for path in own] for own in used]
    splits = [[Fraction(1)] * len(own) for own in used]

    def spread(group: int, counts: Sequence[int]) -> Way:
        way: dict[int, Fraction] = {}
        for path, count in zip(used[group], counts, strict=True):
            for edge in path if count else ():
                way[edge] = way.get(edge, Fraction(0)) + Fraction(count, quanta)
        return way

    def fairness(group: int, counts: Sequence[int]) -> list[float | Fraction]:
        trial = [[spread(group, counts)] if index == group else own for index, own in enumerate(free)]
        return sorted(inf if share is None else share for share in fill_exactly(capacities, groups, trial).shares)

    for group in sorted(range(len(groups)), key=lambda index: (exact.shares[index] is None, exact.shares[index] or 0)):
        if len(used[group]) < 2:
            continue
        carried = list(exact.rates[group].values())
        wanted = [quanta * rate / sum(carried) for rate in carried]
        counts = [floor(each) for each in wanted]
        while sum(counts) < quanta:
            tunnels = sorted(range(len(counts)), key=lambda tunnel: (counts[tunnel] - wanted[tunnel], tunnel))
            best = max(
                tunnels,
                key=lambda tunnel: fairness(group, [count + (at == tunnel) for at, count in enumerate(counts)]),
            )  # max() keeps the first of equals
            counts[best] += 1
        splits[group] = [Fraction(count, quanta) for count in counts]
        free[group] = [spread(group, counts)]
    return splits
