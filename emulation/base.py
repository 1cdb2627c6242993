"""What a run is and what executes it: a `Backend` takes a `RunSpec` and returns a `RunRecord`."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from bicoastal.emulation.records import RunRecord
from bicoastal.transports.registry import Registry
from bicoastal.wan.allreduce import AllReduceSpec
from bicoastal.wan.checks import FieldError, check_name, check_not_negative, check_positive, check_whole
from bicoastal.wan.topology import Topology

ParameterValue = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportUse:
    """A transport by name, with the parameters that differ from its defaults. Another process resolves it again."""

    name: str
    parameters: tuple[tuple[str, ParameterValue], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A training job: the same all-reduce again and again, `gap_s` of computation after each.

    paths: names of topology paths between the two sites of `allreduce`. start_s: when its first iteration may begin,
    counted from the moment when all connections are established. Raises FieldError.
    """

    name: str
    transport: TransportUse
    paths: tuple[str, ...]
    allreduce: AllReduceSpec
    iterations: int
    gap_s: float = 1.0
    start_s: float = 0.0

    def __post_init__(self) -> None:
        """Check every field that can be checked without a topology."""
        check_name("name", self.name)
        check_whole("iterations", self.iterations, 1)
        check_not_negative("gap_s", self.gap_s)
        check_not_negative("start_s", self.start_s)
        _check_paths(self.paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundSpec:
    """Other traffic on the same links: messages of `message_bytes` from `source` to `destination`, one after another.

    It continues, with `gap_s` between messages, until the jobs are done or `messages` have been sent. Raises
    FieldError.
    """

    name: str
    transport: TransportUse
    paths: tuple[str, ...]
    source: str
    destination: str
    message_bytes: int
    gap_s: float = 0.0
    start_s: float = 0.0
    messages: int | None = None

    def __post_init__(self) -> None:
        """Check every field that can be checked without a topology."""
        check_name("name", self.name)
        check_whole("message_bytes", self.message_bytes, 1)
        if self.messages is not None:
            check_whole("messages", self.messages, 1)
        check_not_negative("gap_s", self.gap_s)
        check_not_negative("start_s", self.start_s)
        _check_paths(self.paths)


def _check_paths(paths: tuple[str, ...]) -> None:
    if not paths:
        raise FieldError("paths", "there is none")
    for name in paths:
        if paths.count(name) > 1:
            raise FieldError("paths", f"{name!r} is there twice")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One complete run: what every backend needs, and nothing that only one of them understands.

    seed: every random stream is keyed by (seed, name of the process that draws). Keys, tokens and sequence numbers are
    exceptions where packets are real, because they have to be secret. time_limit_s: how long one iteration, or the
    handshakes, may take before the run fails. sample_interval_s: spacing of the time series, None for no time series.
    eager_encoding: encode every payload as octets and parse it again, also in worlds that do not need that.
    scale: the number by which rates and payloads have already been divided; it is only recorded.
    Raises FieldError.
    """

    name: str
    topology: Topology
    jobs: tuple[JobSpec, ...]
    background: tuple[BackgroundSpec, ...] = ()
    seed: int = 0
    time_limit_s: float = 300.0
    sample_interval_s: float | None = None
    eager_encoding: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        """Check the numbers, and names against the topology."""
        if not self.jobs:
            raise FieldError("jobs", "a run needs at least one job")
        check_positive("time_limit_s", self.time_limit_s)
        check_positive("scale", self.scale)
        if self.sample_interval_s is not None:
            check_positive("sample_interval_s", self.sample_interval_s)
        names: set[str] = set()
        for part in self.traffic:
            if part.name in names:
                raise FieldError("jobs", f"two jobs or background flows are called {part.name!r}")
            names.add(part.name)
            ends = part.allreduce.sites if isinstance(part, JobSpec) else (part.source, part.destination)
            for path_name in part.paths:
                if path_name not in self.topology.paths:
                    raise FieldError("paths", f"{part.name} uses {path_name!r}, which the topology does not have")
                path = self.topology.paths[path_name]
                if {path.sites[0], path.sites[-1]} != set(ends):
                    raise FieldError("paths", f"{path_name!r} does not join {ends[0]} and {ends[1]}")

    @property
    def traffic(self) -> tuple[JobSpec | BackgroundSpec, ...]:
        """Everything that sends: the jobs first, then the background traffic."""
        return (*self.jobs, *self.background)

    @property
    def array_note(self) -> str:
        """How the jobs' arrays were scaled to save memory, job by job; empty when none was scaled."""
        notes = [(job.name, job.allreduce.array_note) for job in self.jobs if job.allreduce.array_note]
        if len(self.jobs) == 1:
            return "".join(note for _, note in notes)
        return " ".join(f"{name}: {note}" for name, note in notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend can do on this machine.

    features: what transports may name in `TransportSpec.requires`. max_rate_bps: None means that there is no limit.
    """

    name: str
    real_time: bool
    features: frozenset[str] = frozenset()
    max_rate_bps: float | None = None


class UnsupportedError(Exception):
    """This world cannot execute the request; the message says why, in one sentence."""


class RunFailedError(Exception):
    """The run could not be completed, and no transport is the reason (a failed probe, a lost process)."""


class Backend(ABC):
    """An execution environment. It resolves transports in the registry that it is made with."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Return what this world can do on this machine."""

    def least_scale(self, spec: RunSpec) -> float:
        """Return the divisor of rates and payloads, at least 1, with which this world can carry `spec`.

        Raises as `run` does for names and parameters, and UnsupportedError when no scale is large enough.
        """
        return 1.0

    @abstractmethod
    def run(self, spec: RunSpec) -> RunRecord:
        """Run `spec` to its end and return what happened; a transport that fails makes a failed record.

        Raises UnsupportedError when this world cannot execute `spec`, RunFailedError when the world itself failed,
        UnknownTransportError and ValueError for names and parameters that do not exist or cannot be combined.
        `emulation.testing.check_backend` checks the rules that every world must follow.
        """
