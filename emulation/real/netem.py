"""The links of a topology as the kernel's own queueing disciplines: tbf for the queue, netem for the wire.

The packets of a path cross a chain of bridges in the middle namespace, with one stage at the exit of each bridge. So
the order is that of `wan.link`: queue, transmission, propagation and its impairments, link after link. On a single
interface netem would delay packets before tbf queues them, and their limits would mix.

The kernel counts a waiting packet against the socket that sent it, and limits how much of a TCP connection may wait
(TCP Small Queues, tcp_limit_output_bytes in ip-sysctl). All namespaces share one kernel, so it would count the packets
in the WAN's queue too, and no burst could fill that queue. Therefore every packet leaves a coast through a netem with
almost no delay, which removes it from the socket's account (skb_orphan_partial). Source: tc-netem(8), tc-tbf(8),
tc-stab(8), sch_netem.c, tcp_output.c.
"""

from collections.abc import Mapping, Sequence
from math import ceil

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.ground.namespaces import TwoCoasts, require_tools
from bicoastal.emulation.ground.wiring import MIDDLE, Wiring
from bicoastal.emulation.links.directed_link import DirectedLink
from bicoastal.wan.loss import Bernoulli, Combined, GilbertElliott, LossSpec, NoLoss, Periodic, TailOfBurst
from bicoastal.wan.recorded_loss import Listed, Trace
from bicoastal.wan.topology import LinkSpec, Topology

_ETHERNET_BYTES = 14  # the kernel counts them in a frame besides its IP packet
_GRAIN_S = 20e-6  # of timers: a bucket holds as much besides a packet, or it would be too slow
_SPARE_PACKETS = 1000
_NO_OVERTAKING = 1000  # times the link's rate: with a rate, netem keeps the order, whatever the jitter (sch_netem.c)
_NAMES: Mapping[type[LossSpec], str] = {
    Periodic: "periodic loss",
    TailOfBurst: "the loss of a burst's tail",
    Listed: "the loss of listed packets",
    Trace: "a recorded loss trace",
    Combined: "combined losses",
}

Stages = Sequence[Sequence[str]]  # for each stage the words of `tc qdisc add dev … root`

DEPARTURE = ("netem", "limit", "1000000", "delay", "1us")
"""The queueing discipline of a coast's own interface: see the module's text. No burst reaches its limit."""

USAGE = ("tc", "qdisc", "add", "dev", "lo", "root", "netem", "help")  # prints the options of netem
_NO_QDISC = "qdisc kind is unknown"  # the message of tc for a module that the kernel lacks


def link_stages(directed: DirectedLink, *, overhead_bytes: int = 0, seed: int | None = None) -> Stages:
    """Return the stages of one direction of a link: its queue, then its wire, with one more for jitter and reordering.

    overhead_bytes: what encapsulation adds to each packet. seed: the run's, from which netem's own is drawn
    (`DirectedLink.netem_seed`); None where iproute2 or the kernel takes no seed. Raises UnsupportedError, which names
    what netem cannot express.
    """
    link = directed.spec
    if link.events:
        raise UnsupportedError(f"netem cannot change link {link.name!r} while a run goes on; the relay can")
    seeding = [] if seed is None else ["seed", str(directed.netem_seed(seed))]
    stages = [_queue(link, overhead_bytes)]
    if link.jitter_s:  # in a separate stage: after a late packet, `rate` would delay all that follow it
        stages.append(["netem", "limit", _packets_in(link, 0.0), *_transmission(link, overhead_bytes)])
    if link.reorder:
        # netem sends some packets at once and delays the others; `link.reorder` is the share that it delays.
        held = _microseconds(link.reorder_delay_s)
        passing = _percent(1.0 - link.reorder)
        limit = _packets_in(link, link.reorder_delay_s)
        stages.append(["netem", "limit", limit, "delay", held, "reorder", passing, *seeding])
    wire = ["netem", "limit", _packets_in(link, link.delay_s + link.jitter_s)]
    if link.jitter_s:
        wire += ["delay", _microseconds(link.delay_s + link.jitter_s / 2), _microseconds(link.jitter_s / 2)]
        wire += ["rate", f"{round(link.rate_bps * _NO_OVERTAKING)}bit"]
    else:
        wire += ["delay", _microseconds(link.delay_s), *_transmission(link, overhead_bytes)]
    wire += _loss(link, directed.loss)
    if link.duplicate:
        wire += ["duplicate", _percent(link.duplicate)]
    if link.corrupt:
        wire += ["corrupt", _percent(link.corrupt)]
    stages.append([*wire, *seeding])
    return stages


def _queue(link: LinkSpec, overhead_bytes: int) -> list[str]:
    """Return tbf with a bucket of one packet. A packet leaves it when its transmission begins, which netem adds later.

    The limit of tbf is in bytes, like the link's; that of netem is in packets of any size. The link also counts the
    rest of the packet in transmission, half a packet on average. The queue needs room for one packet besides it, or tbf
    would drop all packets.
    """
    packet_bytes = link.mtu_bytes + link.framing_bytes
    if link.queue_limit_bytes < 1.5 * packet_bytes:
        raise UnsupportedError(
            f"netem cannot express a queue of less than 1.5 packets, which link {link.name!r} has; the relay can"
        )
    limit = link.queue_limit_bytes - packet_bytes // 2
    # The size table adds framing, for the rate and for the limit. Rates are in bit: tc reads "Gbps" as bytes.
    sizes = ["stab", "overhead", str(_added(link, overhead_bytes)), "linklayer", "ethernet"]
    burst = max(packet_bytes + overhead_bytes, round(link.rate_bps * _GRAIN_S / 8))
    return [*sizes, "tbf", "rate", f"{round(link.rate_bps)}bit", "burst", str(burst), "limit", str(limit)]


