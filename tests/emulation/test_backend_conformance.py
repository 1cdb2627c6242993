"""The conformance suite accepts the simulator, and finds the fault of each broken backend below."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bicoastal.emulation.base import Backend, Capabilities, RunSpec, TransportUse, UnsupportedError
from bicoastal.emulation.records import FlowRecord, IterationRecord, RunRecord
from bicoastal.emulation.simulator import SimulatorBackend
from bicoastal.emulation.testing import BackendConformanceError, BackendConformanceReport, check_backend
from bicoastal.emulation.testing.transports import PLAIN
from bicoastal.transports.registry import Registry
from bicoastal.transports.testing import check_transport
from bicoastal.wan.loss import NoLoss


def simulator() -> SimulatorBackend:
    return SimulatorBackend(Registry.installed())


@pytest.mark.parametrize("transport", [None, "reno", "cubic", "adaptive"])
def test_the_simulator_passes_the_conformance_suite(transport: str | None) -> None:
    use = {} if transport is None else {"transport": TransportUse(name=transport)}
    report = check_backend(simulator(), **use)
    report.raise_on_failure()
    assert report.ok
    assert report.unsupported == {}
    assert str(report) == "sim, in virtual time: 12 checks, 0 violations"


def test_a_registry_without_any_transport_is_enough() -> None:
    check_backend(SimulatorBackend(Registry())).raise_on_failure()


def test_the_suites_own_transport_is_a_sound_one() -> None:
    from random import Random

    check_transport(PLAIN, rng_factory=Random, schedules=60).raise_on_failure()


# -- backends that break one promise each -----------------------------------------------------------------------------


class Tampering(SimulatorBackend):
    """Runs as the simulator does, and then tampers with what it records."""

    def __init__(self, tamper: Callable[[RunRecord], RunRecord]) -> None:
        super().__init__(Registry.installed())
        self.tamper = tamper

    def run(self, spec: RunSpec) -> RunRecord:
        return self.tamper(super().run(spec))


def all_iterations(**changes: Callable[[IterationRecord], Any]) -> Callable[[RunRecord], RunRecord]:
    return lambda record: replace(
        record,
        iterations=tuple(
            replace(row, **{name: change(row) for name, change in changes.items()}) for row in record.iterations
        ),
    )


def all_flows(**changes: Callable[[FlowRecord], Any]) -> Callable[[RunRecord], RunRecord]:
    return lambda record: replace(
        record,
        flows=tuple(replace(row, **{name: change(row) for name, change in changes.items()}) for row in record.flows),
    )


def faster(record: RunRecord) -> RunRecord:
    """All completions halved, alike in flows and iterations."""
    halved = all_flows(completion_s=lambda row: row.completion_s and row.completion_s / 2)(record)
    return all_iterations(completion_s=lambda row: row.completion_s and row.completion_s / 2)(halved)


def cheaper(record: RunRecord) -> RunRecord:
    """Only the payload is counted, alike in flows and iterations."""
    paid = all_flows(wire_bytes=lambda row: row.payload_bytes)(record)
    return all_iterations(wire_bytes=lambda row: row.payload_bytes)(paid)


TAMPERINGS: dict[str, tuple[Callable[[RunRecord], RunRecord], str]] = {
    "another name": (lambda r: replace(r, backend="other"), "the record is of 'check' in 'other' with seed 7, not of"),
    "another seed": (lambda r: replace(r, seed=0), "with seed 0, not of"),
    "scaled in silence": (lambda r: replace(r, scale=4.0), "scale is 4.0"),
    "failed with no need": (lambda r: replace(r, status="failed", reason="?"), "the run has status 'failed'"),
    "no flows": (lambda r: replace(r, flows=()), "has no row for job/west>east/plane0, trip 0"),
    "one flow too few": (lambda r: replace(r, flows=r.flows[:-1]), "has no row for"),
    "a flow twice": (lambda r: replace(r, flows=(*r.flows, *r.flows[-1:])), "has 1 rows too many for"),
    "no second trip": (
        lambda r: replace(r, flows=tuple(row for row in r.flows if row.trip == 0)),
        "has no row for job/west>east/plane0, trip 1",
    ),
    "an iteration too few": (
        lambda r: replace(r, iterations=r.iterations[:-1]),
        "has the iterations [0, 1] instead of 3",
    ),
    "nothing verified": (all_iterations(verified=lambda row: False), "not verified"),
    "another transport": (all_iterations(transport=lambda row: "tcp"), "was carried by 'tcp'"),
    "payload counted once": (
        all_iterations(payload_bytes=lambda row: row.payload_bytes // 2),
        "bytes of payload instead",
    ),
    "a generous bound": (all_iterations(bound_s=lambda row: row.bound_s / 2), "has the bound"),
    "no completion": (all_iterations(completion_s=lambda row: None), "has no completion time"),
    "faster than light": (faster, "less than its bound"),
    "flows faster than light": (all_flows(completion_s=lambda row: 0.0), "less than light does"),
    "headers forgotten": (cheaper, "bytes on the wire; payload and headers alone are"),
    "sums that differ": (all_iterations(wire_bytes=lambda row: row.wire_bytes + 1), "bytes on the wire, its flows"),
    "the last flow forgotten": (
        all_iterations(completion_s=lambda row: row.completion_s and row.completion_s + 1e-6),
        "s after the slowest of its messages",
    ),
    "no gap": (all_iterations(start_s=lambda row: row.start_s - 0.03 * row.iteration), "began less than 0.05 s after"),
    "begun too early": (all_iterations(start_s=lambda row: row.start_s - 1.0), "connections stood at"),
    "trips at once": (
        all_flows(start_s=lambda row: row.start_s - (0.01 if row.trip else 0)),
        "before what it had to wait for",
    ),
    "flows before their iteration": (
        all_flows(start_s=lambda row: row.start_s - 0.01),
        "before what it had to wait for",
    ),
    "another way": (all_flows(path=lambda row: "plane7"), "over plane7"),
    "messages cut": (
        all_flows(payload_bytes=lambda row: row.payload_bytes - 1),
        "carried 59998 bytes instead of 60000",
    ),
    "counted backwards": (all_flows(rejected=lambda row: -1), "has counted -1 rejected"),
    "more repairs than packets": (all_flows(repairs=lambda row: row.packets + 1), "repairs in"),
    "a flow that is not summed up": (lambda r: replace(r, summaries=r.summaries[:-1]), "the summaries are of"),
    "no handshake": (
        lambda r: replace(r, summaries=tuple(replace(s, handshake_s=None) for s in r.summaries)),
        "has the handshake time None",
    ),
    "links unaccounted for": (
        lambda r: replace(r, links=tuple(replace(row, lost=row.lost + 1) for row in r.links)),
        "packets and copies are more or fewer",
    ),
    "one direction only": (lambda r: replace(r, links=r.links[::2]), "the links' rows are"),
    "samples backwards": (lambda r: replace(r, samples=r.samples[::-1]), "go back in time"),
    "samples while idle": (
        lambda r: replace(r, samples=tuple(replace(s, at_s=s.at_s + 40.0) for s in r.samples)),
        "when no job was active",
    ),
    "samples of nobody": (
        lambda r: replace(r, samples=tuple(replace(s, flow="x") for s in r.samples)),
        "there is a sample of 'x'",
    ),
    "rows of nobody": (
        lambda r: replace(
            r, iterations=tuple(replace(row, job="x" if row.job == "second job" else row.job) for row in r.iterations)
        ),
        "there are rows of 'x', which is not a job",
    ),
    "never failed": (lambda r: replace(r, status="ok", reason=""), "the run has status 'ok'"),
    "failed without a reason": (
        lambda r: replace(r, reason="  ") if r.status == "failed" else r,
        "the run's reason is '  '",
    ),
    "failed for another reason": (
        lambda r: replace(r, reason="it failed") if r.status == "failed" else r,
        "without 'the transport was told to give up'",
    ),
    "spoilt, but verified": (
        all_iterations(
            verified=lambda row: row.completion_s is not None, status=lambda row: "ok" if row.completion_s else "failed"
        ),
        "with bit 0 flipped, an iteration is verified",
    ),
    "open iterations left out": (
        lambda r: replace(r, iterations=tuple(row for row in r.iterations if row.completion_s is not None)),
        "iteration 1 is not there as failed and never complete",
    ),
    "completed when it failed": (
        all_flows(completion_s=lambda row: row.completion_s or 1.0),
        "though it delivered nothing in iteration",
    ),
    "complete iterations left out": (
        lambda r: replace(r, iterations=r.iterations[-1:]) if r.status == "failed" else r,
        "iteration 0, which was complete, is not there as verified",
    ),
    "connected in any case": (
        lambda r: replace(r, summaries=tuple(replace(s, handshake_s=0.1) for s in r.summaries)),
        "though it never connected",
    ),
}


def sentences(report: BackendConformanceReport) -> list[str]:
    return [violation.sentence for violation in report.violations]


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_broken_rule_is_found_and_named_in_one_sentence(name: str) -> None:
    tamper, expected = TAMPERINGS[name]
    report = check_backend(Tampering(tamper))
    assert any(expected in sentence for sentence in sentences(report)), str(report)
    assert all("\n" not in sentence and sentence.strip() for sentence in sentences(report))
    assert not report.ok
    with pytest.raises(BackendConformanceError, match="virtual time: 12 checks, "):
        report.raise_on_failure()


class Wavering(SimulatorBackend):
    """Something of the last run shows in the next; `real_time` is what it says of itself."""

    def __init__(self, *, real_time: bool) -> None:
        super().__init__(Registry.installed())
        self.real_time = real_time
        self.runs = 0

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), real_time=self.real_time)

    def run(self, spec: RunSpec) -> RunRecord:
        self.runs += 1
        later_s = 1e-12 * self.runs
        record = super().run(spec)
        return all_iterations(start_s=lambda row: row.start_s + later_s)(
            all_flows(start_s=lambda row: row.start_s + later_s)(record)
        )


def test_two_runs_may_differ_in_real_time_and_not_otherwise() -> None:
    report = check_backend(Wavering(real_time=False))
    assert {violation.check for violation in report.violations} == {"exchange", "lossy links"}
    assert set(sentences(report)) == {"a second run of the same spec left another record"}
    assert check_backend(Wavering(real_time=True)).ok


def test_a_clock_may_err_in_real_time_by_as_much_as_is_said() -> None:
    def early(record: RunRecord) -> RunRecord:
        sooner = all_flows(completion_s=lambda row: row.completion_s and row.completion_s - 0.0015)(record)
        return all_iterations(completion_s=lambda row: row.completion_s and row.bound_s - 0.0015)(sooner)

    class Early(Tampering):
        def capabilities(self) -> Capabilities:
            return Capabilities(name="sim", real_time=True)

    report = check_backend(Early(early), tolerance_s=0.001)
    assert any("less than its bound" in sentence for sentence in sentences(report))
    assert not any("less than its bound" in sentence for sentence in sentences(check_backend(Early(early))))


class Declining(SimulatorBackend):
    """Declines what `declines` says, and takes `swallowed` for a record instead of raising."""

    def __init__(self, declines: Callable[[RunSpec], bool]) -> None:
        super().__init__(Registry.installed())
        self.declines = declines

    def run(self, spec: RunSpec) -> RunRecord:
        if self.declines(spec):
            raise UnsupportedError("there is no netem here")
        return super().run(spec)


def has_loss(spec: RunSpec) -> bool:
    return any(link.loss.mean_loss for link in spec.topology.links.values())


def test_what_may_be_declined_is_reported_and_is_no_violation() -> None:
    report = check_backend(Declining(lambda spec: has_loss(spec) or bool(spec.background)))
    assert report.ok
    assert dict(report.unsupported) == dict.fromkeys(("background traffic", "lossy links"), "there is no netem here")
    assert "lossy links: unsupported: there is no netem here" in str(report)


def test_a_world_that_declines_everything_is_not_sound() -> None:
    report = check_backend(Declining(lambda spec: True))
    assert ("exchange", "it was declined: there is no netem here") in [(v.check, v.sentence) for v in report.violations]


class Swallowing(SimulatorBackend):
    """Answers whatever it cannot do with a record that says so."""

    def run(self, spec: RunSpec) -> RunRecord:
        try:
            return super().run(spec)
        except (UnsupportedError, LookupError, ValueError) as error:
            return RunRecord(
                scenario=spec.name,
                backend="sim",
                seed=spec.seed,
                scale=1.0,
                status="failed",
                reason=str(error),
                array_note="",
                iterations=(),
                flows=(),
                summaries=(),
            )


def test_a_refusal_is_an_exception_and_not_a_record() -> None:
    assert sentences(check_backend(Swallowing(Registry.installed()))) == [
        f"{request} left a record with status 'failed' instead of raising {error}"
        for request, error in (
            ("running bicoastal.emulation.testing.transports:DEMANDING", "UnsupportedError"),
            ("running bicoastal.emulation.testing.transports:PROGRAM", "UnsupportedError"),
            ("an unknown transport", "UnknownTransportError"),
            ("an unknown parameter", "ValueError"),
        )
    ]


class Limited(SimulatorBackend):
    """Says that it has a ceiling; `honest` ones refuse what is beyond it."""

    def __init__(self, *, honest: bool, ceiling_bps: float = 1e9) -> None:
        super().__init__(Registry.installed())
        self.honest = honest
        self.ceiling_bps = ceiling_bps

    def capabilities(self) -> Capabilities:
        return replace(super().capabilities(), max_rate_bps=self.ceiling_bps)

    def run(self, spec: RunSpec) -> RunRecord:
        if self.honest and max(link.rate_bps for link in spec.topology.links.values()) > self.ceiling_bps:
            raise UnsupportedError(f"this machine forwards {self.ceiling_bps:g} bit/s at most")
        return super().run(spec)


def test_a_rate_beyond_the_ceiling_is_refused_and_never_clipped() -> None:
    assert check_backend(Limited(honest=True)).ok
    assert sentences(check_backend(Limited(honest=False))) == [
        "a rate beyond max_rate_bps left a record with status 'ok' instead of raising UnsupportedError"
    ]
    assert "max_rate_bps is -1" in sentences(check_backend(Limited(honest=False, ceiling_bps=-1)))


class Lossless(SimulatorBackend):
    """Forgets the links' losses."""

    def run(self, spec: RunSpec) -> RunRecord:
        topology = spec.topology
        links = [replace(link, loss=NoLoss()) for link in topology.links.values()]
        return super().run(replace(spec, topology=replace_links(topology, links)))


def replace_links(topology: Any, links: Any) -> Any:
    return type(topology)(sites=topology.sites, links=links, paths=topology.paths)


def test_a_world_without_losses_is_detected() -> None:
    assert sentences(check_backend(Lossless(Registry.installed()))) == [
        "one packet in twenty is lost, and yet nothing was repaired"
    ]


class Crashing(Backend):
    """Raises what no backend may raise."""

    def capabilities(self) -> Capabilities:
        return Capabilities(name=" ", real_time=True)

    def run(self, spec: RunSpec) -> RunRecord:
        raise ZeroDivisionError("float division")


def test_a_crash_is_reported_for_each_check() -> None:
    report = check_backend(Crashing(Registry.installed()))
    found = {violation.check: violation.sentence for violation in report.violations}
    assert len(found) == len(report.checks) == 12
    assert found["a flipped bit"] == "run raised ZeroDivisionError: float division"
    assert "are no capabilities with a name" in found["capabilities"]


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^tolerance_s: -1 is negative$"):
        check_backend(simulator(), tolerance_s=-1)
    with pytest.raises(ValueError, match=r"^time_limit_s: 0 is not positive$"):
        check_backend(simulator(), time_limit_s=0)
