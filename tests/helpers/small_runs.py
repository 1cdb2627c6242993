"""Small worlds for the tests of emulation: two coasts, a few links, one job."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bicoastal.emulation.base import BackgroundSpec, JobSpec, ParameterValue, RunSpec, TransportUse
from bicoastal.emulation.records import IterationRecord, LinkRecord, RunRecord
from bicoastal.emulation.simulator import SimulatorBackend
from bicoastal.emulation.testing.transports import PLAIN_NAME
from bicoastal.transports.registry import Registry, TransportSpec
from bicoastal.wan.allreduce import AllReduceSpec, Pattern
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

RATE_BPS = 100e6
DELAY_S = 0.010
FRAMING_BYTES = 38
PLAIN = PLAIN_NAME  # 37 bytes of header behind 28 of IP and UDP, acknowledgements of the same size without data

# IPv4 20, TCP 20, timestamps 12; a message's 16 bytes of framing travel in its first segment.
TCP_ACK_BYTES = 52
TCP_FRAME_BYTES = 16
DATA_BYTES = 1000 + TCP_FRAME_BYTES + TCP_ACK_BYTES  # the IP packet of a message of 1,000 bytes
DATA_WIRE_BYTES = DATA_BYTES + FRAMING_BYTES
ACK_WIRE_BYTES = TCP_ACK_BYTES + FRAMING_BYTES


def plane(name: str = "plane0", **changes: Any) -> LinkSpec:
    """Return a link between the coasts."""
    values: dict[str, Any] = {"a": "west", "b": "east", "rate_bps": RATE_BPS, "delay_s": DELAY_S, **changes}
    return LinkSpec(name=name, **values)


def link_record(**changes: Any) -> LinkRecord:
    """Return what was counted of one direction of a link: a packet of two bytes that arrived, unless told otherwise."""
    values: dict[str, Any] = {
        **dict.fromkeys(("lost", "dropped_queue", "dropped_outage", "duplicated", "corrupted", "reordered"), 0),
        **{"link": "plane0", "direction": "west>east", "packets": 1, "bytes": 2, "delivered": 1},
        **changes,
    }
    return LinkRecord(**values)


def planes(*links: LinkSpec, overhead_bytes: int = 0) -> Topology:
    """Return links between the coasts, each with a path of its own name."""
    return Topology(
        sites=(Site(name="west"), Site(name="east")),
        links=links,
        paths=[
            Path(name=link.name, sites=("west", "east"), links=(link.name,), overhead_bytes=overhead_bytes)
            for link in links
        ],
    )


def job(
    transport: str = PLAIN,
    *,
    name: str = "job",
    paths: Sequence[str] = ("plane0",),
    shard_bytes: int = 1000,
    pattern: Pattern = "exchange",
    parameters: tuple[tuple[str, ParameterValue], ...] = (),
    array_bytes: int | None = None,
    **changes: Any,
) -> JobSpec:
    """Return a job between the coasts: two iterations, a second apart, the first when the handshakes' echo is over."""
    values: dict[str, Any] = {"iterations": 2, "gap_s": 1.0, "start_s": 0.1, **changes}
    return JobSpec(
        name=name,
        transport=TransportUse(name=transport, parameters=parameters),
        paths=tuple(paths),
        allreduce=AllReduceSpec(
            sites=("west", "east"), shard_bytes=shard_bytes, pattern=pattern, array_bytes=array_bytes
        ),
        **values,
    )


def background(
    transport: str = PLAIN, *, parameters: tuple[tuple[str, ParameterValue], ...] = (), **changes: Any
) -> BackgroundSpec:
    """Return other traffic from west to east."""
    values: dict[str, Any] = {
        "name": "others", "paths": ("plane0",), "source": "west", "destination": "east", "message_bytes": 50_000,
        **changes,
    }  # fmt: skip
    return BackgroundSpec(transport=TransportUse(name=transport, parameters=parameters), **values)


def run_spec(topology: Topology | None = None, *jobs: JobSpec, **changes: Any) -> RunSpec:
    """Return a run of `jobs`, or of the plain one."""
    spec = RunSpec(name="run", topology=topology or planes(plane()), jobs=jobs or (job(),))
    return replace(spec, **changes)


def simulate(spec: RunSpec, *specs: TransportSpec) -> RunRecord:
    """Run it in virtual time, with every installed transport and `specs`."""
    return SimulatorBackend(Registry.installed().with_specs(*specs)).run(spec)


def iterations(record: RunRecord, job: str = "job") -> list[IterationRecord]:
    """Return the iterations of a job."""
    return [row for row in record.iterations if row.job == job]


def links(record: RunRecord) -> dict[tuple[str, str], LinkRecord]:
    """Return what each direction of each link carried, by the link's name and its direction's."""
    return {(row.link, row.direction): row for row in record.links}
