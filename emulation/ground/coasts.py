"""What is asked of the coasts of a run, whether they are namespaces of our own or hosts of Mininet's."""

import socket
from collections.abc import Sequence
from typing import Protocol

from bicoastal.emulation.ground.identity import RunDirectory
from bicoastal.emulation.ground.wiring import Wiring


class Coasts(Protocol):
    """Places with interfaces that lead to one another. wiring: where each path ends. directory: the run's own."""

    wiring: Wiring
    directory: RunDirectory

    def enter(self, site: str, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` on a coast, as a child of whoever starts it."""

    def socket(self, site: str, family: int, kind: int, *, buffer_bytes: int = 0) -> socket.socket:
        """Return a socket on a coast, for use in this process; buffer_bytes 0 leaves its buffers as they are.

        Raises RunFailedError.
        """

    def record(self, pid: int) -> None:
        """Write down a process that belongs to this run, for `cleanup`."""
