"""Two or more coasts and a middle, as network namespaces that end with one process.

All changes are made inside the run's own namespaces, as root or as an ordinary user. No name, address or setting of the
machine is changed. So runs cannot disturb each other, and nothing is left when the holder ends.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bicoastal.emulation.base import RunFailedError, UnsupportedError
from bicoastal.emulation.closing import Closing
from bicoastal.emulation.ground.cleanup import clean
from bicoastal.emulation.ground.identity import RunDirectory
from bicoastal.emulation.ground.processors import share_out
from bicoastal.emulation.ground.wiring import (
    MIDDLE,
    RECEIVING_PROCESSORS,
    CoastOptions,
    Port,
    Wiring,
    plan_wiring,
    relay_groups,
)
from bicoastal.wan.topology import Topology

_HERE = Path(__file__).parent
_LARGEST_ANSWER = 1 << 20
_GONE = "the holder of the network namespaces is gone"
_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21  # capabilities(7)
_SEARCH = os.defpath + ":/usr/local/sbin:/usr/sbin:/sbin"
PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "iperf3": "iperf3",
    "ping": "iputils-ping",
    "mn": "mininet",
    "mnexec": "mininet",
}  # Debian


def find_tool(name: str) -> str | None:
    """Return the path of a program, also in the directories of `ip` and `tc`, which a user's PATH often lacks."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SEARCH}")


def require_tools(*names: str) -> None:
    """Raise UnsupportedError, with the package to install, when one of the programs is missing."""
    if missing := [name for name in names if find_tool(name) is None]:
        packages = " ".join(sorted({PACKAGES[name] for name in missing}))
        raise UnsupportedError(f"{', '.join(missing)} is missing; apt-get install {packages}")


class Completed(NamedTuple):
    """The result of a command."""

    status: int
    stdout: str
    stderr: str


