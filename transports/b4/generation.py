"""Tunnel group generation: which tunnels a flow group takes, one after the other, and what each of them carries.

Jain et al., SIGCOMM 2013, §4.3: all groups are filled together on their preferred tunnels; when an edge is full, the
tunnels across it freeze and their groups go on to the next one.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from transports.b4.bandwidth import BandwidthFunction
from transports.b4.filling import TOLERANCE, Filling, Usage
from transports.b4.network import Network
from transports.b4.quantise import spread
from transports.b4.tunnels import Route, Tunnel, TunnelTable, cheapest_routes_from, first_open, route_of, tunnel_of


class Preference(Protocol):
    """What decides on a group's next tunnel."""

    def following(self, group: int, full: Set[int]) -> Route | None:
        """Return the route that the group prefers now that these edges are full; None when it has none."""

    def tunnel(self, group: int, route: Route) -> Tunnel:
        """Return the tunnel along one of the group's routes."""


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


class Listed:
    """The next in a list that has no full edge.

    Raises ValueError for a tunnel that the network does not have, or that does not join the pair it is listed for.
    """

    def __init__(self, network: Network, pairs: Sequence[tuple[str, str]], tunnels: TunnelTable) -> None:
        known: dict[tuple[str, str], dict[Route, Tunnel]] = {}
        for pair, listed in tunnels.items():
            for tunnel in listed:
                if tunnel.pair != pair:
                    raise ValueError(f"tunnels: {tunnel.name!r} does not go from {pair[0]!r} to {pair[1]!r}")
                known.setdefault(pair, {}).setdefault(route_of(network, tunnel), tunnel)
        self._tunnels = [known.get(pair, {}) for pair in pairs]

    def following(self, group: int, full: Set[int]) -> Route | None:
        """Return the first open route of the list."""
        return first_open(self._tunnels[group], full)

    def tunnel(self, group: int, route: Route) -> Tunnel:
        """Return the tunnel that was listed with this route."""
        return self._tunnels[group][route]


@dataclass(frozen=True, slots=True)
class Generation:
    """The outcome, by group: the routes that carry something, in the order in which they were filled, and the rates."""

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

    The paper's generation knows no limit. To stop a group at its fourth tunnel would leave it stuck at a low fair share
    while others rise, so everybody first takes what it needs; a group that took too many is then left with the last of
    them, on which it was still growing, and the widest of the others, and the network is filled again. One tunnel is
    the preferred one.
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
            # A tunnel may freeze the moment it is taken, or be left with what rounding put there: it is not kept.
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


def _most_useful(routes: Sequence[Route], rates: Sequence[float], limit: int) -> list[Route]:
    """Return the last route and the widest of the others, in the order in which they were filled."""
    last = len(routes) - 1
    widest = sorted(range(last), key=lambda index: (-rates[index], index))[: limit - 1]
    return [routes[index] for index in (*sorted(widest), last)]
