"""Finds out what this machine can do by trying it, and names the command that adds each missing feature."""

import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bicoastal.emulation.base import RunFailedError, UnsupportedError
from bicoastal.emulation.ground.namespaces import Namespaces, TwoCoasts, find_tool, is_capable
from bicoastal.emulation.ground.wiring import RECEIVING_PROCESSORS
from bicoastal.emulation.relay.process import Relays
from bicoastal.emulation.relay.protocol import RelayReport
from bicoastal.wan.topology import LinkSpec, Site, Topology
from bicoastal.wan.topology import Path as WanPath

_IPPROTO_MPTCP = 262
_CAP_NET_ADMIN, _CAP_SYS_NICE = 12, 23  # capabilities(7)
_ENOUGH_BUFFER_BYTES = 32 << 20
_ENOUGH_BACKLOG_PACKETS = 10_000
_SCRATCH = "scratch"
_CONGESTION_CONTROLS = ("reno", "cubic", "bbr")
_TRIED_INSIDE = ("veth", "bridge", "tbf", "netem", "receive steering")
_UNTRIED = "not tried, for want of the above"
_CHUNK_BYTES = 1 << 18
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A feature that a machine has or lacks. remedy: the command that adds it; empty for none, or when not needed."""

    name: str
    available: bool
    detail: str = ""
    remedy: str = ""


_UNTRIED_RELAY = Fact(name="relay", available=False, detail=_UNTRIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """How much the relay can carry here, of kernel TCP at MTU 1500, with both ends on this machine.

    tcp_bps: goodput of one connection that only the relay limits. packets_per_s: frames relayed meanwhile, in both
    directions. cpu_share: of a core, by the relay. half_p99_s: the relay's lateness, 99th percentile, at half of that
    rate. real_time: whether the relay had a real-time priority.
    """

    tcp_bps: float
    packets_per_s: float
    cpu_share: float
    half_p99_s: float
    real_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What a machine can do. ceiling: None where there are no namespaces, or when it was not requested."""

    facts: tuple[Fact, ...]
    ceiling: Ceiling | None

    def has(self, name: str) -> bool:
        """Return whether the feature `name` is available. Raises KeyError for an unknown name."""
        for fact in self.facts:
            if fact.name == name:
                return fact.available
        raise KeyError(name)


def survey(*, with_ceiling: bool = True) -> HostFacts:
    """Find out what this machine can do; measuring the ceiling takes about 5 s."""
    facts = [
        _tool("ip", "iproute2"),
        _tool("tc", "iproute2"),
        _tool("ethtool", "ethtool"),
        _namespaces("namespaces as root", rootless=False),
        _namespaces("namespaces without root", rootless=True),
    ]
    usable = all(fact.available for fact in facts[:3]) and (facts[3].available or facts[4].available)
    if usable:
        with Namespaces([_SCRATCH]) as scratch:
            facts += _inside(scratch)
    else:
        facts += [Fact(name=name, available=False, detail=_UNTRIED) for name in _TRIED_INSIDE]
    relay, ceiling = _relay(with_ceiling=with_ceiling) if usable else (_UNTRIED_RELAY, None)
    facts.append(relay)
    facts += [_congestion_control(name) for name in _CONGESTION_CONTROLS]
    facts += [
        _mptcp(),
        _datagram_buffers(),
        _backlogs(),
        _real_time(),
        _tool("iperf3", "iperf3"),
        _tool("mn", "mininet", name="Mininet"),
    ]
    return HostFacts(facts=tuple(facts), ceiling=ceiling)


def _relay(*, with_ceiling: bool) -> tuple[Fact, Ceiling | None]:
    """Find out whether a relay can run, by running one."""
    try:
        if with_ceiling:
            return Fact(name="relay", available=True), measure_ceiling()
        measure_transfer(rate_bps=1e8, delay_s=1e-3, duration_s=0.05)
    except (UnsupportedError, RunFailedError) as error:
        return Fact(name="relay", available=False, detail=str(error)), None
    return Fact(name="relay", available=True), None


