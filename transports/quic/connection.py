"""A QUIC connection for bulk data: aioquic's, with a short way for the packets that there are many of.

aioquic does the handshake and everything rare: connection identifiers, limits, key updates, closing. This module reads
and writes the packets of STREAM, DATAGRAM and ACK frames, and records them in `SentPackets` and `ReceivedPackets`. They
cost less than half of what aioquic needs. Both ways share keys, packet numbers, streams and windows, so that the peer
sees one connection.
"""

from collections import deque

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent
from cryptography import x509

from bicoastal.transports.base import Rng
from bicoastal.transports.events import Buffer
from bicoastal.transports.quic.aioquic_private import AioquicConnection, QuicConnectionError
from bicoastal.transports.quic.frames import FrameReader
from bicoastal.transports.quic.packet_sender import Outgoing, PacketSender
from bicoastal.transports.quic.received_packets import ReceivedPackets
from bicoastal.transports.quic.recovery import ApplicationSpace, CountingWindow, Recovery
from bicoastal.transports.quic.sent_packets import SentPacket, SentPackets
from bicoastal.transports.quic.streams import Incoming, OutgoingControl, OutgoingMessage
from bicoastal.transports.quic.wire import (
    CONNECTION_ID_BYTES,
    NUMBER_BYTES,
    RESERVED,
    TAG_BYTES,
    OtherPhase,
    Protection,
    Rejected,
    count_packets,
)
from bicoastal.wan.units import INFINITY

PEER = "peer"  # the only network address there is: a path is one pair of addresses
MAX_ACK_DELAY_MS = 5  # told to the peer: our ACK timer, and what a real clock adds to it
TIMER_SLACK_S = 1e-6  # aioquic's loss timer is set to sent + delay and tested as sent <= now - delay: rounding differs
KEY_LIMIT_PACKETS = 1 << 22  # after which keys are updated: RFC 9001 §6.6 allows AES-GCM 2^23
_PING = b"\x01"


class _AckOfAck:
    """The cargo of an ACK frame whose acknowledgement was asked for."""

    def __init__(self, received: ReceivedPackets) -> None:
        self._received = received
        self.outstanding = False

    def on_acked(self, packet: SentPacket) -> None:
        """Forget what the peer now knows: everything up to the largest number of the ACK frame."""
        self._received.settle(packet.span[0])
        self.outstanding = False

    def on_lost(self, packet: SentPacket) -> None:
        """Let a later ACK ask again."""
        self.outstanding = False


