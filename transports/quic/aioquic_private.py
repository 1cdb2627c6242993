"""The only module that uses names of aioquic which are private or undocumented, and the list of them.

aioquic's documented interface carries whole connections: datagrams, events and timers. It does not let a caller choose
the random numbers, pin a certificate, share packet numbers, or receive octets without copying them. For these the names
in `PRIVATE_NAMES` and `UNDOCUMENTED_MODULES` are needed. A test compares both with the installed aioquic, so that an
upgrade which drops a name fails with the name and the reason.

`AioquicConnection` gives every use a public name. The rest of this package holds one, and derives from none of
aioquic's classes that are not exported here.
"""

from collections.abc import Callable
from types import MethodType
from typing import Any, TypeVar, cast

from aioquic import tls
from aioquic._buffer import Buffer as AioquicBuffer
from aioquic._crypto import CryptoError
from aioquic.quic import connection as quic
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import END_STATES, QuicConnectionError, QuicConnectionState, QuicReceiveContext
from aioquic.quic.crypto import CryptoPair, apply_key_phase, next_key_phase
from aioquic.quic.events import HandshakeCompleted, QuicEvent
from aioquic.quic.packet import QuicHeader, QuicTransportParameters
from aioquic.quic.packet_builder import QuicDeliveryState, QuicSentPacket
from aioquic.quic.rangeset import RangeSet as AioquicRangeSet
from aioquic.quic.recovery import QuicPacketNumberWindow, QuicPacketPacer, QuicPacketRecovery, QuicPacketSpace
from aioquic.quic.stream import FinalSizeError, QuicStream, QuicStreamReceiver, QuicStreamSender, StreamFinishedError
from cryptography import x509

from bicoastal.transports.base import Rng
from bicoastal.transports.quic.seeding import SeededSources, with_globals

__all__ = [
    "AioquicBuffer",
    "AioquicConnection",
    "AioquicRangeSet",
    "CryptoError",
    "FinalSizeError",
    "HandshakeRecovery",
    "QuicConnectionError",
    "QuicDeliveryState",
    "QuicPacketNumberWindow",
    "QuicPacketSpace",
    "QuicSentPacket",
    "QuicStream",
    "QuicStreamSender",
    "StreamReceiver",
]

Sender = TypeVar("Sender", bound=QuicStreamSender)

UNDOCUMENTED_MODULES = {
    "aioquic._buffer": "the public aioquic.buffer imports Buffer from it without exporting it to type checkers",
    "aioquic._crypto": "CryptoError is defined there; it tells a forged client hello from a fault of ours",
    "aioquic.quic.connection": "the context, the errors and the states of a connection, besides QuicConnection",
    "aioquic.quic.packet_builder": "the packets that recovery is told of, and what became of them",
    "aioquic.quic.rangeset": "the ranges in which recovery is told of acknowledgements",
    "aioquic.quic.recovery": "loss recovery and packet-number spaces, which this package replaces after the handshake",
    "aioquic.quic.stream": "the two halves of a stream, which this package replaces to avoid copies",
}

