"""The records of a run: frozen rows, which are all that the analysis reads (through the store).

Times are seconds on the run's own clock, which is zero when the first handshake begins; sizes are bytes.
"""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "degraded", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowRecord:
    """One flow's part in one trip of one iteration.

    completion_s: from the first byte offered to the last byte delivered at the receiver; None when it did not arrive.
    wire_bytes: everything that the flow put on the wire in this iteration, in both directions, with headers,
    acknowledgements and framing. packets, repairs, probes, timeouts, spurious: `transports.base.Counters` of the
    sending end, counted in this iteration. rejected: of both ends. When an iteration has several trips, the row of the
    last trip has the counts of the whole iteration.
    """

    job: str
    flow: str
    iteration: int
    trip: int
    source: str
    destination: str
    path: str
    payload_bytes: int
    start_s: float
    completion_s: float | None
    wire_bytes: int
    packets: int
    repairs: int
    probes: int
    timeouts: int
    spurious: int
    rejected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationRecord:
    """One iteration of one job: the slowest of its messages, both directions, delivered and verified.

    bound_s: one-way propagation + payload / bottleneck rate (`message_bound_s`), summed over the trips.
    local_s: time in the coast's own fabric before and after the WAN, not part of completion_s.
    verified: every rank's result equalled the true sum.
    """

    job: str
    transport: str
    iteration: int
    start_s: float
    completion_s: float | None
    bound_s: float
    local_s: float
    payload_bytes: int
    wire_bytes: int
    verified: bool
    status: Status
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSummary:
    """A whole flow: its transport, and how long its handshake took (None when it never connected)."""

    flow: str
    job: str
    transport: str
    source: str
    destination: str
    path: str
    handshake_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSample:
    """One point of a flow's time series, taken at the sending end."""

    flow: str
    at_s: float
    cwnd_bytes: float | None
    in_flight_bytes: float | None
    pacing_rate_bps: float | None
    srtt_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSample:
    """Bytes that wait in the queue of one direction of a link ("a>b")."""

    link: str
    direction: str
    at_s: float
    backlog_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRecord:
    """What happened to the packets of one direction of a link over the whole run."""

    link: str
    direction: str
    packets: int
    bytes: int
    delivered: int
    lost: int
    dropped_queue: int
    dropped_outage: int
    duplicated: int
    corrupted: int
    reordered: int

    @property
    def source(self) -> str:
        """The site at which the packets entered the link. A site's name has no ">" (`bicoastal.wan.topology.Site`)."""
        return self.direction.partition(">")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeRecord:
    """A `transports.events.Notice` of a machine, with its source and time."""

    source: str
    at_s: float
    kind: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Everything that is recorded of one run. scale: rates and payloads were divided by it; 1 means full rate.

    array_note: how the gradient arrays were scaled; empty when they had their real size.
    """

    scenario: str
    backend: str
    seed: int
    scale: float
    status: Status
    reason: str
    array_note: str
    iterations: tuple[IterationRecord, ...]
    flows: tuple[FlowRecord, ...]
    summaries: tuple[FlowSummary, ...]
    links: tuple[LinkRecord, ...] = ()
    samples: tuple[FlowSample, ...] = ()
    queues: tuple[QueueSample, ...] = ()
    notices: tuple[NoticeRecord, ...] = ()