def _transmission(link: LinkSpec, overhead_bytes: int) -> list[str]:
    """Return netem's words for the transmission time of packets, one after another."""
    return ["rate", f"{round(link.rate_bps)}bit", str(_added(link, overhead_bytes))]


def _added(link: LinkSpec, overhead_bytes: int) -> int:
    return link.framing_bytes + overhead_bytes - _ETHERNET_BYTES


def _loss(link: LinkSpec, loss: LossSpec) -> list[str]:
    match loss:
        case NoLoss():
            return []
        case Bernoulli():
            return ["loss", "random", _percent(loss.probability)] if loss.probability else []
        case GilbertElliott():
            words = (loss.good_to_bad, loss.bad_to_good, loss.loss_bad, loss.loss_good)  # p, r, 1-h, 1-k
            return ["loss", "gemodel", *map(_percent, words)]
        case _:
            what = _NAMES.get(type(loss), type(loss).__name__)
            raise UnsupportedError(f"netem cannot express {what}, which link {link.name!r} has; the relay can")


def _packets_in(link: LinkSpec, time_s: float) -> str:
    """Return a limit that drops nothing: as many of the smallest packets as the link sends in `time_s`, and more."""
    smallest_bytes = 28 + link.framing_bytes  # an empty UDP datagram: RFC 791, RFC 768
    return str(ceil(link.rate_bps * time_s / 8 / smallest_bytes) + _SPARE_PACKETS)


def _microseconds(time_s: float) -> str:
    return f"{time_s * 1e6:.12g}us"


def _percent(probability: float) -> str:
    return f"{probability * 100:.10g}%"


def path_stages(topology: Topology, path: str, seed: int | None = None) -> tuple[Stages, Stages]:
    """Return the stages of a path, forth and back, each in the order in which packets meet them.

    seed: as for `link_stages`. Raises UnsupportedError for what netem cannot express.
    """
    its = topology.paths[path]

    def chain(from_site: str) -> Stages:
        return [
            stage
            for directed in DirectedLink.along(topology, path, from_site=from_site)
            for stage in link_stages(directed, overhead_bytes=its.overhead_bytes, seed=seed)
        ]

    return chain(its.sites[0]), chain(its.sites[-1])


def stage_counts(topology: Topology) -> dict[str, int]:
    """Return how many stages each path needs, for `TwoCoasts`.

    Raises UnsupportedError for what netem cannot express, and for paths that share a link: each path has its own chain.
    """
    users: dict[str, str] = {}
    for path in topology.paths.values():
        for link in path.links:
            if link in users:
                raise UnsupportedError(
                    f"netem cannot let {users[link]!r} and {path.name!r} share {link!r}; the relay can"
                )
            users[link] = path.name
    return {name: len(path_stages(topology, name)[0]) for name in topology.paths}


def commands(wiring: Wiring, seed: int | None = None) -> list[list[str]]:
    """Return the commands that set up the links of every path in the middle namespace. Raises UnsupportedError."""
    lines = []
    for path in wiring.topology.paths:
        left, right = wiring.ports_of(path)
        segments = wiring.segments[path]
        forth_devices = [*(segment.left for segment in segments), right.middle_device]
        back_devices = [*(segment.right for segment in reversed(segments)), left.middle_device]
        for devices, stages in zip(
            (forth_devices, back_devices), path_stages(wiring.topology, path, seed), strict=True
        ):
            lines += [_add(device, words) for device, words in zip(devices, stages, strict=True)]
    return lines


def _add(device: str, words: Sequence[str]) -> list[str]:
    return ["tc", "qdisc", "add", "dev", device, "root", "handle", "1:", *words]


def apply(coasts: TwoCoasts, *, seed: int) -> None:
    """Set up the links of coasts that were made with `stage_counts`, and the coasts' own interfaces.

    seed: the run's. netem's own seeds are drawn from it where this iproute2 takes them; elsewhere netem draws from the
    kernel's entropy.
    Raises UnsupportedError where the kernel lacks what it needs.
    """
    require_tools("tc")
    usage = coasts.namespaces.attempt(MIDDLE, USAGE)
    usable_seed = seed_if_taken(seed, usage.stdout + usage.stderr)
    lines = [(MIDDLE, argv) for argv in commands(coasts.wiring, usable_seed)]
    lines += [(port.site, _add(port.device, DEPARTURE)) for port in coasts.wiring.ports]
    for namespace, argv in lines:
        try:
            coasts.namespaces.run(namespace, argv)
        except UnsupportedError as error:
            if _NO_QDISC not in str(error):
                raise
            kind = "netem" if "netem" in argv else "tbf"
            raise UnsupportedError(
                f"this kernel has no {kind}: the relay works without it (--impairment relay), and `bicoastal doctor` "
                "says how to add it"
            ) from error


def seed_if_taken(seed: int, usage: str) -> int | None:
    """Return `seed`, or None where this iproute2 cannot seed netem. usage: what `USAGE` answers here."""
    return seed if "seed" in usage else None
