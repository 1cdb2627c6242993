"""Tunnel group generation: the tunnels that a flow group takes, one after the other, and the rate of each.

Jain et al., SIGCOMM 2013, §4.3: all groups are filled together on their preferred tunnels. When an edge is full, the
tunnels across it freeze, and their groups continue on their next tunnels.

This greedy order has a cost: a group with several ways can fill an edge that is the only way of another group. The
generation can therefore be repeated (`generate_fairest`): each time, the edges that were bottlenecks cost more. That is
not in the paper.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Protocol

from bicoastal.transports.b4.bandwidth import BandwidthFunction
from bicoastal.transports.b4.filling import TOLERANCE, Filling, Usage
from bicoastal.transports.b4.network import Network
from bicoastal.transports.b4.quantise import SAME_FAIRNESS, spread
from bicoastal.transports.b4.tunnels import (
    Route,
    Tunnel,
    TunnelTable,
    cheapest_routes_from,
    cost_of,
    first_open,
    route_of,
    tunnel_of,
)
from bicoastal.wan.checks import FieldError
from bicoastal.wan.units import INFINITY

MOST_ROUNDS = 100
"""The most rounds of `generate_fairest`. A cost may double in each, and few networks gain from more than ten."""


class Preference(Protocol):
    """The rule by which a group's next tunnel is chosen."""

    def following(self, group: int, full: Set[int]) -> Route | None:
        """Return the route that the group prefers when these edges are full; None if it has no route left."""

    def tunnel(self, group: int, route: Route) -> Tunnel:
        """Return the tunnel along one of the group's routes."""

    def avoiding(self, bottlenecks: Sequence[tuple[int, float]]) -> "Preference":
        """Return a preference to which bottlenecks cost more: the first of them twice as much.

        bottlenecks: edges and the fair shares at which they were full, ascending, as `Filling` has them. The higher the
        share, the less is added, in inverse proportion.
        """


class Search:
    """The paper's preference: the cheapest path without a full edge. Groups of one source share the searches."""

    def __init__(self, network: Network, pairs: Sequence[tuple[str, str]]) -> None:
        self._network = network
        self._pairs = pairs
        self._found: dict[str, dict[str, Route]] = {}
        self._full: frozenset[int] = frozenset()  # the edges that the searches avoided

    def following(self, group: int, full: Set[int]) -> Route | None:
        """Return the cheapest open route."""
        if len(full) != len(self._full) or not self._full.issuperset(full):
            self._found.clear()
            self._full = frozenset(full)
        source, destination = self._pairs[group]
        if source not in self._found:
            self._found[source] = cheapest_routes_from(self._network, source, self._full)
        return self._found[source].get(destination)

    def tunnel(self, group: int, route: Route) -> Tunnel:
        """Return the tunnel along a route."""
        return tunnel_of(self._network, route)

    def avoiding(self, bottlenecks: Sequence[tuple[int, float]]) -> "Search":
        """See `Preference`."""
        return Search(_costlier(self._network, bottlenecks), self._pairs)


class Listed:
    """A preference by lists: a group takes the next tunnel of its list that has no full edge.

    Raises FieldError for a tunnel that the network does not have, or that does not join the pair it is listed for.
    """

    def __init__(self, network: Network, pairs: Sequence[tuple[str, str]], tunnels: TunnelTable) -> None:
        self._network = network
        self._pairs = pairs
        known: dict[tuple[str, str], dict[Route, Tunnel]] = {}
        for pair, listed in tunnels.items():
            for tunnel in listed:
                if tunnel.pair != pair:
                    raise FieldError("tunnels", f"{tunnel.name!r} does not go from {pair[0]!r} to {pair[1]!r}")
                known.setdefault(pair, {}).setdefault(route_of(network, tunnel), tunnel)
        self._tunnels = [known.get(pair, {}) for pair in pairs]

    def following(self, group: int, full: Set[int]) -> Route | None:
        """Return the first open route of the list."""
        return first_open(self._tunnels[group], full)

    def tunnel(self, group: int, route: Route) -> Tunnel:
        """Return the tunnel that was listed with this route."""
        return self._tunnels[group][route]

    def avoiding(self, bottlenecks: Sequence[tuple[int, float]]) -> "Listed":
        """See `Preference`: the same tunnels, the cheapest first. At one cost they keep their order."""
        network = _costlier(self._network, bottlenecks)
        return Listed(
            network,
            self._pairs,
            {
                pair: tuple(known[route] for route in sorted(known, key=lambda route: cost_of(network, route)))
                for pair, known in zip(self._pairs, self._tunnels, strict=True)
            },
        )


