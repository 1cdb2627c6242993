"""A QUIC connection for bulk data: aioquic's, with a short way for the packets that there are many of.

aioquic does the handshake and whatever is rare: connection identifiers, limits, key updates, closing. Packets of
STREAM, DATAGRAM and ACK frames are written and read here, and booked in `Flight` and `Received`, at less than half of
what they cost there. Both ways share keys, packet numbers, streams and windows, so the peer sees one connection.
"""

from typing import Any

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import (
    END_STATES,
    QuicConnection,
    QuicConnectionError,
    QuicConnectionState,
    QuicReceiveContext,
)
from aioquic.quic.events import QuicEvent
from aioquic.quic.packet import QuicTransportParameters
from aioquic.tls import Epoch
from cryptography import x509

from bicoastal.transports.base import Rng
from bicoastal.transports.events import Buffer
from bicoastal.transports.quic.flight import Flight, Sent
from bicoastal.transports.quic.frames import FrameReader
from bicoastal.transports.quic.handshake import CONNECTION_ID_BYTES, with_globals
from bicoastal.transports.quic.received import Received
from bicoastal.transports.quic.recovery import ApplicationSpace, CountingWindow, Recovery
from bicoastal.transports.quic.sending import Outgoing, Sending
from bicoastal.transports.quic.streams import OutgoingControl, OutgoingMessage
from bicoastal.transports.quic.wire import (
    NUMBER_BYTES,
    RESERVED,
    TAG_BYTES,
    OtherPhase,
    Protection,
    Rejected,
    count_packets,
)
from bicoastal.wan.units import INFINITY

PEER = "peer"  # the only network address there is: a path of ours is one pair of addresses
MAX_ACK_DELAY_MS = 5  # told to the peer: our ACK timer, and what a real clock adds to it
TIMER_SLACK_S = 1e-6  # aioquic's loss timer is set to sent + delay and tested as sent <= now - delay: rounding differs
KEY_LIMIT_PACKETS = 1 << 22  # after which keys are updated: RFC 9001 §6.6 allows AES-GCM 2^23
_PING = b"\x01"


class _AckOfAck:
    """The cargo of an ACK frame whose acknowledgement was asked for."""

    def __init__(self, received: Received) -> None:
        self._received = received
        self.outstanding = False

    def on_acked(self, packet: Sent) -> None:
        """The peer knows of everything up to the number it was told."""
        self._received.settle(packet.span[0])
        self.outstanding = False

    def on_lost(self, packet: Sent) -> None:
        """Ask again with a later ACK."""
        self.outstanding = False


