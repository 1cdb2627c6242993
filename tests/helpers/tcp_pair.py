"""Two TCP endpoints, a wire between them and a clock in the hand: what the tests of the TCP stack stand on.

The wire has a delay and, if wanted, a rate and an endless queue. A test says what it loses and what comes late.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from ipaddress import IPv4Address
from itertools import count
from random import Random

from scapy.layers.inet import IP, TCP
from scapy.packet import Raw

from bicoastal.transports.base import Datagram, EndpointContext, PathView
from bicoastal.transports.congestion.base import CongestionControl
from bicoastal.transports.events import Buffer, Connected, Event, Failed, MessageReceived
from bicoastal.transports.registry import Registry
from bicoastal.transports.tcp.connection import TcpEndpoint
from bicoastal.transports.tcp.parameters import TcpParameters
from bicoastal.transports.tcp.segment import SYN, FourTuple, Segment
from bicoastal.wan.flow_id import FlowId
from bicoastal.wan.units import INFINITY

CLIENT, SERVER = "client", "server"
ROLES = (CLIENT, SERVER)
U32 = 1 << 32
MASK = U32 - 1
DELAY_S = 0.030
RTT_S = 2 * DELAY_S
MTU = 1500
MSS = 1448  # 1500 - 20 (IP) - 20 (TCP) - 12 (timestamps)
FRAME = 16  # octets that frame a message
HEAD = (1).to_bytes(8, "big") + (10**9).to_bytes(8, "big")  # announces more than any test sends
RATE_BPS = 100e6  # a full segment every 0.12 ms
MIN_RTO_S = 0.2


@dataclass(slots=True)
class Packet:
    """A packet as it departed, and what the wire did to it.

    number: counted from 0 among all of its sender's, data: among those with data (None without). start, stop: offsets
    of its data in the stream; repair: they were sent before. arrives_s: None when the wire lost it.
    """

    role: str
    at_s: float
    segment: Segment
    wire_bytes: int
    burst_left: int | None
    number: int
    data: int | None
    start: int
    stop: int
    repair: bool
    arrives_s: float | None = None


class Bits:
    """The randomness of one endpoint: its initial sequence number, then its timestamp offset."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = iter(numbers)

    def getrandbits(self, k: int, /) -> int:
        return next(self._numbers) & ((1 << k) - 1)

    def random(self) -> float:
        raise AssertionError("TCP draws bits only")


