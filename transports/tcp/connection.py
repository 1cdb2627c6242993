"""A TCP connection as an endpoint: handshake, acknowledgements, and the two halves joined (RFC 9293)."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from transports.base import Counters, Datagram, Endpoint, EndpointContext, Sample
from transports.congestion.base import CongestionControl
from transports.events import Buffer, Connected, Event, Failed, MessageReceived
from transports.recovery.rack import INFINITY
from transports.recovery.rtt import MAX_RTO_S, RttEstimator
from transports.tcp.receiver import Receiver
from transports.tcp.segment import (
    ACK,
    FIN,
    IP_HEADER_BYTES,
    MAX_WINDOW_SHIFT,
    PSH,
    RST,
    SYN,
    TCP_HEADER_BYTES,
    TIMESTAMPS_BYTES,
    FourTuple,
    MalformedSegmentError,
    Segment,
    decode,
    unwrap,
)
from transports.tcp.sender import Sender
from transports.tcp.stream import OutgoingStream, StreamError

MASK = 0xFFFFFFFF
TICK_S = 0.001  # of the timestamp clock (RFC 7323 §5.4 wants 1 ms to 1 s)
RTT_INTERVAL_S = 0.01  # how often the receiving half is told the RTT that timestamps show
MAX_HANDSHAKE_TRIES = 7  # as kernels do (tcp_syn_retries)


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpParameters:
    """What can be set on every TCP.

    initial_window: segments (RFC 6928). after_idle: "decay" (RFC 2861, as Linux), "restart" (RFC 5681 §4.1) or "keep".
    byte_count_limit: L of RFC 3465, 1 for RFC 5681's slow start, 2 as kernels do. min_rto_s: floor of the RTO's
    variance term, seconds. delayed_ack_s, ack_every: the receiver's delayed ACK (RFC 5681 §4.2). quick_acks: segments
    acknowledged one by one when a connection begins. receive_window_bytes, max_receive_window_bytes: where the
    receiver's auto-tuning starts and ends. Raises ValueError naming the field.
    """

    initial_window: int = 10
    after_idle: str = "decay"
    byte_count_limit: int = 2
    min_rto_s: float = 0.2
    delayed_ack_s: float = 0.040
    ack_every: int = 2
    quick_acks: int = 16
    receive_window_bytes: int = 65535
    max_receive_window_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.after_idle not in ("decay", "restart", "keep"):
            raise ValueError(f"after_idle: {self.after_idle!r} is not one of decay, restart, keep")
        for name in ("initial_window", "byte_count_limit", "ack_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is less than 1")
        if self.quick_acks < 0:
            raise ValueError(f"quick_acks: {self.quick_acks} is negative")
        if not 0 < self.min_rto_s <= MAX_RTO_S:
            raise ValueError(f"min_rto_s: {self.min_rto_s} is not above 0 and at most {MAX_RTO_S:g}")
        if not 0 <= self.delayed_ack_s < 0.5:  # RFC 9293 §3.8.6.3
            raise ValueError(f"delayed_ack_s: {self.delayed_ack_s} is not at least 0 and below 0.5")
        if not self.receive_window_bytes <= self.max_receive_window_bytes <= 1 << 30:
            raise ValueError(
                f"max_receive_window_bytes: {self.max_receive_window_bytes} is not between "
                f"receive_window_bytes and {1 << 30}"
            )
        unit = 1 << self.window_shift
        if self.receive_window_bytes < unit:
            raise ValueError(
                f"receive_window_bytes: {self.receive_window_bytes} is less than {unit}, "
                "the unit in which windows up to max_receive_window_bytes are told"
            )

    @property
    def window_shift(self) -> int:
        """The least shift with which the largest window can be told in 16 bits (RFC 7323 §2.2, at most 14: §2.3)."""
        return min(max(self.max_receive_window_bytes.bit_length() - 16, 0), MAX_WINDOW_SHIFT)


class State(Enum):
    """The states that a connection which is never closed goes through (RFC 9293 §3.3.2)."""

    LISTEN = "listen"
    SYN_SENT = "syn-sent"
    SYN_RECEIVED = "syn-received"
    ESTABLISHED = "established"
    CLOSED = "closed"


def four_tuple(role: str, path_id: int) -> FourTuple:
    """Return the addresses that segments of `role` carry on a path; what they are only has to be agreed."""
    client = FourTuple((10 << 24) | (path_id << 8) | 1, 40000, (10 << 24) | (path_id << 8) | 2, 4000)
    return client if role == "client" else client.reversed()


class TcpEndpoint(Endpoint):
    """One end of a TCP connection over one path.

    make_congestion(mss_bytes) returns the congestion controller. Raises ValueError when the path's MTU leaves no room
    for data.
    """

    def __init__(
        self,
        context: EndpointContext,
        make_congestion: Callable[[int], CongestionControl],
        parameters: TcpParameters,
    ) -> None:
        path = context.paths[0]
        self._path_id = path.path_id
        self._client = context.role == "client"
        self._tuple = four_tuple(context.role, path.path_id)
        self._peer_tuple = self._tuple.reversed()
        self._parameters = parameters
        self._mss = path.mtu_bytes - IP_HEADER_BYTES - TCP_HEADER_BYTES  # what the MSS option says (RFC 6691)
        segment_bytes = self._mss - TIMESTAMPS_BYTES
        if segment_bytes < 1:
            raise ValueError(f"mtu_bytes: {path.mtu_bytes} leaves TCP no room for data")
        self._iss = context.rng.getrandbits(32)
        self._clock_offset = context.rng.getrandbits(32)  # RFC 7323 §5.4: a random offset per connection
        self._irs = 0
        self._state = State.SYN_SENT if self._client else State.LISTEN
        self._events: deque[Event] = deque()
        self._stream = OutgoingStream()
        self._rtt = RttEstimator(min_rto_s=parameters.min_rto_s)
        self.sender = Sender(
            mss_bytes=segment_bytes,
            congestion=make_congestion(segment_bytes),
            rtt=self._rtt,
            after_idle=parameters.after_idle,
            max_ack_delay_s=parameters.delayed_ack_s,
        )
        self.receiver = Receiver(
            mss_bytes=segment_bytes,
            delayed_ack_s=parameters.delayed_ack_s,
            ack_every_segments=parameters.ack_every,
            quick_acks=parameters.quick_acks,
            initial_window_bytes=parameters.receive_window_bytes,
            max_window_bytes=parameters.max_receive_window_bytes,
        )
        self._window_shift = parameters.window_shift
        self._peer_scale = 0
        self._ts_recent = 0
        self._handshake_at = 0.0 if self._client else INFINITY  # when the SYN or SYN-ACK is to be sent (again)
        self._handshake_tries = 0
        self._handshake_sent_s = 0.0
        self._next_rtt_s = 0.0
        self._last_departure_s = 0.0
        self._rejected = 0
        self._packets = 0

    # -- verbs --------------------------------------------------------------------------------------------------------

    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        """Queue a message. See `Endpoint.send_message`."""
        self._stream.append_message(message_id, data)
        if self._state is State.ESTABLISHED:
            self.sender.offer(self._stream.end, now)

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        """Take a segment, as an object or as the octets of one."""
        payload = datagram.payload
        if type(payload) is not Segment:
            try:
                payload = decode(bytes(payload), self._peer_tuple)
            except MalformedSegmentError:
                self._rejected += 1
                return
        if self._state is State.ESTABLISHED:
            self._established(payload, now)
        elif self._state is not State.CLOSED:
            self._handshake(payload, now)

    def get_timer(self) -> float | None:
        """Return when something is due."""
        if self._state is not State.ESTABLISHED:
            return None if self._handshake_at == INFINITY else self._handshake_at
        at = self.sender.timer()
        deadline = self.receiver.ack_deadline
        if deadline is not None and deadline < at:
            return deadline
        return None if at == INFINITY else at

    def handle_timer(self, now: float) -> None:
        """Do what is due."""
        if self._state is State.ESTABLISHED:
            self.sender.on_timer(now)
            deadline = self.receiver.ack_deadline
            if deadline is not None and deadline <= now:
                self.receiver.ack_now = True
            if self.sender.failure:
                self._fail(self.sender.failure)

    def next_event(self) -> Event | None:
        """Return the oldest event."""
        return self._events.popleft() if self._events else None

    def datagrams_to_send(self, now: float) -> list[Datagram]:
        """Return segments: what the sender may send, and an acknowledgement when one is due."""
        if self._state is not State.ESTABLISHED:
            return self._handshake_segments(now)
        out: list[Datagram] = []
        receiver = self.receiver
        transmissions = self.sender.transmissions(now)
        now = max(now, self._last_departure_s)  # nothing overtakes what has been handed out for later
        if receiver.ack_now and (not transmissions or receiver.has_sack_blocks):
            out.append(self._acknowledgement(now))  # SACK blocks go alone: a full segment has no room for them
        if transmissions:
            read, end, mss = self._stream.read, self._stream.end, self.sender.mss_bytes
            for start, stop, at_s, repair in transmissions:
                depart_at = at_s if at_s > now else now
                segment = self._segment(depart_at, ACK | PSH if stop == end else ACK)
                segment.sequence = (self._iss + 1 + start) & MASK
                segment.payload = read(start, stop - start)
                left = None if repair else (end - stop + mss - 1) // mss
                out.append(Datagram(self._path_id, segment, segment.wire_bytes, depart_at, 0, left))
            self._last_departure_s = depart_at
        if out:
            self._packets += len(out)
            receiver.acked()
        return out

    def counters(self) -> Counters:
        """Return what has been counted."""
        sender = self.sender
        return Counters(
            packets=self._packets,
            repairs=sender.repairs,
            probes=sender.probes,
            timeouts=sender.timeouts,
            spurious=sender.spurious,
            rejected=self._rejected,
        )

    def sample(self, now: float) -> Sample:
        """Return the window, what is in flight, the pace and the smoothed RTT."""
        return Sample(
            cwnd_bytes=self.sender.congestion.cwnd_bytes,
            in_flight_bytes=float(self.sender.board.in_flight),
            pacing_rate_bps=self.sender.congestion.pacing_rate_bps,
            srtt_s=self._rtt.srtt_s,
        )

    # -- building segments --------------------------------------------------------------------------------------------

    def _segment(self, now: float, flags: int) -> Segment:
        """Return a segment that acknowledges what has come so far, without data."""
        receiver = self.receiver
        base = self._irs + 1
        return Segment(
            self._tuple,
            (self._iss + 1 + self.sender.next_offset) & MASK,
            (base + receiver.next_offset) & MASK,
            flags,
            min(receiver.window_bytes >> self._window_shift, 0xFFFF),
            timestamp_value=(int(now / TICK_S) + self._clock_offset) & MASK,
            timestamp_echo=self._ts_recent,
        )

    def _acknowledgement(self, now: float) -> Datagram:
        segment = self._segment(now, ACK)
        if self.receiver.has_sack_blocks:
            base = self._irs + 1
            segment.sack_blocks = tuple(
                ((base + left) & MASK, (base + right) & MASK) for left, right in self.receiver.sack_blocks(3)
            )
        return Datagram(self._path_id, segment, segment.wire_bytes, now)

    # -- the handshake ------------------------------------------------------------------------------------------------

    def _handshake_segments(self, now: float) -> list[Datagram]:
        if now < self._handshake_at or self._state in (State.LISTEN, State.CLOSED):
            return []
        self._handshake_tries += 1
        if self._handshake_tries > MAX_HANDSHAKE_TRIES:
            self._fail("the peer does not answer")
            return []
        self._handshake_at = now + min(2.0 ** (self._handshake_tries - 1), 60.0)  # RFC 6298 §2.1, §5.5
        self._handshake_sent_s = now
        segment = Segment(
            self._tuple,
            self._iss,
            (self._irs + 1) & MASK if self._state is State.SYN_RECEIVED else 0,
            SYN | ACK if self._state is State.SYN_RECEIVED else SYN,
            min(self.receiver.window_bytes, 0xFFFF),  # never scaled on a SYN (RFC 7323 §2.2)
            mss=self._mss,
            window_scale=self._window_shift,
            sack_permitted=True,
            timestamp_value=(int(now / TICK_S) + self._clock_offset) & MASK,
            timestamp_echo=self._ts_recent if self._state is State.SYN_RECEIVED else 0,
        )
        self._packets += 1
        return [Datagram(self._path_id, segment, segment.wire_bytes, now)]

    def _handshake(self, segment: Segment, now: float) -> None:
        flags = segment.flags
        if flags & RST:
            if self._state is State.SYN_SENT and flags & ACK and segment.acknowledgement == (self._iss + 1) & MASK:
                self._fail("the peer refused the connection")
            return
        if self._state is State.LISTEN:
            if flags & SYN and not flags & ACK:
                self._take_syn(segment)
                self._state = State.SYN_RECEIVED
                self._handshake_at = now
        elif segment.acknowledgement != (self._iss + 1) & MASK and self._state is State.SYN_SENT:
            self._rejected += 1
        elif self._state is State.SYN_SENT:
            if flags & SYN and flags & ACK:
                self._take_syn(segment)
                self._establish(segment, now)
                self.receiver.ack_now = True
        elif flags & SYN:
            self._handshake_at = now  # our SYN-ACK was lost: send it again (RFC 9293 §3.10.7.4)
        elif flags & ACK and segment.acknowledgement == (self._iss + 1) & MASK:  # nothing but the SYN-ACK is sent
            self._establish(segment, now)
            self._established(segment, now)

    def _take_syn(self, segment: Segment) -> None:
        self._irs = segment.sequence
        self._peer_scale = min(segment.window_scale or 0, MAX_WINDOW_SHIFT)  # RFC 7323 §2.3
        if segment.timestamp_value is not None:
            self._ts_recent = segment.timestamp_value
        peer_mss = max((segment.mss or 536) - TIMESTAMPS_BYTES, 1)
        self.sender.mss_bytes = min(self.sender.mss_bytes, peer_mss)

    def _establish(self, segment: Segment, now: float) -> None:
        self._state = State.ESTABLISHED
        self._handshake_at = INFINITY
        if self._handshake_tries == 1:
            self._rtt.sample(now - self._handshake_sent_s, now)
        if segment.flags & SYN:
            self.sender.window_edge = segment.window  # never scaled on a SYN (RFC 7323 §2.2)
        self._events.append(Connected())
        if self._stream.end:
            self.sender.offer(self._stream.end, now)

    # -- established --------------------------------------------------------------------------------------------------

    def _established(self, segment: Segment, now: float) -> None:
        flags = segment.flags
        receiver, sender = self.receiver, self.sender
        offset = unwrap(segment.sequence, self._irs + 1 + receiver.next_offset) - self._irs - 1
        if flags & (SYN | RST | FIN):
            self._unusual(segment, offset)
            return
        value = segment.timestamp_value
        if value is None or not flags & ACK:
            self._rejected += 1  # timestamps are in use, so every segment has them (RFC 7323 §3.2)
            return
        if (value - self._ts_recent) & MASK >= 0x80000000:
            receiver.ack_now = True  # PAWS: older than what came before (RFC 7323 §5.3)
            if offset + len(segment.payload) <= receiver.next_offset:
                # an original behind its repair: nothing is taken from it, but a DSACK tells the sender (RFC 2883 §4)
                receiver.on_data(offset, segment.payload, False, now)
            return
        age = (int(now / TICK_S) + self._clock_offset - (segment.timestamp_echo or 0)) & MASK
        echoed_s = now - age * TICK_S if age < 0x80000000 else None
        ack = unwrap(segment.acknowledgement, self._iss + 1 + sender.board.una) - self._iss - 1
        if ack > sender.next_offset:
            self._rejected += 1  # it acknowledges what was never sent (RFC 9293 §3.10.7.4, RFC 5961 §5)
            receiver.ack_now = True
            return
        # only now, and only by a segment at the left edge: else a forged or stale one would set the clock forward,
        # and PAWS would drop all that follows (RFC 7323 §5.3 R2 before R3)
        if offset <= receiver.next_offset <= offset + len(segment.payload):
            self._ts_recent = value
        if ack >= sender.board.una:
            edge = ack + (segment.window << self._peer_scale)
            sender.window_edge = max(sender.window_edge, edge)
            blocks = segment.sack_blocks
            if blocks:
                base = self._iss + 1
                near = base + ack
                blocks = tuple((unwrap(left, near) - base, unwrap(right, near) - base) for left, right in blocks)
            if ack > sender.board.una or blocks:
                sender.on_ack(ack, blocks, now, echoed_s)
                self._stream.release(ack)
        payload = segment.payload
        if payload:
            try:
                complete = receiver.on_data(offset, payload, bool(flags & PSH), now)
            except StreamError as error:
                self._fail(str(error))
                return
            if complete:
                for message_id, data in receiver.take_messages():
                    self._events.append(MessageReceived(message_id=message_id, data=data))
            if echoed_s is not None and now >= self._next_rtt_s:
                self._next_rtt_s = now + RTT_INTERVAL_S
                receiver.on_rtt(now - echoed_s, now)

    def _unusual(self, segment: Segment, offset: int) -> None:
        expected = self.receiver.next_offset
        if segment.flags & RST:
            if offset == expected:
                self._fail("the peer reset the connection")
            elif expected < offset < expected + self.receiver.window_bytes:
                self.receiver.ack_now = True  # a challenge (RFC 5961 §3.2)
        elif segment.flags & FIN and not segment.flags & SYN and offset + len(segment.payload) == expected:
            self._fail("the peer closed the connection")
        else:
            self.receiver.ack_now = True  # a repeated SYN-ACK, or a challenge (RFC 5961 §4.2)

    def _fail(self, reason: str) -> None:
        self._state = State.CLOSED
        self._handshake_at = INFINITY
        self._events.append(Failed(reason=reason))
