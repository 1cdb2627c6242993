"""From a RunSpec to its flows: which endpoint pairs there are, on which paths, and how messages spread over them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from bicoastal.emulation.base import BackgroundSpec, JobSpec, RunSpec, UnsupportedError
from bicoastal.transports.base import FlowId, PathView
from bicoastal.transports.registry import Registry, TransportSpec
from bicoastal.wan.checks import FieldError
from bicoastal.wan.topology import Topology

MAX_TRIPS = 256


class Lane(NamedTuple):
    """What a flow's part of a message crosses: one-way propagation in seconds, and bit/s."""

    delay_s: float
    rate_bps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One connection, used in one direction: the client at `source` sends, the server at `destination` receives.

    index: its place among the flows that carry one message together; lanes: those of them all, by which `stripe`
    divides the message.
    """

    id: FlowId
    transport: TransportSpec
    parameters: object
    index: int
    lanes: tuple[Lane, ...]

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
            lanes = tuple(_lane(spec.topology, group) for group in groups)
            for index, group in enumerate(groups):
                flows.append(
                    Flow(
                        id=FlowId(owner=part.name, source=source, destination=destination, paths=tuple(group)),
                        transport=transport,
                        parameters=parameters,
                        index=index,
                        lanes=lanes,
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


def _lane(topology: Topology, paths: Sequence[str]) -> Lane:
    return Lane(min(map(topology.path_delay_s, paths)), sum(map(topology.path_rate_bps, paths)))


def stripe(total_bytes: int, lanes: Sequence[Lane]) -> tuple[tuple[int, int], ...]:
    """Return the (start, stop) of each flow's part of a message, such that all would land together.

    In proportion to rate_i * (T - delay_i), T as in `landing_s`: over equal delays to the rates, and nothing for a
    lane on which the first bit lands after the whole message has on the others. A sender that knows its paths divides
    like that; what then lands late is the transport's doing.
    """
    lands_s = landing_s(lanes, total_bytes)
    shares = [lane.rate_bps * max(0.0, lands_s - lane.delay_s) for lane in lanes]
    whole = sum(shares)
    edges = [0]
    so_far = 0.0
    for share in shares:
        so_far += share
        edges.append(round(total_bytes * (so_far / whole)) if whole else 0)
    edges[-1] = total_bytes
    return tuple(pairwise(edges))


def landing_s(lanes: Sequence[Lane], payload_bytes: int) -> float:
    """Return when an ideal sender's message has landed, seconds from its first bit's departure.

    The T that solves sum(rate_i * max(0, T - delay_i)) = 8 * payload: every lane that carries any of it ends then.
    """
    rate_bps = rate_times_delay = 0.0
    lands_s = float("inf")
    for delay_s, lane_rate_bps in sorted(lanes):
        if delay_s >= lands_s:
            break
        rate_bps += lane_rate_bps
        rate_times_delay += lane_rate_bps * delay_s
        lands_s = (8 * payload_bytes + rate_times_delay) / rate_bps
    return lands_s


def path_views(topology: Topology, paths: Sequence[str], *, encapsulation_bytes: int = 0) -> tuple[PathView, ...]:
    """Return what an endpoint is told of its paths, numbered from 0 in the given order.

    encapsulation_bytes: what the world itself adds to each packet, taken off the MTU.
    """
    return tuple(
        PathView(path_id=index, name=name, mtu_bytes=topology.path_mtu_bytes(name) - encapsulation_bytes)
        for index, name in enumerate(paths)
    )


def message_bound_s(topology: Topology, paths: Sequence[str], payload_bytes: int) -> float:
    """Return the least time in which any transport could deliver a message over `paths`, in seconds.

    One-way propagation plus payload over bottleneck rate; over several paths see `landing_s`. Where capacity changes,
    at the highest rate of all: what holds for every iteration.
    """
    return landing_s(
        [Lane(topology.path_delay_s(name), topology.path_peak_rate_bps(name)) for name in paths], payload_bytes
    )