PRIVATE_NAMES = {
    "QuicConnection": {
        "_assert_stream_can_receive": "a STREAM frame that is read here needs the check of RFC 9000 §19.8",
        "_close_at": "a packet that is read here postpones the idle timeout (RFC 9000 §10.1)",
        "_close_pending": "tells that a CONNECTION_CLOSE waits to be sent",
        "_cryptos": "the keys of 1-RTT packets, which both ways of sending share",
        "_get_or_create_stream": "the stream of a STREAM frame that is read here, with a receiver of this package",
        "_get_or_create_stream_for_send": "a stream whose data is sent here, with a sender of this package",
        "_handshake_done_pending": "tells that HANDSHAKE_DONE waits to be sent",
        "_host_cids": "tells that a NEW_CONNECTION_ID frame waits to be sent",
        "_idle_timeout": "how long a packet that is read here postpones the idle timeout",
        "_initialize": "makes the TLS context and the packet-number spaces, which are adapted there",
        "_local_max_data": "flow control of the whole connection counts the data that is read here",
        "_loss": "is replaced by the recovery of this package",
        "_network_paths": "a frame that aioquic acts on needs the network path on which it came",
        "_packet_number": "both ways of sending share one sequence of packet numbers",
        "_payload_received": "acts on the frames that are too rare to be read here, and counts genuine packets",
        "_peer_cid": "the connection identifier of the packets that are sent here",
        "_ping_pending": "tells that a PING waits to be sent",
        "_probe_pending": "tells that a probe waits to be sent",
        "_receive_version_negotiation_packet": "is ignored: one version is spoken",
        "_remote_max_data": "flow control: how much stream data the peer takes in all",
        "_remote_max_data_used": "flow control: how much of it is used",
        "_replenish_connection_ids": "draws connection identifiers with os.urandom",
        "_retire_connection_ids": "tells that a RETIRE_CONNECTION_ID frame waits to be sent",
        "_send_probe": "the recovery of this package asks for probes by it",
        "_serialize_transport_parameters": "writes a max_ack_delay of 25 ms, whatever the acknowledgement timer is",
        "_set_state": "tells when the connection begins to close",
        "_spaces": "the packet-number spaces, of which the one of 1-RTT packets is replaced",
        "_streams": "the open streams, found without a call for each STREAM frame",
        "_streams_blocked_pending": "tells that a STREAMS_BLOCKED frame waits to be sent",
        "_version": "a frame that aioquic acts on needs the version of its packet",
        "_write_path_challenge_frame": "draws challenges with os.urandom",
    },
    "tls.Context": {
        "_client_handle_certificate_verify": "verifies certificates against the clock and the installed authorities",
        "_client_send_hello": "draws the key share with x25519 and the random with os.urandom",
        "_peer_certificate": "the client's certificate, which is compared with the pinned one",
        "_request_client_certificate": "lets a server ask for the client's certificate",
        "_server_handle_certificate": "accepts any certificate, and none",
        "_server_handle_hello": "draws the key share with x25519 and the random with os.urandom",
        "_supported_groups": "is narrowed to X25519, the one group whose keys can be made from a seed",
    },
    "QuicPacketRecovery": {
        "_pacer": "is replaced by one that does not pace: aioquic sends a handful of packets by itself",
        "_rtt_initialized": "tells whether the handshake has measured a round trip",
        "_rtt_latest": "the round trip that the handshake has measured",
    },
    "QuicStreamReceiver": {
        "_final_size": "RESET_STREAM, which aioquic reads, must agree with the end of the data (RFC 9000 §4.5)",
    },
}


class _Unpaced(QuicPacketPacer):
    """A pacer that never delays a packet."""

    def update_rate(self, congestion_window: int, smoothed_rtt: float) -> None:
        """Set no rate."""


class HandshakeRecovery(QuicPacketRecovery):
    """aioquic's loss recovery, without pacing. expired: its probe timer has, and the caller has not answered yet."""

    def __init__(self, *, configuration: QuicConfiguration, send_probe: Callable[[], None]) -> None:
        super().__init__(
            congestion_control_algorithm="reno",
            initial_rtt=configuration.initial_rtt,
            max_datagram_size=configuration.max_datagram_size,
            peer_completed_address_validation=not configuration.is_client,
            send_probe=send_probe,
        )
        self._pacer = _Unpaced(max_datagram_size=configuration.max_datagram_size)
        self.expired = self.rescheduled = False

    def on_loss_detection_timeout(self, *, now: float) -> None:
        """Act on the handshake's timer: its packets are lost, or their data is scheduled again for a probe."""
        self.rescheduled = False
        super().on_loss_detection_timeout(now=now)
        self.expired = self.rescheduled

    def reschedule_data(self, *, now: float, speed_up_handshake: bool = False) -> None:
        """Schedule data for a probe."""
        self.rescheduled = True
        super().reschedule_data(now=now, speed_up_handshake=speed_up_handshake)

    @property
    def handshake_rtt_s(self) -> float | None:
        """The round trip that the handshake has measured; None before."""
        return self._rtt_latest if self._rtt_initialized else None


class StreamReceiver(QuicStreamReceiver):
    """The receiving half of a stream; final_bytes: the offset of its end, None as long as it is not known."""

    def __init__(self, stream_id: int) -> None:
        super().__init__(stream_id=stream_id, readable=True)
        self.stream_id = stream_id

    @property
    def final_bytes(self) -> int | None:
        """Return where the stream ends."""
        return self._final_size

    @final_bytes.setter
    def final_bytes(self, size: int) -> None:
        self._final_size = size