def _costlier(network: Network, bottlenecks: Sequence[tuple[int, float]]) -> Network:
    edges = list(network.edges)
    for edge, share in bottlenecks:
        more = bottlenecks[0][1] / share if share else 1.0
        edges[edge] = replace(edges[edge], cost=edges[edge].cost * (1 + more))
    return replace(network, edges=tuple(edges))


@dataclass(frozen=True, slots=True)
class Generation:
    """The result, by group: the routes that carry traffic, in the order in which they were filled, and their rates."""

    filling: Filling
    routes: list[list[Route]]
    rates_bps: list[list[float]]


def generate(
    capacities_bps: Sequence[float],
    functions: Sequence[BandwidthFunction],
    preference: Preference,
    *,
    limit: int | None,
    closed: Set[int],
) -> Generation:
    """Return the tunnel groups, with at most `limit` tunnels each.

    The paper's generation has no limit. A group that stopped at its fourth tunnel would be left at a low fair share
    while others rise. Every group therefore first takes as many tunnels as it needs. A group that took too many keeps
    the last of them, on which it was still growing, and the widest of the others, and the network is filled again. With
    a limit of 1, a group takes its preferred tunnel only.
    """

    def fill(limit: int | None, only: Mapping[int, Sequence[Route]]) -> Generation:
        taken: list[list[Route]] = [[] for _ in functions]

        def advance(group: int, full: Set[int]) -> Usage | None:
            own = only.get(group)
            route = preference.following(group, full) if own is None else first_open(own, full)
            if route is None:
                return None
            taken[group].append(route)
            return spread([route], [1.0])

        starts = [advance(group, closed) for group in range(len(functions))]
        filling = Filling(capacities_bps, functions, starts, advance, full=closed, limit=limit).finish()
        routes: list[list[Route]] = []
        rates: list[list[float]] = []
        for group, own in enumerate(taken):
            carried = filling.rates_bps(group)
            # A tunnel may freeze as soon as it is taken, or carry a rounding error only. Such a tunnel is not kept.
            least = TOLERANCE * sum(carried)
            kept = [(route, rate) for route, rate in zip(own, carried, strict=False) if rate > least]
            routes.append([route for route, _ in kept])
            rates.append([rate for _, rate in kept])
        return Generation(filling, routes, rates)

    if limit == 1:
        return fill(limit, {})
    free = fill(None, {})
    if limit is None or all(len(own) <= limit for own in free.routes):
        return free
    only = {
        group: _most_useful(own, rates, limit)
        for group, (own, rates) in enumerate(zip(free.routes, free.rates_bps, strict=True))
        if len(own) > limit
    }
    return fill(limit, only)


def generate_fairest(
    capacities_bps: Sequence[float],
    functions: Sequence[BandwidthFunction],
    preference: Preference,
    *,
    limit: int | None,
    closed: Set[int],
    rounds: int,
) -> Generation:
    """Return the most max-min fair of so many generations, in each of which earlier bottlenecks cost more."""
    best = latest = generate(capacities_bps, functions, preference, limit=limit, closed=closed)
    for _ in range(1, rounds):
        if all(share == INFINITY for share in best.filling.fair_shares):
            break
        preference = preference.avoiding(latest.filling.bottlenecks)
        latest = generate(capacities_bps, functions, preference, limit=limit, closed=closed)
        if _is_fairer(latest.filling, best.filling):
            best = latest
    return best


def _is_fairer(one: Filling, other: Filling) -> bool:
    """Compare the fair shares of all groups in ascending order, lexicographically (the paper's footnote 1)."""
    ascending = [sorted(INFINITY if share is None else share for share in each.fair_shares) for each in (one, other)]
    for ours, theirs in zip(ascending[0], ascending[1], strict=True):
        if ours != theirs and abs(ours - theirs) > SAME_FAIRNESS * min(ours, theirs):
            return ours > theirs
    return False


def _most_useful(routes: Sequence[Route], rates: Sequence[float], limit: int) -> list[Route]:
    """Return the last route and the widest of the others, in the order in which they were filled."""
    last = len(routes) - 1
    widest = sorted(range(last), key=lambda index: (-rates[index], index))[: limit - 1]
    return [routes[index] for index in (*sorted(widest), last)]
