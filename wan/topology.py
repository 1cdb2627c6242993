"""Sites, links between them, and paths across them: data that is checked when it is made."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from bicoastal.wan.checks import (
    FieldError,
    check_name,
    check_not_negative,
    check_positive,
    check_probability,
    check_whole,
    quoted,
)
from bicoastal.wan.loss import LossSpec, NoLoss
from bicoastal.wan.schedule import CapacityTrace, LinkEvent, RateStep, check_events
from bicoastal.wan.units import INFINITY

MIN_MTU_BYTES = 576  # every host must accept packets of this size: RFC 791 §3.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """A full-duplex link between two sites; both directions have the same rate, delay and queue.

    rate_bps: bit/s of IP packets plus framing. delay_s: one-way propagation, seconds.
    queue_bytes: drop-tail queue before each direction's transmitter; None means one BDP, rate_bps * 2 * delay_s / 8.
    mtu_bytes: largest IP packet. framing_bytes: bytes of each packet on the wire besides its IP packet
    (38 for Ethernet: header 14, FCS 4, preamble 8, gap 12).
    loss: applied to packets from `a` to `b`, and from `b` to `a` too unless `loss_back` is given.
    jitter_s: each packet is late by a uniform draw from [0, jitter_s], without overtaking.
    reorder: probability that a packet is held back by `reorder_delay_s` while later ones overtake it.
    duplicate, corrupt: probability that a packet arrives twice; with one bit flipped.
    events: capacity steps and outages, or a capacity trace and outages.
    Raises FieldError.
    """

    name: str
    a: str
    b: str
    rate_bps: float
    delay_s: float
    queue_bytes: int | None = None
    mtu_bytes: int = 1500
    framing_bytes: int = 38
    loss: LossSpec = field(default_factory=NoLoss)
    loss_back: LossSpec | None = None
    jitter_s: float = 0.0
    reorder: float = 0.0
    reorder_delay_s: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    events: tuple[LinkEvent, ...] = ()

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("name", "a", "b"):
            check_name(name, getattr(self, name))
        if self.a == self.b:
            raise FieldError("b", f"the link {self.name!r} joins {self.a!r} with itself")
        check_positive("rate_bps", self.rate_bps)
        check_not_negative("delay_s", self.delay_s)
        if self.queue_bytes is not None:
            check_whole("queue_bytes", self.queue_bytes, 1)
        check_whole("mtu_bytes", self.mtu_bytes, MIN_MTU_BYTES)
        check_whole("framing_bytes", self.framing_bytes, 0)
        if not isinstance(self.loss, LossSpec):
            raise FieldError("loss", f"{self.loss!r} is not a kind of loss")
        if self.loss_back is not None and not isinstance(self.loss_back, LossSpec):
            raise FieldError("loss_back", f"{self.loss_back!r} is not a kind of loss")
        check_not_negative("jitter_s", self.jitter_s)
        check_probability("reorder", self.reorder)
        check_not_negative("reorder_delay_s", self.reorder_delay_s)
        if self.reorder and not self.reorder_delay_s:
            raise FieldError("reorder_delay_s", "reordering needs a time for which a packet is held back")
        check_probability("duplicate", self.duplicate)
        check_probability("corrupt", self.corrupt)
        if not isinstance(self.events, tuple):
            raise FieldError("events", f"{self.events!r} is not a tuple of events")
        check_events(self.events)

    @property
    def reads_bursts(self) -> bool:
        """Whether the loss of either direction depends on a packet's place in its burst."""
        return any(loss.reads_bursts for loss in (self.loss, self.loss_back) if loss is not None)

    def loss_of(self, *, back: bool) -> LossSpec:
        """Return the loss process from `a` to `b`, or with `back` the one from `b` to `a`."""
        return self.loss_back if back and self.loss_back is not None else self.loss

    @property
    def bdp_bytes(self) -> float:
        """The bandwidth-delay product: rate times round-trip propagation, in bytes."""
        return self.rate_bps * 2 * self.delay_s / 8

    @property
    def peak_rate_bps(self) -> float:
        """The highest rate that the link ever has, bit/s: its own, or that of a capacity step or a capacity trace."""
        steps = [event.rate_bps for event in self.events if isinstance(event, RateStep)]
        traces = [event.peak_rate_bps for event in self.events if isinstance(event, CapacityTrace)]
        return max([self.rate_bps, *steps, *traces])

    @property
    def queue_limit_bytes(self) -> int:
        """The size of the queue: as given, else one BDP, and at least one full packet."""
        if self.queue_bytes is not None:
            return self.queue_bytes
        return max(round(self.bdp_bytes), self.mtu_bytes + self.framing_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A place where endpoints, switches or services stand.

    Raises FieldError when the name is empty, or holds a ">", which stands between the two ends of a link's direction.
    """

    name: str

    def __post_init__(self) -> None:
        """Check the name."""
        check_name("name", self.name)
        if ">" in self.name:
            raise FieldError("name", f"{quoted(self.name)} holds a '>', which a site's name cannot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A way across links, used in both directions.

    sites: the sites it touches, from first to last. links: names of the links between them, one fewer.
    overhead_bytes: what encapsulation adds to each packet along the path. Raises FieldError.
    """

    name: str
    sites: tuple[str, ...]
    links: tuple[str, ...]
    overhead_bytes: int = 0

    def __post_init__(self) -> None:
        """Check what can be checked without the topology."""
        check_name("name", self.name)
        if len(self.sites) < 2:
            raise FieldError("sites", f"the path {self.name!r} needs at least two sites")
        if len(set(self.sites)) < len(self.sites):
            raise FieldError("sites", f"the path {self.name!r} comes to the same site twice")
        if len(self.links) != len(self.sites) - 1:
            raise FieldError("links", f"the path {self.name!r} needs {len(self.sites) - 1} for {len(self.sites)} sites")
        check_whole("overhead_bytes", self.overhead_bytes, 0)


Part = TypeVar("Part", bound=LinkSpec | Path)


class Named(Mapping[str, Part], Generic[Part]):
    """Parts by their names, in the order given; read-only, hashable, and it can be pickled."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts: dict[str, Part] = {part.name: part for part in parts}

    def __getitem__(self, name: str) -> Part:
        return self._parts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __hash__(self) -> int:
        return hash(frozenset(self._parts.values()))  # equality of mappings does not depend on their order either

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self._parts.values()))})"


@dataclass(frozen=True, slots=True, init=False)
class Topology:
    """Sites, links and the paths that transports are offered.

    `links` and `paths` are given as iterables of their specifications (or mappings of them) and read by name.
    Raises FieldError: two parts with one name, an unknown site or link, a path whose links do not
    join its sites in their order, or one whose encapsulation leaves less than `MIN_MTU_BYTES`.
    """

    sites: tuple[Site, ...]
    links: Mapping[str, LinkSpec]
    paths: Mapping[str, Path]

    def __init__(
        self,
        *,
        sites: Iterable[Site],
        links: Iterable[LinkSpec] | Mapping[str, LinkSpec],
        paths: Iterable[Path] | Mapping[str, Path],
    ) -> None:
        link_specs = tuple(links.values() if isinstance(links, Mapping) else links)
        path_specs = tuple(paths.values() if isinstance(paths, Mapping) else paths)
        object.__setattr__(self, "sites", tuple(sites))
        object.__setattr__(self, "links", Named(link_specs))
        object.__setattr__(self, "paths", Named(path_specs))
        _check_unique("sites", [site.name for site in self.sites])
        _check_unique("links", [link.name for link in link_specs])
        _check_unique("paths", [path.name for path in path_specs])
        site_names = {site.name for site in self.sites}
        for link in link_specs:
            for end in (link.a, link.b):
                if end not in site_names:
                    raise FieldError("links", f"{link.name!r} ends at {end!r}, which is not a site")
        for path in path_specs:
            self._check_path(path, site_names)

    def _check_path(self, path: Path, site_names: set[str]) -> None:
        for site in path.sites:
            if site not in site_names:
                raise FieldError("paths", f"{path.name!r} comes to {site!r}, which is not a site")
        for start, end, name in zip(path.sites[:-1], path.sites[1:], path.links, strict=True):
            if name not in self.links:
                raise FieldError("paths", f"{path.name!r} uses {name!r}, which is not a link")
            if {self.links[name].a, self.links[name].b} != {start, end}:
                raise FieldError("paths", f"{path.name!r} uses {name!r}, which does not join {start!r} and {end!r}")
        if self.path_mtu_bytes(path.name) < MIN_MTU_BYTES:
            raise FieldError("paths", f"the encapsulation of {path.name!r} leaves less than {MIN_MTU_BYTES} bytes")

    def path_links(self, path: str) -> tuple[LinkSpec, ...]:
        """Return the links of the path, from its first site to its last. All of these raise KeyError."""
        return tuple(self.links[name] for name in self.paths[path].links)

    def path_delay_s(self, path: str) -> float:
        """Return the one-way propagation delay, seconds."""
        return sum(link.delay_s for link in self.path_links(path))

    def path_rtt_s(self, path: str) -> float:
        """Return the round-trip propagation delay, seconds."""
        return 2 * self.path_delay_s(path)

    def path_rate_bps(self, path: str) -> float:
        """Return the rate of the slowest link, bit/s, as it is before any event."""
        return min(link.rate_bps for link in self.path_links(path))

    def path_peak_rate_bps(self, path: str) -> float:
        """Return the highest rate, bit/s, that the slowest link could allow: the least of the links' highest."""
        return min(link.peak_rate_bps for link in self.path_links(path))

    def path_mtu_bytes(self, path: str) -> int:
        """Return the largest IP packet that an endpoint may send: the smallest link MTU less the encapsulation."""
        return min(link.mtu_bytes for link in self.path_links(path)) - self.paths[path].overhead_bytes

    def least_delay_s(self, site: str, other: str) -> float:
        """Return the least propagation delay between two sites over any links, seconds; infinite if none join them.

        Dijkstra, "A note on two problems in connexion with graphs", Numerische Mathematik 1, 1959.
        """
        delays_s = {each.name: INFINITY for each in self.sites}
        for name in (site, other):
            if name not in delays_s:
                raise KeyError(name)
        delays_s[site] = 0.0
        unseen = list(delays_s)
        while unseen:
            nearest = min(unseen, key=delays_s.__getitem__)
            unseen.remove(nearest)
            for link in self.links.values():
                for here, there in ((link.a, link.b), (link.b, link.a)):
                    if here == nearest:
                        delays_s[there] = min(delays_s[there], delays_s[here] + link.delay_s)
        return delays_s[other]


def _check_unique(field: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise FieldError(field, f"two of them are called {name!r}")
