"""Worlds and transports for the tests of experiments: no packets, but records of a known shape, made in no time."""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint

from bicoastal.emulation import registry as backend_registry
from bicoastal.emulation.base import Backend, Capabilities, RunFailedError, RunSpec, UnsupportedError
from bicoastal.emulation.records import (
    FlowRecord,
    FlowSample,
    FlowSummary,
    IterationRecord,
    NoticeRecord,
    QueueSample,
    RunRecord,
)
from bicoastal.experiments.analysis.comparison import TransportResult
from bicoastal.experiments.basics.interruption import TerminatedError
from bicoastal.experiments.runs.runner import Registries
from bicoastal.experiments.scenario.scenario import load_scenario
from bicoastal.transports.base import Endpoint, EndpointContext
from bicoastal.transports.registry import Registry, TransportSpec
from bicoastal.wan.checks import FieldError
from helpers.small_runs import link_record

BOUND_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """Parameters of the transports here. Raises ValueError naming the field."""

    window: int = 10
    gain: float = 1.0
    policy: str = "keep"

    def __post_init__(self) -> None:
        if self.gain <= 0:
            raise FieldError("gain", f"{self.gain} is not positive")


def _no_endpoint(context: EndpointContext) -> Endpoint:
    raise NotImplementedError(f"{context.flow}: no world here makes endpoints")


def transport(name: str, colour: str = "#666666", marker: str = "o") -> TransportSpec:
    """Return a transport that has a name, a look and `Knobs`, and nothing else."""
    return TransportSpec(
        name=name,
        kind="sans-io",
        paths="one",
        description=f"{name}, for tests",
        parameters=Knobs,
        make_endpoint=_no_endpoint,
        colour=colour,
        marker=marker,
    )


ELSEWHERE = transport("elsewhere")
TRANSPORTS = Registry(
    [
        transport("reno", "#0072b2", "o"),
        transport("cubic", "#d55e00", "s"),
        transport("adaptive", "#009e73", "^"),
        *(
            transport(name)
            for name in (
                "broken",
                "unfit",
                "crashing",
                "dying",
                "waiting",
                "lost",
                "leaving",
                "stopping",
                "ending",
                "mute",
                "odd",
            )
        ),
    ]
)