class BulkConnection(FrameReader):
    """One end of a connection, over one path.

    flight, received: the books of the two directions. continuous: hand on incoming streams as they arrive, not whole.
    The owner calls `receive`, `outgoing`, `timer`, `on_timer` and `next_event` in place of aioquic's verbs.
    """

    def __init__(
        self,
        *,
        configuration: QuicConfiguration,
        rng: Rng,
        pinned: x509.Certificate | None,
        flight: Flight,
        received: Received,
        path_id: int,
        continuous: bool,
        original_destination_connection_id: bytes | None = None,
    ) -> None:
        super().__init__(
            configuration=configuration,
            rng=rng,
            pinned=pinned,
            original_destination_connection_id=original_destination_connection_id,
        )
        self.flight = flight
        self.received = received
        self.sending = Sending(
            path_id=path_id,
            flight=flight,
            datagram_bytes=configuration.max_datagram_size,
            credit=self,
            seal=self._seal,
        )
        self.last_heard_s = -INFINITY
        self._ended = False
        self._continuous = continuous
        self._rare = False  # aioquic may have something to send
        self._accepted = 0  # packets of a datagram that aioquic took
        self._keys: tuple[Protection, Protection] | None = None  # to receive with, to send with
        self._old_keys: Protection | None = None  # to receive with what left before an update
        self._keys_end = 0  # the packet number at which they are to be updated
        self._ack_of_ack = _AckOfAck(received)
        self._control: OutgoingControl | None = None
        self._recovery = self._loss = Recovery(
            configuration=configuration, flight=flight, send_probe=self._send_probe, on_loss=self.look_again
        )

    def look_again(self) -> None:
        """Ask aioquic what it has to send."""
        self._rare = True

    def _set_state(self, state: QuicConnectionState) -> None:
        super()._set_state(state)
        self._ended = state in END_STATES

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        self._space = ApplicationSpace(self.received)
        for epoch in (Epoch.INITIAL, Epoch.HANDSHAKE):
            self._spaces[epoch].received_packets = CountingWindow(self._count_accepted)
        self._spaces[Epoch.ONE_RTT] = self._space
        self._loss.spaces = list(self._spaces.values())

    def _serialize_transport_parameters(self) -> bytes:
        def parameters(**values: Any) -> QuicTransportParameters:
            return QuicTransportParameters(**(values | {"max_ack_delay": MAX_ACK_DELAY_MS}))

        serialize = with_globals(QuicConnection._serialize_transport_parameters, QuicTransportParameters=parameters)
        octets: bytes = serialize(self)
        return octets

    def _confirm_handshake(self) -> None:
        super()._confirm_handshake()
        self.flight.confirmed = True
        self._update_keys()

    @property
    def packet_bytes(self) -> int:
        """How many octets of frames a packet holds."""
        return self._max_datagram_size - 1 - len(self._peer_cid.cid) - NUMBER_BYTES - TAG_BYTES

    @property
    def is_open(self) -> bool:
        """Tell whether application data can be sent: this end's handshake is complete, and nobody has closed."""
        return self._keys is not None and not self._ended

    # -- what the application offers ----------------------------------------------------------------------------------

    def open_message(self, message_id: int, data: Buffer) -> None:
        """Send a message on a stream of its own. Only while `is_open`."""
        stream_id = self.get_next_available_stream_id(is_unidirectional=True)
        stream = self._get_or_create_stream_for_send(stream_id)
        message = OutgoingMessage(stream_id, message_id, data, packet_bytes=self.packet_bytes)
        stream.sender = message
        self.sending.add(stream, message)
        self._rare = self._rare or stream.is_blocked

    def append_control(self, data: bytes) -> None:
        """Send octets on the control stream, the first that this end opens. Only while `is_open`."""
        if self._control is None:
            stream_id = self.get_next_available_stream_id(is_unidirectional=True)
            stream = self._get_or_create_stream_for_send(stream_id)
            self._control = OutgoingControl(stream_id, packet_bytes=self.packet_bytes)
            stream.sender = self._control
            self.sending.add(stream, self._control)
        self._control.append(data)

    def credit_left(self) -> int:
        """Return how much new stream data the peer takes."""
        return self._remote_max_data - self._remote_max_data_used

    def use_credit(self, size: int) -> None:
        """Use some of it."""
        self._remote_max_data_used += size

    def probe(self, now: float) -> None:
        """Let something leave that asks for an answer: what the handshake still owes, or a PING.

        RFC 9002 §6.2.3 lets an endpoint send unacknowledged CRYPTO data earlier than the probe timer would, a limited
        number of times.
        """
        if self._handshake_confirmed:
            self.flight.probe(now)
        else:
            self._loss.reschedule_data(now=now)
            self._rare = True

    # -- receiving ----------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> bool:
        """Take the payload of a UDP datagram; tell whether every packet in it was genuine."""
        if self._ended:
            return False
        keys = self._keys
        if keys is not None and data[:1] and data[0] & 0xC0 == 0x40 and data[1:9] == self.host_cid:
            try:
                number, first, payload = keys[0].unprotect(data, CONNECTION_ID_BYTES, self.received.expected)
            except Rejected:
                return False
            except OtherPhase:
                return self._receive_of_other_phase(data, now)
            if first & RESERVED:
                return self._receive_slow(data, now)  # aioquic closes, as RFC 9000 §17.3.1 asks
            self._receive_fast(number, payload, now)
            return True
        return self._receive_slow(data, now)

    def _receive_of_other_phase(self, data: bytes, now: float) -> bool:
        """Take a packet of the keys before the last update, or of the ones after it (RFC 9001 §6.5)."""
        if self._old_keys is not None:
            try:
                number, first, payload = self._old_keys.unprotect(data, CONNECTION_ID_BYTES, self.received.expected)
            except (Rejected, OtherPhase):
                return self._receive_slow(data, now)
            if not first & RESERVED:
                self._receive_fast(number, payload, now)
                return True
        return self._receive_slow(data, now)

    def request_key_update(self) -> None:
        """Update the keys now; before the handshake is confirmed, as soon as it is (RFC 9001 §6.1)."""
        super().request_key_update()
        self._update_keys()

    def _update_keys(self) -> None:
        """Do at once what aioquic would do with its next packet."""
        pair = self._cryptos[Epoch.ONE_RTT]
        if self._keys is not None and pair._update_key_requested:
            pair._update_key("local_update")
            self._follow_keys(-INFINITY)

    def _receive_fast(self, number: int, payload: bytes, now: float) -> None:
        received = self.received
        if not received.add(number, now):
            return
        self.last_heard_s = now
        try:
            eliciting = self._frames(payload, now)
        except QuicConnectionError as error:
            self.close(error_code=error.error_code, frame_type=error.frame_type, reason_phrase=error.reason_phrase)
            self._rare = True
            return
        self._close_at = now + self._idle_timeout()
        if eliciting:
            received.owe(now)

    def _receive_slow(self, data: bytes, now: float) -> bool:
        """Let aioquic have a datagram; tell whether it took every packet in it."""
        count, sound = count_packets(data, id_bytes=CONNECTION_ID_BYTES)
        self._accepted = 0
        if self._network_paths or not self._is_client:
            if self._spaces:
                self._space.now = now
                self.flight.next_number = self._packet_number
            super().receive_datagram(data, PEER, now)
        self._rare = True
        if self._spaces and self._space.ack_at is not None:
            self._space.ack_at = None
            self.received.owe(now)
        if self._handshake_complete:
            self._follow_keys(now)
        if self._accepted:
            self.last_heard_s = now
        return sound and self._accepted == count

    def _follow_keys(self, now: float) -> None:
        """Use the keys that aioquic uses: at the end of the handshake, and after the peer has updated them."""
        pair = self._cryptos[Epoch.ONE_RTT]
        if not (pair.recv.is_valid() and pair.send.is_valid()):
            return
        keys = self._keys
        if keys is None:
            self.flight.peer_ack_delay_s = self._loss.max_ack_delay
            if self._recovery.handshake_rtt_s is not None:
                self.flight.rtt.sample(self._recovery.handshake_rtt_s, now, handshake=True)
            self._keys = Protection(pair.recv), Protection(pair.send)
        elif keys[0].secret != pair.recv.secret:
            self._old_keys = keys[0]
            self._keys = Protection(pair.recv, keys[0]), Protection(pair.send, keys[1])
        else:
            return
        self._keys_end = self._packet_number + KEY_LIMIT_PACKETS

    def _count_accepted(self) -> None:
        self._accepted += 1

    def _payload_received(
        self, context: QuicReceiveContext, plain: bytes, crypto_frame_required: bool = False
    ) -> tuple[bool, bool]:
        self._accepted += 1
        return super()._payload_received(context, plain, crypto_frame_required)

    # -- sending ------------------------------------------------------------------------------------------------------

    def outgoing(self, now: float) -> list[Outgoing]:
        """Return, and forget, what is to be sent; departures never decrease."""
        out: list[Outgoing] = []
        sending = self.sending
        if self._rare or not self._handshake_confirmed:
            depart_at = max(now, sending.last_departure_s)
            datagrams = super().datagrams_to_send(now) if self._network_paths else []
            if self._recovery.expired:
                self._recovery.expired = False
                if len(datagrams) == 1:  # RFC 9002 §6.2.4: two, lest the next expiry be twice as far
                    self._recovery.reschedule_data(now=now)
                    datagrams += super().datagrams_to_send(now)
            for data, _ in datagrams:
                out.append(Outgoing(data, depart_at))
                sending.packets += 1
            self._rare = self._aioquic_waits()
            if self._handshake_complete and self._keys is None:
                self._follow_keys(now)
        if self._keys is None or self._ended:
            return out
        if self.received.ack_at <= now:
            out.append(self._acknowledge(now))
        out += sending.fill(now)
        return out

    def _acknowledge(self, now: float) -> Outgoing:
        frame, largest, ask = self.received.frame(now)
        depart_at = max(now, self.sending.last_departure_s)
        ask = ask and not self._ack_of_ack.outstanding
        number, packet = self._seal(frame + _PING if ask else frame)
        if ask:
            self._ack_of_ack.outstanding = True
            self.flight.sent(Sent(number, depart_at, len(packet), self._ack_of_ack, span=(largest, largest)))
        self.sending.packets += 1
        return Outgoing(packet, depart_at)

    def _seal(self, frames: bytes) -> tuple[int, bytes]:
        """Return the next packet number and its packet."""
        number = self._packet_number
        self._packet_number = number + 1
        if number >= self._keys_end and self._handshake_confirmed:
            self.request_key_update()
        keys = self._keys
        if keys is None:
            raise RuntimeError("there are no keys yet")
        return number, keys[1].protect(self._peer_cid.cid, number, frames)

    def _aioquic_waits(self) -> bool:
        """Tell whether aioquic still has something to send: the window did not let it."""
        return bool(
            self._close_pending
            or self._handshake_done_pending
            or self._probe_pending
            or self._ping_pending
            or self._retire_connection_ids
            or self._streams_blocked_pending
            or any(not identifier.was_sent for identifier in self._host_cids)
        )

    # -- time and events ----------------------------------------------------------------------------------------------

    def timer(self) -> float:
        """Return when `on_timer` or `outgoing` is due (inf: never)."""
        at = INFINITY if self._close_at is None else self._close_at
        if self._ended:
            return at
        if not self._handshake_confirmed and self._close_at is not None:
            at = min(at, (super().get_timer() or INFINITY) + TIMER_SLACK_S)
        if self._keys is not None:
            at = min(at, self.received.ack_at, self.flight.timer(), self.sending.pace_at)
        return at

    def on_timer(self, now: float) -> None:
        """Do what is due."""
        closing = self._close_at is not None and now >= self._close_at
        if closing or not self._handshake_confirmed:
            super().handle_timer(now)
            self._rare = True
        if self._keys is not None and not self._ended:
            self.flight.on_timer(now)

    def next_event(self) -> QuicEvent | None:
        """Return aioquic's oldest event, or None."""
        return self._events.popleft() if self._events else None
