"""Makes the rows of the record from what the two ends of a job's flows have counted, for every world.

In the simulator one process has both ends. With real packets each coast reports its own end, and both are joined here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bicoastal.emulation.base import JobSpec
from bicoastal.emulation.records import FlowRecord, FlowSample, FlowSummary, IterationRecord
from bicoastal.emulation.traffic.flows import Flow, message_bound_s
from bicoastal.transports.base import Counters, Sample
from bicoastal.wan.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What one end of a flow has counted, or both ends together.

    wire_bytes: everything it put on the wire, headers and framing included.
    """

    wire_bytes: int = 0
    counters: Counters = field(default_factory=Counters)

    def __add__(self, other: "Tally") -> "Tally":
        """Return the sum of two tallies."""
        return Tally(wire_bytes=self.wire_bytes + other.wire_bytes, counters=self.counters + other.counters)

    def __sub__(self, before: "Tally") -> "Tally":
        """Return what has been counted since `before`."""
        return Tally(wire_bytes=self.wire_bytes - before.wire_bytes, counters=self.counters - before.counters)


def joined(sender: Tally, receiver: Tally) -> Tally:
    """Return a flow's tally: the sender's, with the receiver's bytes on the wire and rejected datagrams."""
    return sender + Tally(wire_bytes=receiver.wire_bytes, counters=Counters(rejected=receiver.counters.rejected))


@dataclass(slots=True)
class Delivery:
    """One flow's message of one trip, while the iteration lasts. Times as in `FlowRecord`."""

    start_s: float
    payload_bytes: int
    completion_s: float | None = None


def iteration_bound_s(job: JobSpec, topology: Topology) -> float:
    """Return the least time in which an iteration's messages can cross, seconds: the slower direction, trip by trip."""
    return sum(
        max(
            message_bound_s(topology, job.paths, message.payload_bytes)
            for message in job.allreduce.messages
            if message.trip == trip
        )
        for trip in range(job.allreduce.trips)
    )


def close_iteration(
    job: JobSpec,
    flows: Sequence[Flow],
    *,
    iteration: int,
    start_s: float,
    completion_s: float | None,
    bound_s: float,
    verified: bool,
    reason: str,
    deliveries: Mapping[tuple[str, int], Delivery],
    tallies: Mapping[str, Tally],
    doubt: str = "",
) -> tuple[IterationRecord, list[FlowRecord]]:
    """Return the rows of an iteration that has ended.

    deliveries: by (flow, trip). tallies: by flow, what both ends have counted in this iteration. reason: why an
    incomplete iteration failed. doubt: why the figures of a complete one may be wrong (the world was late), or "".
    """
    rows: list[FlowRecord] = []
    trips: dict[str, list[tuple[int, Delivery]]] = {flow.name: [] for flow in flows}
    for (name, trip), delivery in deliveries.items():
        trips[name].append((trip, delivery))
    for flow in flows:
        last = max((trip for trip, _ in trips[flow.name]), default=0)
        for trip, delivery in trips[flow.name]:
            # the counts are of the whole iteration: with two trips, the row of the last one has them
            tally = tallies[flow.name] if trip == last else Tally()
            rows.append(_flow_record(job, flow, iteration=iteration, trip=trip, delivery=delivery, tally=tally))
    if completion_s is not None and not verified:
        reason = f"iteration {iteration} of {job.name}: a rank's result is not the true sum"
    elif completion_s is not None:
        reason = doubt
    record = IterationRecord(
        job=job.name,
        transport=job.transport.name,
        iteration=iteration,
        start_s=start_s,
        completion_s=completion_s,
        bound_s=bound_s,
        local_s=job.allreduce.local_s,
        payload_bytes=job.allreduce.payload_bytes,
        wire_bytes=sum(tally.wire_bytes for tally in tallies.values()),
        verified=verified,
        status=("degraded" if doubt else "ok") if verified else "failed",
        reason=reason,
    )
    return record, rows


def _flow_record(
    job: JobSpec, flow: Flow, *, iteration: int, trip: int, delivery: Delivery, tally: Tally
) -> FlowRecord:
    return FlowRecord(
        job=job.name,
        flow=flow.name,
        iteration=iteration,
        trip=trip,
        source=flow.source,
        destination=flow.destination,
        path="+".join(flow.paths),
        payload_bytes=delivery.payload_bytes,
        start_s=delivery.start_s,
        completion_s=delivery.completion_s,
        wire_bytes=tally.wire_bytes,
        **tally.counters.as_dict(),
    )


def summarise(flow: Flow, handshake_s: float | None) -> FlowSummary:
    """Return a flow's summary; handshake_s None means that it never connected."""
    return FlowSummary(
        flow=flow.name,
        job=flow.owner,
        transport=flow.transport.name,
        source=flow.source,
        destination=flow.destination,
        path="+".join(flow.paths),
        handshake_s=handshake_s,
    )


def flow_sample(flow: str, at_s: float, sample: Sample) -> FlowSample:
    """Return the row of a point of a flow's time series."""
    return FlowSample(
        flow=flow,
        at_s=at_s,
        cwnd_bytes=sample.cwnd_bytes,
        in_flight_bytes=sample.in_flight_bytes,
        pacing_rate_bps=sample.pacing_rate_bps,
        srtt_s=sample.srtt_s,
    )