class AioquicConnection(quic.QuicConnection):
    """aioquic's connection with random numbers of ours, a pinned certificate, and public names for what is shared.

    rng: draws connection identifiers, hello randoms and key shares. pinned: the only certificate that is accepted from
    the peer; None for a server that accepts clients without one. max_ack_delay_ms: what the peer is told.
    make_recovery(send_probe): returns the loss recovery. application_space: the packet-number space of 1-RTT packets.
    make_window(on_duplicate): returns the received packet numbers of a handshake space. make_receiver(stream_id):
    returns what receives a stream.

    ended: the connection is closing or closed. complete: this end's handshake is complete.
    """

    def __init__(
        self,
        *,
        configuration: QuicConfiguration,
        rng: Rng,
        pinned: x509.Certificate | None,
        max_ack_delay_ms: int,
        make_recovery: Callable[[Callable[[], None]], HandshakeRecovery],
        application_space: QuicPacketSpace,
        make_window: Callable[[Callable[[], None]], QuicPacketNumberWindow],
        make_receiver: Callable[[int], StreamReceiver],
        original_destination_connection_id: bytes | None = None,
    ) -> None:
        self.seeded = seeded = SeededSources(rng)
        self.pinned = pinned
        self.max_ack_delay_ms = max_ack_delay_ms
        self.application_space = application_space
        self.make_window = make_window
        self.make_receiver = make_receiver
        self.ended = self.complete = False
        self.accepted = 0  # genuine packets of the present datagram
        with_globals(quic.QuicConnection.__init__, os=seeded.os)(
            self,
            configuration=configuration,
            original_destination_connection_id=original_destination_connection_id,
        )
        self.recovery = self._loss = make_recovery(self._send_probe)
        for name in ("_replenish_connection_ids", "_write_path_challenge_frame"):
            method = with_globals(getattr(quic.QuicConnection, name), os=seeded.os)
            setattr(self, name, MethodType(method, self))

    # -- hooks that aioquic calls --------------------------------------------------------------------------------------

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        context, is_client = self.tls, self.configuration.is_client
        if is_client:
            context.client_random = self.seeded.urandom(32)
        context._supported_groups = [tls.Group.X25519]
        for name in ("_client_send_hello", "_server_handle_hello", "_client_handle_certificate_verify"):
            method = with_globals(
                getattr(tls.Context, name), os=self.seeded.os, x25519=self.seeded.x25519, verify_certificate=self.verify
            )
            setattr(context, name, MethodType(method, context))
        if not is_client and self.pinned is not None:
            context._request_client_certificate = True
            setattr(context, "_server_handle_certificate", self.take_client_certificate)  # noqa: B010 (a method)
        for epoch in (tls.Epoch.INITIAL, tls.Epoch.HANDSHAKE):
            self._spaces[epoch].received_packets = self.make_window(self.count_accepted)
        self._spaces[tls.Epoch.ONE_RTT] = self.application_space
        self.recovery.spaces = list(self._spaces.values())

    def take_client_certificate(self, octets: AioquicBuffer) -> None:
        """Take the client's certificate, which must be the pinned one. aioquic checks its signature later."""
        tls.Context._server_handle_certificate(self.tls, octets)
        self.verify(certificate=self.tls._peer_certificate)

    def verify(self, *, certificate: x509.Certificate | None, **_: object) -> None:
        """Raise AlertBadCertificate for any certificate but the pinned one."""
        if certificate != self.pinned:
            peer = "server" if self.configuration.is_client else "client"
            raise tls.AlertBadCertificate(f"the {peer}'s certificate is not the pinned one")

    def count_accepted(self) -> None:
        """Count a genuine packet that aioquic does not act on, because it is a duplicate."""
        self.accepted += 1

    def _serialize_transport_parameters(self) -> bytes:
        def parameters(**values: Any) -> QuicTransportParameters:
            return QuicTransportParameters(**(values | {"max_ack_delay": self.max_ack_delay_ms}))

        original = quic.QuicConnection._serialize_transport_parameters
        return cast(bytes, with_globals(original, QuicTransportParameters=parameters)(self))

    def _receive_version_negotiation_packet(self, header: QuicHeader, now: float) -> None:
        """Ignore it: one version is spoken, and nothing authenticates such a packet (RFC 9000 §6.2 would close)."""

    def _set_state(self, state: QuicConnectionState) -> None:
        super()._set_state(state)
        self.ended = state in END_STATES

    def _payload_received(
        self, context: QuicReceiveContext, plain: bytes, crypto_frame_required: bool = False
    ) -> tuple[bool, bool]:
        self.accepted += 1
        return super()._payload_received(context, plain, crypto_frame_required)

    def _get_or_create_stream(self, frame_type: int, stream_id: int) -> QuicStream:
        stream = super()._get_or_create_stream(frame_type, stream_id)
        if not isinstance(stream.receiver, StreamReceiver):
            stream.receiver = self.make_receiver(stream.stream_id or 0)
        return stream

    # -- the connection ------------------------------------------------------------------------------------------------

    @property
    def confirmed(self) -> bool:
        """Tell whether both ends know that the handshake is complete (RFC 9001 §4.1.2)."""
        return self.recovery.handshake_confirmed

    @property
    def initialized(self) -> bool:
        """Tell whether there are packet-number spaces."""
        return bool(self._spaces)

    @property
    def peer_connection_id(self) -> bytes:
        """The connection identifier of packets to the peer."""
        return self._peer_cid.cid

    @property
    def next_number(self) -> int:
        """The number of the next packet."""
        return self._packet_number

    def take_number(self) -> int:
        """Return the number of the next packet, which is used by the caller."""
        number = self._packet_number
        self._packet_number = number + 1
        return number

    @property
    def close_at(self) -> float | None:
        """When the idle or closing period ends, seconds; None when there is none."""
        return self._close_at

    def keep_alive(self, now: float) -> None:
        """Begin the idle period again: a genuine packet has arrived."""
        self._close_at = now + self._idle_timeout()

    def receive(self, data: bytes, peer: str, now: float) -> int:
        """Take a datagram; return how many of its packets are genuine."""
        self.accepted = 0
        self.receive_datagram(data, peer, now)
        return self.accepted

    def drain_events(self) -> list[QuicEvent]:
        """Return, and forget, the events since the last call, the oldest first."""
        events = []
        while (event := self.next_event()) is not None:
            self.complete = self.complete or isinstance(event, HandshakeCompleted)
            events.append(event)
        return events

    def handle_frames(self, payload: bytes, now: float) -> bool:
        """Act on the frames of a 1-RTT packet; tell whether one asks for an acknowledgement.

        Raises QuicConnectionError.
        """
        context = QuicReceiveContext(
            epoch=tls.Epoch.ONE_RTT,
            host_cid=self.host_cid,
            network_path=self._network_paths[0],
            quic_logger_frames=None,
            time=now,
            version=self._version,
        )
        return self._payload_received(context, payload)[0]

    def has_pending(self) -> bool:
        """Tell whether frames other than of streams wait to be sent: the window did not let them leave."""
        return bool(
            self._close_pending
            or self._handshake_done_pending
            or self._probe_pending
            or self._ping_pending
            or self._retire_connection_ids
            or self._streams_blocked_pending
            or any(not identifier.was_sent for identifier in self._host_cids)
        )

    # -- keys ----------------------------------------------------------------------------------------------------------

    @property
    def keys(self) -> CryptoPair | None:
        """The keys of 1-RTT packets; None until both directions have them."""
        pair = self._cryptos[tls.Epoch.ONE_RTT]
        return pair if pair.recv.is_valid() and pair.send.is_valid() else None

    def update_keys(self) -> None:
        """Use the next keys from now on, in both directions (RFC 9001 §6.1)."""
        pair = self._cryptos[tls.Epoch.ONE_RTT]
        for context in (pair.recv, pair.send):
            apply_key_phase(context, next_key_phase(context), trigger="local_update")

    # -- streams and flow control --------------------------------------------------------------------------------------

    def open_stream(self, make_sender: Callable[[int], Sender]) -> tuple[QuicStream, Sender]:
        """Return a new unidirectional stream, and what make_sender(stream_id) has returned to send its data."""
        stream_id = self.get_next_available_stream_id(is_unidirectional=True)
        stream = self._get_or_create_stream_for_send(stream_id)
        stream.sender = sender = make_sender(stream_id)
        return stream, sender

    def receiving_stream(self, frame_type: int, stream_id: int) -> QuicStream | None:
        """Return the stream of a STREAM frame; None for one that is finished. Raises QuicConnectionError."""
        self._assert_stream_can_receive(frame_type, stream_id)
        stream = self._streams.get(stream_id)
        if stream is not None and isinstance(stream.receiver, StreamReceiver):
            return stream
        try:
            return self._get_or_create_stream(frame_type, stream_id)
        except StreamFinishedError:
            return None

    @property
    def receive_limit(self) -> quic.Limit:
        """How much stream data the peer may send on the whole connection, and how much it has (RFC 9000 §4.1)."""
        return self._local_max_data

    def credit_left(self) -> int:
        """Return how much new stream data the peer takes."""
        return self._remote_max_data - self._remote_max_data_used

    def use_credit(self, size: int) -> None:
        """Use some of the credit."""
        self._remote_max_data_used += size
