"""A TCP connection as an endpoint: the handshake, the sending half and the receiving half (RFC 9293)."""

from collections import deque
from collections.abc import Callable
from enum import Enum

from bicoastal.transports.base import Counters, Datagram, Endpoint, EndpointContext, Sample
from bicoastal.transports.congestion.base import CongestionControl
from bicoastal.transports.events import Buffer, Connected, Event, Failed, MessageReceived
from bicoastal.transports.recovery.rtt import RttEstimator
from bicoastal.transports.stream import OutgoingStream, StreamError
from bicoastal.transports.tcp.handshake import Agreement, SynTimer, agree
from bicoastal.transports.tcp.parameters import TcpParameters
from bicoastal.transports.tcp.receiver import Receiver
from bicoastal.transports.tcp.segment import (
    ACK,
    FIN,
    IP_HEADER_BYTES,
    PSH,
    RST,
    SYN,
    TCP_HEADER_BYTES,
    TIMESTAMPS_BYTES,
    MalformedSegmentError,
    Segment,
    decode,
    four_tuple,
    unwrap,
)
from bicoastal.transports.tcp.sender import Sender
from bicoastal.wan.checks import FieldError
from bicoastal.wan.units import INFINITY

MASK = 0xFFFFFFFF
TICK_S = 0.001  # of the timestamp clock (RFC 7323 §5.4 wants 1 ms to 1 s)
RTT_INTERVAL_S = 0.01  # how often the receiving half is told the RTT that timestamps show
UNSCALED_WINDOW = 0xFFFF