def record(spec: RunSpec, completions_s: Sequence[float | None], **changes: object) -> RunRecord:
    """Return the record of a run whose iterations of each job took so long; None is one that failed.

    Each direction of each path has a flow that carries 1,000 of the payload's bytes in 1,100 of the wire's and, in an
    iteration that took longer than twice the bound, 3 repairs and a timeout.
    """
    iterations: list[IterationRecord] = []
    flows: list[FlowRecord] = []
    samples: list[FlowSample] = []
    queues: list[QueueSample] = []
    for job in spec.jobs:
        west, east = job.allreduce.sites
        for number, completion_s in enumerate(completions_s):
            start_s = 0.1 + number * 10.0 + job.start_s
            ends = [(a, b, path) for a, b in ((west, east), (east, west)) for path in job.paths]
            iterations.append(
                IterationRecord(
                    job=job.name,
                    transport=job.transport.name,
                    iteration=number,
                    start_s=start_s,
                    completion_s=completion_s,
                    bound_s=BOUND_S,
                    local_s=0.001,
                    payload_bytes=1000 * len(ends),
                    wire_bytes=1100 * len(ends),
                    verified=completion_s is not None,
                    status="failed" if completion_s is None else "ok",
                    reason="" if completion_s is not None else f"iteration {number} did not complete",
                )
            )
            late = completion_s is not None and completion_s > 2 * BOUND_S
            for source, destination, path in ends:
                flows.append(
                    FlowRecord(
                        job=job.name,
                        flow=f"{job.name}/{source}>{destination}/{path}",
                        iteration=number,
                        trip=0,
                        source=source,
                        destination=destination,
                        path=path,
                        payload_bytes=1000,
                        start_s=start_s,
                        completion_s=completion_s,
                        wire_bytes=1100,
                        packets=10,
                        repairs=3 if late else 0,
                        probes=0,
                        timeouts=1 if late else 0,
                        spurious=0,
                        rejected=0,
                    )
                )
            if spec.sample_interval_s is None or completion_s is None:
                continue
            for step in range(11):
                at_s = start_s + completion_s * step / 10
                samples += [
                    FlowSample(
                        flow=f"{job.name}/{source}>{destination}/{path}",
                        at_s=at_s,
                        cwnd_bytes=1e5 * (step + 1),
                        in_flight_bytes=9e4 * (step + 1),
                        pacing_rate_bps=None,
                        srtt_s=0.06 if step else None,
                    )
                    for source, destination, path in ends
                ]
                queues += [
                    QueueSample(link=path, direction=f"{source}>{destination}", at_s=at_s, backlog_bytes=1e4 * step)
                    for source, destination, path in ends
                ]
    reason = next((row.reason for row in iterations if row.status == "failed"), "")
    made = RunRecord(
        scenario=spec.name,
        backend="plain",
        seed=spec.seed,
        scale=1.0,
        status="failed" if reason else "ok",
        reason=reason,
        array_note="",
        iterations=tuple(iterations),
        flows=tuple(flows),
        summaries=tuple(
            FlowSummary(
                flow=name,
                job=name.partition("/")[0],
                transport="any",
                source="west",
                destination="east",
                path="plane",
                handshake_s=0.06,
            )
            for name in dict.fromkeys(flow.flow for flow in flows)
        ),
        links=(link_record(link="plane", packets=10, bytes=1100, delivered=9, lost=1),),
        samples=tuple(samples),
        queues=tuple(queues),
        notices=(NoticeRecord(source="plane", at_s=0.5, kind="fallback", detail="it's a “test”; really"),),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def result(completions_s: Sequence[float | None]) -> TransportResult:
    """Return what a run of reno with these completions amounts to."""
    made = record(load_scenario("coast-to-coast", TRANSPORTS).run_spec("reno", seed=0), completions_s)
    return TransportResult(
        name="reno",
        status=made.status,
        reason=made.reason,
        keys=("a" * 16,),
        iterations=made.iterations,
        flows=made.flows,
    )


_PACE = {"reno": 6.0, "cubic": 4.0, "adaptive": 1.2}


class MuteError(Exception):
    """An error whose message is one more."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


class PlainBackend(Backend):
    """A world in which the transport's name decides what happens; seeds and iterations make it vary a little."""

    def capabilities(self) -> Capabilities:
        return Capabilities(name="plain", real_time=False)

    def run(self, spec: RunSpec) -> RunRecord:
        name = spec.jobs[0].transport.name
        count = spec.jobs[0].iterations
        match name:
            case "unfit":
                raise UnsupportedError("unfit needs real packets, which plain lacks")
            case "lost":
                raise RunFailedError("the link's RTT is off by 3 ms")
            case "crashing":
                raise ZeroDivisionError("float division\nby zero")
            case "leaving":
                raise SystemExit(0)
            case "stopping":
                raise KeyboardInterrupt
            case "ending":
                raise TerminatedError(signal.SIGTERM)
            case "mute":
                raise MuteError
            case "odd":
                return record(spec, [BOUND_S], notices=(NoticeRecord(source="x", at_s=0.0, kind="k", detail=7),))  # type: ignore[arg-type]
            case "dying":
                os._exit(9)
            case "waiting":
                signal.pause()  # for ever: only the parent can end this process
            case "broken":
                return record(spec, [BOUND_S] * (count - 1) + [None])
        pace = _PACE.get(name, 2.0)
        completions = [
            BOUND_S * (pace + 0.1 * spec.seed + (1.0 if number % 4 == 2 else 0.0)) for number in range(count)
        ]
        return record(spec, completions)


BACKENDS = backend_registry.BackendRegistry(
    {"plain": EntryPoint(name="plain", value="helpers.fake_backends:PlainBackend", group=backend_registry.GROUP)}
)
WORLD = Registries(backends=BACKENDS, transports=TRANSPORTS)
