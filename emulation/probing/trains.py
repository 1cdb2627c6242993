"""Trains of datagrams over one direction of a path. Both ends are in this process, so one clock stamps both.

The kernel stamps arrivals, so that the delay of a busy process is not measured.
"""

import secrets
import select
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bicoastal.emulation.ground.coasts import Coasts
from bicoastal.wan.units import INFINITY

_SO_TIMESTAMPNS = 35  # asm-generic/socket.h
_TIMESPEC = struct.Struct("@ll")
_HEAD = struct.Struct("!QI")  # a token that identifies the train, and the datagram's number
_HEADERS_BYTES = 28  # IPv4 and UDP
_BUFFER_BYTES = 64 << 20
_AT_ONCE = 4  # datagrams that a late sender may send before it reads arrivals
_SETTLING_S = 0.05
_REFINEMENTS = 10


class Line:
    """One direction of a path, with a socket at each end.

    settling_s: the time after which a datagram has arrived or is lost. Raises RunFailedError when sockets cannot be
    had.
    """

    def __init__(self, coasts: Coasts, path: str, *, back: bool) -> None:
        topology = coasts.wiring.topology
        ports = coasts.wiring.ports_of(path)
        source, target = ports[::-1] if back else ports
        self.path = path
        self.back = back
        self.direction = f"{source.site}>{target.site}"
        self.mtu_bytes = source.mtu_bytes
        self.settling_s = _SETTLING_S + sum(
            link.delay_s + link.jitter_s + link.reorder_delay_s + link.queue_limit_bytes * 8 / link.rate_bps
            for link in topology.path_links(path)
        )
        self.sender = coasts.socket(source.site, socket.AF_INET, socket.SOCK_DGRAM, buffer_bytes=_BUFFER_BYTES)
        self.receiver = coasts.socket(target.site, socket.AF_INET, socket.SOCK_DGRAM, buffer_bytes=_BUFFER_BYTES)
        self.receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self.receiver.bind((target.address, 0))
        self.sender.bind((source.address, 0))
        self.sender.connect(self.receiver.getsockname())
        self.receiver.setblocking(False)

    def close(self) -> None:
        """Close both sockets."""
        self.sender.close()
        self.receiver.close()


@dataclass(slots=True, kw_only=True)
class PacketTrain:
    """Datagrams on one line: `count` IP packets of `packet_bytes`, `interval_s` apart. arrived_s: by number.

    catches_up: a sender that was delayed sends all overdue datagrams at once, even when the queue may drop some.
    """

    line: Line
    packet_bytes: int
    count: int
    interval_s: float
    catches_up: bool = False
    began_s: float = 0.0
    token: int = field(default_factory=lambda: secrets.randbits(64))
    sent_s: list[float] = field(default_factory=list)
    arrived_s: dict[int, float] = field(default_factory=dict)

    @property
    def due_s(self) -> float:
        """When the next datagram is to be sent."""
        return self.began_s + len(self.sent_s) * self.interval_s

    def send(self, filling: bytes) -> None:
        """Send the next datagram, which ends with `filling`."""
        number = len(self.sent_s)
        self.sent_s.append(time.monotonic())
        self.line.sender.send(_HEAD.pack(self.token, number) + filling)

    def collect(self) -> None:
        """Take the arrivals with the kernel's stamps; datagrams of other trains are dropped."""
        offset_s = time.time() - time.monotonic()
        while True:
            try:
                data, ancillary, _, _ = self.line.receiver.recvmsg(_HEAD.size, 64)
            except BlockingIOError:
                return
            token, number = _HEAD.unpack(data)
            if token == self.token:
                seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
                self.arrived_s.setdefault(number, seconds + nanoseconds * 1e-9 - offset_s)


def send_trains(trains: Sequence[PacketTrain]) -> None:
    """Send all trains at the same time, each at its own rate; then wait until no more can arrive.

    A train that does not catch up sends only a few datagrams at once when it is late, since a drop by the queue is not
    the link's loss.
    """
    filling = [bytes(train.packet_bytes - _HEADERS_BYTES - _HEAD.size) for train in trains]
    for train in trains:
        train.began_s = time.monotonic()
    under_way = True
    while under_way:
        under_way = False
        next_s = INFINITY
        for train, filled in zip(trains, filling, strict=True):
            for _ in range(_AT_ONCE):
                if len(train.sent_s) == train.count or train.due_s > time.monotonic():
                    break
                train.send(filled)
            if len(train.sent_s) < train.count:
                under_way = True
                if not train.catches_up:
                    latest_s = train.due_s + _AT_ONCE * train.interval_s
                    train.began_s += max(0.0, time.monotonic() - latest_s)
                next_s = min(next_s, train.due_s)
        if under_way:
            _collect_until(trains, next_s)
    _collect_until(trains, time.monotonic() + max(train.line.settling_s for train in trains))


def _collect_until(trains: Sequence[PacketTrain], until_s: float) -> None:
    """Take what arrives until then: an ordinary user's buffers hold less than what is on its way."""
    by_receiver = {train.line.receiver: train for train in trains}
    left_s = until_s - time.monotonic()
    while True:
        ready, _, _ = select.select(list(by_receiver), (), (), max(0.0, left_s))
        for receiver in ready:
            by_receiver[receiver].collect()
        left_s = until_s - time.monotonic()
        if left_s <= 0.0:
            return


def rate_between(count: int, times_s: Sequence[float], bits: float, *, idle_s: float = 0.0) -> float:
    """Return the rate between the first and the last of some packets, which come `count - 1` packets apart."""
    return (count - 1) * bits / (times_s[-1] - times_s[0] - idle_s) if count > 1 else 0.0


def arrival_rate(train: PacketTrain, wire_bits: float, queue_bits: float) -> float:
    """Return the rate at which a train arrived while there was something to send.

    A busy machine may hold the sender up for longer than a queue lasts, which is not the link's fault. How long the
    queue lasted depends on the rate again: begin with no idle time, which is too slow if anything, and go up.
    """
    arrivals = sorted(train.arrived_s.values())
    rate_bps = rate_between(len(arrivals), arrivals, wire_bits)
    for _ in range(_REFINEMENTS if rate_bps else 0):
        idle_s = idle_time_s(train, wire_bits / rate_bps, queue_bits / rate_bps)
        rate_bps = rate_between(len(arrivals), arrivals, wire_bits, idle_s=idle_s)
    return rate_bps


def idle_time_s(train: PacketTrain, transmission_s: float, queue_s: float) -> float:
    """Return for how long a link that takes `transmission_s` for a packet had none, because the sender was held up.

    queue_s: the longest that a packet can have waited. Told from when the packets that arrived had been sent; pauses of
    less than two intervals do not count.
    """
    idle_s = free_s = 0.0
    arrived = sorted(train.arrived_s)
    for number in arrived:
        sent_s = train.sent_s[number]
        if number != arrived[0] and sent_s - train.sent_s[number - 1] > 2 * train.interval_s:
            idle_s += max(0.0, sent_s - free_s)
        free_s = min(max(free_s, sent_s), sent_s + queue_s) + transmission_s
    return idle_s


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the least value that at least `share` of them do not exceed."""
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
