"""The `mininet` world: the published kind of topology, Mininet's hosts and bridges with the kernel's netem."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import ClassVar

from bicoastal.emulation.base import RunSpec
from bicoastal.emulation.ends.kinds import coast_options
from bicoastal.emulation.mininet.coasts import MininetCoasts
from bicoastal.emulation.real.backend import KernelMiddle, Middle, RealPacketsBackend
from bicoastal.emulation.traffic.flows import Flow


class MininetBackend(RealPacketsBackend):
    """Runs our transports over UDP, and the kernel's TCP, on Mininet's hosts. The guest of vagrant/ has Mininet."""

    name: ClassVar[str] = "mininet"

    def make_middle(self, stack: ExitStack, spec: RunSpec, flows: Sequence[Flow]) -> Middle:
        """Return the topology on Mininet. See `RealPacketsBackend.make_middle`."""
        return KernelMiddle(
            stack.enter_context(MininetCoasts(spec.topology, options=coast_options(flows), seed=spec.seed))
        )
