"""The plan of interfaces, addresses and routes for a topology, with the commands that make them. It runs no command.

Each path has one subnet and one connection through the middle namespace. A coast has an interface for every path that
ends there. Frames are addressed to the far coast's interface, and not to the middle. So the forwarder (the relay, or
bridges with netem) changes no octet and no time to live.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from bicoastal.emulation.ground.processors import Processors
from bicoastal.wan.checks import FieldError
from bicoastal.wan.topology import Topology

MIDDLE = ""  # the middle namespace; no site can have this name
MOST_PATHS = 10_000  # so that no name is longer than the 15 characters that an interface may have
FIRST_TABLE = 1000
RECEIVING_PROCESSORS = "net.core.rps_default_mask"  # in namespaces from Linux 6.3 on; read when interfaces are made
OFFLOADS = ("tso", "gso", "gro", "lro", "sg", "rx", "tx")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_LEAST_BUFFER_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CoastOptions:
    """How the kernel's TCP on the coasts is set up.

    congestion_control: of every connection, even when a socket asks for another. It is set by route, since the kernel
    allows only some algorithms as a namespace's default. None leaves the choice to sockets and the kernel's default.
    slow_start_after_idle: as in RFC 5681 §4.1. Raises FieldError.
    """

    congestion_control: str | None = None
    slow_start_after_idle: bool = True

    def __post_init__(self) -> None:
        """Check the name."""
        if self.congestion_control is not None and not re.fullmatch(r"[a-z0-9_]+", self.congestion_control):
            raise FieldError("congestion_control", f"{self.congestion_control!r} is not the name of one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """Where a path ends at a coast.

    device, mac, address: the coast's interface. middle_device: the other end of its cable, in the middle namespace.
    peer_address, peer_mac: the far coast's. table: the routing table for sockets bound to `address`.
    """

    path: str
    site: str
    device: str
    middle_device: str
    mac: str
    peer_mac: str
    address: str
    peer_address: str
    table: int
    mtu_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A cable between two bridges in the middle of a path. left leads to the path's first site, right to its last."""

    left: str
    right: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """The plan of one run's interfaces.

    tag: the beginning of every name. processors: those of the relays and the coasts. segments: cables between bridges
    in the middle, by path.
    """

    topology: Topology
    tag: str
    ports: tuple[Port, ...]
    processors: Processors = field(default_factory=Processors)
    segments: Mapping[str, tuple[Segment, ...]] = field(default_factory=dict)

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites at which paths end, in the topology's order: each is a coast with a namespace of its own."""
        ends = {port.site for port in self.ports}
        return tuple(site.name for site in self.topology.sites if site.name in ends)

    def port(self, site: str, path: str) -> Port:
        """Return the port of a path at a site. Raises KeyError."""
        for port in self.ports:
            if port.site == site and port.path == path:
                return port
        raise KeyError(f"{path} does not end at {site}")

    def ports_of(self, path: str) -> tuple[Port, Port]:
        """Return both ports of a path: at its first site, and at its last. Raises KeyError."""
        sites = self.topology.paths[path].sites
        return self.port(sites[0], path), self.port(sites[-1], path)

    # -- commands -----------------------------------------------------------------------------------------------------

    def middle_commands(self, network_paths: Mapping[str, str]) -> list[str]:
        """Return lines for `ip -batch` in the middle namespace; network_paths: of the coasts' namespaces."""
        lines = [
            f"link add {port.middle_device} mtu {port.mtu_bytes} type veth "
            f"peer name {port.device} address {port.mac} mtu {port.mtu_bytes} netns {network_paths[port.site]}"
            for port in self.ports
        ]
        devices = [port.middle_device for port in self.ports]
        for path, segments in self.segments.items():
            left, right = self.ports_of(path)
            for segment in segments:
                mtu = f"mtu {left.mtu_bytes}"
                lines.append(f"link add {segment.left} {mtu} type veth peer name {segment.right} {mtu}")
                devices += (segment.left, segment.right)
            ends = [left.middle_device, *(end for each in segments for end in (each.left, each.right))]
            ends.append(right.middle_device)
            for number, (one, other) in enumerate(zip(ends[::2], ends[1::2], strict=True)):
                bridge = f"{left.middle_device[:-1]}b{number}"
                lines.append(f"link add {bridge} mtu {left.mtu_bytes} type bridge stp_state 0 mcast_snooping 0")
                lines += [f"link set {end} master {bridge}" for end in (one, other)]
                devices.append(bridge)
        return [*lines, *(f"link set {device} multicast off up" for device in devices)]

    def coast_commands(self, site: str, options: CoastOptions) -> list[str]:
        """Return lines for `ip -batch` on a coast, to be run after those of the middle."""
        lines = ["link set lo up"]
        metrics = f" congctl {options.congestion_control}" if options.congestion_control else ""
        for port in self.ports:
            if port.site != site:
                continue
            lines += [
                f"link set {port.device} multicast off up",
                f"address add {port.address}/24 dev {port.device} noprefixroute",
                f"neighbor replace {port.peer_address} lladdr {port.peer_mac} dev {port.device} nud permanent",
                f"route add {port.peer_address}/32 dev {port.device} src {port.address}{metrics}",
                f"route add {port.peer_address}/32 dev {port.device} src {port.address} table {port.table}{metrics}",
                f"route add default via {port.peer_address} dev {port.device} src {port.address} "
                f"table {port.table}{metrics}",
                f"rule add from {port.address} lookup {port.table} priority {port.table}",
            ]
        return lines

    def offload_commands(self, namespace: str) -> list[list[str]]:
        """Return commands that turn off all offloads, which merge or split packets, in a coast or the middle."""
        if namespace == MIDDLE:
            devices = [port.middle_device for port in self.ports]
            devices += [end for each in self.segments.values() for cut in each for end in (cut.left, cut.right)]
        else:
            devices = [port.device for port in self.ports if port.site == namespace]
        switches = [word for offload in OFFLOADS for word in (offload, "off")]
        return [["ethtool", "-K", device, *switches] for device in devices]

    def sysctls(self, namespace: str, options: CoastOptions) -> dict[str, str]:
        """Return the settings of a coast or the middle, all per namespace. Set them before the interfaces are made."""
        values = {f"net.ipv6.conf.{which}.disable_ipv6": "1" for which in ("all", "default")}
        if namespace == MIDDLE:
            return values
        if self.processors.coasts:
            values[RECEIVING_PROCESSORS] = self.processors.coast_mask
        buffer_bytes = self.buffer_bytes(namespace)
        return values | {
            "net.ipv4.conf.all.rp_filter": "0",  # the sender chooses the path to an address
            "net.ipv4.conf.default.rp_filter": "0",
            "net.ipv4.tcp_no_metrics_save": "1",  # no connection inherits metrics of an earlier one
            "net.ipv4.tcp_slow_start_after_idle": str(int(options.slow_start_after_idle)),
            "net.ipv4.tcp_rmem": f"4096 {max(131072, buffer_bytes // 2)} {buffer_bytes}",
            "net.ipv4.tcp_wmem": f"4096 {max(16384, buffer_bytes // 8)} {buffer_bytes}",
        }

    def buffer_bytes(self, site: str) -> int:
        """Return the buffer size for a socket at `site`: four times what the largest path holds on its way and queued.

        The kernel counts half of a receive buffer as its overhead (tcp(7), tcp_adv_win_scale). A window that also holds
        data received out of order needs the other half twice.
        """
        held = [
            self.topology.path_rate_bps(port.path) * self.topology.path_rtt_s(port.path) / 8
            + sum(link.queue_limit_bytes for link in self.topology.path_links(port.path))
            for port in self.ports
            if port.site == site
        ]
        return min(max(_LEAST_BUFFER_BYTES, round(4 * max(held))), (1 << 31) - 1)

    def hosts(self) -> str:
        """Return lines for /etc/hosts: a site's name is its address on its first path, `site-path` that on a path."""
        lines = []
        for site in self.sites:
            ports = [port for port in self.ports if port.site == site]
            names = [(ports[0].address, site), *((port.address, f"{site}-{port.path}") for port in ports)]
            lines += [f"{address} {name}\n" for address, name in names if _HOST_NAME.fullmatch(name)]
        return "".join(lines)


