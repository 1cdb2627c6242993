"""How much real traffic this machine can carry before the machine itself is the bottleneck.

In real time every packet takes processor time: the relay's for every frame, and the coasts' processes' for every packet
of a sans-IO transport. Both times are measured once. A run that needs more than a share of the processors is refused.
"""

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from bicoastal.emulation.base import JobSpec, RunSpec, TransportUse, UnsupportedError
from bicoastal.emulation.ground.wiring import relay_groups
from bicoastal.emulation.probing.host import measure_transfer
from bicoastal.emulation.simulator import SimulatorBackend
from bicoastal.emulation.traffic.flows import Flow
from bicoastal.transports.registry import Registry
from bicoastal.wan.allreduce import AllReduceSpec
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
from bicoastal.wan.units import format_rate

RELAY_SHARE = 0.5  # of its processor: at half of its capacity, the relay is on time
COASTS_SHARE = 0.6  # of the remaining processors, for both coasts' processes
PROCESSORS_PER_RELAY = 3  # as in `processors.share_out`
FRAMES_PER_DATA_PACKET = 1.5  # an acknowledgement for every second packet: RFC 9293 §3.8.6.3
_SIM_TO_REAL = 2.0  # real sockets and a waiting loop take more than the sum of the separate measurements
_MTU_BYTES = 1500
_SAMPLE_BYTES = 3_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a run needs while all its links are full: data packets per second, both directions together.

    relayed_per_s: on the paths of the busiest relay. own_per_s: of sans-IO transports, which run in the coasts'
    processes. rate_bps: the sum over the links in use, in one direction.
    """

    relayed_per_s: float
    own_per_s: float
    rate_bps: float

    @classmethod
    def of(cls, spec: RunSpec, flows: Sequence[Flow], *, relays: int) -> "Demand":
        """Return what `spec` needs, with `relays` relays between the coasts."""
        topology = spec.topology
        ways: dict[tuple[str, str], bool] = {}  # (path, from) -> whether a machine of ours drives it
        for flow in flows:
            for path in flow.paths:
                own = flow.transport.kind == "sans-io"
                ways[path, flow.source] = ways.get((path, flow.source), False) or own
        per_s = {name: topology.path_rate_bps(name) / (8 * topology.path_mtu_bytes(name)) for name in topology.paths}
        groups = relay_groups(topology, max(1, relays))
        used = {path for path, _ in ways}
        return cls(
            relayed_per_s=max(sum(per_s[path] for path, _ in ways if path in group) for group in groups),
            own_per_s=sum(per_s[path] for (path, _), own in ways.items() if own),
            rate_bps=sum(topology.path_rate_bps(path) for path in used),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCeiling:
    """What this machine can carry.

    frame_s: processor time of the relay for a frame. packet_s: processor time of both ends of a sans-IO transport for a
    data packet and its acknowledgement. processors: their number.
    """

    frame_s: float
    packet_s: float
    processors: int

    @property
    def relays(self) -> int:
        """The number of relays that have their own processor."""
        return max(1, self.processors // PROCESSORS_PER_RELAY)

    @property
    def relayed_per_s(self) -> float:
        """Data packets that one relay can carry per second."""
        return RELAY_SHARE / (self.frame_s * FRAMES_PER_DATA_PACKET)

    @property
    def own_per_s(self) -> float:
        """Data packets per second that sans-IO transports can carry."""
        return COASTS_SHARE * max(1, self.processors - self.relays) / self.packet_s

    @property
    def rate_bps(self) -> float:
        """The largest sum of link rates that the kernel's TCP can fill in both directions, in bit/s.

        The packets have 9000 octets, as in the largest usual Ethernet frames.
        """
        return self.relays * self.relayed_per_s * 9000 * 8 / 2

    def least_scale(self, demand: Demand) -> float:
        """Return the least divisor of rates, 1 or more."""
        return max(1.0, demand.relayed_per_s / self.relayed_per_s, demand.own_per_s / self.own_per_s)

    def require(self, demand: Demand) -> None:
        """Raise UnsupportedError, which names the ceiling, for a run that needs more."""
        scale = self.least_scale(demand)
        if scale > 1.0:
            asked, ceiling = format_rate(demand.rate_bps), format_rate(demand.rate_bps / scale)
            raise UnsupportedError(
                f"{asked} over all links is more than the {ceiling} that this machine can carry of it: "
                f"divide rates and payloads by {scale:.3g} or more (--scale)"
            )


@cache
def machine_ceiling() -> MachineCeiling:
    """Measure what this machine can carry; this takes about 3 s, once in a process.

    Raises UnsupportedError where no relay can run, RunFailedError when it carries nothing.
    """
    report = measure_transfer(rate_bps=5e9, delay_s=2e-3, duration_s=1.0).report
    return MachineCeiling(
        frame_s=report.cpu_share * report.elapsed_s / report.lateness.count,
        # the least of three measurements, since other processes can only add time
        packet_s=_SIM_TO_REAL * min(_machines_s() + FRAMES_PER_DATA_PACKET * _sockets_s() for _ in range(3)),
        processors=len(os.sched_getaffinity(0)),
    )


def _machines_s() -> float:
    """Return the processor time of both ends of a sans-IO transport for a data packet, encoded, in the simulator."""
    link = LinkSpec(name="link", a="west", b="east", rate_bps=1e9, delay_s=0.01, mtu_bytes=_MTU_BYTES)
    spec = RunSpec(
        name="ceiling",
        topology=Topology(
            sites=(Site(name="west"), Site(name="east")),
            links=(link,),
            paths=(Path(name="path", sites=("west", "east"), links=("link",)),),
        ),
        jobs=(
            JobSpec(
                name="job",
                transport=TransportUse(name="cubic"),
                paths=("path",),
                allreduce=AllReduceSpec(sites=("west", "east"), shard_bytes=_SAMPLE_BYTES),
                iterations=1,
            ),
        ),
        eager_encoding=True,
    )
    began_s = time.process_time()
    record = SimulatorBackend(Registry.installed()).run(spec)
    return (time.process_time() - began_s) / sum(flow.packets for flow in record.flows)


def _sockets_s(count: int = 2000) -> float:
    """Return the processor time of the kernel to send and receive a datagram on the loopback interface."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
    ):
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(1.0)
        sender.connect(receiver.getsockname())
        datagram = bytes(_MTU_BYTES - 28)
        began_s = time.process_time()
        for _ in range(count):
            sender.send(datagram)
            receiver.recv(_MTU_BYTES)
        return (time.process_time() - began_s) / count