def _tool(program: str, package: str, *, name: str = "") -> Fact:
    where = find_tool(program)
    remedy = "" if where else f"apt-get install {package}"
    return Fact(name=name or program, available=where is not None, detail=where or "", remedy=remedy)


def _namespaces(name: str, *, rootless: bool) -> Fact:
    try:
        with Namespaces([_SCRATCH], rootless=rootless):
            return Fact(name=name, available=True)
    except UnsupportedError as error:
        detail, _, remedy = str(error).rpartition("; ")
        if not rootless and os.geteuid() != 0:
            remedy = "run as root"
        return Fact(name=name, available=False, detail=detail, remedy=remedy)


def _inside(scratch: Namespaces) -> list[Fact]:
    """Try the features that need only one scratch namespace."""

    def attempt(name: str, commands: Sequence[str], remedy: str) -> Fact:
        for command in commands:
            done = scratch.attempt(_SCRATCH, command.split())
            if done.status:
                return Fact(name=name, available=False, detail=" ".join(done.stderr.split()), remedy=remedy)
        return Fact(name=name, available=True)

    extra = f"apt-get install linux-modules-extra-{os.uname().release}"
    netem_remedy = _module_remedy("sch_netem") or (
        extra if "ubuntu" in os.uname().version.lower() else "cd vagrant && vagrant up"
    )
    steering = Path("/proc/sys", *RECEIVING_PROCESSORS.split(".")).exists()
    return [
        attempt("veth", ["ip link add one type veth peer name two"], _module_remedy("veth")),
        attempt("bridge", ["ip link add three type bridge"], _module_remedy("bridge")),
        attempt("tbf", ["tc qdisc add dev one root tbf rate 1mbit burst 5k limit 10k"], _module_remedy("sch_tbf")),
        attempt("netem", ["tc qdisc add dev two root netem delay 1ms"], netem_remedy),
        Fact(
            name="receive steering",
            available=steering,
            detail="" if steering else "frames are received in the relay's own time; Linux 6.3 can do better",
        ),
    ]


def _modules_directory() -> Path:
    return Path("/lib/modules", os.uname().release)


def _module_remedy(module: str) -> str:
    """Return the command that loads a module of this kernel, or "" when it has no such module."""
    listing = _modules_directory() / "modules.dep"
    if not listing.exists():
        return ""
    names = {Path(line.partition(":")[0]).name.partition(".")[0] for line in listing.read_text().splitlines()}
    return f"modprobe {module}" if module in names else ""


def available_congestion_controls() -> tuple[str, ...]:
    """Return the congestion controls that the kernel has loaded."""
    path = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
    return tuple(path.read_text(encoding="ascii").split())


def _congestion_control(name: str) -> Fact:
    available = name in available_congestion_controls()
    return Fact(name=name, available=available, remedy="" if available else _module_remedy(f"tcp_{name}"))


def _mptcp() -> Fact:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, _IPPROTO_MPTCP).close()
    except OSError as error:
        enabled = Path("/proc/sys/net/mptcp/enabled")
        remedy = "sysctl -w net.mptcp.enabled=1" if enabled.exists() else ""
        return Fact(name="MPTCP", available=False, detail=error.strerror or "", remedy=remedy)
    return Fact(name="MPTCP", available=True)


def _datagram_buffers() -> Fact:
    """Return whether a UDP socket's buffer can be large enough: always for root, else by the machine's limit."""
    limit = int(Path("/proc/sys/net/core/rmem_max").read_text(encoding="ascii"))
    enough = is_capable(_CAP_NET_ADMIN) or limit >= _ENOUGH_BUFFER_BYTES
    detail = (
        ""
        if enough
        else f"UDP sockets hold no more than {limit} bytes: fast datagrams are dropped before they are read"
    )
    remedy = "" if enough else f"sysctl -w net.core.rmem_max={_ENOUGH_BUFFER_BYTES}"
    return Fact(name="datagram buffers", available=enough, detail=detail, remedy=remedy)