class Namespaces(Closing):
    """Network namespaces by name, kept by a holder process (`emulation.ground.holder`). A context manager.

    pids: of the holder and of the first process in its PID namespace. rootless: whether a user namespace was made.
    The holder ends with the thread that starts it, so that thread must not end before `close`.
    Raises UnsupportedError, in one sentence, where namespaces cannot be made.
    """

    def __init__(self, names: Sequence[str], *, rootless: bool | None = None) -> None:
        ways = (
            [rootless]
            if rootless is not None
            else [False, True]
            if is_capable(_CAP_NET_ADMIN, _CAP_SYS_ADMIN)
            else [True]
        )
        refusals = []
        for way in ways:
            try:
                self._start(names, way)
                break
            except UnsupportedError as error:
                refusals.append(str(error))
        else:
            raise UnsupportedError(f"network namespaces cannot be made here: {'; '.join(refusals)}; {_advice()}")
        self.rootless = way

    def _start(self, names: Sequence[str], rootless: bool) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_HERE / "holder.py"), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C goes to this process; the holder ends with it
            )
        try:
            self._send({"networks": list(names), "rootless": rootless})
            hello = self._receive()
        except RunFailedError as error:
            self.close()
            raise UnsupportedError(str(error)) from None
        self.pids: tuple[int, int] = (hello["pid"], hello["first_pid"])
        self.network_paths: dict[str, str] = hello["networks"]

    # -- actions inside ------------------------------------------------------------------------------------------------

    def command(self, name: str, argv: Sequence[str], *, before_terminal: bool = False) -> list[str]:
        """Return the command that runs `argv` inside a namespace, as a child of the process that starts it.

        before_terminal: where standard input is a terminal, `argv` is its foreground group while it runs.
        The command has the exit status and signals of `argv`. It and its descendants are killed when the run ends.
        """
        holder, first = self.pids
        how = "before" if before_terminal else "beside"
        enter = [sys.executable, "-I", "-S", str(_HERE / "enter.py"), how, str(holder), str(first)]
        return [*enter, self.network_paths[name], *argv]

    def run(self, name: str, argv: Sequence[str], *, text: str = "") -> str:
        """Run a short command inside a namespace to its end; return its standard output.

        Raises UnsupportedError with its error output when it fails.
        """
        done = self.attempt(name, argv, text=text)
        if done.status:
            words = " ".join((done.stderr or done.stdout).split()) or f"exit status {done.status}"
            raise UnsupportedError(f"{' '.join(argv)}: {words}")
        return done.stdout

    def attempt(self, name: str, argv: Sequence[str], *, text: str = "") -> Completed:
        """Run a short command inside a namespace to its end; return its result. text: its standard input."""
        tool = find_tool(argv[0]) or argv[0]
        return Completed(**self._ask({"request": "run", "network": name, "argv": [tool, *argv[1:]], "text": text}))

    def sysctl(self, name: str, values: Mapping[str, str], *, where_present: Sequence[str] = ()) -> None:
        """Set kernel parameters of a namespace. Raises UnsupportedError."""
        try:
            self._ask(
                {"request": "sysctl", "network": name, "values": dict(values), "where_present": list(where_present)}
            )
        except RunFailedError as error:
            raise UnsupportedError(f"kernel parameters cannot be set here: {error}") from None

    def bind(self, source: Path, target: str) -> None:
        """Mount the file `source` over `target`, for programs started with `command`. Raises RunFailedError."""
        self._ask({"request": "bind", "source": str(source), "target": target})

    def socket(self, name: str, family: int, kind: int, *, buffer_bytes: int = 0) -> socket.socket:
        """Return a socket that belongs to a namespace, for use in this process. Raises RunFailedError.

        buffer_bytes: size of its buffers, 0 for the default. net.core.rmem_max and wmem_max limit it for ordinary
        users, and not for root.
        """
        arguments = [int(family), int(kind), 0]
        self._send({"request": "socket", "network": name, "arguments": arguments, "buffer_bytes": buffer_bytes})
        try:
            answer, descriptors, _, _ = socket.recv_fds(self._channel, _LARGEST_ANSWER, 1)
        except OSError as error:
            raise RunFailedError(f"{_GONE}: {error.strerror}") from error
        self._check(answer)
        return socket.socket(fileno=descriptors[0])

    # -- the channel --------------------------------------------------------------------------------------------------

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self._send(request)
        return self._receive()

    def _send(self, request: dict[str, Any]) -> None:
        try:
            self._channel.send(json.dumps(request).encode())
        except OSError as error:
            raise RunFailedError(f"{_GONE}: {error.strerror}") from error

    def _receive(self) -> dict[str, Any]:
        try:
            answer = self._channel.recv(_LARGEST_ANSWER)
        except OSError as error:  # it ended before it read the request
            raise RunFailedError(f"{_GONE}: {error.strerror}") from error
        return self._check(answer)

    def _check(self, answer: bytes) -> dict[str, Any]:
        if not answer:
            raise RunFailedError("the holder of the network namespaces has died")
        parsed: dict[str, Any] = json.loads(answer)
        if "error" in parsed:
            raise RunFailedError(parsed["error"])
        return parsed

    def close(self) -> None:
        """End the holder. Its namespaces and all programs in them end with it."""
        self._channel.close()
        self._process.kill()
        self._process.wait()


