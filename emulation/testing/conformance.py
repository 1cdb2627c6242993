"""`check_backend`: a few small runs in any world, and a readable report."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bicoastal.emulation.base import (
    Backend,
    BackgroundSpec,
    Capabilities,
    JobSpec,
    RunSpec,
    TransportUse,
    UnsupportedError,
)
from bicoastal.emulation.records import RunRecord
from bicoastal.emulation.testing import transports
from bicoastal.emulation.testing.rules import broken_rules
from bicoastal.emulation.traffic.flows import plan_flows
from bicoastal.transports.registry import UnknownTransportError
from bicoastal.wan.allreduce import AllReduceSpec, Pattern
from bicoastal.wan.checks import FieldError
from bicoastal.wan.loss import Bernoulli
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

WEST, EAST = "west", "east"
RATE_BPS = 2.5e6  # every machine can forward this in Python, even a busy or an emulated one
DELAY_S = 0.010
SHARD_BYTES = 60_000
PLAIN = TransportUse(name=transports.PLAIN_NAME)


class BackendConformanceError(AssertionError):
    """A backend does not follow the rules; the message is the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendViolation:
    """A broken rule: the check, and one sentence."""

    check: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendConformanceReport:
    """What was checked and the result. unsupported: the checks that this world declined, with its reasons."""

    backend: str
    real_time: bool
    checks: tuple[str, ...]
    unsupported: Mapping[str, str] = field(default_factory=dict)
    violations: tuple[BackendViolation, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether no rule was broken."""
        return not self.violations

    def raise_on_failure(self) -> None:
        """Raise BackendConformanceError unless `ok`."""
        if self.violations:
            raise BackendConformanceError(str(self))

    def __str__(self) -> str:
        """Return the report, a line for each check that was declined and for each violation."""
        clock = "in real time" if self.real_time else "in virtual time"
        lines = [f"{self.backend}, {clock}: {len(self.checks)} checks, {len(self.violations)} violations"]
        lines += [f"  {check}: unsupported: {reason}" for check, reason in self.unsupported.items()]
        lines += [f"  {violation.check}: {violation.sentence}" for violation in self.violations]
        return "\n".join(lines)


def check_backend(
    backend: Backend, *, transport: TransportUse = PLAIN, tolerance_s: float | None = None, time_limit_s: float = 2.0
) -> BackendConformanceReport:
    """Run small specs in a world and compare its records with the rules that every world must follow.

    transport: of the runs that should succeed; by default the suite's own, a sans-io one. Pass another one for a world
    that runs only programs. tolerance_s: the error of a clock; None means 2 ms in real time, and zero in virtual time.
    time_limit_s: of an iteration that never ends; in real time, three checks wait for it.

    What is checked: one row for each flow, iteration and trip, and one summary for each flow; every message whole and
    verified; no completion below its bound; trips, iterations and samples in the order of time; bytes on the wire no
    fewer than payload and headers; counters and links that add up; the same record twice, unless in real time; failed
    records, with their reasons, of a transport that never connects, gives up, stalls, or delivers a single flipped
    bit; UnsupportedError for what no world has, and beyond a ceiling; UnknownTransportError and ValueError for names
    and parameters that do not exist.

    A world may decline lossy links and background traffic with UnsupportedError. Where another transport is given, it
    may also decline the suite's own. The report lists what was declined. Raises FieldError for numbers out of range.
    """
    if tolerance_s is not None and not tolerance_s >= 0:
        raise FieldError("tolerance_s", f"{tolerance_s} is negative")
    if not time_limit_s > 0:
        raise FieldError("time_limit_s", f"{time_limit_s} is not positive")
    return _Suite(backend, transport, tolerance_s, time_limit_s).report()


def _spec(transport: TransportUse, *, iterations: int = 2, pattern: Pattern = "exchange", loss: float = 0.0) -> RunSpec:
    """Return two planes between two coasts, and a job over both."""
    links = [
        LinkSpec(
            name=f"plane{i}",
            a=WEST,
            b=EAST,
            rate_bps=RATE_BPS,
            delay_s=DELAY_S,
            queue_bytes=100_000,
            loss=Bernoulli(probability=loss),
        )
        for i in range(2)
    ]
    job = JobSpec(
        name="job",
        transport=transport,
        paths=tuple(link.name for link in links),
        allreduce=AllReduceSpec(sites=(WEST, EAST), shard_bytes=SHARD_BYTES, pattern=pattern),
        iterations=iterations,
        gap_s=0.05,
    )
    return RunSpec(
        name="check",
        topology=Topology(
            sites=(Site(name=WEST), Site(name=EAST)),
            links=links,
            paths=[Path(name=link.name, sites=(WEST, EAST), links=(link.name,)) for link in links],
        ),
        jobs=(job,),
        seed=7,
        sample_interval_s=0.01,
    )


Check = Callable[[], Iterator[str]]


class _Suite:
    """The checks of one backend. Each yields a sentence for every rule that is broken."""

    def __init__(
        self, backend: Backend, transport: TransportUse, tolerance_s: float | None, time_limit_s: float
    ) -> None:
        self._backend = backend
        self._transport = transport
        self._tolerance_s = tolerance_s
        self._time_limit_s = time_limit_s
        self._capabilities = backend.capabilities()

    def report(self) -> BackendConformanceReport:
        """Run every check."""
        own = self._transport.name == transports.PLAIN_NAME
        checks: tuple[tuple[str, Check, bool], ...] = (  # name, check, whether it may be declined
            ("capabilities", self._check_capabilities, False),
            ("exchange", self._check_exchange, False),
            ("reduce-scatter", self._check_two_trips, False),
            ("two jobs", self._check_two_jobs, False),
            ("background traffic", self._check_background, True),
            ("lossy links", self._check_loss, True),
            ("no handshake", self._check_mute, not own),
            ("a transport that gives up", self._check_failing, not own),
            ("a transport that stalls", self._check_stalling, not own),
            ("a flipped bit", self._check_flipped_bit, not own),
            ("unsupported requests", self._check_unsupported, False),
            ("unknown names", self._check_unknown_names, False),
        )
        unsupported: dict[str, str] = {}
        violations: list[BackendViolation] = []
        for name, check, declinable in checks:
            try:
                violations += [BackendViolation(check=name, sentence=sentence) for sentence in check()]
            except UnsupportedError as error:
                if declinable:
                    unsupported[name] = str(error)
                else:
                    violations.append(BackendViolation(check=name, sentence=f"it was declined: {error}"))
            except Exception as error:  # any exception is a finding
                sentence = f"run raised {type(error).__name__}: {error}"
                violations.append(BackendViolation(check=name, sentence=sentence))
        return BackendConformanceReport(
            backend=self._capabilities.name,
            real_time=self._capabilities.real_time,
            checks=tuple(name for name, _, _ in checks),
            unsupported=unsupported,
            violations=tuple(violations),
        )

    # -- runs that succeed --------------------------------------------------------------------------------------------

    def _sound(self, spec: RunSpec) -> Iterator[str]:
        yield from self._sound_record(spec, self._backend.run(spec))

    def _sound_record(self, spec: RunSpec, record: RunRecord) -> Iterator[str]:
        tolerance_s = self._tolerance_s
        if tolerance_s is None:
            tolerance_s = 0.002 if self._capabilities.real_time else 0.0
        flows = plan_flows(spec, self._backend.registry)
        yield from broken_rules(spec, record, flows, backend=self._capabilities.name, tolerance_s=tolerance_s)

    def _check_capabilities(self) -> Iterator[str]:
        capabilities = self._capabilities
        if not isinstance(capabilities, Capabilities) or not capabilities.name.strip():
            yield f"{capabilities!r} are no capabilities with a name"
        elif capabilities.max_rate_bps is not None and not capabilities.max_rate_bps > 0:
            yield f"max_rate_bps is {capabilities.max_rate_bps}"
        if self._backend.capabilities().features != capabilities.features:
            yield "asked twice, it has other features"

    def _check_exchange(self) -> Iterator[str]:
        spec = _spec(self._transport, iterations=3)
        record = self._backend.run(spec)
        yield from self._sound_record(spec, record)
        yield from self._repeated(spec, record)

    def _check_two_trips(self) -> Iterator[str]:
        yield from self._sound(_spec(self._transport, pattern="reduce-scatter"))

    def _check_two_jobs(self) -> Iterator[str]:
        spec = _spec(self._transport)
        second = replace(spec.jobs[0], name="second job", paths=("plane1",), iterations=1, start_s=0.03)
        yield from self._sound(replace(spec, jobs=(*spec.jobs, second)))

    def _check_background(self) -> Iterator[str]:
        spec = _spec(self._transport)
        background = BackgroundSpec(
            name="others",
            transport=self._transport,
            paths=("plane0",),
            source=EAST,
            destination=WEST,
            message_bytes=20_000,
            gap_s=0.01,
        )
        yield from self._sound(replace(spec, background=(background,)))

    def _check_loss(self) -> Iterator[str]:
        spec = _spec(self._transport, loss=0.05)
        record = self._backend.run(spec)
        yield from self._sound_record(spec, record)
        if not any(flow.repairs for flow in record.flows):
            yield "one packet in twenty is lost, and yet nothing was repaired"
        yield from self._repeated(spec, record)

    def _repeated(self, spec: RunSpec, record: RunRecord) -> Iterator[str]:
        if not self._capabilities.real_time and self._backend.run(spec) != record:
            yield "a second run of the same spec left another record"

    # -- runs that fail -----------------------------------------------------------------------------------------------

    def _failed(self, name: str, *, reason: str = "", **parameters: int) -> tuple[RunRecord, list[str]]:
        use = TransportUse(name=name, parameters=tuple(parameters.items()))
        record = self._backend.run(replace(_spec(use), time_limit_s=self._time_limit_s))
        broken = []
        if record.status != "failed":
            broken.append(f"the run has status {record.status!r}")
        if not record.reason.strip() or "\n" in record.reason or reason not in record.reason:
            broken.append(f"the run's reason is {record.reason!r}" + (f", without {reason!r}" if reason else ""))
        broken += [
            f"iteration {row.iteration} has status {row.status!r} and the reason {row.reason!r}"
            for row in record.iterations
            if row.verified != (row.status != "failed") or (row.status != "ok") != bool(row.reason)
        ]
        return record, broken

    def _check_mute(self) -> Iterator[str]:
        record, broken = self._failed(transports.MUTE_NAME)
        yield from broken
        if record.iterations or record.flows:
            yield "iterations began before the connections stood"
        for summary in record.summaries:
            if summary.handshake_s is not None:
                yield f"{summary.flow} has the handshake time {summary.handshake_s}, though it never connected"

    def _check_failing(self) -> Iterator[str]:
        record, broken = self._failed(transports.FAILING_NAME, reason=transports.FAILURE)
        yield from broken
        yield from _unverified(record, 0)

    def _check_stalling(self) -> Iterator[str]:
        record, broken = self._failed(transports.STALLING_NAME)
        yield from broken
        yield from _unverified(record, 1)
        if [row.verified for row in record.iterations if row.iteration == 0] != [True]:
            yield "iteration 0, which was complete, is not there as verified"

    def _check_flipped_bit(self) -> Iterator[str]:
        for bit in (0, -1, 12_345):
            record, broken = self._failed(transports.FLIPPING_NAME, bit=bit)
            yield from (f"with bit {bit} flipped, {sentence}" for sentence in broken)
            if any(row.verified for row in record.iterations):
                yield f"with bit {bit} flipped, an iteration is verified"

    # -- runs that are refused ----------------------------------------------------------------------------------------

    def _check_unsupported(self) -> Iterator[str]:
        for name in (transports.DEMANDING_NAME, transports.PROGRAM_NAME):
            yield from self._refused(_spec(TransportUse(name=name)), UnsupportedError, f"running {name}")
        ceiling_bps = self._capabilities.max_rate_bps
        if ceiling_bps is not None:
            spec = _spec(self._transport)
            links = [replace(link, rate_bps=2 * ceiling_bps) for link in spec.topology.links.values()]
            faster = Topology(sites=spec.topology.sites, links=links, paths=spec.topology.paths)
            yield from self._refused(replace(spec, topology=faster), UnsupportedError, "a rate beyond max_rate_bps")

    def _check_unknown_names(self) -> Iterator[str]:
        unknown = TransportUse(name="no transport has this name")
        yield from self._refused(_spec(unknown), UnknownTransportError, "an unknown transport")
        unknown = replace(self._transport, parameters=(("no_such_parameter", 1),))
        yield from self._refused(_spec(unknown), ValueError, "an unknown parameter")

    def _refused(self, spec: RunSpec, error: type[Exception], request: str) -> Iterator[str]:
        try:
            record = self._backend.run(spec)
        except error as refusal:
            if not str(refusal).strip() or "\n" in str(refusal):
                yield f"{error.__name__} for {request} is not one sentence: {str(refusal)!r}"
        else:
            yield f"{request} left a record with status {record.status!r} instead of raising {error.__name__}"


def _unverified(record: RunRecord, iteration: int) -> Iterator[str]:
    """Check that `iteration` was the last one and is recorded as incomplete."""
    rows = [row for row in record.iterations if row.iteration >= iteration]
    if [(row.iteration, row.status, row.completion_s) for row in rows] != [(iteration, "failed", None)]:
        found = [(row.iteration, row.status, row.completion_s) for row in rows]
        yield f"iteration {iteration} is not there as failed and never complete, but {found}"
    for flow in record.flows:
        if flow.iteration == iteration and flow.completion_s is not None:
            yield f"{flow.flow} has a completion time, though it delivered nothing in iteration {iteration}"