class Pair:
    """A client and a server.

    lose(packet) and late(packet) -> extra seconds are asked once for every packet, as it departs. congestion: a
    transport's name, or what makes its controller. rate_bps: of IP packets, either way; None for no time at all.
    octets: let segments travel encoded. server_mtu: if not the client's. bits: initial sequence number and timestamp
    offset of each role.
    """

    def __init__(
        self,
        congestion: str | Callable[[int], CongestionControl] = "reno",
        *,
        lose: Callable[[Packet], bool] = lambda packet: False,
        late: Callable[[Packet], float] = lambda packet: 0.0,
        delay_s: float = DELAY_S,
        rate_bps: float | None = None,
        mtu: int = MTU,
        server_mtu: int | None = None,
        start_s: float = 0.0,
        octets: bool = False,
        client_bits: tuple[int, int] = (1000, 5000),
        server_bits: tuple[int, int] = (9000, 70000),
        **parameters: object,
    ) -> None:
        self.now = start_s
        self.lose, self.late = lose, late
        self.packets: list[Packet] = []
        self.events: list[tuple[float, str, Event]] = []
        self.iss = {CLIENT: client_bits[0], SERVER: server_bits[0]}
        self._delay_s = delay_s
        self._s_per_byte = 8 / rate_bps if rate_bps else 0.0
        self._busy_until = dict.fromkeys(ROLES, 0.0)
        self._octets = octets
        self._heap: list[tuple[float, int, str, str, Datagram]] = []
        self._next = count().__next__
        self._numbers = {role: count() for role in ROLES}
        self._data_numbers = {role: count() for role in ROLES}
        self._sent_to = dict.fromkeys(ROLES, 0)
        self._bits = {CLIENT: client_bits, SERVER: server_bits}
        self.ends: dict[str, TcpEndpoint] = {
            role: self._make(role, congestion, at_mtu, dict(parameters))
            for role, at_mtu in ((CLIENT, mtu), (SERVER, server_mtu or mtu))
        }
        self.client, self.server = self.ends[CLIENT], self.ends[SERVER]

    def _make(
        self, role: str, congestion: str | Callable[[int], CongestionControl], mtu: int, parameters: dict[str, object]
    ) -> TcpEndpoint:
        path = PathView(path_id=0, name="wire", mtu_bytes=mtu)
        spec = Registry.installed().resolve(congestion if isinstance(congestion, str) else "reno")
        context = EndpointContext(
            role=role,
            flow=FlowId(owner="pair", source="west", destination="east", paths=("wire",)),
            paths=[path],
            rng=Bits(*self._bits[role]),
            parameters=spec.make_parameters(parameters),
        )
        if isinstance(congestion, str):
            assert spec.make_endpoint is not None
            endpoint = spec.make_endpoint(context)
            assert isinstance(endpoint, TcpEndpoint)
            return endpoint
        assert isinstance(context.parameters, TcpParameters)
        return TcpEndpoint(context, congestion, context.parameters)

    # -- what a test does ---------------------------------------------------------------------------------------------

    def connect(self) -> "Pair":
        """Run the handshake to its end, and until nothing of it is on the wire."""
        self.run(until=self.now + 3.5 * self._delay_s)
        assert {role for _, role, event in self.events if isinstance(event, Connected)} == set(ROLES)
        return self

    def send(self, data: Buffer, role: str = CLIENT, message_id: int = 1) -> None:
        """Offer a message now."""
        self.ends[role].send_message(message_id, data, self.now)
        self._pump(role)
        self._depart_until(self.now)

    def inject(self, role: str, payload: Segment | bytes) -> list[Packet]:
        """Let `role` receive a segment now that nobody sent; return the packets with which it answers at once."""
        before = len(self.packets)
        self.ends[role].receive_datagram(Datagram(0, payload, 0, self.now), self.now)
        self._pump(role)
        self._depart_until(self.now)
        return self.packets[before:]

    def run(self, until: float = INFINITY, *, stop: Callable[[], bool] = lambda: False, steps: int = 2_000_000) -> None:
        """Let things happen until `until`, until `stop()`, or until nothing more is going to."""
        for role in ROLES:
            self._pump(role)
        for _ in range(steps):
            if stop():
                return
            timers = [(timer, role) for role in ROLES if (timer := self.ends[role].get_timer()) is not None]
            at_s, role = min(timers, default=(INFINITY, ""))
            if self._heap and self._heap[0][0] <= at_s:
                at_s = self._heap[0][0]
                if at_s > until:
                    break
                self.now = at_s
                self._happen()
            else:
                if at_s > until or at_s == INFINITY:
                    break
                self.now = max(self.now, at_s)
                self.ends[role].handle_timer(self.now)
                self._pump(role)
        else:
            raise AssertionError(f"after {steps} steps there is no end in sight, at {self.now} s")
        if until < INFINITY:
            self.now = until

    # -- what a test looks at -----------------------------------------------------------------------------------------

    def sent(self, role: str = CLIENT, *, data: bool = True, since_s: float = -1.0) -> list[Packet]:
        """Return what `role` has sent: only what carries data, or everything."""
        return [
            packet
            for packet in self.packets
            if packet.role == role and packet.at_s >= since_s and (packet.data is not None or not data)
        ]

    def acks(self, role: str = SERVER, *, since_s: float = -1.0) -> list[Packet]:
        """Return the segments without data, SYNs not among them, that `role` has sent."""
        return [
            packet
            for packet in self.packets
            if packet.role == role and packet.data is None and packet.at_s >= since_s and not packet.segment.flags & SYN
        ]

    def repairs(self, role: str = CLIENT) -> list[Packet]:
        """Return what `role` has sent again."""
        return [packet for packet in self.sent(role) if packet.repair]

    def transmissions(self, segment: int) -> list[float]:
        """Return when the client has sent its full segment of this number, counted from 0."""
        return [packet.at_s for packet in self.sent() if packet.start == segment * MSS]

    def handshakes(self, role: str) -> list[Packet]:
        """Return the SYNs or SYN-ACKs that `role` has sent."""
        return [packet for packet in self.packets if packet.role == role and packet.segment.flags & SYN]

    def received(self, role: str = SERVER) -> list[tuple[float, bytes]]:
        """Return when `role` had which whole message."""
        return [
            (at_s, bytes(event.data))
            for at_s, at, event in self.events
            if at == role and isinstance(event, MessageReceived)
        ]

    def failures(self, role: str = CLIENT) -> list[tuple[float, str]]:
        """Return when `role` gave up, and why."""
        return [(at_s, event.reason) for at_s, at, event in self.events if at == role and isinstance(event, Failed)]

    def window(self, role: str = CLIENT) -> float:
        """Return the congestion window, in segments."""
        return self.ends[role].sender.congestion.cwnd_bytes / self.ends[role].sender.mss_bytes

    # -- the wire -----------------------------------------------------------------------------------------------------

    def _pump(self, role: str) -> None:
        endpoint = self.ends[role]
        for datagram in endpoint.datagrams_to_send(self.now):
            heappush(self._heap, (max(datagram.depart_at, self.now), self._next(), "depart", role, datagram))
        while (event := endpoint.next_event()) is not None:
            self.events.append((self.now, role, event))

    def _depart_until(self, until: float) -> None:
        while self._heap and self._heap[0][0] <= until and self._heap[0][2] == "depart":
            self._happen()

    def _happen(self) -> None:
        at_s, _, kind, role, datagram = heappop(self._heap)
        if kind == "arrive":
            self.ends[role].receive_datagram(datagram, at_s)
            self._pump(role)
            return
        packet = self._write_down(role, datagram, at_s)
        sent_s = self._busy_until[role] = max(at_s, self._busy_until[role]) + packet.wire_bytes * self._s_per_byte
        if self.lose(packet):
            return
        packet.arrives_s = sent_s + self._delay_s + self.late(packet)
        if self._octets:
            datagram = datagram._replace(payload=bytes(datagram.payload))
        other = SERVER if role == CLIENT else CLIENT
        heappush(self._heap, (packet.arrives_s, self._next(), "arrive", other, datagram))

    def _write_down(self, role: str, datagram: Datagram, at_s: float) -> Packet:
        segment = datagram.payload
        assert isinstance(segment, Segment)
        size = len(segment.payload)
        near = self._sent_to[role]
        start = near + (((segment.sequence - self.iss[role] - 1 - near) + 0x80000000) & MASK) - 0x80000000
        packet = Packet(
            role=role,
            at_s=at_s,
            segment=segment,
            wire_bytes=datagram.wire_bytes,
            burst_left=datagram.burst_left,
            number=next(self._numbers[role]),
            data=next(self._data_numbers[role]) if size else None,
            start=start,
            stop=start + size,
            repair=size > 0 and start < near,
        )
        if size:
            self._sent_to[role] = max(near, packet.stop)
        self.packets.append(packet)
        return packet

    # -- segments that nobody sent ------------------------------------------------------------------------------------

    def forge(
        self, role: str, flags: int, *, offset: int = 0, ack: int = 0, age_ms: int = 0, **fields: object
    ) -> Segment:
        """Return a segment as `role` might have sent it now: stream offsets instead of sequence numbers."""
        other = SERVER if role == CLIENT else CLIENT
        template = next(packet.segment for packet in self.packets if packet.role == role)
        ticks = int(self.now / 0.001) + self._bits[role][1] - age_ms
        segment = Segment(
            template.four_tuple,
            (self.iss[role] + 1 + offset) & MASK,
            (self.iss[other] + 1 + ack) & MASK,
            flags,
            4096,
            timestamp_value=ticks & MASK,
            timestamp_echo=(int(self.now / 0.001) + self._bits[other][1]) & MASK,
        )
        for name, value in fields.items():
            setattr(segment, name, value)
        return segment


