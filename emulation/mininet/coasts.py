"""The coasts as hosts of Mininet, inside a network namespace of the run.

Mininet makes its bridges in the namespace in which it runs. Here this namespace ends with the process, so nothing is
left on the machine, and two runs do not share bridges.
"""

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from bicoastal.emulation.base import RunFailedError, UnsupportedError
from bicoastal.emulation.closing import Closing
from bicoastal.emulation.ground.cleanup import clean
from bicoastal.emulation.ground.identity import RunDirectory
from bicoastal.emulation.ground.namespaces import find_tool, require_tools
from bicoastal.emulation.ground.wiring import MIDDLE, CoastOptions, Wiring
from bicoastal.emulation.real.netem import USAGE, seed_if_taken
from bicoastal.wan.topology import Topology

_CLONE_NEWNET = 0x40000000
_SO_RCVBUFFORCE, _SO_SNDBUFFORCE = 33, 32  # asm-generic/socket.h
_OWN_NETWORK = "/proc/thread-self/ns/net"
_libc = ctypes.CDLL(None, use_errno=True)


class MininetCoasts(Closing):
    """A topology on Mininet, ready for packets. A context manager. nodes: Mininet's, hosts before bridges.

    The thread that makes it stays in the run's namespace until it is closed. Raises UnsupportedError where the machine
    has no Mininet, we are not root, or the kernel or netem cannot do what the links ask for.
    """

    def __init__(self, topology: Topology, *, options: CoastOptions, seed: int) -> None:
        require_tools("ip", "tc", "ethtool", "mn", "mnexec")
        try:
            from mininet.log import setLogLevel  # noqa: PLC0415 (few machines have it)
            from mininet.net import Mininet  # noqa: PLC0415

            from bicoastal.emulation.mininet.topology import BicoastalTopo, plan, run_on  # noqa: PLC0415
        except ImportError as error:
            raise UnsupportedError(f"Mininet is not installed for this Python ({error}): run in the guest") from error
        if os.geteuid() != 0:
            raise UnsupportedError("Mininet has to be run as root")
        setLogLevel("warning")
        Mininet.inited = True  # otherwise Mininet first raises limits of the whole machine
        clean()
        with ExitStack() as stack:
            self.directory = stack.enter_context(RunDirectory())
            self.wiring: Wiring = plan(topology, tag=self.directory.tag)
            stack.enter_context(own_network())
            _set_sysctls(self.wiring.sysctls(MIDDLE, options))
            topo = BicoastalTopo(wiring=self.wiring, options=options, hosts=1, seed=seed_if_taken(seed, _netem_usage()))
            self._net = Mininet(topo=topo, controller=None, build=False)
            stack.callback(self._net.stop)
            self._net.start()
            self._hosts = {site: self._net[f"{name}1"] for site, name in topo.names.items()}
            self.nodes: tuple[Any, ...] = (*self._net.hosts, *self._net.switches)
            for node in self.nodes:
                self.directory.record(node.pid)
            for site, host in self._hosts.items():
                flushes = [f"address flush dev {port.device}" for port in self.wiring.ports if port.site == site]
                lines = [*flushes, *self.wiring.coast_commands(site, options)]
                run_on(host, ["ip", "-batch", "-"], "\n".join([*lines, ""]))
            self._stack = stack.pop_all()

    def enter(self, site: str, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` on a coast in the same process, with its signals and descriptors."""
        return [find_tool("mnexec") or "mnexec", "-a", str(self._hosts[site].pid), *argv]

    def socket(self, site: str, family: int, kind: int, *, buffer_bytes: int = 0) -> socket.socket:
        """Return a socket on a coast, for use in this process. Raises RunFailedError."""
        here = os.open(_OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
        try:
            there = os.open(f"/proc/{self._hosts[site].pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _enter(there)
                try:
                    made = socket.socket(family, kind)
                finally:
                    _enter(here)
            finally:
                os.close(there)
            if buffer_bytes:
                for option in (_SO_RCVBUFFORCE, _SO_SNDBUFFORCE):
                    made.setsockopt(socket.SOL_SOCKET, option, buffer_bytes)
        except OSError as error:
            raise RunFailedError(f"a socket on {site} cannot be made: {error.strerror}") from error
        finally:
            os.close(here)
        return made

    def record(self, pid: int) -> None:
        """Record a process that belongs to this run, so that `cleanup` finds it."""
        self.directory.record(pid)

    def close(self) -> None:
        """Stop Mininet, and remove the namespace and the directory."""
        self._stack.close()


@contextmanager
def own_network() -> Iterator[None]:
    """Put this thread, and the processes that it starts, into a new network namespace inside the block.

    Raises UnsupportedError where that is not allowed.
    """
    before = os.open(_OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.unshare(_CLONE_NEWNET) != 0:
            raise UnsupportedError(f"no network namespace can be made: {os.strerror(ctypes.get_errno())}")
        try:
            yield
        finally:
            _enter(before)
    finally:
        os.close(before)


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _set_sysctls(values: dict[str, str]) -> None:
    """Set kernel parameters of this thread's namespace; parameters that do not exist are skipped."""
    for key, value in values.items():
        path = f"/proc/sys/{key.replace('.', '/')}"
        if os.path.exists(path):
            with open(path, "w", encoding="ascii") as file:
                file.write(value)


def _netem_usage() -> str:
    """Return tc's help text of netem on this machine."""
    done = subprocess.run([find_tool("tc") or "tc", *USAGE[1:]], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
