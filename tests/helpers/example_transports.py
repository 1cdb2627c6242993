"""Three small transports that prove the interface: one over many paths, one steered by a service, one native.

The first two share a selective-repeat ARQ with a window and an adaptive timer; they are meant to be read.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from bicoastal.transports.base import (
    Counters,
    Datagram,
    Endpoint,
    EndpointContext,
    Machine,
    PathView,
    Sample,
    ServiceContext,
    ServicePlacement,
)
from bicoastal.transports.events import Buffer, Connected, Event, MessageReceived, Notice
from bicoastal.transports.registry import TransportSpec
from bicoastal.wan.topology import Topology
from bicoastal.wan.units import INFINITY
from helpers.example_frames import ACK, DATA, HELLO, OVERHEAD_BYTES, RATE, WELCOME, Frame, decode

GOVERNOR = -1


class SentPacket:
    """A data frame on its way."""

    __slots__ = ("acknowledged", "deadline", "frame", "sent_at", "tries")

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.tries = 0
        self.sent_at = self.deadline = 0.0
        self.acknowledged = False


class ExamplePath:
    """The sender's view of one path: what waits, what is on its way, how long that takes."""

    def __init__(self, view: PathView) -> None:
        self.path_id = view.path_id
        self.fresh: deque[SentPacket] = deque()
        self.repairs: deque[SentPacket] = deque()
        self.unacknowledged: dict[int, SentPacket] = {}
        self.window = 8.0
        self.cut_at = -1.0
        self.backoff = 1.0
        self.srtt_s: float | None = None
        self.rttvar_s = 0.0
        self.free_at = 0.0

    def rto_s(self) -> float:
        """RFC 6298 §2, with a smaller floor."""
        rto_s = 1.0 if self.srtt_s is None else self.srtt_s + max(0.01, 4 * self.rttvar_s)
        return min(20.0, rto_s * self.backoff)

    def sampled(self, rtt_s: float) -> None:
        """RFC 6298 §2.2 and §2.3."""
        if self.srtt_s is None:
            self.srtt_s, self.rttvar_s = rtt_s, rtt_s / 2
            return
        self.rttvar_s += (abs(self.srtt_s - rtt_s) - self.rttvar_s) / 4
        self.srtt_s += (rtt_s - self.srtt_s) / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyParameters:
    """max_window_packets: per path. horizon_s: how far ahead of the clock a paced sender hands out its packets."""

    max_window_packets: int = 64
    horizon_s: float = 0.02


