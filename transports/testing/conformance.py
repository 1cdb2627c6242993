"""`check_transport`: it runs many schedules, some of them three times, and returns a readable report."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from bicoastal.transports.registry import TransportSpec
from bicoastal.transports.testing.port import ContractError, Encoding
from bicoastal.transports.testing.schedules import RngFactory, Schedule, make_schedule
from bicoastal.transports.testing.shuttle import Outcome, Shuttle
from bicoastal.wan.checks import FieldError


class ConformanceError(AssertionError):
    """A transport broke its contract; the message is the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A breach of the contract: its schedule, its time on that clock in seconds, and one sentence."""

    schedule: int
    at_s: float
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceReport:
    """What was run and what came of it.

    schedules: how many were run. replayed: how many of them three times, to compare transcripts. gave_up: in how many
    the transport failed with a reason, where it may. impairments: how many datagrams each impairment affected.
    """

    transport: str
    seed: int
    schedules: int
    replayed: int
    messages: int
    payload_bytes: int
    datagrams: int
    garbage: int
    gave_up: int
    impairments: Mapping[str, int] = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether no promise was broken."""
        return not self.violations

    def raise_on_failure(self) -> None:
        """Raise ConformanceError unless `ok`."""
        if self.violations:
            raise ConformanceError(str(self))

    def __str__(self) -> str:
        """Return the report, one line for each violation after the first."""
        impairments = ", ".join(f"{name} {number}" for name, number in self.impairments.items())
        lines = [
            f"{self.transport}: {self.schedules} schedules ({self.replayed} of them replayed), "
            f"{self.messages} messages, {self.datagrams} datagrams, {self.garbage} of garbage; "
            f"gave up in {self.gave_up}; {impairments}; {len(self.violations)} violations"
        ]
        lines += [f"  {violation.sentence}" for violation in self.violations]
        return "\n".join(lines)


def check_transport(
    spec: TransportSpec,
    *,
    rng_factory: RngFactory,
    schedules: int = 1000,
    first: int = 0,
    seed: int = 0,
    only: int | None = None,
    parameters: Mapping[str, object] | None = None,
    replay_every: int = 4,
    time_limit_s: float = 7200.0,
    stop_after: int = 5,
) -> ConformanceReport:
    """Try to break a sans-IO transport, and return what came of it.

    rng_factory: makes an `Rng` from an integer; `random.Random` serves. schedules, first: which numbers to run, so that
    the work can be divided. only: run that one. parameters: the transport's own, as for `make_parameters`.
    replay_every: one schedule in so many is run twice more, to see whether the transcript is the same, once with
    payloads as the transport made them and once with nothing but octets. time_limit_s: virtual time that one iteration
    may take. stop_after: violations that end the check.

    What is checked: every message arrives once, byte for byte, or an endpoint fails with a reason, which it may only
    on a path with an outage or much loss; verbs raise nothing, whatever arrives; hostile and corrupt datagrams are
    counted as rejected; timers never spin; `depart_at` never decreases, sizes are true and fit the MTU; the same
    schedule gives the same datagrams; what is encoded lazily agrees with its octets; after the last message there is
    silence; counters only grow.

    Raises ValueError for a transport that makes no endpoints, and for numbers out of range.
    """
    if spec.kind != "sans-io":
        raise FieldError("kind", f"{spec.name} is {spec.kind}, and only a sans-io transport can be checked")
    if only is None and schedules < 1:
        raise FieldError("schedules", f"{schedules} is less than 1")
    if replay_every < 1:
        raise FieldError("replay_every", f"{replay_every} is less than 1")
    values = spec.make_parameters(parameters or {})
    numbers = range(first, first + schedules) if only is None else range(only, only + 1)
    totals: Counter[str] = Counter()
    impairments: Counter[str] = Counter()
    violations: list[Violation] = []
    for number in numbers:
        schedule = make_schedule(
            number, seed=seed, paths=spec.paths, rng_factory=rng_factory, min_mtu_bytes=spec.min_mtu_bytes
        )
        replay = only is not None or number % replay_every == 0
        totals["schedules"] += 1
        totals["replayed"] += replay
        run = _Run(spec, schedule, rng_factory, values, time_limit_s)
        try:
            outcome = run.checked(replay=replay)
        except ContractError as error:
            violations.append(
                Violation(
                    schedule=number,
                    at_s=run.now,
                    sentence=f"{schedule.name}, at {run.now:.6f} s: {error}",
                )
            )
            if len(violations) >= stop_after:
                break
            continue
        for name in ("messages", "payload_bytes", "datagrams", "garbage"):
            totals[name] += getattr(outcome, name)
        totals["gave_up"] += bool(outcome.gave_up)
        impairments.update(outcome.impairments)
    names = ("schedules", "replayed", "messages", "payload_bytes", "datagrams", "garbage", "gave_up")
    return ConformanceReport(
        transport=spec.name,
        seed=seed,
        impairments=dict(impairments),
        violations=tuple(violations),
        **{name: totals[name] for name in names},
    )


class _Run:
    """One schedule, run once or three times."""

    def __init__(
        self, spec: TransportSpec, schedule: Schedule, rng_factory: RngFactory, parameters: object, time_limit_s: float
    ) -> None:
        self._spec = spec
        self._schedule = schedule
        self._rng_factory = rng_factory
        self._parameters = parameters
        self._time_limit_s = time_limit_s
        self.now = schedule.start_s

    def checked(self, *, replay: bool) -> Outcome:
        """Run the schedule. Raises ContractError."""
        outcome = self._once(Encoding.LAZY)
        if outcome.gave_up and self._schedule.gentle:
            raise ContractError(f"{outcome.gave_up} (on paths with neither outage nor much loss)")
        if replay:
            recorded = self._once(Encoding.RECORDED)
            if recorded.header_digest != outcome.header_digest:
                raise ContractError("a second run with the same seed sent other datagrams")
            octets = self._once(Encoding.OCTETS)
            if (octets.header_digest, octets.octet_digest) != (recorded.header_digest, recorded.octet_digest):
                raise ContractError("run again with payloads delivered as octets, it sent other datagrams")
        return outcome

    def _once(self, encoding: Encoding) -> Outcome:
        shuttle = Shuttle(
            self._spec,
            self._schedule,
            self._rng_factory,
            parameters=self._parameters,
            encoding=encoding,
            time_limit_s=self._time_limit_s,
        )
        try:
            return shuttle.run()
        finally:
            self.now = shuttle.now