def _backlogs() -> Fact:
    """Return whether the burst of a large window fits between two interfaces; the limit is of the whole machine."""
    limit = int(Path("/proc/sys/net/core/netdev_max_backlog").read_text(encoding="ascii"))
    enough = limit >= _ENOUGH_BACKLOG_PACKETS
    detail = "" if enough else f"bursts of more than {limit} packets are cut before the relay sees them"
    remedy = "" if enough else f"sysctl -w net.core.netdev_max_backlog={_ENOUGH_BACKLOG_PACKETS}"
    return Fact(name="packet backlogs", available=enough, detail=detail, remedy=remedy)


def _real_time() -> Fact:
    allowed = is_capable(_CAP_SYS_NICE)
    detail = "" if allowed else "relays are less punctual on a busy machine"
    return Fact(name="real-time priority", available=allowed, detail=detail, remedy="" if allowed else "run as root")


def measure_ceiling(*, duration_s: float = 1.5) -> Ceiling:
    """Measure how much the relay can carry here.

    Raises UnsupportedError where no relay can run, RunFailedError when it carries nothing.
    """
    full = measure_transfer(rate_bps=5e9, delay_s=2e-3, duration_s=duration_s)
    half = measure_transfer(rate_bps=full.tcp_bps / 2, delay_s=2e-3, duration_s=duration_s)
    report = full.report
    return Ceiling(
        tcp_bps=full.tcp_bps,
        packets_per_s=report.lateness.count / report.elapsed_s,
        cpu_share=report.cpu_share,
        half_p99_s=half.report.lateness.p99_s,
        real_time=report.real_time,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What a connection carried, bit/s of payload, and the relay's report."""

    tcp_bps: float
    report: RelayReport


def measure_transfer(*, rate_bps: float, delay_s: float, duration_s: float) -> Transfer:
    """Send over one connection from coast to coast for `duration_s`, after a quarter of that in which it may start.

    Raises as `measure_ceiling`.
    """
    link = LinkSpec(name="link", a="east", b="west", rate_bps=rate_bps, delay_s=delay_s)
    topology = Topology(
        sites=[Site(name="east"), Site(name="west")],
        links=[link],
        paths=[WanPath(name="path", sites=("east", "west"), links=("link",))],
    )
    with (
        TwoCoasts(topology) as coasts,
        Relays(coasts, seed=0) as relays,
        coasts.socket("west", socket.AF_INET, socket.SOCK_STREAM) as listener,
        coasts.socket("east", socket.AF_INET, socket.SOCK_STREAM) as sender,
    ):
        listener.bind((coasts.port("west", "path").address, 0))
        listener.listen()
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")  # every kernel has it
        sender.connect(listener.getsockname())
        receiver, _ = listener.accept()
        with receiver:
            return _time_transfer(sender, receiver, relays, duration_s)


def _time_transfer(sender: socket.socket, receiver: socket.socket, relays: Relays, duration_s: float) -> Transfer:
    until_s = time.monotonic() + 1.25 * duration_s
    for end in (sender, receiver):
        end.settimeout(_PATIENCE_S)
    failures: list[OSError] = []

    def send() -> None:
        chunk = bytes(_CHUNK_BYTES)
        try:
            while time.monotonic() < until_s:
                sender.sendall(chunk)
            sender.shutdown(socket.SHUT_WR)
        except OSError as error:
            failures.append(error)

    sending = threading.Thread(target=send)
    sending.start()
    room = bytearray(_CHUNK_BYTES)
    counting_from_s, counting_to_s = until_s - duration_s, 0.0
    received = 0
    try:
        while got := receiver.recv_into(room):
            now = time.monotonic()
            if counting_from_s <= now < until_s:
                received += got
                counting_to_s = now
        report = relays.report()
    except OSError as error:
        failures.append(error)
    sending.join()
    if failures:
        raise RunFailedError(f"a transfer through the relay broke off: {failures[0]}")
    return Transfer(tcp_bps=received * 8 / max(counting_to_s - counting_from_s, 1e-9), report=report)


def machine_features() -> frozenset[str]:
    """Return the features that transports may require (`TransportSpec.requires`) and this machine has."""
    features = {f"kernel {name}" for name in available_congestion_controls()}
    if _mptcp().available:
        features.add("kernel mptcp")
    features.add("learned windows")  # the routes of a run's namespaces can always be changed
    return frozenset(features)
