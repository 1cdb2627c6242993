"""The coasts and the WAN between them as a Mininet topology, which Mininet sets up.

    mn --custom emulation/mininet/topology.py --topo bicoastal[,planes=4,hosts=2,rate=5000000]

Each path is a chain of bridges between the coasts. A cable between two bridges carries one stage of every link in each
direction, on the interface through which packets leave. The stages are those of `emulation.real.netem`, in their order,
with `DEPARTURE` on the hosts' interfaces. A cable also accepts Mininet's own `TCLink` options (bw, delay, loss).
"""

import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from mininet.link import Link, TCIntf
from mininet.node import Host, Node
from mininet.nodelib import LinuxBridge
from mininet.topo import Topo

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.ground.wiring import OFFLOADS, CoastOptions, Wiring, plan_wiring
from bicoastal.emulation.real import netem
from bicoastal.wan.checks import FieldError
from bicoastal.wan.loss import Bernoulli
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*")
MOST_HOSTS = 100  # of a coast


def run_on(node: Node, argv: Sequence[str], text: str = "") -> str:
    """Run a short command on a node; return its output. Raises UnsupportedError with its error output when it fails.

    Mininet's `cmd` would ignore the failure.
    """
    done = subprocess.run(
        ["mnexec", "-a", str(node.pid), *argv], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        words = " ".join((done.stderr or done.stdout).split()) or f"exit status {done.returncode}"
        raise UnsupportedError(f"{' '.join(argv)}: {words}")
    return done.stdout


class CoastHost(Host):  # type: ignore[misc]
    """A host whose kernel parameters are set before it has an interface. sysctls: values by name."""

    def __init__(self, name: str, sysctls: Mapping[str, str] | None = None, **parameters: Any) -> None:
        super().__init__(name, **parameters)
        if sysctls:
            run_on(self, ["sysctl", "-qew", *(f"{key}={value}" for key, value in sysctls.items())])


class Bridge(LinuxBridge):  # type: ignore[misc]
    """A learning bridge, whose interfaces may have any names; a failure raises an error."""

    def start(self, _controllers: Sequence[object]) -> None:
        """Make the bridge."""
        bridge = self.name
        lines = [f"link add {bridge} type bridge stp_state 0 mcast_snooping 0"]
        lines += [
            f"link set {interface.name} master {bridge}" for interface in self.intfList() if interface.name != "lo"
        ]
        run_on(self, ["ip", "-batch", "-"], "\n".join([*lines, f"link set {bridge} multicast off up", ""]))


class StageInterface(TCIntf):  # type: ignore[misc]
    """An interface with a stage of a link. `stage`: the words after `tc qdisc add dev … root`."""

    def config(self, mtu: int | None = None, stage: Sequence[str] | None = None, **parameters: Any) -> Any:
        """Configure the interface as Mininet does, then its offloads, MTU and stage. Raises UnsupportedError."""
        result = super().config(**parameters)
        switches = [word for offload in OFFLOADS for word in (offload, "off")]
        run_on(self.node, ["ethtool", "-K", self.name, *switches])
        if mtu is not None:
            run_on(self.node, ["ip", "link", "set", self.name, "mtu", str(mtu)])
        if stage is not None:
            run_on(self.node, ["tc", "qdisc", "add", "dev", self.name, "root", "handle", "1:", *stage])
        return result


class Cable(Link):  # type: ignore[misc]
    """A virtual cable between two nodes, each in the root namespace or in any other."""

    def __init__(self, one: Node, other: Node, **parameters: Any) -> None:
        parameters.setdefault("cls1", StageInterface)
        parameters.setdefault("cls2", StageInterface)
        super().__init__(one, other, **parameters)

    @classmethod
    def makeIntfPair(  # noqa: N802, PLR0917 (Mininet's)
        cls, intfname1: str, intfname2: str, addr1: str, addr2: str, node1: Node, node2: Node, **_: object
    ) -> None:
        """Make the pair. Raises UnsupportedError."""
        one = ["ip", "link", "add", "name", intfname1, "address", addr1, "type", "veth"]
        run_on(node1, [*one, "peer", "name", intfname2, "address", addr2, "netns", str(node2.pid)])


class BicoastalTopo(Topo):  # type: ignore[misc]
    """Hosts on both coasts, and a chain of bridges for every path between them.

    wiring: names, addresses and cables, from `plan`; without it, `planes` paths of `rate` bit/s with 60 ms of RTT and
    one packet lost in 10,000. hosts: the number at each coast, with the site's name and a number from 1. seed: as for
    `netem.path_stages`. Raises ValueError, UnsupportedError for what netem cannot express.
    """

    def build(  # noqa: PLR0917 (what `mn --topo` is given comes by place or by name)
        self,
        wiring: Wiring | None = None,
        options: CoastOptions | None = None,
        seed: int | None = None,
        hosts: int = 2,
        planes: int = 4,
        rate: float = 5e6,
        **_: object,
    ) -> None:
        """Add nodes and links."""
        if not 1 <= hosts <= MOST_HOSTS:
            raise FieldError("hosts", f"{hosts} is not between 1 and {MOST_HOSTS}")
        wiring = wiring or plan(default_topology(planes, rate), tag="wan")
        self.names = host_names(wiring.sites)
        for site, name in self.names.items():
            first = next(port for port in wiring.ports if port.site == site)
            sysctls = wiring.sysctls(site, options or CoastOptions())
            for number in range(hosts):
                address = _address(first.address, number)
                self.addHost(_numbered(name, number), cls=CoastHost, ip=f"{address}/24", sysctls=sysctls)
        for index, path in enumerate(wiring.topology.paths):
            self._add_path(wiring, path, index, hosts, seed)

    def _add_path(self, wiring: Wiring, path: str, index: int, hosts: int, seed: int | None) -> None:
        left, right = wiring.ports_of(path)
        segments = wiring.segments[path]
        bridges = [f"{wiring.tag}{index}b{number}" for number in range(len(segments) + 1)]
        for bridge in bridges:
            self.addSwitch(bridge, cls=Bridge)
        mtu = {"mtu": left.mtu_bytes}
        forth, back = netem.path_stages(wiring.topology, path, seed)
        for segment, one, other, outward, inward in zip(
            segments, bridges[:-1], bridges[1:], forth, reversed(back), strict=True
        ):
            self.addLink(
                one,
                other,
                cls=Cable,
                intfName1=segment.left,
                intfName2=segment.right,
                params1={**mtu, "stage": outward},
                params2={**mtu, "stage": inward},
            )
        for port, bridge in ((left, bridges[0]), (right, bridges[-1])):
            for number in range(hosts):
                self.addLink(
                    _numbered(self.names[port.site], number),
                    bridge,
                    cls=Cable,
                    intfName1=port.device,
                    intfName2=f"{port.middle_device}{number or ''}",
                    addr1=_mac(port.mac, number),
                    params1={**mtu, "ip": f"{_address(port.address, number)}/24", "stage": netem.DEPARTURE},
                    params2=mtu,
                )


def plan(topology: Topology, *, tag: str) -> Wiring:
    """Return the wiring for a `BicoastalTopo`. Raises UnsupportedError for what netem cannot express."""
    stages = {path: count + 1 for path, count in netem.stage_counts(topology).items()}  # a bridge at either end
    return plan_wiring(topology, tag=tag, stages=stages)


def default_topology(planes: int, rate_bps: float) -> Topology:
    """Return `planes` separate paths between two coasts, each with an RTT of 60 ms, jumbo frames, loss 1e-4."""
    names = [f"plane{number}" for number in range(int(planes))]
    return Topology(
        sites=(Site(name="west"), Site(name="east")),
        links=[
            LinkSpec(
                name=name,
                a="west",
                b="east",
                rate_bps=rate_bps,
                delay_s=0.03,
                mtu_bytes=9000,
                loss=Bernoulli(probability=1e-4),
            )
            for name in names
        ],
        paths=[Path(name=name, sites=("west", "east"), links=(name,)) for name in names],
    )


def host_names(sites: Sequence[str]) -> dict[str, str]:
    """Return the name of each site's hosts, without their number: the site's, where Mininet accepts it."""
    return {
        site: site if _NAME.fullmatch(site) and not site[-1].isdigit() else f"coast{chr(ord('a') + at)}"
        for at, site in enumerate(sites)
    }


def _numbered(name: str, number: int) -> str:
    return f"{name}{number + 1}"


def _address(first: str, number: int) -> str:
    """Return the address of a coast's host on a path; they differ by two, since both coasts share the subnet."""
    network, _, last = first.rpartition(".")
    return f"{network}.{int(last) + 2 * number}"


def _mac(first: str, number: int) -> str:
    return f"{first[:-2]}{int(first[-2:], 16) + 2 * number:02x}"


topos: dict[str, type[Topo]] = {"bicoastal": BicoastalTopo}
