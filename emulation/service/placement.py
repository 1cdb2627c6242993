"""The services of a run, for every world: which machines there are, at which sites, and which flows are their peers.

All flows of one transport share its services. The flows are the services' peers, numbered in their order. A flow
reaches the first service under path_id -1, the second under -2, and so on. Two transports with the same kind of
service, such as b4 and kernel-b4, cannot be in one run: neither service would know the other's peers, and both would
share out the same capacity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.streams import stream
from bicoastal.emulation.traffic.flows import Flow
from bicoastal.transports.base import Machine, ServiceContext, ServicePlacement
from bicoastal.wan.checks import FieldError
from bicoastal.wan.topology import Topology
from bicoastal.wan.units import INFINITY


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedService:
    """A service's machine and its site.

    delays_s: of messages between it and each peer, in seconds, in the order of the peers. path_id: its number for
    peers.
    """

    name: str
    site: str
    path_id: int
    machine: Machine
    delays_s: tuple[float, ...]


def by_transport(flows: Sequence[Flow]) -> Mapping[str, Sequence[Flow]]:
    """Return the flows of every transport in their order: the peers of its services."""
    members: dict[str, list[Flow]] = {}
    for flow in flows:
        members.setdefault(flow.transport.name, []).append(flow)
    return members


def place_services(
    topology: Topology, flows: Sequence[Flow], *, seed: int, generation: int = 0, encapsulation_bytes: int = 0
) -> list[PlacedService]:
    """Make the services of one transport, which has these flows.

    generation: how many times they have been restarted in this run; each generation has its own random stream.
    encapsulation_bytes: what the world itself adds to each packet of a flow, beyond the topology's encapsulation.
    Raises UnsupportedError where flows have different parameters, FieldError where no links lead to a service, and what
    the transport raises.
    """
    first = flows[0]
    name = first.transport.name

    def make(parameters: object) -> Sequence[ServicePlacement]:
        context = ServiceContext(
            topology=_encapsulated(topology, encapsulation_bytes),
            flows=tuple(flow.id for flow in flows),
            rng=stream(seed, f"service/{name}/{generation}" if generation else f"service/{name}"),
            parameters=parameters,
        )
        return first.transport.make_services(context)

    placements = make(first.parameters)
    for flow in flows:
        if flow.parameters != first.parameters and (shared := placements or make(flow.parameters)):
            raise UnsupportedError(
                f"{first.owner} and {flow.owner} give {name} different parameters, but would share its {shared[0].name}"
            )
    placed: list[PlacedService] = []
    for number, placement in enumerate(placements, start=1):
        delays_s = []
        for flow in flows:
            delays_s.append(topology.least_delay_s(flow.source, placement.site))
            if delays_s[-1] == INFINITY:
                raise FieldError(
                    "links", f"none lead from {flow.source} to {placement.site}, where {placement.name} stands"
                )
        placed.append(
            PlacedService(
                name=placement.name,
                site=placement.site,
                path_id=-number,
                machine=placement.machine,
                delays_s=tuple(delays_s),
            )
        )
    return placed


def place_all(topology: Topology, flows: Sequence[Flow], *, seed: int) -> Mapping[str, Sequence[PlacedService]]:
    """Make the services of all transports, by the transport's name.

    Raises UnsupportedError where two transports have the same kind of service, and as `place_services`.
    """
    placed: dict[str, Sequence[PlacedService]] = {}
    owners: dict[object, Flow] = {}
    for name, members in by_transport(flows).items():
        placed[name] = place_services(topology, members, seed=seed)
        if placed[name]:
            first, other = members[0], owners.setdefault(members[0].transport.make_services, members[0])
            if other is not first:
                raise UnsupportedError(
                    f"{other.owner} runs {other.transport.name} and {first.owner} {name}: each has a "
                    f"{placed[name][0].name} of its own, which does not know what the other one does"
                )
    return placed


def _encapsulated(topology: Topology, encapsulation_bytes: int) -> Topology:
    if not encapsulation_bytes:
        return topology
    return Topology(
        sites=topology.sites,
        links=tuple(topology.links.values()),
        paths=[
            replace(path, overhead_bytes=path.overhead_bytes + encapsulation_bytes) for path in topology.paths.values()
        ],
    )