class BulkConnection:
    """One end of a connection, over one path.

    sent, received: the packets of the two directions. continuous: incoming streams are handed on as they arrive;
    otherwise each one when it is whole. The owner calls `connect` (a client), `receive`, `outgoing`, `timer`,
    `on_timer` and `next_event`.
    """

    def __init__(
        self,
        *,
        configuration: QuicConfiguration,
        rng: Rng,
        pinned: x509.Certificate | None,
        sent: SentPackets,
        received: ReceivedPackets,
        path_id: int,
        continuous: bool,
        original_destination_connection_id: bytes | None = None,
    ) -> None:
        self.sent = sent
        self.received = received
        self.last_heard_s = -INFINITY
        self._space = ApplicationSpace(received)
        self._aioquic = AioquicConnection(
            configuration=configuration,
            rng=rng,
            pinned=pinned,
            max_ack_delay_ms=MAX_ACK_DELAY_MS,
            make_recovery=lambda send_probe: Recovery(
                configuration=configuration, sent=sent, send_probe=send_probe, on_loss=self.look_again
            ),
            application_space=self._space,
            make_window=CountingWindow,
            make_receiver=lambda stream_id: Incoming(stream_id, continuous=continuous),
            original_destination_connection_id=original_destination_connection_id,
        )
        self.packet_sender = PacketSender(
            path_id=path_id,
            sent=sent,
            datagram_bytes=configuration.max_datagram_size,
            credit=self._aioquic,
            seal=self._seal,
        )
        self._recovery = self._aioquic.recovery
        self._events: deque[QuicEvent] = deque()
        self._frames = FrameReader(
            aioquic=self._aioquic,
            sent=sent,
            packet_sender=self.packet_sender,
            events=self._events,
            look_again=self.look_again,
        )
        self._datagram_bytes = configuration.max_datagram_size
        self._is_client = configuration.is_client
        self._look = False  # aioquic may have something to send
        self._keys: tuple[Protection, Protection] | None = None  # to receive with, to send with
        self._old_keys: Protection | None = None  # for packets that left before an update of the keys
        self._keys_end = 0  # the packet number at which the keys are updated
        self._update_wanted = False
        self._ack_of_ack = _AckOfAck(received)
        self._control: OutgoingControl | None = None

    def connect(self, now: float) -> None:
        """Begin the handshake. Only for a client, and once."""
        self._aioquic.connect(PEER, now)

    def close(self, *, error_code: int, reason: str) -> None:
        """Close the connection, and tell the peer why."""
        self._aioquic.close(error_code=error_code, reason_phrase=reason)
        self._look = True

    def look_again(self) -> None:
        """Ask aioquic at the next `outgoing` what it has to send."""
        self._look = True

    @property
    def packet_bytes(self) -> int:
        """How many octets of frames a packet holds."""
        return self._datagram_bytes - 1 - len(self._aioquic.peer_connection_id) - NUMBER_BYTES - TAG_BYTES

    @property
    def is_open(self) -> bool:
        """Tell whether application data can be sent: this end's handshake is complete, and no end has closed."""
        return self._keys is not None and not self._aioquic.ended

    # -- what the application offers ----------------------------------------------------------------------------------

    def open_message(self, message_id: int, data: Buffer) -> None:
        """Send a message on a stream of its own. Only while `is_open`."""
        packet_bytes = self.packet_bytes
        stream, message = self._aioquic.open_stream(
            lambda stream_id: OutgoingMessage(stream_id, message_id, data, packet_bytes=packet_bytes)
        )
        self.packet_sender.add(stream, message)
        self._look = self._look or stream.is_blocked

    def append_control(self, data: bytes) -> None:
        """Send octets on the control stream, the first that this end opens. Only while `is_open`."""
        if self._control is None:
            packet_bytes = self.packet_bytes
            stream, self._control = self._aioquic.open_stream(
                lambda stream_id: OutgoingControl(stream_id, packet_bytes=packet_bytes)
            )
            self.packet_sender.add(stream, self._control)
        self._control.append(data)

    def finish_stream(self, stream_id: int) -> None:
        """End this end's half of a stream that the peer has opened; nothing was sent on it."""
        self._aioquic.send_stream_data(stream_id, b"", end_stream=True)

    def probe(self, now: float) -> None:
        """Send something that asks for an acknowledgement: CRYPTO data that the handshake still owes, or a PING.

        RFC 9002 §6.2.3 lets an endpoint send unacknowledged CRYPTO data earlier than the probe timer would, a limited
        number of times.
        """
        if self._aioquic.confirmed:
            self.sent.probe(now)
        else:
            self._recovery.reschedule_data(now=now)
            self._look = True

    # -- receiving ----------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> bool:
        """Take the payload of a UDP datagram; tell whether every packet in it was genuine."""
        aioquic = self._aioquic
        if aioquic.ended:
            return False
        keys = self._keys
        if keys is not None and data[:1] and data[0] & 0xC0 == 0x40 and data[1:9] == aioquic.host_cid:
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

    def _receive_fast(self, number: int, payload: bytes, now: float) -> None:
        received = self.received
        if not received.add(number, now):
            return
        self.last_heard_s = now
        try:
            eliciting = self._frames.read(payload, now)
        except QuicConnectionError as error:
            self._aioquic.close(
                error_code=error.error_code, frame_type=error.frame_type, reason_phrase=error.reason_phrase
            )
            self._look = True
            return
        if self._look:
            self._follow(now)
        self._aioquic.keep_alive(now)
        if eliciting:
            received.owe(now)

    def _receive_slow(self, data: bytes, now: float) -> bool:
        """Let aioquic have a datagram; tell whether it took every packet in it."""
        count, sound = count_packets(data, id_bytes=CONNECTION_ID_BYTES)
        aioquic = self._aioquic
        accepted = 0
        if aioquic.get_peer_address() is not None or not self._is_client:
            if aioquic.initialized:
                self._space.now = now
                self.sent.next_number = aioquic.next_number
            accepted = aioquic.receive(data, PEER, now)
        self._look = True
        self._follow(now)
        if aioquic.initialized and self._space.ack_at is not None:
            self._space.ack_at = None
            self.received.owe(now)
        if accepted:
            self.last_heard_s = now
        return sound and accepted == count

    def _follow(self, now: float) -> None:
        """Take over what aioquic has come to: events, the end of the handshake, keys that the peer has updated."""
        aioquic = self._aioquic
        self._events += aioquic.drain_events()
        if aioquic.confirmed:
            self.sent.confirmed = True
        if aioquic.complete:
            self._follow_keys(now)
        self._update_keys(now)

    def _follow_keys(self, now: float) -> None:
        """Use the keys that aioquic uses: at the end of the handshake, and after the peer has updated them."""
        pair = self._aioquic.keys
        if pair is None:
            return
        keys = self._keys
        if keys is None:
            self.sent.peer_ack_delay_s = self._recovery.max_ack_delay
            if self._recovery.handshake_rtt_s is not None:
                self.sent.rtt.sample(self._recovery.handshake_rtt_s, now, handshake=True)
            self._keys = Protection(pair.recv), Protection(pair.send)
        elif keys[0].secret != pair.recv.secret:
            self._old_keys = keys[0]
            self._keys = Protection(pair.recv, keys[0]), Protection(pair.send, keys[1])
        else:
            return
        self._keys_end = self._aioquic.next_number + KEY_LIMIT_PACKETS

    def request_key_update(self, now: float = -INFINITY) -> None:
        """Update the keys now; before the handshake is confirmed, as soon as it is (RFC 9001 §6.1)."""
        self._update_wanted = True
        self._update_keys(now)

    def _update_keys(self, now: float) -> None:
        if self._update_wanted and self._keys is not None and self._aioquic.confirmed:
            self._update_wanted = False
            self._aioquic.update_keys()
            self._follow_keys(now)

    # -- sending ------------------------------------------------------------------------------------------------------

    def outgoing(self, now: float) -> list[Outgoing]:
        """Return, and forget, what is to be sent; departures never decrease."""
        out: list[Outgoing] = []
        aioquic, packet_sender = self._aioquic, self.packet_sender
        if self._look or not aioquic.confirmed:
            depart_at = max(now, packet_sender.last_departure_s)
            datagrams = aioquic.datagrams_to_send(now) if aioquic.get_peer_address() is not None else []
            if self._recovery.expired:
                self._recovery.expired = False
                if len(datagrams) == 1:  # RFC 9002 §6.2.4: two, since otherwise the next expiry is twice as far
                    self._recovery.reschedule_data(now=now)
                    datagrams += aioquic.datagrams_to_send(now)
            for data, _ in datagrams:
                out.append(Outgoing(data, depart_at))
                packet_sender.packets += 1
            self._look = aioquic.has_pending()
            self._follow(now)
        if self._keys is None or aioquic.ended:
            return out
        if self.received.ack_at <= now:
            out.append(self._acknowledge(now))
        out += packet_sender.fill(now)
        return out

    def _acknowledge(self, now: float) -> Outgoing:
        frame, largest, ask = self.received.frame(now)
        depart_at = max(now, self.packet_sender.last_departure_s)
        ask = ask and not self._ack_of_ack.outstanding
        number, packet = self._seal(frame + _PING if ask else frame)
        if ask:
            self._ack_of_ack.outstanding = True
            self.sent.add(SentPacket(number, depart_at, len(packet), self._ack_of_ack, span=(largest, largest)))
        self.packet_sender.packets += 1
        return Outgoing(packet, depart_at)

    def _seal(self, frames: bytes) -> tuple[int, bytes]:
        """Return the next packet number and its packet."""
        aioquic = self._aioquic
        number = aioquic.take_number()
        if number >= self._keys_end and aioquic.confirmed:
            self.request_key_update()
        keys = self._keys
        if keys is None:
            raise RuntimeError("there are no keys yet")
        return number, keys[1].protect(aioquic.peer_connection_id, number, frames)

    # -- time and events ----------------------------------------------------------------------------------------------

    def timer(self) -> float:
        """Return when `on_timer` or `outgoing` is due (inf: never)."""
        aioquic = self._aioquic
        close_at = aioquic.close_at
        at = INFINITY if close_at is None else close_at
        if aioquic.ended:
            return at
        if close_at is not None and not aioquic.confirmed:
            at = min(at, (aioquic.get_timer() or INFINITY) + TIMER_SLACK_S)
        if self._keys is not None:
            at = min(at, self.received.ack_at, self.sent.timer(), self.packet_sender.pace_at)
        return at

    def on_timer(self, now: float) -> None:
        """Let aioquic's timer and the loss timer act, if their time has come."""
        aioquic = self._aioquic
        close_at = aioquic.close_at
        if (close_at is not None and now >= close_at) or not aioquic.confirmed:
            aioquic.handle_timer(now)
            self._look = True
            self._follow(now)
        if self._keys is not None and not aioquic.ended:
            self.sent.on_timer(now)

    def next_event(self) -> QuicEvent | None:
        """Return aioquic's oldest event, or None."""
        return self._events.popleft() if self._events else None
