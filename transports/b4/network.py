"""The network of the allocator: sites, and edges that carry traffic in one direction."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bicoastal.wan.checks import FieldError, check_name, check_not_negative
from bicoastal.wan.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One direction of a link. A link that carries traffic in both directions is two edges of one name.

    capacity_bps: the most that may be allocated on it, bit/s; an edge of capacity 0 carries nothing.
    cost: an abstract quantity, typically latency; the cost of a tunnel is the sum over its edges (§4.3).
    Raises FieldError.
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
            raise FieldError("head", f"the edge {self.link!r} joins {self.tail!r} with itself")
        check_not_negative("capacity_bps", self.capacity_bps)
        check_not_negative("cost", self.cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Sites and the edges between them, parallel ones too. At equal cost, the edge listed first is preferred.

    Raises FieldError: a site named twice, an edge that ends at no site, or two edges of one link that
    leave the same site.
    """

    sites: tuple[str, ...]
    edges: tuple[Edge, ...]
    _leaving: Mapping[str, tuple[int, ...]] = field(init=False, repr=False, compare=False)
    _position: Mapping[tuple[str, str], int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the edges and index them."""
        if len(set(self.sites)) < len(self.sites):
            raise FieldError("sites", "two of them have one name")
        leaving: dict[str, list[int]] = {site: [] for site in self.sites}
        position: dict[tuple[str, str], int] = {}
        for index, edge in enumerate(self.edges):
            for end in (edge.tail, edge.head):
                if end not in leaving:
                    raise FieldError("edges", f"{edge.link!r} ends at {end!r}, which is not a site")
            if (edge.link, edge.tail) in position:
                raise FieldError("edges", f"two of them are called {edge.link!r} and leave {edge.tail!r}")
            position[edge.link, edge.tail] = index
            leaving[edge.tail].append(index)
        object.__setattr__(self, "_leaving", {site: tuple(edges) for site, edges in leaving.items()})
        object.__setattr__(self, "_position", position)

    @classmethod
    def from_topology(cls, topology: Topology) -> "Network":
        """Return the network of a topology: every link is an edge in each direction, and costs its delay in seconds."""
        return cls(
            sites=tuple(site.name for site in topology.sites),
            edges=tuple(
                Edge(link=link.name, tail=tail, head=head, capacity_bps=link.rate_bps, cost=link.delay_s)
                for link in topology.links.values()
                for tail, head in ((link.a, link.b), (link.b, link.a))
            ),
        )

    def leaving(self, site: str) -> tuple[int, ...]:
        """Return the positions in `edges` of those that leave the site. Raises KeyError."""
        return self._leaving[site]

    def position(self, link: str, tail: str) -> int:
        """Return the position in `edges` of the link's edge that leaves `tail`. Raises KeyError."""
        return self._position[link, tail]

    def check_site(self, field_name: str, site: str) -> None:
        """Raise FieldError when the site is unknown."""
        if site not in self._leaving:
            raise FieldError(field_name, f"{site!r} is not a site")
