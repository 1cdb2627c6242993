"""From links as they are to links that fit a machine: rates are divided, times are kept.

Kept are round trips, loss, jitter and the queue in units of the bandwidth-delay product. Not kept is the
bandwidth-delay product in packets, since the packets stay as large as they were: a window of so many packets is a
larger share of it.
"""

from dataclasses import replace

from wan.checks import check_positive
from wan.schedule import LinkEvent, RateStep
from wan.topology import LinkSpec, Topology

_STEPS = (1, 2, 5)


def round_divisor(least: float) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, 50, … that is not below `least`: two runs are then easily compared.

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

    A queue holds one full packet at least, as does the default one. Raises ValueError unless the divisor is a finite
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
    return replace(event, rate_bps=event.rate_bps / divisor) if isinstance(event, RateStep) else event
