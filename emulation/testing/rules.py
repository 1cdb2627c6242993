"""The rules for the records of every world: each broken rule gives one sentence."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from bicoastal.emulation.base import JobSpec, RunSpec
from bicoastal.emulation.records import FlowRecord, IterationRecord, RunRecord
from bicoastal.emulation.traffic.flows import Flow, message_bound_s

IP_HEADER_BYTES = 20
_ROUNDING_S = 1e-9  # of sums of times that lie within a day


def broken_rules(
    spec: RunSpec, record: RunRecord, flows: Sequence[Flow], *, backend: str, tolerance_s: float
) -> Iterator[str]:
    """Yield a sentence for each error in the record of a run that should succeed.

    flows: those of `plan_flows`. tolerance_s: the error of a clock.
    """
    if (record.scenario, record.backend, record.seed) != (spec.name, backend, spec.seed):
        yield (
            f"the record is of {record.scenario!r} in {record.backend!r} with seed {record.seed}, "
            f"not of {spec.name!r} in {backend!r} with seed {spec.seed}"
        )
    if record.status == "failed" or (record.status == "ok" and record.reason):
        yield f"the run has status {record.status!r} and the reason {record.reason!r}"
    if record.scale != 1:
        yield f"scale is {record.scale}, though nothing had to be scaled"
    slack_s = tolerance_s + _ROUNDING_S
    yield from _summaries(record, flows)
    yield from _links(spec, record)
    for job in spec.jobs:
        rows = [row for row in record.iterations if row.job == job.name]
        if [row.iteration for row in rows] != list(range(job.iterations)):
            yield f"{job.name} has the iterations {[row.iteration for row in rows]} instead of {job.iterations}"
            continue
        connected_s = max((summary.handshake_s or 0.0 for summary in record.summaries), default=0.0)
        if rows[0].start_s < connected_s + job.start_s - slack_s:
            yield f"{job.name} began at {rows[0].start_s} s; connections stood at {connected_s} s"
        for row, following in pairwise(rows):
            if (
                row.completion_s is not None
                and following.start_s < row.start_s + row.completion_s + job.gap_s - slack_s
            ):
                yield f"{_name(following)} began less than {job.gap_s} s after the one before was complete"
        own = [flow for flow in flows if flow.owner == job.name]
        for row in rows:
            parts = [part for part in record.flows if (part.job, part.iteration) == (job.name, row.iteration)]
            yield from _iteration(spec, job, row, slack_s)
            yield from _flows(spec, job, row, parts, own, slack_s=slack_s)
    names = {job.name for job in spec.jobs}
    found = {row.job for row in record.iterations} | {row.job for row in record.flows}
    for unknown in sorted(found - names):
        yield f"there are rows of {unknown!r}, which is not a job"
    yield from _samples(record, flows, slack_s)


def _name(row: IterationRecord | FlowRecord) -> str:
    flow = f", {row.flow}, trip {row.trip}" if isinstance(row, FlowRecord) else ""
    return f"iteration {row.iteration} of {row.job}{flow}"


def _iteration(spec: RunSpec, job: JobSpec, row: IterationRecord, slack_s: float) -> Iterator[str]:
    allreduce = job.allreduce
    if row.status == "failed" or not row.verified:
        yield f"{_name(row)} has status {row.status!r}, {'' if row.verified else 'not '}verified: {row.reason!r}"
    if row.transport != job.transport.name:
        yield f"{_name(row)} was carried by {row.transport!r} instead of {job.transport.name!r}"
    if row.payload_bytes != allreduce.payload_bytes:
        yield f"{_name(row)} has {row.payload_bytes} bytes of payload instead of {allreduce.payload_bytes}"
    bound_s = sum(
        message_bound_s(spec.topology, job.paths, allreduce.trip_bytes(trip)) for trip in range(allreduce.trips)
    )
    if abs(row.bound_s - bound_s) > 1e-9 + 1e-9 * bound_s:
        yield f"{_name(row)} has the bound {row.bound_s} s; propagation and serialisation take {bound_s} s"
    if row.completion_s is None:
        yield f"{_name(row)} has no completion time"
    elif row.completion_s < bound_s - slack_s:
        yield f"{_name(row)} took {row.completion_s} s, less than its bound of {bound_s} s"
    least_bytes = sum(_least_wire_bytes(spec, job, message.payload_bytes) for message in allreduce.messages)
    if row.wire_bytes < least_bytes:
        yield f"{_name(row)} put {row.wire_bytes} bytes on the wire; payload and headers alone are {least_bytes}"


def _least_wire_bytes(spec: RunSpec, job: JobSpec, payload_bytes: int) -> int:
    """Return the size of a message in the fewest packets that hold it, each with an IP header and the frame's share."""
    topology = spec.topology
    room_bytes = max(topology.path_mtu_bytes(name) for name in job.paths) - IP_HEADER_BYTES
    added_bytes = min(
        topology.paths[name].overhead_bytes + min(link.framing_bytes for link in topology.path_links(name))
        for name in job.paths
    )
    return payload_bytes + -(-payload_bytes // room_bytes) * (IP_HEADER_BYTES + added_bytes)


def _flows(
    spec: RunSpec,
    job: JobSpec,
    row: IterationRecord,
    parts: Sequence[FlowRecord],
    own: Sequence[Flow],
    *,
    slack_s: float,
) -> Iterator[str]:
    expected = Counter((flow.name, trip) for flow in own for trip in range(job.allreduce.trips))
    found = Counter((part.flow, part.trip) for part in parts)
    for name, trip in expected - found:
        yield f"{_name(row)} has no row for {name}, trip {trip}"
    for (name, trip), surplus in (found - expected).items():
        yield f"{_name(row)} has {surplus} rows too many for {name}, trip {trip}"
    if found != expected:
        return
    planned = {flow.name: flow for flow in own}
    for part in parts:
        flow = planned[part.flow]
        ends = (part.source, part.destination, part.path)
        if ends != (flow.source, flow.destination, "+".join(flow.paths)):
            yield f"{_name(part)} goes from {part.source} to {part.destination} over {part.path}"
        yield from _counters(part)
        if part.completion_s is None:
            yield f"{_name(part)} has no completion time"
            continue
        longest_s = min(spec.topology.path_delay_s(name) for name in flow.paths)
        if part.completion_s < longest_s - slack_s:
            yield f"{_name(part)} took {part.completion_s} s, less than light does"
        before_s = max((_end_s(other) for other in parts if _precedes(other, part)), default=row.start_s)
        if part.start_s < before_s - slack_s:
            yield f"{_name(part)} began at {part.start_s} s, before what it had to wait for, at {before_s} s"
    for message in job.allreduce.messages:
        carried = sum(
            part.payload_bytes for part in parts if (part.trip, part.source) == (message.trip, message.source)
        )
        if carried != message.payload_bytes:
            yield (
                f"{_name(row)}: trip {message.trip} from {message.source} carried {carried} bytes "
                f"instead of {message.payload_bytes}"
            )
    if row.completion_s is not None and all(part.completion_s is not None for part in parts):
        late_s = row.start_s + row.completion_s - max(_end_s(part) for part in parts)
        if abs(late_s) > slack_s:
            yield f"{_name(row)} ends {late_s} s after the slowest of its messages"
    wire_bytes = sum(part.wire_bytes for part in parts)
    if wire_bytes != row.wire_bytes:
        yield f"{_name(row)} put {row.wire_bytes} bytes on the wire, its flows {wire_bytes}"


def _precedes(part: FlowRecord, other: FlowRecord) -> bool:
    """Return whether `other` can only be sent when `part` has arrived."""
    return part.trip == other.trip - 1 and part.destination == other.source


def _end_s(part: FlowRecord) -> float:
    return part.start_s + (part.completion_s or 0.0)


def _counters(part: FlowRecord) -> Iterator[str]:
    for name in ("payload_bytes", "wire_bytes", "packets", "repairs", "probes", "timeouts", "spurious", "rejected"):
        if getattr(part, name) < 0:
            yield f"{_name(part)} has counted {getattr(part, name)} {name}"
    if part.repairs > part.packets:
        yield f"{_name(part)} has sent {part.repairs} repairs in {part.packets} packets"


def _summaries(record: RunRecord, flows: Sequence[Flow]) -> Iterator[str]:
    expected = Counter((flow.name, flow.owner, flow.source, flow.destination) for flow in flows)
    found = Counter((each.flow, each.job, each.source, each.destination) for each in record.summaries)
    if found != expected:
        yield f"the summaries are of {sorted(found)}; the flows are {sorted(expected)}"
    for summary in record.summaries:
        if summary.handshake_s is None or summary.handshake_s < 0:
            yield f"{summary.flow} has the handshake time {summary.handshake_s}, though it delivered"


def _links(spec: RunSpec, record: RunRecord) -> Iterator[str]:
    directions = Counter(
        (name, direction)
        for name, link in spec.topology.links.items()
        for direction in (f"{link.a}>{link.b}", f"{link.b}>{link.a}")
    )
    found = Counter((row.link, row.direction) for row in record.links)
    if record.links and found != directions:
        yield f"the links' rows are {sorted(found)}; the links are {sorted(directions)}"
    for row in record.links:
        if row.packets + row.duplicated != row.delivered + row.lost + row.dropped_queue + row.dropped_outage:
            yield f"{row.link}, {row.direction}: packets and copies are more or fewer than those accounted for"


def _samples(record: RunRecord, flows: Sequence[Flow], slack_s: float) -> Iterator[str]:
    known = {flow.name for flow in flows}
    active = [
        (row.start_s, row.start_s + row.completion_s) for row in record.iterations if row.completion_s is not None
    ]
    last: dict[str, float] = {}
    for sample in record.samples:
        if sample.flow not in known:
            yield f"there is a sample of {sample.flow!r}, which is no flow"
        if sample.at_s <= last.get(sample.flow, -1.0):
            yield f"the samples of {sample.flow} go back in time at {sample.at_s} s"
        last[sample.flow] = sample.at_s
        if not any(start_s - slack_s <= sample.at_s <= end_s + slack_s for start_s, end_s in active):
            yield f"there is a sample of {sample.flow} at {sample.at_s} s, when no job was active"
