"""The `netns` world: real packets between two coasts in network namespaces, with a WAN in the middle.

The middle is the relay, which runs the simulator's own link model, or the kernel's netem where it has one and where it
can say what the links ask for. Every path is measured before it is used.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from emulation import netem
from emulation.base import Backend, Capabilities, RunSpec, UnsupportedError
from emulation.ceiling import Demand, machine_ceiling
from emulation.coordination import PathEnd
from emulation.coordinator import Conducted, Coordinator
from emulation.ends import burst_rules, coast_options
from emulation.flows import Flow, plan_flows
from emulation.host import machine_features
from emulation.namespaces import TwoCoasts
from emulation.probe import probe
from emulation.records import IterationRecord, LinkRecord, QueueSample, RunRecord, Status
from emulation.relay_process import Relays
from transports.registry import Registry
from wan.loss import Combined, LossSpec, TailOfBurst
from wan.topology import Topology

Impairment = Literal["relay", "netem"]
_LEAD_S = 0.1  # from when everything is ready until zero


class NetnsBackend(Backend):
    """Runs our transports over UDP, and the kernel's own TCP.

    impairment: what stands in the middle; None for the relay, which every machine has.
    probing: measure every path before each run.
    """

    def __init__(self, registry: Registry, *, impairment: Impairment | None = None, probing: bool = True) -> None:
        super().__init__(registry)
        self._impairment = impairment
        self._probing = probing

    def capabilities(self) -> Capabilities:
        """Return what this machine can do; the first time, its ceiling is measured, which takes seconds."""
        return Capabilities(
            name="netns", real_time=True, features=machine_features(), max_rate_bps=machine_ceiling().rate_bps
        )

    def least_scale(self, spec: RunSpec) -> float:
        """Return by how much rates and payloads have to be divided here. See `Backend.least_scale`."""
        ceiling = machine_ceiling()
        return ceiling.least_scale(Demand.of(spec, plan_flows(spec, self.registry), relays=ceiling.relays))

    def run(self, spec: RunSpec) -> RunRecord:
        """Run `spec` with real packets. See `Backend.run`."""
        flows = plan_flows(spec, self.registry)
        features = machine_features()
        for flow in flows:
            if missing := flow.transport.requires - features:
                raise UnsupportedError(
                    f"{flow.transport.name} needs {', '.join(sorted(missing))}, which is missing here"
                )
        machine_ceiling().require(Demand.of(spec, flows, relays=machine_ceiling().relays))
        with ExitStack() as stack:
            middle = (_Netem if self._impairment == "netem" else _Relayed)(stack, spec, flows)
            if self._probing:
                probe(middle.coasts).require()
            coordinator = stack.enter_context(
                Coordinator(
                    spec,
                    flows,
                    _Ground(middle.coasts),
                    processors=middle.coasts.wiring.processors.coasts,
                    marks_bursts=_speaks_of_bursts(spec.topology),
                    on_begin=middle.begin_iteration,
                )
            )
            epoch_s = time.monotonic() + _LEAD_S
            middle.start(epoch_s)
            return _put_together(spec, coordinator.run(epoch_s, depends_on=middle.pids), middle.finish())


class _Middle(ABC):
    """What stands between the coasts in one run."""

    coasts: TwoCoasts
    pids: Sequence[int] = ()  # of processes without which nothing arrives

    @abstractmethod
    def __init__(self, stack: ExitStack, spec: RunSpec, flows: Sequence[Flow]) -> None:
        """Enter into `stack` whatever has to be left again."""

    @abstractmethod
    def start(self, epoch_s: float) -> None:
        """Let the run's time be zero at `epoch_s`: links, streams and counts begin anew."""

    @abstractmethod
    def begin_iteration(self, iteration: int, begins_s: float) -> None:
        """Take note of when an iteration of the first job begins."""

    @abstractmethod
    def finish(self) -> "_Passage":
        """Return what the middle did since `start`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passage:
    """What the middle did, and what makes the figures doubtful."""

    links: tuple[LinkRecord, ...] = ()
    queues: tuple[QueueSample, ...] = ()
    doubts: tuple[str, ...] = ()


class _Relayed(_Middle):
    """The relay."""

    def __init__(self, stack: ExitStack, spec: RunSpec, flows: Sequence[Flow]) -> None:
        self._spec = spec
        self._bursts = burst_rules(spec, flows) if _speaks_of_bursts(spec.topology) else {}
        self.coasts = stack.enter_context(TwoCoasts(spec.topology, options=coast_options(flows)))
        self._relays = stack.enter_context(Relays(self.coasts, seed=spec.seed, calm=True))
        self.pids = self._relays.pids

    def start(self, epoch_s: float) -> None:
        self._relays.restart(
            seed=self._spec.seed,
            epoch_s=epoch_s,
            bursts=self._bursts,
            sample_interval_s=self._spec.sample_interval_s,
        )

    def begin_iteration(self, iteration: int, begins_s: float) -> None:
        self._relays.begin_iteration(iteration, begins_s)

    def finish(self) -> _Passage:
        report = self._relays.report(stop=True)
        return _Passage(links=report.links, queues=report.queues, doubts=report.troubles())


class _Netem(_Middle):
    """The kernel's netem and tbf, where they can say what the links ask for."""

    def __init__(self, stack: ExitStack, spec: RunSpec, flows: Sequence[Flow]) -> None:
        stages = netem.stage_counts(spec.topology)
        self.coasts = stack.enter_context(TwoCoasts(spec.topology, options=coast_options(flows), stages=stages))
        netem.apply(self.coasts, seed=spec.seed)

    def start(self, epoch_s: float) -> None:
        """netem runs already, and counts nothing that begins anew."""

    def begin_iteration(self, iteration: int, begins_s: float) -> None:
        """netem has no events: `netem.stage_counts` refuses links that have."""

    def finish(self) -> _Passage:
        return _Passage()


