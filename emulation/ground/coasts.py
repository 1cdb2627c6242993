"""The interface of the coasts of a run: our own namespaces, or hosts of Mininet."""

import socket
from collections.abc import Sequence
from typing import Protocol

from bicoastal.emulation.ground.identity import RunDirectory
from bicoastal.emulation.ground.wiring import Wiring


class Coasts(Protocol):
    """Coasts with interfaces to one another. wiring: where each path ends. directory: the run's private directory."""

    wiring: Wiring
    directory: RunDirectory

    def enter(self, site: str, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` on a coast, as a child of the process that starts it."""

    def socket(self, site: str, family: int, kind: int, *, buffer_bytes: int = 0) -> socket.socket:
        """Return a socket on a coast, for use in this process. buffer_bytes: 0 for the default size.

        Raises RunFailedError.
        """

    def record(self, pid: int) -> None:
        """Record a process that belongs to this run, so that `cleanup` finds it."""