class ArqEndpoint(Endpoint):
    """Selective repeat over every path it is given: fresh data in turn, repairs where it works best."""

    def __init__(self, context: EndpointContext) -> None:
        parameters = context.parameters
        self.parameters = parameters if isinstance(parameters, ToyParameters) else ToyParameters()
        self.role = context.role
        self.paths = [ExamplePath(view) for view in context.paths]
        # A repair may take any path, so every frame has to fit the narrowest.
        self.room_bytes = min(view.mtu_bytes for view in context.paths) - OVERHEAD_BYTES
        self.outbox: list[Datagram] = []
        self.events: deque[Event] = deque()
        self.connected = False
        self.hello_at = 0.0 if context.role == "client" else INFINITY
        self.hello_tries = 0
        self.next_sequence = 0
        self.seen: set[int] = set()
        self.seen_below = 0
        self.arriving: dict[int, tuple[bytearray, int]] = {}
        self.packets = self.repaired = self.timeouts = self.spurious = self.rejected = 0

    # -- the verbs ----------------------------------------------------------------------------------------------------

    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        if not 0 <= message_id < 2**64:
            raise ValueError(f"message_id: {message_id} is not an unsigned 64-bit integer")
        view, offset = memoryview(data), 0
        while True:
            path = self.paths[self.next_sequence % len(self.paths)]
            piece = view[offset : offset + self.room_bytes]
            path.fresh.append(SentPacket(Frame(DATA, self.next_sequence, message_id, len(view), offset, piece)))
            self.next_sequence += 1
            offset += len(piece)
            if offset >= len(view):
                return

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        try:
            frame = decode(datagram.payload)
        except ValueError:
            self.rejected += 1
            return
        if datagram.path_id < 0:
            self.on_control(frame, now)
        elif frame.kind == DATA:
            self.connect()
            self.emit(datagram.path_id, Frame(ACK, frame.sequence), now)
            self.on_data(frame)
        elif frame.kind == ACK:
            self.on_ack(frame.sequence, now)
        elif frame.kind == HELLO and self.role == "server":
            self.on_hello(frame)
            self.emit(datagram.path_id, Frame(WELCOME), now)
        elif frame.kind == WELCOME and self.role == "client":
            self.connect()
        else:
            self.rejected += 1

    def datagrams_to_send(self, now: float) -> Sequence[Datagram]:
        if now >= self.hello_at and self.may_greet(now):
            self.hello_tries += 1
            self.hello_at = now + min(20.0, 0.5 * 2**self.hello_tries)
            for path in self.paths:
                self.emit(path.path_id, self.hello(), now)
        if self.connected:
            for path in self.paths:
                self.fill(path, now)
        sent, self.outbox = self.outbox, []
        return sent

    def get_timer(self) -> float | None:
        timer = self.hello_at
        for path in self.paths:
            if path.unacknowledged:
                timer = min(timer, *(packet.deadline for packet in path.unacknowledged.values()), INFINITY)
            if self.wants_to_send(path):
                timer = min(timer, path.free_at - self.parameters.horizon_s)
        return None if timer == INFINITY else timer

    def handle_timer(self, now: float) -> None:
        for path in self.paths:
            for packet in [packet for packet in path.unacknowledged.values() if packet.deadline <= now]:
                self.expire(path, packet, now)

    def next_event(self) -> Event | None:
        return self.events.popleft() if self.events else None

    def counters(self) -> Counters:
        return Counters(
            packets=self.packets,
            repairs=self.repaired,
            timeouts=self.timeouts,
            spurious=self.spurious,
            rejected=self.rejected,
        )

    def sample(self, now: float) -> Sample:
        path = self.paths[0]
        return Sample(cwnd_bytes=path.window * self.room_bytes, srtt_s=path.srtt_s)

    # -- sending ------------------------------------------------------------------------------------------------------

    def wants_to_send(self, path: ExamplePath) -> bool:
        waiting = bool(path.repairs or path.fresh)
        return self.connected and waiting and len(path.unacknowledged) < int(path.window)

    def fill(self, path: ExamplePath, now: float) -> None:
        while self.wants_to_send(path) and now >= path.free_at - self.parameters.horizon_s:
            fresh = not path.repairs
            packet = path.fresh.popleft() if fresh else path.repairs.popleft()
            if packet.acknowledged:
                continue
            packet.tries += 1
            packet.sent_at = self.emit(path.path_id, packet.frame, now, burst_left=len(path.fresh) if fresh else None)
            packet.deadline = packet.sent_at + path.rto_s()
            path.unacknowledged[packet.frame.sequence] = packet

    def emit(self, path_id: int, frame: Frame, now: float, *, burst_left: int | None = None) -> float:
        wire_bytes = OVERHEAD_BYTES + len(frame.data)
        depart_at = self.depart_at(path_id, wire_bytes, now)
        self.outbox.append(Datagram(path_id, frame, wire_bytes, depart_at, 0, burst_left))
        self.packets += 1
        return depart_at

    def depart_at(self, path_id: int, wire_bytes: int, now: float) -> float:
        """When a packet may leave; a sender without a pace says at once."""
        return now

    def expire(self, path: ExamplePath, packet: SentPacket, now: float) -> None:
        del path.unacknowledged[packet.frame.sequence]
        if packet.sent_at >= path.cut_at:  # once for what was sent together
            path.cut_at = now
            path.window = max(1.0, path.window / 2)
            path.backoff = min(64.0, path.backoff * 2)
            self.timeouts += 1
        self.repaired += 1
        min(self.paths, key=lambda other: (other.backoff, other is path)).repairs.append(packet)

    def on_ack(self, sequence: int, now: float) -> None:
        for path in self.paths:
            packet = path.unacknowledged.pop(sequence, None)
            if packet is not None:
                packet.acknowledged = True
                path.backoff = 1.0
                path.window = min(float(self.parameters.max_window_packets), path.window + 1 / path.window)
                if packet.tries == 1:  # Karn's rule
                    path.sampled(now - packet.sent_at)
                return
            for waiting in path.repairs:
                if waiting.frame.sequence == sequence and not waiting.acknowledged:
                    waiting.acknowledged = True
                    self.spurious += 1
                    path.backoff = 1.0

    # -- receiving ----------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        self.hello_at = INFINITY
        if not self.connected:
            self.connected = True
            self.events.append(Connected())

    def on_data(self, frame: Frame) -> None:
        if frame.sequence < self.seen_below or frame.sequence in self.seen:
            return
        self.seen.add(frame.sequence)
        while self.seen_below in self.seen:
            self.seen.remove(self.seen_below)
            self.seen_below += 1
        buffer, left = self.arriving.get(frame.message_id) or (bytearray(frame.total_bytes), frame.total_bytes)
        buffer[frame.offset : frame.offset + len(frame.data)] = frame.data
        left -= len(frame.data)
        self.arriving[frame.message_id] = (buffer, left)
        if not left:
            del self.arriving[frame.message_id]
            self.events.append(MessageReceived(message_id=frame.message_id, data=buffer))

    # -- what a steered one does otherwise ----------------------------------------------------------------------------

    def may_greet(self, now: float) -> bool:
        return True

    def hello(self) -> Frame:
        return Frame(HELLO)

    def on_hello(self, frame: Frame) -> None:
        self.connect()

    def on_control(self, frame: Frame, now: float) -> None:
        self.rejected += 1


