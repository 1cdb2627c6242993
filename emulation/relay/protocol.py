"""The messages between a relay and the process that started it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bicoastal.emulation.processes.wire_format import WireFormat
from bicoastal.emulation.realtime.lateness import Lateness, worst
from bicoastal.emulation.records import LinkRecord, QueueSample
from bicoastal.emulation.relay.frames import BurstRule
from bicoastal.wan.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayPath:
    """A path's two interfaces in the middle namespace: left leads to its first site, right to its last."""

    name: str
    left: str
    right: str
    mtu_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayPlan:
    """The first order to a relay. epoch_s: when the run begins, on the monotonic clock.

    bursts: how to recognise the bursts on a path, by its name. sample_interval_s: spacing of the queues' time series.
    calm: the links' events do not happen (for probes). processor: the one to run on, None for any. real_time: ask for
    a real-time scheduling priority, which only root gets.
    """

    topology: Topology
    paths: tuple[RelayPath, ...]
    seed: int
    epoch_s: float
    bursts: Mapping[str, BurstRule] = field(default_factory=dict)
    sample_interval_s: float | None = None
    calm: bool = False
    processor: int | None = None
    real_time: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Begin again with fresh links, streams and counts; frames on their way are dropped. Fields: see `RelayPlan`."""

    seed: int
    epoch_s: float
    bursts: Mapping[str, BurstRule] = field(default_factory=dict)
    sample_interval_s: float | None = None
    calm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginIteration:
    """An iteration of the first job begins at `begins_s`, counted from the epoch."""

    iteration: int
    begins_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """Ask for a `RelayReport`. stop: the relay ends after it."""

    stop: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The answer to a `RelayPlan`: the relay forwards frames from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The answer of a relay that cannot work and ends. reason: one sentence."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayReport:
    """What one relay, or several together, did since the last start or restart.

    lateness: time from when a frame was due until it was sent. reading: time from when the kernel put a frame into the
    ring until the relay took it; links calculate from the former time. cpu_share, busiest_cpu_share: of one core, on
    average and in the busiest second. ring_dropped: frames that came faster than the relay could take them. unsent:
    frames for which the kernel had no room. backlog_dropped: packets of any sender that the processors' backlogs
    refused. These three should be zero. real_time: whether a real-time priority was granted.
    """

    elapsed_s: float
    lateness: Lateness
    reading: Lateness
    cpu_share: float
    busiest_cpu_share: float
    ring_dropped: int
    unsent: int
    backlog_dropped: int
    real_time: bool
    links: tuple[LinkRecord, ...]
    queues: tuple[QueueSample, ...]

    @classmethod
    def merged(cls, reports: "Sequence[RelayReport]") -> "RelayReport":
        """Return one report for several relays: the sums of counts, and the worst times and shares."""
        return cls(
            elapsed_s=max(each.elapsed_s for each in reports),
            lateness=worst([each.lateness for each in reports]),
            reading=worst([each.reading for each in reports]),
            cpu_share=max(each.cpu_share for each in reports),
            busiest_cpu_share=max(each.busiest_cpu_share for each in reports),
            ring_dropped=sum(each.ring_dropped for each in reports),
            unsent=sum(each.unsent for each in reports),
            backlog_dropped=max(
                each.backlog_dropped for each in reports
            ),  # each relay has counted the packets of the whole machine
            real_time=all(each.real_time for each in reports),
            links=tuple(link for each in reports for link in each.links),
            queues=tuple(sorted((queue for each in reports for queue in each.queues), key=lambda queue: queue.at_s)),
        )

    def troubles(self, *, p99_limit_s: float = 1e-3, cpu_limit: float = 0.95) -> tuple[str, ...]:
        """Return the reasons to doubt the run's figures, one sentence each."""
        found = []
        if self.lateness.p99_s > p99_limit_s:
            found.append(f"the relay was {self.lateness.p99_s * 1e3:.2f} ms late at the 99th percentile")
        if self.busiest_cpu_share > cpu_limit:
            found.append(f"the relay took {self.busiest_cpu_share:.0%} of a core in its busiest second")
        for count, where in (
            (self.ring_dropped, "before the relay could take them"),
            (self.unsent, "for want of room in the kernel"),
            (self.backlog_dropped, "in the processors' backlogs"),
        ):
            if count:
                found.append(f"{count} packets were lost {where}")
        return tuple(found)


Order = RelayPlan | Restart | BeginIteration | ReportRequest
Answer = Ready | Refusal | RelayReport
ORDERS = WireFormat[Order](Order)
"""Orders to a relay: first a plan, then any others. `ReportRequest` is answered with a `RelayReport`."""
ANSWERS = WireFormat[Answer](Answer)
