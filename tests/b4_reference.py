"""What tests and the benchmark hold the allocator against: linear programs and exact rational filling.

Nothing here shares code with the allocator: the program knows edges, demands and weights only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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
