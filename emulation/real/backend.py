"""What all worlds with real packets have in common, for every kind of middle between the coasts.

Every path is measured before it is used. Then the coasts' processes execute the coordinator's orders.
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

_LEAD_S = 0.1  # from when everything is ready until the run's time is zero


class RealPacketsBackend(Backend):
    """Runs our transports over UDP, and the kernel's own TCP. probing: measure every path before each run."""

    name: ClassVar[str]

    def __init__(self, registry: Registry, *, probing: bool = True) -> None:
        super().__init__(registry)
        self._probing = probing

    @abstractmethod
    def make_middle(self, stack: ExitStack, spec: RunSpec, flows: Sequence[Flow]) -> "Middle":
        """Return the coasts of a run and the middle between them; register on `stack` what has to be closed.

        Raises UnsupportedError where the machine or the links do not allow it.
        """

    def capabilities(self) -> Capabilities:
        """Return what this machine can do. The first call measures its ceiling, which takes seconds."""
        return Capabilities(
            name=self.name, real_time=True, features=machine_features(), max_rate_bps=machine_ceiling().rate_bps
        )

    def least_scale(self, spec: RunSpec) -> float:
        """Return the least divisor of rates and payloads for this machine. See `Backend.least_scale`."""
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
    """What forwards packets between the coasts in one run.

    pids: processes without which no packet arrives.
    """

    coasts: Coasts
    pids: Sequence[int] = ()

    @abstractmethod
    def start(self, epoch_s: float) -> None:
        """Begin the run's time at `epoch_s`, with fresh links, streams and counts."""

    @abstractmethod
    def begin_iteration(self, iteration: int, begins_s: float) -> None:
        """Announce when an iteration of the first job begins."""

    @abstractmethod
    def finish(self) -> "MiddleRecord":
        """Return what the middle has recorded since `start`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MiddleRecord:
    """What the middle has recorded. doubts: reasons to doubt the run's figures, one sentence each."""

    links: tuple[LinkRecord, ...] = ()
    queues: tuple[QueueSample, ...] = ()
    doubts: tuple[str, ...] = ()


class KernelMiddle(Middle):
    """Queueing disciplines of the kernel. They already run, and they keep no records."""

    def __init__(self, coasts: Coasts) -> None:
        self.coasts = coasts

    def start(self, epoch_s: float) -> None:
        """Do nothing: the queueing disciplines have no clock of the run."""

    def begin_iteration(self, iteration: int, begins_s: float) -> None:
        """Do nothing: `netem.stage_counts` refuses links with events."""

    def finish(self) -> "MiddleRecord":
        """Return an empty record."""
        return MiddleRecord()


def depends_on_bursts(topology: Topology) -> bool:
    """Return whether the loss of any link depends on a packet's place in its burst."""
    return any(link.reads_bursts for link in topology.links.values())


def _put_together(name: str, spec: RunSpec, conducted: Conducted, record: MiddleRecord) -> RunRecord:
    """Return the record of a run. A doubt about the whole run applies to every iteration."""
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
    """The coasts with the interface that the coordinator needs."""

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
