"""What the allocator knows of the network: sites, and edges that carry traffic one way."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from bicoastal.wan.checks import check_name, check_not_negative
from bicoastal.wan.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One direction of a link, as the allocator sees it. A link that carries both ways is two edges of one name.

    capacity_bps: what may be allocated on it, bit/s; an edge of capacity 0 is as good as failed.
    cost: an abstract quantity, typically latency; the cost of a tunnel is the sum over its edges (§4.3).
    Raises ValueError naming the field.
    """

    link: str
    tail: str
    head: str
    capacity_bps: float
    cost: float = 1.0

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("link", "tail", "head"):
            check_name(name, getattr(self, name))
        if self.tail == self.head:
            raise ValueError(f"head: the edge {self.link!r} joins {self.tail!r} with itself")
        check_not_negative("capacity_bps", self.capacity_bps)
        check_not_negative("cost", self.cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Sites and the edges between them, parallel ones too. Where costs tie, the edge listed first is preferred.

    Raises ValueError naming the field: a site named twice, an edge that ends at no site, or two edges of one link that
    leave the same site.
    """

    sites: tuple[str, ...]
    edges: tuple[Edge, ...]
    _leaving: Mapping[str, tuple[int, ...]] = field(init=False, repr=False, compare=False)
    _position: Mapping[tuple[str, str], int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the edges and index them."""
        if len(set(self.sites)) < len(self.sites):
            raise ValueError("sites: two of them have one name")
        leaving: dict[str, list[int]] = {site: [] for site in self.sites}
        position: dict[tuple[str, str], int] = {}
        for index, edge in enumerate(self.edges):
            for end in (edge.tail, edge.head):
                if end not in leaving:
                    raise ValueError(f"edges: {edge.link!r} ends at {end!r}, which is not a site")
            if (edge.link, edge.tail) in position:
                raise ValueError(f"edges: two of them are called {edge.link!r} and leave {edge.tail!r}")
            position[edge.link, edge.tail] = index
            leaving[edge.tail].append(index)
        object.__setattr__(self, "_leaving", {site: tuple(edges) for site, edges in leaving.items()})
        object.__setattr__(self, "_position", position)

    @classmethod
    def from_topology(
        cls,
        topology: Topology,
        *,
        cost: Mapping[str, float] | None = None,
        capacity_bps: Mapping[str, float] | None = None,
    ) -> "Network":
        """Return the network of a topology: every link is an edge in each direction.

        cost: by link, default the one-way delay in seconds. capacity_bps: what may be allocated, by link, default the
        rate of the link; less of it leaves room for headers, control traffic or a queue that should stay empty.
        Raises ValueError when either names a link that the topology does not have.
        """
        costs = _by_link("cost", cost, topology)
        capacities = _by_link("capacity_bps", capacity_bps, topology)
        return cls(
            sites=tuple(site.name for site in topology.sites),
            edges=tuple(
                Edge(
                    link=link.name,
                    tail=tail,
                    head=head,
                    capacity_bps=capacities.get(link.name, link.rate_bps),
                    cost=costs.get(link.name, link.delay_s),
                )
                for link in topology.links.values()
                for tail, head in ((link.a, link.b), (link.b, link.a))
            ),
        )

    def with_capacity(self, capacity_bps: Mapping[str, float]) -> "Network":
        """Return the network with other capacities, by link, both ways. Raises ValueError for an unknown link."""
        self.check_links("capacity_bps", capacity_bps)
        return replace(
            self,
            edges=tuple(
                replace(edge, capacity_bps=capacity_bps[edge.link]) if edge.link in capacity_bps else edge
                for edge in self.edges
            ),
        )

    def leaving(self, site: str) -> tuple[int, ...]:
        """Return the positions in `edges` of those that leave the site. Raises KeyError."""
        return self._leaving[site]

    def position(self, link: str, tail: str) -> int:
        """Return the position in `edges` of the link's edge that leaves `tail`. Raises KeyError."""
        return self._position[link, tail]

    def check_site(self, field_name: str, site: str) -> None:
        """Raise ValueError when the site is unknown."""
        if site not in self._leaving:
            raise ValueError(f"{field_name}: {site!r} is not a site")

    def check_links(self, field_name: str, links: Iterable[str]) -> None:
        """Raise ValueError when one of the links is unknown."""
        known = {edge.link for edge in self.edges}
        for link in links:
            if link not in known:
                raise ValueError(f"{field_name}: {link!r} is not a link")


def _by_link(field_name: str, values: Mapping[str, float] | None, topology: Topology) -> Mapping[str, float]:
    for link in values or {}:
        if link not in topology.links:
            raise ValueError(f"{field_name}: {link!r} is not a link")
    return values or {}