class State(Enum):
    """The states that a connection which is never closed goes through (RFC 9293 §3.3.2)."""

    LISTEN = "listen"
    SYN_SENT = "syn-sent"
    SYN_RECEIVED = "syn-received"
    ESTABLISHED = "established"
    CLOSED = "closed"


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
        self._agreed = Agreement(
            segment_bytes=self._mss - TIMESTAMPS_BYTES,
            send_shift=0,
            receive_shift=parameters.window_shift,
            timestamps=True,
            selective=True,
            scaled=True,
        )
        if self._agreed.segment_bytes < 1:
            raise FieldError("mtu_bytes", f"{path.mtu_bytes} leaves TCP no room for data")
        self._make_congestion = make_congestion
        self._iss = context.rng.getrandbits(32)
        self._clock_offset = context.rng.getrandbits(32)  # RFC 7323 §5.4: a random offset per connection
        self._irs = 0
        self._state = State.SYN_SENT if self._client else State.LISTEN
        self._events: deque[Event] = deque()
        self._stream = OutgoingStream()
        self._rtt = RttEstimator(min_rto_s=parameters.min_rto_s)
        self.sender, self.receiver = self._halves()
        self._ts_recent = 0
        self._syn = SynTimer(0.0 if self._client else INFINITY)
        self._next_rtt_s = 0.0
        self._last_departure_s = 0.0
        self._rejected = 0
        self._packets = 0

    def _halves(self) -> tuple[Sender, Receiver]:
        agreed, parameters = self._agreed, self._parameters
        most = parameters.max_receive_window_bytes
        if not agreed.scaled:
            most = min(most, UNSCALED_WINDOW)
        sender = Sender(
            mss_bytes=agreed.segment_bytes,
            congestion=self._make_congestion(agreed.segment_bytes),
            rtt=self._rtt,
            after_idle=parameters.after_idle,
            max_ack_delay_s=parameters.max_ack_delay_s,
        )
        receiver = Receiver(
            mss_bytes=agreed.segment_bytes,
            delayed_ack_s=parameters.delayed_ack_s,
            ack_every_segments=parameters.ack_every,
            quick_acks=parameters.quick_acks,
            initial_window_bytes=min(parameters.receive_window_bytes, most),
            max_window_bytes=most,
        )
        return sender, receiver

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
            return None if self._syn.due_s == INFINITY else self._syn.due_s
        at = self.sender.timer()
        deadline = self.receiver.ack_deadline
        if deadline is not None and deadline < at:
            return deadline
        return None if at == INFINITY else at

    def handle_timer(self, now: float) -> None:
        """Run every timer that is due."""
        if self._state is State.ESTABLISHED:
            self.sender.on_timer(now)
            deadline = self.receiver.ack_deadline
            if deadline is not None and deadline <= now:
                self.receiver.ack_now = True
            if self.sender.failure:
                self._fail(self.sender.failure)
        else:
            self._syn.expire(now)

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
        if receiver.ack_now and (not transmissions or (receiver.has_sack_blocks and self._agreed.selective)):
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
        receiver, agreed = self.receiver, self._agreed
        segment = Segment(
            self._tuple,
            (self._iss + 1 + self.sender.next_offset) & MASK,
            (self._irs + 1 + receiver.next_offset) & MASK,
            flags,
            min(receiver.window_bytes >> agreed.receive_shift, 0xFFFF),
            timestamp_value=(int(now / TICK_S) + self._clock_offset) & MASK,
            timestamp_echo=self._ts_recent,
        )
        if not agreed.timestamps:
            segment.timestamp_value = segment.timestamp_echo = None
        return segment

    def _acknowledgement(self, now: float) -> Datagram:
        segment = self._segment(now, ACK)
        if self.receiver.has_sack_blocks and self._agreed.selective:
            base = self._irs + 1
            most = 3 if self._agreed.timestamps else 4  # RFC 2018 §3
            segment.sack_blocks = tuple(
                ((base + left) & MASK, (base + right) & MASK) for left, right in self.receiver.sack_blocks(most)
            )
        return Datagram(self._path_id, segment, segment.wire_bytes, now)

    # -- the handshake ------------------------------------------------------------------------------------------------

    def _handshake_segments(self, now: float) -> list[Datagram]:
        if now < self._syn.due_s or self._state in (State.LISTEN, State.CLOSED):
            return []
        if not self._syn.sent(now):
            self._fail("the peer does not answer")
            return []
        answering, agreed = self._state is State.SYN_RECEIVED, self._agreed
        segment = Segment(
            self._tuple,
            self._iss,
            (self._irs + 1) & MASK if answering else 0,
            SYN | ACK if answering else SYN,
            min(self.receiver.window_bytes, 0xFFFF),  # never scaled on a SYN (RFC 7323 §2.2)
            mss=self._mss,
            window_scale=self._parameters.window_shift if agreed.scaled else None,
            sack_permitted=True,
        )
        if agreed.timestamps:
            segment.timestamp_value = (int(now / TICK_S) + self._clock_offset) & MASK
            segment.timestamp_echo = self._ts_recent if answering else 0
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
                self._syn.due_s = now
        elif segment.acknowledgement != (self._iss + 1) & MASK and self._state is State.SYN_SENT:
            self._rejected += 1
        elif self._state is State.SYN_SENT:
            if flags & SYN and flags & ACK:
                self._take_syn(segment)
                self._establish(segment, now)
                self.receiver.ack_now = True
        elif flags & SYN:
            self._syn.due_s = now  # our SYN-ACK may be lost: send it again (RFC 9293 §3.10.7.4)
            if segment.timestamp_value is not None and segment.timestamp_value != self._ts_recent:
                self._ts_recent = segment.timestamp_value
                self._syn.lost = True  # the peer has repeated its SYN, not the network
        elif flags & ACK and segment.acknowledgement == (self._iss + 1) & MASK:  # nothing but the SYN-ACK is sent
            self._establish(segment, now)
            self._established(segment, now)

    def _take_syn(self, segment: Segment) -> None:
        self._irs = segment.sequence
        self._ts_recent = segment.timestamp_value or 0
        agreed = agree(self._mss, self._parameters.window_shift, segment)
        remade = agreed._replace(send_shift=0) != self._agreed
        self._agreed = agreed
        if remade:  # nothing has been sent or received yet
            self.sender, self.receiver = self._halves()

    def _establish(self, segment: Segment, now: float) -> None:
        self._state = State.ESTABLISHED
        self._syn.stop()
        rtt_s = self._syn.rtt_s(now)
        if rtt_s is not None:
            self._rtt.sample(rtt_s, now, handshake=True)
        elif self._syn.lost:
            self._rtt.handshake_lost()
            self.sender.begin_with_one_segment()
        if segment.flags & SYN:
            self.sender.window_edge = segment.window  # never scaled on a SYN (RFC 7323 §2.2)
        self._events.append(Connected())
        if self._stream.end:
            self.sender.offer(self._stream.end, now)

    # -- established --------------------------------------------------------------------------------------------------

    def _established(self, segment: Segment, now: float) -> None:
        flags, payload = segment.flags, segment.payload
        receiver, sender = self.receiver, self.sender
        offset = unwrap(segment.sequence, self._irs + 1 + receiver.next_offset) - self._irs - 1
        stop = offset + len(payload)
        if flags & (SYN | RST | FIN):
            self._unusual(segment, offset)
            return
        value = segment.timestamp_value if self._agreed.timestamps else self._ts_recent
        if value is None or not flags & ACK:
            self._rejected += 1  # where timestamps are in use, every segment has them (RFC 7323 §3.2)
            return
        old = (value - self._ts_recent) & MASK >= 0x80000000  # PAWS: RFC 7323 §5.3 R1
        if old or stop < receiver.acked_offset or offset > receiver.next_offset + receiver.window_bytes:
            self._unacceptable(offset, payload, now)
            return
        echoed_s = None
        if self._agreed.timestamps:
            age = (int(now / TICK_S) + self._clock_offset - (segment.timestamp_echo or 0)) & MASK
            echoed_s = now - age * TICK_S if age < 0x80000000 else None
        ack = unwrap(segment.acknowledgement, self._iss + 1 + sender.board.una) - self._iss - 1
        if ack > sender.next_offset:
            self._rejected += 1  # it acknowledges what was never sent (RFC 9293 §3.10.7.4, RFC 5961 §5)
            receiver.ack_now = True
            return
        # Only now, and only by what is not old: else a forged or stale segment would set the clock forward, and PAWS
        # would drop all that follows (RFC 7323 §5.3 R2 before R3). Of segments that one ACK answers, the first counts,
        # so that the time by which it was delayed shows in the round trip (§4.3).
        if offset <= receiver.acked_offset and (stop > receiver.next_offset or offset == receiver.next_offset):
            self._ts_recent = value
        if ack >= sender.board.una:
            edge = ack + (segment.window << self._agreed.send_shift)
            sender.window_edge = max(sender.window_edge, edge)
            blocks = segment.sack_blocks
            if blocks:
                base = self._iss + 1
                near = base + ack
                blocks = tuple((unwrap(left, near) - base, unwrap(right, near) - base) for left, right in blocks)
            if ack > sender.board.una or blocks:
                sender.on_ack(ack, blocks, now, echoed_s)
                self._stream.release(ack)
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
                receiver.on_rtt(max(now - echoed_s, TICK_S), now)  # the clock cannot resolve less than a tick

    def _unacceptable(self, offset: int, payload: Buffer, now: float) -> None:
        """Take nothing from a segment that is old or beyond the window, but answer it (RFC 9293 §3.10.7.4).

        An original behind its repair is old: a DSACK tells the sender (RFC 2883 §4).
        """
        receiver = self.receiver
        receiver.ack_now = True
        if offset > receiver.next_offset + receiver.window_bytes:
            self._rejected += 1
        elif payload and offset + len(payload) <= receiver.next_offset:
            receiver.on_data(offset, payload, False, now)

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
        self._syn.stop()
        self._events.append(Failed(reason=reason))
