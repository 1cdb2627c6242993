"""Scales links down so that they fit a machine: rates are divided, and times stay the same.

Round trips, loss, jitter, and the queue in units of the bandwidth-delay product stay the same. The bandwidth-delay
product in packets becomes smaller, since the packets keep their size. So a window of a given number of packets becomes
a larger share of it.
"""

from dataclasses import dataclass, replace
from math import prod, sqrt

from bicoastal.wan.allreduce import AllReduceSpec
from bicoastal.wan.checks import check_positive
from bicoastal.wan.schedule import CapacityTrace, LinkEvent, RateStep
from bicoastal.wan.topology import LinkSpec, Topology
from bicoastal.wan.units import INFINITY

_STEPS = (1, 2, 5)


def round_divisor(least: float) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, 50, … that is not below `least`, so that runs are easy to compare.

    Raises ValueError unless `least` is a finite number above zero.
    """
    check_positive("least", least)
    decade = 1
    while True:
        for step in _STEPS:
            if step * decade >= least:
                return step * decade
        decade *= 10


def scaled_topology(topology: Topology, divisor: float) -> Topology:
    """Return the topology with every rate, queue and capacity step divided by `divisor`.

    A queue holds at least one full packet, like the default queue. Raises ValueError unless the divisor is a finite
    number above zero.
    """
    check_positive("divisor", divisor)
    return Topology(
        sites=topology.sites,
        links=[_scaled_link(link, divisor) for link in topology.links.values()],
        paths=topology.paths,
    )


def _scaled_link(link: LinkSpec, divisor: float) -> LinkSpec:
    queue_bytes = link.queue_bytes
    if queue_bytes is not None:
        queue_bytes = max(round(queue_bytes / divisor), min(queue_bytes, link.mtu_bytes + link.framing_bytes))
    return replace(
        link,
        rate_bps=link.rate_bps / divisor,
        queue_bytes=queue_bytes,
        events=tuple(_scaled_event(event, divisor) for event in link.events),
    )


def _scaled_event(event: LinkEvent, divisor: float) -> LinkEvent:
    match event:
        case RateStep():
            return replace(event, rate_bps=event.rate_bps / divisor)
        case CapacityTrace():
            return event.scaled(divisor)
    return event


def scaled_allreduce(spec: AllReduceSpec, divisor: float) -> AllReduceSpec:
    """Return the all-reduce with its shard divided, in whole elements; at least one for each trip.

    The stages inside the coasts keep their time. Raises ValueError unless the divisor is a finite number above zero.
    """
    check_positive("divisor", divisor)
    elements = max(spec.trips, round(spec.shard_bytes / divisor / spec.itemsize))
    shard_bytes = elements * spec.itemsize if divisor != 1 else spec.shard_bytes
    array_bytes = None if spec.array_bytes is None else min(spec.array_bytes, shard_bytes)
    return replace(spec, shard_bytes=shard_bytes, array_bytes=array_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionlessGroups:
    """Numbers without units that decide how a transport performs on a path.

    payload_per_bdp: a burst over the bandwidth-delay product. bdp_packets: the bandwidth-delay product in full packets.
    losses_per_burst: their expected number. window_per_bdp: the window that Reno's response to the loss allows (RFC
    5348 §3.1 with b = 1 and no timeouts: sqrt(3 / (2 p)) packets), over the bandwidth-delay product; infinite without
    loss. The last two are None where a link's loss depends on the traffic, like the loss of a burst's tail.
    """

    payload_per_bdp: float
    bdp_packets: float
    losses_per_burst: float | None
    window_per_bdp: float | None


def dimensionless_groups(topology: Topology, path: str, payload_bytes: float) -> DimensionlessGroups:
    """Return the groups for a burst of `payload_bytes` on a path, with the mean loss of its links."""
    mtu_bytes = topology.path_mtu_bytes(path)
    bdp_packets = topology.path_rate_bps(path) * topology.path_rtt_s(path) / 8 / mtu_bytes
    packets = payload_bytes / mtu_bytes
    losses = [link.loss.mean_loss for link in topology.path_links(path)]
    loss = None if None in losses else 1.0 - prod(1.0 - (share or 0.0) for share in losses)
    return DimensionlessGroups(
        payload_per_bdp=packets / bdp_packets,
        bdp_packets=bdp_packets,
        losses_per_burst=None if loss is None else loss * packets,
        window_per_bdp=None if loss is None else sqrt(1.5 / loss) / bdp_packets if loss else INFINITY,
    )