def plan_wiring(
    topology: Topology,
    *,
    tag: str,
    processors: Processors | None = None,
    stages: Mapping[str, int] | None = None,
) -> Wiring:
    """Plan the interfaces of a run.

    stages: how many stages of netem each path has; the middle gets bridges and cables for them. With None, a relay
    uses the interfaces in the middle. Raises FieldError for too many paths.
    """
    if len(topology.paths) > MOST_PATHS:
        raise FieldError("paths", f"there are more than {MOST_PATHS}")
    ports: list[Port] = []
    segments: dict[str, tuple[Segment, ...]] = {}
    for index, path in enumerate(topology.paths.values()):
        macs, addresses = [], []
        for end in (1, 2):
            macs.append(f"02:62:63:{index >> 8:02x}:{index & 255:02x}:{end:02x}")  # locally administered
            addresses.append(f"10.{64 + (index >> 8)}.{index & 255}.{end}")
        for end, site in enumerate((path.sites[0], path.sites[-1])):
            ports.append(
                Port(
                    path=path.name,
                    site=site,
                    device=f"{tag}p{index}",
                    middle_device=f"{tag}{index}{'lr'[end]}",
                    mac=macs[end],
                    peer_mac=macs[1 - end],
                    address=addresses[end],
                    peer_address=addresses[1 - end],
                    table=FIRST_TABLE + index,
                    mtu_bytes=topology.path_mtu_bytes(path.name),
                )
            )
        if stages is not None:
            segments[path.name] = tuple(
                Segment(left=f"{tag}{index}x{number}", right=f"{tag}{index}y{number}")
                for number in range(stages[path.name] - 1)
            )
    return Wiring(
        topology=topology,
        tag=tag,
        ports=tuple(ports),
        processors=processors or Processors(),
        segments=segments,
    )


def relay_groups(topology: Topology, most: int) -> tuple[tuple[str, ...], ...]:
    """Distribute the paths over at most `most` relays with about equal rates; return the paths of each relay.

    Paths that share a link have the same relay, since a link has one queue.
    """
    parts: list[tuple[set[str], list[str]]] = []
    for path in topology.paths.values():
        links, names = set(path.links), [path.name]
        for part in [part for part in parts if part[0] & links]:
            parts.remove(part)
            links |= part[0]
            names = part[1] + names
        parts.append((links, names))

    def rate_bps(links: set[str]) -> float:
        return sum(topology.links[link].rate_bps for link in links)

    groups: list[tuple[set[str], list[str]]] = [(set(), []) for _ in range(min(most, len(parts)))]
    for links, names in sorted(parts, key=lambda part: -rate_bps(part[0])):
        lightest = min(groups, key=lambda group: rate_bps(group[0]))
        lightest[0].update(links)
        lightest[1].extend(names)
    return tuple(tuple(names) for _, names in groups)
