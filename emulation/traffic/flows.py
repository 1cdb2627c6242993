"""The flows of a RunSpec: which pairs of endpoints there are, on which paths, and how messages are divided."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from bicoastal.emulation.base import BackgroundSpec, JobSpec, RunSpec, UnsupportedError
from bicoastal.transports.base import FlowId, PathView
from bicoastal.transports.registry import Registry, TransportSpec
from bicoastal.wan.checks import FieldError
from bicoastal.wan.topology import Topology
from bicoastal.wan.units import INFINITY

MAX_TRIPS = 256


class PathCapacity(NamedTuple):
    """What a flow can use for its part of a message: one-way propagation in seconds, and bit/s."""

    delay_s: float
    rate_bps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One connection, used in one direction: the client at `source` sends, the server at `destination` receives.

    index: its place among the flows that carry one message together. capacities: of all these flows; `stripe` divides
    the message by them.
    """

    id: FlowId
    transport: TransportSpec
    parameters: object
    index: int
    capacities: tuple[PathCapacity, ...]

    @property
    def name(self) -> str:
        """The flow's label, unique within a run: in records, and in what processes tell each other."""
        return str(self.id)

    @property
    def owner(self) -> str:
        """The job or the background traffic that the flow belongs to."""
        return self.id.owner

    @property
    def source(self) -> str:
        """The site of the client."""
        return self.id.source

    @property
    def destination(self) -> str:
        """The site of the server."""
        return self.id.destination

    @property
    def paths(self) -> tuple[str, ...]:
        """The names of the paths that the flow may use."""
        return self.id.paths


def message_id(iteration: int, trip: int) -> int:
    """Return the identifier under which a trip of an iteration travels."""
    return iteration * MAX_TRIPS + trip


def trip_of(identifier: int) -> tuple[int, int]:
    """Return (iteration, trip) of `message_id`."""
    return divmod(identifier, MAX_TRIPS)


def plan_flows(spec: RunSpec, registry: Registry) -> tuple[Flow, ...]:
    """Return every flow of `spec`: jobs first, both directions, path by path, then the background.

    A transport with paths="one" gets one flow per path and direction, one with paths="many" one flow per direction.
    Raises UnknownTransportError, ValueError for parameters that the transport does not have, UnsupportedError for
    paths that are too narrow for it, and FieldError where two flows have one label (names with / or > allow it).
    """
    flows: list[Flow] = []
    for part in spec.traffic:
        transport = registry.resolve(part.transport.name)
        parameters = transport.make_parameters(dict(part.transport.parameters))
        for name in part.paths:
            if (mtu_bytes := spec.topology.path_mtu_bytes(name)) < transport.min_mtu_bytes:
                raise UnsupportedError(
                    f"{transport.name} needs packets of {transport.min_mtu_bytes} bytes; {name} takes {mtu_bytes}"
                )
        for source, destination in _directions(part):
            groups = [(name,) for name in part.paths] if transport.paths == "one" else [part.paths]
            capacities = tuple(_capacity(spec.topology, group) for group in groups)
            for index, group in enumerate(groups):
                flows.append(
                    Flow(
                        id=FlowId(owner=part.name, source=source, destination=destination, paths=tuple(group)),
                        transport=transport,
                        parameters=parameters,
                        index=index,
                        capacities=capacities,
                    )
                )
    seen: set[str] = set()
    for flow in flows:
        if flow.name in seen:
            raise FieldError("traffic", f"two flows are called {flow.name!r}; rename a job, a site or a path")
        seen.add(flow.name)
    return tuple(flows)


def _directions(part: JobSpec | BackgroundSpec) -> Sequence[tuple[str, str]]:
    if isinstance(part, BackgroundSpec):
        return ((part.source, part.destination),)
    west, east = part.allreduce.sites
    return ((west, east), (east, west))


def _capacity(topology: Topology, paths: Sequence[str]) -> PathCapacity:
    return PathCapacity(min(map(topology.path_delay_s, paths)), sum(map(topology.path_rate_bps, paths)))


def stripe(total_bytes: int, capacities: Sequence[PathCapacity]) -> tuple[tuple[int, int], ...]:
    """Return the (start, stop) of each flow's part of a message, so that all parts land at the same time.

    A part is proportional to rate_i * (T - delay_i), with T as in `landing_s`. Over equal delays that is proportional
    to the rate. A path gets nothing when its first bit would land after the others have carried the whole message.
    A sender that knows its paths divides a message in this way, so a part that lands late is due to the transport.
    """
    lands_s = landing_s(capacities, total_bytes)
    shares = [capacity.rate_bps * max(0.0, lands_s - capacity.delay_s) for capacity in capacities]
    whole = sum(shares)
    edges = [0]
    so_far = 0.0
    for share in shares:
        so_far += share
        edges.append(round(total_bytes * (so_far / whole)) if whole else 0)
    edges[-1] = total_bytes
    return tuple(pairwise(edges))


def landing_s(capacities: Sequence[PathCapacity], payload_bytes: int) -> float:
    """Return when the whole message of an ideal sender has arrived, in seconds from the departure of its first bit.

    This is the T that solves sum(rate_i * max(0, T - delay_i)) = 8 * payload: every path that is used ends then.
    """
    rate_bps = rate_times_delay = 0.0
    lands_s = INFINITY
    for delay_s, path_rate_bps in sorted(capacities):
        if delay_s >= lands_s:
            break
        rate_bps += path_rate_bps
        rate_times_delay += path_rate_bps * delay_s
        lands_s = (8 * payload_bytes + rate_times_delay) / rate_bps
    return lands_s


def path_views(topology: Topology, paths: Sequence[str], *, encapsulation_bytes: int = 0) -> tuple[PathView, ...]:
    """Return what an endpoint is told about its paths, numbered from 0 in the given order.

    encapsulation_bytes: what the world itself adds to each packet; the MTU is smaller by it.
    """
    return tuple(
        PathView(path_id=index, name=name, mtu_bytes=topology.path_mtu_bytes(name) - encapsulation_bytes)
        for index, name in enumerate(paths)
    )


def message_bound_s(topology: Topology, paths: Sequence[str], payload_bytes: int) -> float:
    """Return the least time in which any transport could deliver a message over `paths`, in seconds.

    One-way propagation plus payload over bottleneck rate; see `landing_s` for several paths. Where capacity changes,
    the highest rate is used, so that the bound holds for every iteration.
    """
    return landing_s(
        [PathCapacity(topology.path_delay_s(name), topology.path_peak_rate_bps(name)) for name in paths], payload_bytes
    )