def dissect(segment: Segment) -> IP:
    """Return the segment in its IP packet, as scapy reads it from the wire."""
    source, destination = addresses(segment.four_tuple)
    return IP(bytes(IP(src=source, dst=destination, proto=6) / Raw(bytes(segment))))


def addresses(four_tuple: FourTuple) -> tuple[str, str]:
    """Return source and destination as text."""
    return str(IPv4Address(four_tuple.source)), str(IPv4Address(four_tuple.destination))


def options(tcp: TCP) -> dict[str, object]:
    """Return the options that scapy sees, padding left out."""
    return {kind: value for kind, value in tcp.options if kind not in ("NOP", "EOL")}


def payload(size: int, seed: int = 0) -> bytes:
    """Return a message of octets that a mistake would show in."""
    return Random(seed).randbytes(size)


def filler(size: int) -> bytes:
    """Return octets that any stream may hold: empty messages, one after another."""
    return bytes(size)


def whole_segments(count: int) -> bytes:
    """Return a message that fills `count` segments."""
    return payload(count * MSS - FRAME)


def lose_data(*numbers: int, role: str = CLIENT) -> Callable[[Packet], bool]:
    """Lose these data packets of `role`, counted from 0 in the order of their departure."""
    return lambda packet: packet.role == role and packet.data in numbers


def rounds(packets: list[Packet], gap_s: float) -> Iterator[list[Packet]]:
    """Divide packets where at least `gap_s` lies between two."""
    group: list[Packet] = []
    for packet in packets:
        if group and packet.at_s - group[-1].at_s >= gap_s:
            yield group
            group = []
        group.append(packet)
    if group:
        yield group
