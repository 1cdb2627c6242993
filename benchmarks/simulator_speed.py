"""How much CPU the simulator takes: one 114 MB flow at 5 Gbit/s, then how the cost grows with packets and flows.

    python benchmarks/simulator_speed.py [--transport reno]

Prints CPU seconds, microseconds per data packet and peak memory. The growth rows are ratios within one run: on a
shared machine only those mean much. `--eager` encodes every segment and parses it back, checksums included.
"""

import argparse
import resource
import time

from bicoastal.emulation.base import BackgroundSpec, JobSpec, RunSpec, TransportUse
from bicoastal.emulation.simulator import SimulatorBackend
from bicoastal.transports.registry import Registry
from bicoastal.wan.allreduce import AllReduceSpec
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

RATE_BPS = 5e9
RTT_S = 0.060


def topology(planes: int, mtu_bytes: int, rate_bps: float) -> Topology:
    """Return parallel planes between two coasts, their queues one BDP."""
    links = [
        LinkSpec(name=f"plane{i}", a="east", b="west", rate_bps=rate_bps, delay_s=RTT_S / 2, mtu_bytes=mtu_bytes)
        for i in range(planes)
    ]
    return Topology(
        sites=(Site(name="east"), Site(name="west")),
        links=links,
        paths=[Path(name=link.name, sites=("east", "west"), links=(link.name,)) for link in links],
    )


def one_flow(transport: str, message_bytes: int, mtu_bytes: int, *, eager: bool = False) -> tuple[float, int]:
    """Carry one message in one direction; return (CPU seconds, data packets)."""
    world = topology(1, mtu_bytes, RATE_BPS)
    # a job of one byte each way gives the run its end; the flow that is measured runs beside it, checked byte by byte
    return _run(
        RunSpec(
            name="one flow",
            topology=world,
            jobs=(_job(transport, "plane0", 8, iterations=2, gap_s=30.0),),
            background=(
                BackgroundSpec(
                    name="flow",
                    transport=TransportUse(name=transport),
                    paths=("plane0",),
                    source="east",
                    destination="west",
                    message_bytes=message_bytes,
                    messages=1,
                ),
            ),
            eager_encoding=eager,
        )
    )


def many_flows(transport: str, flows: int, message_bytes: int, mtu_bytes: int) -> tuple[float, int]:
    """Carry `flows` messages side by side, each over a plane of its own; return (CPU seconds, packets)."""
    world = topology(flows, mtu_bytes, RATE_BPS)
    return _run(
        RunSpec(
            name=f"{flows} flows",
            topology=world,
            jobs=tuple(_job(transport, name, message_bytes, iterations=1, gap_s=1.0) for name in world.paths),
        )
    )


def _job(transport: str, path: str, shard_bytes: int, *, iterations: int, gap_s: float) -> JobSpec:
    return JobSpec(
        name=f"job-{path}",
        transport=TransportUse(name=transport),
        paths=(path,),
        allreduce=AllReduceSpec(sites=("east", "west"), shard_bytes=shard_bytes, ranks_per_site=1),
        iterations=iterations,
        gap_s=gap_s,
    )


def _run(spec: RunSpec) -> tuple[float, int]:
    before = time.process_time()
    record = SimulatorBackend(Registry.installed()).run(spec)
    cpu_s = time.process_time() - before
    if record.status != "ok":
        raise SystemExit(f"{spec.name}: {record.reason}")
    return cpu_s, sum(link.packets for link in record.links)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", default="reno")
    parser.add_argument("--eager", action="store_true", help="also with every segment encoded and parsed")
    arguments = parser.parse_args()
    transport = arguments.transport
    print(f"{'run':<44}{'CPU s':>8}{'packets':>10}{'us/packet':>11}")

    def row(name: str, figures: tuple[float, int]) -> float:
        cpu_s, packets = figures
        print(f"{name:<44}{cpu_s:>8.2f}{packets:>10}{1e6 * cpu_s / packets:>11.1f}", flush=True)
        return cpu_s

    row(f"{transport}, 114 MB, MTU 1500", one_flow(transport, 114_000_000, 1500))
    row(f"{transport}, 114 MB, MTU 9000", one_flow(transport, 114_000_000, 9000))
    if arguments.eager:
        row(f"{transport}, 114 MB, MTU 1500, encoded", one_flow(transport, 114_000_000, 1500, eager=True))
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    for quarter in (1, 2, 4):
        size = 114_000_000 * quarter // 4
        row(f"{transport}, {size / 1e6:.1f} MB, MTU 1500", one_flow(transport, size, 1500))
    first = None
    for flows in (1, 4, 16, 64):
        cpu_s = row(f"{transport}, {flows} flows of 2 x 4 MB, MTU 1500", many_flows(transport, flows, 4_000_000, 1500))
        first = first or cpu_s
        print(f"{'':<44}{cpu_s / first / flows:>8.2f} times the cost of one flow, each")


if __name__ == "__main__":
    main()
