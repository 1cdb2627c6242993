"""Tunnels: loop-free paths between sites, and the search for the cheapest of them."""

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from heapq import heappop, heappush

from bicoastal.transports.b4.network import Network
from bicoastal.wan.checks import FieldError, check_name, check_whole
from bicoastal.wan.topology import Path

Route = tuple[int, ...]
"""Positions in `Network.edges`, from the first to the last. Routes of one cost and length compare by them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunnel:
    """A loop-free path from the first of `sites` to the last, over `links`: one for each step. Raises FieldError."""

    name: str
    sites: tuple[str, ...]
    links: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check what can be checked without the network."""
        check_name("name", self.name)
        if len(self.sites) < 2:
            raise FieldError("sites", f"the tunnel {self.name!r} needs at least two sites")
        if len(set(self.sites)) < len(self.sites):
            raise FieldError("sites", f"the tunnel {self.name!r} has the same site twice")
        if len(self.links) != len(self.sites) - 1:
            steps = len(self.sites) - 1
            raise FieldError("links", f"the tunnel {self.name!r} needs {steps} for {len(self.sites)} sites")

    @classmethod
    def along(cls, path: Path, *, back: bool = False) -> "Tunnel":
        """Return the tunnel along a path of the topology, with its name; `back`: from its last site to its first."""
        step = -1 if back else 1
        return cls(name=path.name, sites=path.sites[::step], links=path.links[::step])

    @property
    def pair(self) -> tuple[str, str]:
        """Its first and its last site."""
        return self.sites[0], self.sites[-1]


TunnelTable = Mapping[tuple[str, str], tuple[Tunnel, ...]]
"""The tunnels of each pair of sites, the preferred one first."""


def cheapest_tunnels(
    network: Network, pairs: Iterable[tuple[str, str]], count: int
) -> dict[tuple[str, str], tuple[Tunnel, ...]]:
    """Return up to `count` cheapest loop-free tunnels for each pair of sites, cheapest first (Yen 1971).

    At equal cost, fewer hops come first, then the edges listed first in the network. Edges
    of capacity 0 are not used. Raises FieldError for an unknown site, a pair of one site, or a count below 1.
    """
    check_whole("count", count, 1)
    closed = closed_edges(network)
    table: dict[tuple[str, str], tuple[Tunnel, ...]] = {}
    for source, destination in pairs:
        network.check_site("pairs", source)
        network.check_site("pairs", destination)
        if source == destination:
            raise FieldError("pairs", f"{source!r} is both ends of a pair")
        routes = _cheapest_routes(network, source, destination, count, closed)
        table[source, destination] = tuple(tunnel_of(network, route) for route in routes)
    return table


def closed_edges(network: Network) -> frozenset[int]:
    """Return the positions of the edges that can carry nothing."""
    return frozenset(index for index, edge in enumerate(network.edges) if edge.capacity_bps == 0)


def tunnel_of(network: Network, route: Route) -> Tunnel:
    """Return the tunnel along a route. Its name is made of its links."""
    edges = [network.edges[index] for index in route]
    return Tunnel(
        name="/".join(edge.link for edge in edges),
        sites=(edges[0].tail, *(edge.head for edge in edges)),
        links=tuple(edge.link for edge in edges),
    )


def route_of(network: Network, tunnel: Tunnel) -> Route:
    """Return the edges of a tunnel. Raises FieldError when the network does not have them."""
    route = []
    for tail, head, link in zip(tunnel.sites[:-1], tunnel.sites[1:], tunnel.links, strict=True):
        try:
            index = network.position(link, tail)
        except KeyError:
            raise FieldError("tunnels", f"{tunnel.name!r} uses {link!r}, which does not leave {tail!r}") from None
        if network.edges[index].head != head:
            raise FieldError("tunnels", f"{tunnel.name!r} uses {link!r}, which does not join {tail!r} and {head!r}")
        route.append(index)
    return tuple(route)


def cost_of(network: Network, route: Route) -> float:
    """Return the sum of the costs of a route's edges."""
    return sum(network.edges[index].cost for index in route)


def first_open(routes: Iterable[Route], full: Set[int]) -> Route | None:
    """Return the first of the routes that crosses no full edge."""
    for route in routes:
        if full.isdisjoint(route):
            return route
    return None


def cheapest_routes_from(network: Network, source: str, avoiding: Collection[int]) -> dict[str, Route]:
    """Return the cheapest route to each site that can be reached without the edges to avoid (Dijkstra)."""
    found: dict[str, Route] = {}
    least: dict[str, tuple[float, int]] = {}  # cost and hops of the entries in the heap
    heap: list[tuple[float, int, Route, str]] = [(0.0, 0, (), source)]
    edges = network.edges
    while heap:
        cost, hops, route, site = heappop(heap)
        if site in found:
            continue
        found[site] = route
        for index in network.leaving(site):
            head = edges[index].head
            if head in found or index in avoiding:
                continue
            rank = cost + edges[index].cost, hops + 1
            if head not in least or rank <= least[head]:
                least[head] = rank
                heappush(heap, (*rank, (*route, index), head))
    return found


def _cheapest_routes(
    network: Network, source: str, destination: str, count: int, closed: frozenset[int]
) -> list[Route]:
    """Yen's algorithm: every next route leaves an earlier one at a site, by an edge that no earlier one took there."""
    first = _finish(network, (), source, destination, closed)
    candidates = [] if first is None else [(*_rank(network, first), 0)]
    known = {first}
    chosen: list[Route] = []
    while candidates and len(chosen) < count:
        _, _, route, left_at = heappop(candidates)
        chosen.append(route)
        # Lawler 1972: departures before the one that made this route were tried when its parent was chosen.
        for at in range(left_at, len(route)):
            start = route[:at]
            taken = frozenset(other[at] for other in chosen if other[:at] == start and len(other) > at)
            spur = _finish(network, start, network.edges[route[at]].tail, destination, closed | taken)
            if spur is not None and spur not in known:
                known.add(spur)
                heappush(candidates, (*_rank(network, spur), at))
    return chosen


def _rank(network: Network, route: Route) -> tuple[float, int, Route]:
    return cost_of(network, route), len(route), route


def _finish(network: Network, start: Route, site: str, destination: str, avoiding: frozenset[int]) -> Route | None:
    """Return the cheapest loop-free completion of a route that ends at `site`."""
    visited = {network.edges[index].tail for index in start}
    heap: list[tuple[float, int, Route, str]] = [(0.0, 0, start, site)]
    while heap:
        cost, hops, route, here = heappop(heap)
        if here == destination:
            return route
        if here in visited:
            continue
        visited.add(here)
        for index in network.leaving(here):
            edge = network.edges[index]
            if index not in avoiding and edge.head not in visited:
                heappush(heap, (cost + edge.cost, hops + 1, (*route, index), edge.head))
    return None
