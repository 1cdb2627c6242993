"""Measures every path before it is used, and compares delay, rate and loss with the specification.

A link that was set up wrongly (a kernel without netem, a queue of 25 packets, "Gbps" read as gigabytes) gives figures
that look plausible. Both ends' sockets are in this process, so one clock stamps both; the kernel stamps arrivals.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bicoastal.emulation.base import RunFailedError, UnsupportedError
from bicoastal.emulation.ground.coasts import Coasts
from bicoastal.emulation.probing.judgement import (
    DirectionProbe,
    Expected,
    Measured,
    Tolerances,
    expect,
    judge_delay,
    judge_loss,
    judge_rate,
    wire_rate_factor,
)
from bicoastal.emulation.probing.trains import Line, PacketTrain, arrival_rate, quantile, rate_between, send_trains
from bicoastal.wan.topology import Topology
from bicoastal.wan.units import INFINITY, format_rate

_SMALL_BYTES = 92  # IP packet of the delay and loss measurements
_DELAY_PACKETS = 100
_DELAY_INTERVAL_S = 4e-3
_TRAIN_S = 0.25  # of the link's time
_TRAIN_PACKETS = (60, 6000)
_FIT_IN_QUEUE = (
    5  # packets of a train, the one in transmission included; in a smaller queue a steady train loses packets
)
_EXCESS = 1.3  # the train's rate over the link's, so that the queue is never empty
_LONGEST_S = 60.0  # of all trains together; slower links are refused
_LOSS_SHARE = 0.25  # of the rate: no queue builds up
_LOSS_PACKETS_PER_S = 8000  # all directions together
_LOSSES_WANTED = 20.0  # where the time allows it
_LOSS_PACKETS = 200  # at least
_ATTEMPTS = 3
_TOLD = 2  # problems that a message names


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What was measured: two directions for each path."""

    directions: tuple[DirectionProbe, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """The deviations, one sentence each, with the measured and the wanted figure."""
        return tuple(f"{each.path} {each.direction} {one}" for each in self.directions for one in each.problems)

    def require(self) -> None:
        """Raise RunFailedError, with the first two problems, unless everything is within its tolerance."""
        if self.problems:
            more = len(self.problems) - _TOLD
            others = f"; and {more} more" if more > 0 else ""
            raise RunFailedError(f"the links are not as specified: {'; '.join(self.problems[:_TOLD])}{others}")


def probe(coasts: Coasts, *, tolerances: Tolerances | None = None, loss_time_s: float = 1.5) -> ProbeResult:
    """Measure every path. No other traffic may be sent meanwhile, and relays should be calm (`Relays(calm=True)`).

    loss_time_s: how long losses are counted, on all paths at once. Delays take half a second more, and rates half a
    second for each path. A delay or a rate outside its tolerance is measured again, at most twice: a busy machine
    disturbs one train, a wrong link disturbs all. Losses are counted once; repetition would change their significance.
    Raises RunFailedError when sockets cannot be made, UnsupportedError for links so slow that this takes minutes.
    """
    tolerances = tolerances or Tolerances()
    topology = coasts.wiring.topology
    require_measurable(topology)
    lines: list[_ExpectedLine] = []
    try:
        for path in topology.paths:
            lines += [_ExpectedLine(coasts, path, back=back) for back in (False, True)]
        delays = _measure_delays(lines, tolerances)
        rates = [_measure_rate(topology, line, tolerances) for line in lines]
        losses = _count_losses(topology, lines, loss_time_s)
    finally:
        for line in lines:
            line.close()
    found = []
    for line, delay, (rate_bps, offered_bps), (sent, lost) in zip(lines, delays, rates, losses, strict=True):
        p50_s, p99_s = quantile(delay, 0.50), quantile(delay, 0.99)
        problems = (
            judge_delay(line.expected, p50_s, tolerances),
            judge_rate(line.expected, rate_bps, offered_bps, tolerances),
            judge_loss(line.expected, lost, sent, tolerances),
        )
        found.append(
            DirectionProbe(
                path=line.path,
                direction=line.direction,
                expected=line.expected,
                measured=Measured(
                    delay_p50_s=p50_s,
                    delay_p99_s=p99_s,
                    rate_bps=rate_bps,
                    offered_bps=offered_bps,
                    sent=sent,
                    lost=lost,
                ),
                problems=tuple(filter(None, problems)),
            )
        )
    return ProbeResult(directions=tuple(found))


class _ExpectedLine(Line):
    """A line with its expected figures, and the size of the IP packets of its train."""

    def __init__(self, coasts: Coasts, path: str, *, back: bool) -> None:
        super().__init__(coasts, path, back=back)
        topology = coasts.wiring.topology
        self.train_bytes = _train_bytes(topology, path, self.mtu_bytes)
        self.expected: Expected = expect(
            topology, path, back=back, delay_bytes=_SMALL_BYTES, rate_bytes=self.train_bytes, loss_bytes=_SMALL_BYTES
        )


def require_measurable(topology: Topology) -> None:
    """Raise UnsupportedError for links so slow that their rates cannot be measured in a minute."""
    trains_s = 0.0
    for name in topology.paths:
        size_bytes = _train_bytes(topology, name, topology.path_mtu_bytes(name))
        train_bits = _TRAIN_PACKETS[0] * size_bytes * wire_rate_factor(topology, name, size_bytes)
        trains_s += 2 * train_bits / topology.path_rate_bps(name)
    if trains_s > _LONGEST_S:
        slowest_bps = min(topology.path_rate_bps(name) for name in topology.paths)
        raise UnsupportedError(f"links of {format_rate(slowest_bps)} are too slow to be measured in {_LONGEST_S:g} s")


def _train_bytes(topology: Topology, path: str, mtu_bytes: int) -> int:
    """Return the size of a train's IP packets: full packets, or smaller ones so that enough fit in the queue."""
    overhead_bytes = topology.paths[path].overhead_bytes
    fitting = min(
        link.queue_limit_bytes // _FIT_IN_QUEUE - link.framing_bytes - overhead_bytes
        for link in topology.path_links(path)
    )
    return max(_SMALL_BYTES, min(mtu_bytes, fitting))


def _measure_delays(lines: Sequence[_ExpectedLine], tolerances: Tolerances) -> list[list[float]]:
    """Return the delays of the small datagrams that arrived on every line, sorted; infinity when none did."""
    found: dict[int, list[float]] = {}
    for _ in range(_ATTEMPTS):
        wanting = [
            number
            for number, line in enumerate(lines)
            if number not in found or judge_delay(line.expected, quantile(found[number], 0.5), tolerances)
        ]
        if not wanting:
            break
        trains = [
            PacketTrain(
                line=lines[number], packet_bytes=_SMALL_BYTES, count=_DELAY_PACKETS, interval_s=_DELAY_INTERVAL_S
            )
            for number in wanting
        ]
        send_trains(trains)
        for number, train in zip(wanting, trains, strict=True):
            delays = [arrived_s - train.sent_s[at] for at, arrived_s in train.arrived_s.items()]
            found[number] = sorted(delays) or [INFINITY]
    return [found[number] for number in range(len(lines))]


def _measure_rate(topology: Topology, line: _ExpectedLine, tolerances: Tolerances) -> tuple[float, float]:
    """Return at what rate a train arrived, and at what rate it was sent, in bits on the wire."""
    wire_bits = wire_rate_factor(topology, line.path, line.train_bytes) * line.train_bytes
    link_bps = topology.path_rate_bps(line.path)
    queue_bits = 8 * min(topology.path_links(line.path), key=lambda link: link.rate_bps).queue_limit_bytes
    fewest, most = _TRAIN_PACKETS
    measured: list[tuple[float, float]] = []
    for _ in range(_ATTEMPTS):
        count = min(most, max(fewest, round(_TRAIN_S * link_bps / wire_bits)))
        train = PacketTrain(
            line=line,
            packet_bytes=line.train_bytes,
            count=count,
            interval_s=wire_bits / (link_bps * _EXCESS),
            catches_up=True,
        )
        send_trains([train])
        measured.append((arrival_rate(train, wire_bits, queue_bits), rate_between(count, train.sent_s, wire_bits)))
        if not judge_rate(line.expected, *measured[-1], tolerances):
            break
    return min(measured, key=lambda each: abs(each[0] - line.expected.rate_bps))


def _count_losses(topology: Topology, lines: Sequence[_ExpectedLine], time_s: float) -> list[tuple[int, int]]:
    """Return how many datagrams were sent on each line, and how many of them did not arrive."""
    trains: list[PacketTrain] = []
    for line in lines:
        slowest = topology.path_rate_bps(line.path)
        wire_bits = wire_rate_factor(topology, line.path, _SMALL_BYTES) * _SMALL_BYTES
        packets_per_s = min(_LOSS_PACKETS_PER_S / len(lines), _LOSS_SHARE * slowest / wire_bits)
        most = max(1, round(time_s * packets_per_s))
        wanted = _LOSSES_WANTED / line.expected.loss if line.expected.loss else most
        count = min(most, max(_LOSS_PACKETS, round(wanted)))
        trains.append(PacketTrain(line=line, packet_bytes=_SMALL_BYTES, count=count, interval_s=1.0 / packets_per_s))
    send_trains(trains)
    return [(train.count, train.count - len(train.arrived_s)) for train in trains]
