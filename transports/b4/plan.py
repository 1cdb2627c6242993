"""The allocator applied to the agents of one WAN: from the demands of the flows to a rate for each flow and path. Pure.

Three classes share the links, and each class gets what the class before it leaves. The first class are flows with a
burst under way, by their weights. The second are flows between bursts, which keep their rates while no other flow needs
them. The third is the far ends' own sending. All three are one max-min allocation: the weights of two neighbouring
classes differ by the factor `_CLASS_STEP`.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from bicoastal.transports.b4.allocator import FlowGroup, allocate
from bicoastal.transports.b4.bandwidth import Application
from bicoastal.transports.b4.network import Edge, Network
from bicoastal.transports.b4.tunnels import Tunnel
from bicoastal.wan.topology import Topology
from bicoastal.wan.units import INFINITY

_CLASS_STEP = 1e5
_UNLIMITED_BPS = 1e15  # capacity of the edge by which a flow enters the network

EdgeKey = tuple[str, str]
"""A link, and the site at which the traffic enters it."""

Key = tuple[int, bool]
"""The number of the flow, and whether the far end sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """The demand of one flow in one direction.

    paths: of the topology. up: which of them can be used now. back: which of them the data crosses from the last site
    to the first. weight: within its class. demand_bps: infinite for all the capacity there is; None between bursts.
    lowest: it is the far end's own sending.
    """

    key: Key
    paths: tuple[str, ...]
    up: tuple[bool, ...]
    back: tuple[bool, ...]
    weight: float
    demand_bps: float | None
    lowest: bool


def edges_of(topology: Topology, path: str, *, back: bool) -> tuple[EdgeKey, ...]:
    """Return the edges that a path crosses in one direction. Raises KeyError for an unknown path."""
    sites, links = topology.paths[path].sites, topology.paths[path].links
    return tuple(zip(links, sites[1:] if back else sites[:-1], strict=True))


def capacity_bps(topology: Topology, headroom: float) -> dict[EdgeKey, float]:
    """Return the capacity of each edge that may be allocated, bit/s."""
    return {
        (link.name, site): link.rate_bps * (1 - headroom)
        for link in topology.links.values()
        for site in (link.a, link.b)
    }


def share_out(
    topology: Topology,
    wants: Sequence[Want],
    *,
    headroom: float,
    floor_bps: Mapping[str, float],
    quantum: float | None = None,
    rounds: int = 1,
    tunnels: int | None = None,
) -> dict[Key, tuple[float, ...]]:
    """Return the rates of every want on each of its paths, bit/s.

    floor_bps: by path, the least rate of every flow in its own direction. A path that is down, or that the flow should
    not use, has it too, since the flow may fall back to it at any time. The far ends' sending (`lowest`) has no floor.
    quantum, rounds, tunnels: see `ControlledParameters`. No edge is given more than its capacity, unless the floors
    alone exceed it.
    """
    free = capacity_bps(topology, headroom)
    floored = [want for want in wants if not want.lowest]
    pinned = {(want.key, index) for want in floored for index, up in enumerate(want.up) if not up}
    while True:
        left = dict(free)
        for want in floored:
            for index, path in enumerate(want.paths):
                if (want.key, index) in pinned:
                    for edge in edges_of(topology, path, back=want.back[index]):
                        left[edge] -= floor_bps[path]
        rates = _fill(topology, wants, pinned, left, quantum=quantum, rounds=rounds, tunnels=tunnels)
        short = {
            (want.key, index)
            for want in floored
            for index, path in enumerate(want.paths)
            if (want.key, index) not in pinned and rates[want.key][index] < floor_bps[path]
        }
        if not short:
            break
        pinned |= short  # at most once per flow and path, so this ends
    for want in floored:
        for index, path in enumerate(want.paths):
            if (want.key, index) in pinned:
                rates[want.key][index] = floor_bps[path]
    return {key: tuple(each) for key, each in rates.items()}


def _fill(
    topology: Topology,
    wants: Sequence[Want],
    pinned: Set[tuple[Key, int]],
    left: Mapping[EdgeKey, float],
    *,
    quantum: float | None,
    rounds: int,
    tunnels: int | None,
) -> dict[Key, list[float]]:
    """Allocate the remaining capacity to all paths that are not pinned."""
    rates = {want.key: [0.0] * len(want.paths) for want in wants}
    edges = [
        Edge(link=link.name, tail=tail, head=head, capacity_bps=max(0.0, left[link.name, tail]), cost=link.delay_s)
        for link in topology.links.values()
        for tail, head in ((link.a, link.b), (link.b, link.a))
    ]
    entries: list[Edge] = []
    groups: list[FlowGroup] = []
    listed: dict[tuple[str, str], tuple[Tunnel, ...]] = {}
    places: dict[str, tuple[Key, dict[str, int]]] = {}
    for number, want in enumerate(wants):
        usable = [
            (index, Tunnel.along(topology.paths[path], back=want.back[index]))
            for index, path in enumerate(want.paths)
            if want.up[index] and (want.key, index) not in pinned
        ]
        usable = [(index, tunnel) for index, tunnel in usable if _open(tunnel, left)]
        if not usable or want.demand_bps == 0:
            continue
        # Every flow enters at a site of its own, so that it has its own tunnels although many flows share a source.
        gate = f"\N{RIGHTWARDS ARROW}{number}"
        source, destination = usable[0][1].pair
        entries.append(Edge(link=gate, tail=gate, head=source, capacity_bps=_UNLIMITED_BPS, cost=0.0))
        usable.sort(key=lambda item: sum(topology.links[link].delay_s for link in item[1].links))
        own = tuple(
            Tunnel(name=tunnel.name, sites=(gate, *tunnel.sites), links=(gate, *tunnel.links)) for _, tunnel in usable
        )
        listed[gate, destination] = own
        places[gate] = want.key, {tunnel.name: index for index, tunnel in usable}
        application = Application(name="flow", weight=_weight(want), demand_bps=_demand_bps(want))
        groups.append(FlowGroup(source=gate, destination=destination, applications=(application,)))
    if not groups:
        return rates
    network = Network(
        sites=(*(site.name for site in topology.sites), *(edge.tail for edge in entries)), edges=(*edges, *entries)
    )
    allocation = allocate(network, groups, tunnels_per_group=tunnels, tunnels=listed, quantum=quantum, rounds=rounds)
    for part in allocation.groups:
        key, index_of = places[part.group.source]
        for share in part.tunnels:
            rates[key][index_of[share.tunnel.name]] += share.rate_bps
    return rates


def _open(tunnel: Tunnel, left: Mapping[EdgeKey, float]) -> bool:
    return all(left[link, site] > 0 for link, site in zip(tunnel.links, tunnel.sites[:-1], strict=True))


def _weight(want: Want) -> float:
    if want.lowest and want.demand_bps is None:
        return want.weight / _CLASS_STEP
    return want.weight if want.demand_bps is None else want.weight * _CLASS_STEP


def _demand_bps(want: Want) -> float:
    return INFINITY if want.demand_bps is None else want.demand_bps
