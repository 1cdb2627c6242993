"""The `netns` world: real packets between two coasts in network namespaces, with a WAN in the middle.

The middle is the relay, which runs the simulator's link model, or the kernel's netem. netem is possible where the
kernel has it and where it can express the links. Every path is measured before it is used.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import ClassVar, Literal

from bicoastal.emulation.base import RunSpec
from bicoastal.emulation.ends.kinds import burst_rules, coast_options
from bicoastal.emulation.ground.namespaces import TwoCoasts
from bicoastal.emulation.real import netem
from bicoastal.emulation.real.backend import KernelMiddle, Middle, MiddleRecord, RealPacketsBackend, depends_on_bursts
from bicoastal.emulation.relay.process import Relays
from bicoastal.emulation.traffic.flows import Flow
from bicoastal.transports.registry import Registry

Impairment = Literal["relay", "netem"]


class NetnsBackend(RealPacketsBackend):
    """Runs our transports over UDP, and the kernel's own TCP.

    impairment: what forwards packets in the middle; None for the relay, which runs on every machine.
    probing: measure every path before each run.
    """

    name: ClassVar[str] = "netns"

    def __init__(self, registry: Registry, *, impairment: Impairment | None = None, probing: bool = True) -> None:
        super().__init__(registry, probing=probing)
        self._impairment = impairment

    def make_middle(self, stack: ExitStack, spec: RunSpec, flows: Sequence[Flow]) -> Middle:
        """Return the chosen middle, relays or netem. See `RealPacketsBackend.make_middle`."""
        return (_Netem if self._impairment == "netem" else _Relayed)(stack, spec, flows)


class _Relayed(Middle):
    """One or several relays."""

    def __init__(self, stack: ExitStack, spec: RunSpec, flows: Sequence[Flow]) -> None:
        self._spec = spec
        self._bursts = burst_rules(spec, flows) if depends_on_bursts(spec.topology) else {}
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

    def finish(self) -> MiddleRecord:
        report = self._relays.report(stop=True)
        return MiddleRecord(links=report.links, queues=report.queues, doubts=report.troubles())


class _Netem(KernelMiddle):
    """The kernel's netem, for links that it can express."""

    def __init__(self, stack: ExitStack, spec: RunSpec, flows: Sequence[Flow]) -> None:
        stages = netem.stage_counts(spec.topology)
        coasts = stack.enter_context(TwoCoasts(spec.topology, options=coast_options(flows), stages=stages))
        netem.apply(coasts, seed=spec.seed)
        super().__init__(coasts)