class TwoCoasts(Closing):
    """The interfaces of a topology, ready for packets. A context manager.

    wiring: where each path ends. directory: the run's private directory. stages: see `plan_wiring`; with None the
    middle needs a relay, and no packet arrives without it. The remains of killed runs are removed first.
    Raises UnsupportedError where the machine does not allow it.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        options: CoastOptions | None = None,
        stages: Mapping[str, int] | None = None,
        rootless: bool | None = None,
    ) -> None:
        self.options = options or CoastOptions()
        require_tools("ip", "ethtool")
        clean()
        with ExitStack() as stack:
            self.directory = stack.enter_context(RunDirectory())
            tag = self.directory.tag
            relays = 0 if stages is not None else len(relay_groups(topology, len(topology.paths)))
            processors = share_out(os.sched_getaffinity(0), most_relays=relays, turn=int(tag.removeprefix("bc"), 16))
            self.wiring: Wiring = plan_wiring(topology, tag=tag, processors=processors, stages=stages)
            self.namespaces = stack.enter_context(Namespaces([*self.wiring.sites, MIDDLE], rootless=rootless))
            for pid in self.namespaces.pids:
                self.directory.record(pid)
            self._set_up()
            self._stack = stack.pop_all()

    def _set_up(self) -> None:
        spaces, wiring = self.namespaces, self.wiring
        names = (MIDDLE, *wiring.sites)
        for name in names:
            settings = wiring.sysctls(name, self.options)
            optional = [key for key in settings if ".ipv6." in key or key == RECEIVING_PROCESSORS]
            spaces.sysctl(name, settings, where_present=optional)
        spaces.run(MIDDLE, ["ip", "-batch", "-"], text=_lines(wiring.middle_commands(spaces.network_paths)))
        for name in names:
            for argv in wiring.offload_commands(name):
                spaces.run(name, argv)
        for site in wiring.sites:
            spaces.run(site, ["ip", "-batch", "-"], text=_lines(wiring.coast_commands(site, self.options)))
        hosts = self.directory.path / "hosts"
        hosts.write_text(Path("/etc/hosts").read_text(encoding="utf-8") + wiring.hosts(), encoding="utf-8")
        spaces.bind(hosts, "/etc/hosts")

    @property
    def sites(self) -> tuple[str, ...]:
        """The coasts: the sites at which paths end."""
        return self.wiring.sites

    def port(self, site: str, path: str) -> Port:
        """Return the interface and addresses of a path at a coast. Raises KeyError."""
        return self.wiring.port(site, path)

    def add_name(self, name: str, site: str) -> None:
        """Add a host name for a coast on all coasts. Raises KeyError when there is no such coast."""
        address = next((port.address for port in self.wiring.ports if port.site == site), None)
        if address is None:
            raise KeyError(site)
        with open(self.directory.path / "hosts", "a", encoding="utf-8") as hosts:
            hosts.write(f"{address} {name}\n")

    def enter(self, site: str, argv: Sequence[str], *, before_terminal: bool = False) -> list[str]:
        """Return the command that runs `argv` on a coast; see `Namespaces.command`."""
        return self.namespaces.command(site, argv, before_terminal=before_terminal)

    def socket(self, site: str, family: int, kind: int, *, buffer_bytes: int = 0) -> socket.socket:
        """Return a socket on a coast, for use in this process; see `Namespaces.socket`."""
        return self.namespaces.socket(site, family, kind, buffer_bytes=buffer_bytes)

    def record(self, pid: int) -> None:
        """Record a process that belongs to this run, so that `cleanup` finds it."""
        self.directory.record(pid)

    def close(self) -> None:
        """Remove the namespaces and the directory."""
        self._stack.close()


def _lines(commands: Sequence[str]) -> str:
    return "".join(f"{command}\n" for command in commands)


def is_capable(*capabilities: int) -> bool:
    """Return whether this process has these capabilities (numbers) outside the run's user namespace."""
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("CapEff:"):
            held = int(line.split()[1], 16)
            return all(held >> needed & 1 for needed in capabilities)
    return False


def _advice() -> str:
    """Return one command that would allow namespaces on this machine."""
    for setting, allowing in (
        ("kernel.unprivileged_userns_clone", "1"),  # Debian's own, before Linux 5.10
        ("kernel.apparmor_restrict_unprivileged_userns", "0"),  # Ubuntu from 23.10 on
    ):
        path = Path("/proc/sys", *setting.split("."))
        if path.exists() and path.read_text(encoding="ascii").strip() != allowing:
            return f"sysctl -w {setting}={allowing} allows them to ordinary users"
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return "start the container with --privileged"
    return "run as root"
