"""Starts a process of a run, sends its orders, receives its news, and ends it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from bicoastal.emulation.base import RunFailedError
from bicoastal.emulation.processes.channel import Channel, ChannelClosedError
from bicoastal.emulation.processes.wire_format import WireFormat, WireFormatError

_PATIENCE_S = 60.0  # for an answer that takes no work
_EXIT_TIME_S = 2.0  # between a process's last message and its end

Order = TypeVar("Order")
News = TypeVar("News")


class WorkerGround(Protocol):
    """The namespaces of a run, or the hosts of Mininet, in which processes are started."""

    def enter(self, site: str, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` on a coast."""

    def record(self, pid: int) -> None:
        """Record a process of this run, so that `cleanup` finds it."""


class WorkerProcess(Generic[Order, News]):
    """A process on a coast or in the middle, at the other end of a channel.

    module: the module that it runs, with the channel's descriptor as its argument.
    """

    end_time_limit_s = 60.0  # from SIGTERM until it is killed

    def __init__(
        self, ground: WorkerGround, site: str, module: str, *, orders: WireFormat[Order], news: WireFormat[News]
    ) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                # -P: the current directory is searched only where this process searches it too
                ground.enter(site, [sys.executable, "-P", "-m", module, str(theirs.fileno())]),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            )
        self.channel: Channel[Order, News] = Channel(ours, sends=orders, receives=news)
        try:
            ground.record(self._process.pid)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    def close(self) -> None:
        """End the process with SIGTERM, and with SIGKILL after `end_time_limit_s`."""
        self.channel.close()
        self._process.terminate()
        try:
            self._process.wait(self.end_time_limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class WorkerHandle(WorkerProcess[Order, News]):
    """A process that serves a channel (`emulation.processes.worker`). name: "the process of …", for messages.

    Raises RunFailedError when it dies.
    """

    def __init__(
        self,
        ground: WorkerGround,
        site: str,
        module: str,
        *,
        name: str,
        orders: WireFormat[Order],
        news: WireFormat[News],
    ) -> None:
        self.name = name
        super().__init__(ground, site, module, orders=orders, news=news)

    def send(self, order: Order) -> None:
        """Send an order."""
        try:
            self.channel.send(order)
        except ChannelClosedError as error:
            raise RunFailedError(f"{self.name} has died: {self.cause_of_death()}") from error

    def receive(self, time_limit_s: float = _PATIENCE_S) -> News:
        """Return the next news."""
        try:
            return self.channel.receive(time_limit_s)
        except TimeoutError:
            raise RunFailedError(f"{self.name} did not answer within {time_limit_s:g} s") from None
        except ChannelClosedError:
            raise RunFailedError(f"{self.name} has died: {self.cause_of_death()}") from None
        except WireFormatError as error:
            raise RunFailedError(f"{self.name} sent what cannot be decoded: {error}") from error

    def cause_of_death(self) -> str:
        """Return how a process that has closed its end of the channel has ended."""
        try:
            status = self._process.wait(_EXIT_TIME_S)
        except subprocess.TimeoutExpired:
            return "it has closed its end"
        if status >= 0:
            return f"exit status {status}"
        name = signal.Signals(-status).name
        return f"{name}; it may have run out of memory" if -status == signal.SIGKILL else name