def _speaks_of_bursts(topology: Topology) -> bool:
    """Tell whether any link's loss depends on a packet's place in its burst."""

    def speaks(loss: LossSpec) -> bool:
        return isinstance(loss, TailOfBurst) or (isinstance(loss, Combined) and any(map(speaks, loss.parts)))

    return any(speaks(loss) for link in topology.links.values() for loss in (link.loss, link.loss_back) if loss)


def _put_together(spec: RunSpec, conducted: Conducted, passage: _Passage) -> RunRecord:
    """Return the record of a run; what makes it doubtful as a whole makes every iteration so."""
    doubts = (*passage.doubts, *conducted.doubts)
    iterations = tuple(_doubted(row, doubts) for row in conducted.iterations)
    failed = conducted.failure or next((row.reason for row in iterations if row.status == "failed"), "")
    degraded = "; ".join(doubts) or next((row.reason for row in iterations if row.status == "degraded"), "")
    status: Status = "failed" if failed else "degraded" if degraded else "ok"
    return RunRecord(
        scenario=spec.name,
        backend="netns",
        seed=spec.seed,
        scale=spec.scale,
        status=status,
        reason=failed or degraded,
        array_note=spec.array_note,
        iterations=iterations,
        flows=conducted.flows,
        summaries=conducted.summaries,
        links=passage.links,
        samples=conducted.samples,
        queues=passage.queues,
        notices=conducted.notices,
    )


def _doubted(row: IterationRecord, doubts: Sequence[str]) -> IterationRecord:
    if row.status == "failed" or not doubts:
        return row
    return replace(row, status="degraded", reason="; ".join(filter(None, (row.reason, *doubts))))


class _Ground:
    """The coasts as the coordinator sees them."""

    def __init__(self, coasts: TwoCoasts) -> None:
        self._coasts = coasts

    def enter(self, site: str, argv: Sequence[str]) -> list[str]:
        return self._coasts.enter(site, argv)

    def path_ends(self, site: str) -> Sequence[PathEnd]:
        return [
            PathEnd(
                path=port.path,
                address=port.address,
                peer_address=port.peer_address,
                device=port.device,
                table=str(port.table),
            )
            for port in self._coasts.wiring.ports
            if port.site == site
        ]

    def record(self, pid: int) -> None:
        self._coasts.record(pid)

    @property
    def directory(self) -> Path:
        return self._coasts.directory.path
