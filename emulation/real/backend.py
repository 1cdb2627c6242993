"""Worlds of real packets: what they do alike, whatever stands between the coasts.

Every path is measured before it is used; then the coasts' processes run what the coordinator orders.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from bicoastal.emulation.base import Backend, Capabilities, RunSpec, UnsupportedError
from bicoastal.emulation.ground.coasts import Coasts
from bicoastal.emulation.probing.ceiling import Demand, machine_ceiling
from bicoastal.emulation.probing.host import machine_features
from bicoastal.emulation.probing.probe import probe
from bicoastal.emulation.processes.coordination import PathEnd
from bicoastal.emulation.real.coordinator import Conducted, Coordinator
from bicoastal.emulation.records import IterationRecord, LinkRecord, QueueSample, RunRecord, Status
from bicoastal.emulation.traffic.flows import Flow, plan_flows
from bicoastal.transports.registry import Registry
from bicoastal.wan.topology import Topology

_LEAD_S = 0.1  # from when everything is ready until zero


class RealPacketsBackend(Backend):
    """Runs our transports over UDP, and the kernel's own TCP. probing: measure every path before each run."""

    name: ClassVar[str]

    def __init__(self, registry: Registry, *, probing: bool = True) -> None:
        super().__init__(registry)
        self._probing = probing

    @abstractmethod
    def make_middle(self, stack: ExitStack, spec: RunSpec, flows: Sequence[Flow]) -> "Middle":
        """Return the coasts of a run and what stands between them; enter into `stack` whatever has to be left again.

        Raises UnsupportedError where there can be none.
        """

    def capabilities(self) -> Capabilities:
        """Return what this machine can do; the first time, its ceiling is measured, which takes seconds."""
        return Capabilities(
            name=self.name, real_time=True, features=machine_features(), max_rate_bps=machine_ceiling().rate_bps
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
            middle = self.make_middle(stack, spec, flows)
            if self._probing:
                probe(middle.coasts).require()
            coordinator = stack.enter_context(
                Coordinator(
                    spec,
                    flows,
                    _CoastsForCoordinator(middle.coasts),
                    processors=middle.coasts.wiring.processors.coasts,
                    marks_bursts=depends_on_bursts(spec.topology),
                    on_begin=middle.begin_iteration,
                )
            )
            epoch_s = time.monotonic() + _LEAD_S
            middle.start(epoch_s)
            return _put_together(self.name, spec, coordinator.run(epoch_s, depends_on=middle.pids), middle.finish())


class Middle(ABC):
    """What stands between the coasts in one run."""

    coasts: Coasts
    pids: Sequence[int] = ()  # of processes without which nothing arrives

    @abstractmethod
    def start(self, epoch_s: float) -> None:
        """Let the run's time be zero at `epoch_s`: links, streams and counts begin anew."""

    @abstractmethod
    def begin_iteration(self, iteration: int, begins_s: float) -> None:
        """Take note of when an iteration of the first job begins."""

    @abstractmethod
    def finish(self) -> "MiddleRecord":
        """Return what the middle did since `start`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MiddleRecord:
    """What the middle did, and what makes the figures doubtful."""

    links: tuple[LinkRecord, ...] = ()
    queues: tuple[QueueSample, ...] = ()
    doubts: tuple[str, ...] = ()


class KernelMiddle(Middle):
    """Queueing disciplines of the kernel's, which run already and count nothing that begins anew."""

    def __init__(self, coasts: Coasts) -> None:
        self.coasts = coasts

    def start(self, epoch_s: float) -> None:
        """There is nothing to begin."""

    def begin_iteration(self, iteration: int, begins_s: float) -> None:
        """There are no events: `netem.stage_counts` refuses links that have some."""

    def finish(self) -> "MiddleRecord":
        """Return nothing but that."""
        return MiddleRecord()


def depends_on_bursts(topology: Topology) -> bool:
    """Tell whether any link's loss depends on a packet's place in its burst."""
    return any(link.reads_bursts for link in topology.links.values())


def _put_together(name: str, spec: RunSpec, conducted: Conducted, record: MiddleRecord) -> RunRecord:
    """Return the record of a run; what makes it doubtful as a whole makes every iteration so."""
    doubts = (*record.doubts, *conducted.doubts)
    iterations = tuple(_doubted(row, doubts) for row in conducted.iterations)
    failed = conducted.failure or next((row.reason for row in iterations if row.status == "failed"), "")
    degraded = "; ".join(doubts) or next((row.reason for row in iterations if row.status == "degraded"), "")
    status: Status = "failed" if failed else "degraded" if degraded else "ok"
    return RunRecord(
        scenario=spec.name,
        backend=name,
        seed=spec.seed,
        scale=spec.scale,
        status=status,
        reason=failed or degraded,
        array_note=spec.array_note,
        iterations=iterations,
        flows=conducted.flows,
        summaries=conducted.summaries,
        links=record.links,
        samples=conducted.samples,
        queues=record.queues,
        notices=conducted.notices,
    )


def _doubted(row: IterationRecord, doubts: Sequence[str]) -> IterationRecord:
    if row.status == "failed" or not doubts:
        return row
    return replace(row, status="degraded", reason="; ".join(filter(None, (row.reason, *doubts))))


class _CoastsForCoordinator:
    """The coasts as the coordinator sees them."""

    def __init__(self, coasts: Coasts) -> None:
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