class SteeredEndpoint(ArqEndpoint):
    """Asks the governor for a rate before it greets, keeps to it, and tells the far end, which keeps to it too."""

    def __init__(self, context: EndpointContext) -> None:
        super().__init__(context)
        self.rate_bps = 0.0
        self.asked = False

    def may_greet(self, now: float) -> bool:
        if not self.asked:
            self.asked = True
            self.outbox.append(Datagram(GOVERNOR, Frame(RATE), OVERHEAD_BYTES, now))
        if not self.rate_bps:
            self.hello_at = INFINITY  # the answer wakes it
        return self.rate_bps > 0

    def hello(self) -> Frame:
        return Frame(HELLO, total_bytes=int(self.rate_bps))

    def on_hello(self, frame: Frame) -> None:
        self.rate_bps = float(frame.total_bytes)
        super().on_hello(frame)

    def on_control(self, frame: Frame, now: float) -> None:
        if frame.kind != RATE or not frame.total_bytes:
            self.rejected += 1
            return
        self.rate_bps = float(frame.total_bytes)
        self.events.append(Notice(kind="rate", detail=f"{frame.total_bytes} bit/s"))
        if not self.connected:
            self.hello_at = now

    def depart_at(self, path_id: int, wire_bytes: int, now: float) -> float:
        path = self.paths[path_id]
        depart_at = max(now, path.free_at)
        path.free_at = depart_at + wire_bytes * 8 / self.rate_bps
        return depart_at

    def sample(self, now: float) -> Sample:
        path = self.paths[0]
        return Sample(
            cwnd_bytes=path.window * self.room_bytes, srtt_s=path.srtt_s, pacing_rate_bps=self.rate_bps or None
        )


class Governor(Machine):
    """A service that shares nine tenths of the slowest link among all the flows that have asked so far."""

    def __init__(self, topology: Topology) -> None:
        self.capacity_bps = 0.9 * min(topology.path_rate_bps(name) for name in topology.paths)
        self.peers: list[int] = []
        self.changed = False

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        try:
            frame = decode(datagram.payload)
        except ValueError:
            return
        if frame.kind == RATE and datagram.path_id not in self.peers:
            self.peers.append(datagram.path_id)
            self.changed = True

    def datagrams_to_send(self, now: float) -> Sequence[Datagram]:
        if not self.changed:
            return ()
        self.changed = False
        share_bps = int(self.capacity_bps / len(self.peers))
        return [Datagram(peer, Frame(RATE, total_bytes=share_bps), OVERHEAD_BYTES, now) for peer in self.peers]

    def get_timer(self) -> float | None:
        return None

    def handle_timer(self, now: float) -> None:
        raise RuntimeError("the governor never set a timer")

    def next_event(self) -> Event | None:
        return None


def make_governor(context: ServiceContext) -> Sequence[ServicePlacement]:
    """Place one governor at the first site."""
    site = context.topology.sites[0].name
    return (ServicePlacement(name="governor", site=site, machine=Governor(context.topology)),)


STRIPER = TransportSpec(
    name="toy-striper",
    kind="sans-io",
    paths="many",
    description="selective repeat over all paths at once",
    parameters=ToyParameters,
    make_endpoint=ArqEndpoint,
)
STEERED = TransportSpec(
    name="toy-steered",
    kind="sans-io",
    paths="one",
    description="selective repeat at the pace that a service allows",
    parameters=ToyParameters,
    make_endpoint=SteeredEndpoint,
    make_services=make_governor,
)
NATIVE = TransportSpec(
    name="toy-native",
    kind="native",
    paths="one",
    description="a program that only a world with real packets can run",
    requires=frozenset({"kernel-sockets"}),
    program="toy-native",
)
