"""One end of a QUIC connection over one path: it is made, connected, given datagrams, and at last given up.

It carries two things for a multipath transport. Symbols go in DATAGRAM frames (RFC 9221): they are unreliable and
unordered, and the outcome of each is told. Control octets go on a stream: they are reliable and in order. The owner is
asked for a symbol whenever window and pace let another packet leave, so that no symbol is assigned to a path early.

The owner calls `receive` or `handle_timer`, then `take_symbols`, `take_reports` and `take_control`, then
`datagrams_to_send` of every path (an event on one path may free a symbol for another), and at last `get_timer`.
"""

from collections.abc import Callable

from aioquic.quic.crypto import CryptoPair
from aioquic.quic.events import ConnectionTerminated, DatagramFrameReceived, StreamDataReceived
from aioquic.quic.packet import QuicErrorCode, QuicPacketType, QuicProtocolVersion, pull_quic_header

from bicoastal.transports.base import Counters, Datagram, PathView, Rng
from bicoastal.transports.congestion.base import CongestionControl
from bicoastal.transports.events import Buffer
from bicoastal.transports.quic.aioquic_private import AioquicBuffer, CryptoError
from bicoastal.transports.quic.connection import BulkConnection
from bicoastal.transports.quic.credentials import Credentials, make_configuration
from bicoastal.transports.quic.packet_sender import SYMBOL_HEADER_BYTES
from bicoastal.transports.quic.received_packets import ReceivedPackets
from bicoastal.transports.quic.sent_packets import SentPackets
from bicoastal.transports.quic.streams import IDENTIFIER_BYTES
from bicoastal.transports.quic.symbols import SymbolOutcome, SymbolSource
from bicoastal.transports.quic.wire import CONNECTION_ID_BYTES, NUMBER_BYTES, TAG_BYTES
from bicoastal.transports.recovery.rtt import RttEstimator
from bicoastal.wan.checks import FieldError
from bicoastal.wan.units import INFINITY

HEADERS_BYTES = 20 + 8  # IP and UDP
MIN_MTU_BYTES = 1200 + HEADERS_BYTES  # RFC 9000 §14
ACK_EVERY, ACK_DELAY_S = 16, 0.001
HANDSHAKE_LIMIT_S = 120.0
UNKNOWN_RTT_S = 0.1  # taken for the round trip before anything is known


class PathConnection:
    """A QUIC connection over `view`.

    role: "client" begins the handshake with the first `datagrams_to_send`; a "server" waits for it. credentials: the
    server's; a client needs only the certificate, which it pins, and its own if the server asks for one.
    make_congestion(mss_bytes) returns the controller. continuous: streams carry control octets; otherwise each
    stream is a message. datagram_bytes, an attribute, is the largest UDP payload.
    source: is asked for symbols; set it before the first `datagrams_to_send`. pace_bps: the rate of UDP payload at
    which packets leave; None leaves it to the controller. failure: why the connection ended, in one sentence, or empty.
    Raises FieldError for an MTU that is too small for QUIC, and for a server without a private key.
    """

    def __init__(
        self,
        *,
        role: str,
        view: PathView,
        rng: Rng,
        credentials: Credentials,
        make_congestion: Callable[[int], CongestionControl],
        continuous: bool,
    ) -> None:
        if role != "client" and credentials.private_key is None:
            raise FieldError("credentials", "a server needs the private key")
        datagram_bytes = view.mtu_bytes - HEADERS_BYTES
        self.path_id = view.path_id
        self.datagram_bytes = datagram_bytes
        self.symbol_bytes = datagram_bytes - 1 - CONNECTION_ID_BYTES - NUMBER_BYTES - TAG_BYTES - SYMBOL_HEADER_BYTES
        self.failure = ""
        self.congestion = make_congestion(datagram_bytes)
        self.rtt = RttEstimator()
        self._client = role == "client"
        self._rng = rng
        self._credentials = credentials
        self._continuous = continuous
        self._configuration = make_configuration(
            is_client=self._client, credentials=credentials, max_datagram_bytes=datagram_bytes
        )
        self._source: SymbolSource | None = None
        self._pace_bps: float | None = None
        self._symbols: list[bytes] = []
        self._control = bytearray()
        self._messages: list[tuple[int, Buffer]] = []
        self._rejected = 0
        self._begun_s: float | None = None
        self._connection = self._connect(None) if self._client else None

    def _connect(self, original_destination: bytes | None) -> BulkConnection:
        sent = SentPackets(congestion=self.congestion, rtt=self.rtt)
        trusted = self._credentials if self._client else self._credentials.client
        connection = BulkConnection(
            configuration=self._configuration,
            rng=self._rng,
            pinned=trusted.certificate if trusted is not None else None,
            sent=sent,
            received=ReceivedPackets(ack_every=ACK_EVERY, ack_delay_s=ACK_DELAY_S),
            path_id=self.path_id,
            continuous=self._continuous,
            original_destination_connection_id=original_destination,
        )
        connection.packet_sender.source, connection.packet_sender.pace_bps = self._source, self._pace_bps
        return connection

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """The handshake is complete, and no end has closed the connection."""
        return self._connection is not None and self._connection.is_open and not self.failure

    @property
    def rtt_s(self) -> float:
        """The smoothed round trip, a guess before the first sample."""
        return self.rtt.srtt_s or UNKNOWN_RTT_S

    @property
    def confirmed(self) -> bool:
        """Both ends know that the handshake is over (RFC 9001 §4.1.2)."""
        return self._connection is not None and self._connection.sent.confirmed

    @property
    def source(self) -> SymbolSource | None:
        """What is asked for symbols."""
        return self._source

    @source.setter
    def source(self, source: SymbolSource | None) -> None:
        self._source = source
        if self._connection is not None:
            self._connection.packet_sender.source = source

    @property
    def pace_bps(self) -> float | None:
        """The pace that overrides the controller's."""
        return self._pace_bps

    @pace_bps.setter
    def pace_bps(self, pace_bps: float | None) -> None:
        self._pace_bps = pace_bps
        if self._connection is not None:
            self._connection.packet_sender.pace_bps = pace_bps

    @property
    def in_flight_bytes(self) -> int:
        """UDP payload that is sent, and neither acknowledged nor declared lost; bytes."""
        return self._connection.sent.in_flight if self._connection is not None else 0

    @property
    def oldest_in_flight_s(self) -> float | None:
        """When the oldest packet in flight left; None when none is in flight."""
        oldest = self._connection.sent.oldest() if self._connection is not None else None
        return None if oldest is None else oldest.sent_s

    def awaited(self, after_s: float, until_s: float) -> tuple[int, float, float]:
        """Return how many packets in flight left after `after_s` and until `until_s`, and the first and last times."""
        if self._connection is None:
            return 0, INFINITY, -INFINITY
        return self._connection.sent.awaited(after_s, until_s)

    @property
    def last_heard_s(self) -> float:
        """When the last genuine packet arrived."""
        return self._connection.last_heard_s if self._connection is not None else -INFINITY

    @property
    def latest_rtt_s(self) -> float:
        """The latest round-trip sample after the handshake; 0 before the first."""
        return self._connection.sent.latest_rtt_s if self._connection is not None else 0.0

    @property
    def peer_ack_delay_s(self) -> float:
        """How long the peer may delay an acknowledgement, as it has announced."""
        return self._connection.sent.peer_ack_delay_s if self._connection is not None else 0.025

    @property
    def pacing_rate_bps(self) -> float | None:
        """The pace at present, bit/s of UDP payload; None when nothing sets one yet."""
        return self._connection.packet_sender.rate_bps() if self._connection is not None else self._pace_bps

    def counters(self) -> Counters:
        """Return what has been counted."""
        connection = self._connection
        if connection is None:
            return Counters(rejected=self._rejected)
        packet_sender, sent = connection.packet_sender, connection.sent
        return Counters(
            packets=packet_sender.packets,
            repairs=packet_sender.repairs,
            probes=packet_sender.probes,
            timeouts=sent.timeouts,
            spurious=sent.spurious,
            rejected=self._rejected,
        )

    # -- verbs ---------------------------------------------------------------------------------------------------------

    def receive(self, octets: bytes, now: float) -> None:
        """Take the payload of a UDP datagram."""
        connection = self._connection
        if connection is None:
            destination = self._client_hello(octets)
            if destination is None:
                self._rejected += 1
                return
            connection = self._connection = self._connect(destination)
            self._begun_s = now
        if not connection.receive(octets, now):
            self._rejected += 1
        self._drain(connection)

    def _client_hello(self, octets: bytes) -> bytes | None:
        """Return the connection identifier of a genuine first packet of a client, None when it is anything else."""
        buffer = AioquicBuffer(data=octets)
        try:
            header = pull_quic_header(buffer, host_cid_length=CONNECTION_ID_BYTES)
            if (
                header.packet_type != QuicPacketType.INITIAL
                or header.version != QuicProtocolVersion.VERSION_1
                or len(octets) < 1200  # RFC 9000 §14.1
            ):
                return None
            pair = CryptoPair()
            pair.setup_initial(cid=header.destination_cid, is_client=False, version=header.version)
            pair.decrypt_packet(octets[: header.packet_length], buffer.tell(), 0)
        except (ValueError, CryptoError):
            return None
        return header.destination_cid

    def datagrams_to_send(self, now: float) -> list[Datagram]:
        """Return, and forget, the packets that may leave now or within the pacing horizon (`depart_at`)."""
        connection = self._connection
        if connection is None:
            return []
        if self._client and self._begun_s is None:
            self._begun_s = now
            connection.connect(now)
        path_id = self.path_id
        return [
            Datagram(path_id, data, HEADERS_BYTES + len(data), depart_at, 0, burst_left)
            for data, depart_at, burst_left in connection.outgoing(now)
        ]

    def get_timer(self) -> float | None:
        """Return when `handle_timer` is due."""
        connection = self._connection
        if connection is None or self.failure:
            return None
        at = connection.timer()
        if self._begun_s is not None and not connection.is_open:
            at = min(at, self._begun_s + HANDSHAKE_LIMIT_S)
        return None if at == INFINITY else at

    def handle_timer(self, now: float) -> None:
        """Act on every timer whose time has come."""
        connection = self._connection
        if connection is None or self.failure:
            return
        if self._begun_s is not None and not connection.is_open and now >= self._begun_s + HANDSHAKE_LIMIT_S:
            self.failure = "the far end does not answer"
            return
        connection.on_timer(now)
        self._drain(connection)

    def declare_lost(self, now: float, *, congestion: bool = False) -> None:
        """Declare all packets in flight lost, because the owner expects no acknowledgement of them.

        congestion: tell the controller, as for other losses; a path that has gone silent is no sign of congestion.
        """
        if self._connection is not None:
            self._connection.sent.declare_lost(now, congestion=congestion)

    def probe(self, now: float) -> None:
        """Send a probe now, whatever the probe timer says. The owner does so at most once per round trip."""
        if self._connection is not None and self._begun_s is not None and not self.failure:
            self._connection.probe(now)

    # -- what is carried ----------------------------------------------------------------------------------------------

    def begin_burst(self, now: float, burst_bytes: int, *, after_idle: str) -> None:
        """Tell the controller that `burst_bytes` are about to be sent, if nothing is in flight."""
        if self._connection is not None and not self._connection.sent.in_flight:
            self._connection.sent.begin_burst(now, burst_bytes, after_idle=after_idle)

    def send_control(self, data: bytes) -> None:
        """Queue octets on the control stream. Raises RuntimeError before `ready`."""
        self._open().append_control(data)

    def send_message(self, message_id: int, data: Buffer) -> None:
        """Send a message on a stream of its own. Raises RuntimeError before `ready`."""
        self._open().open_message(message_id, data)

    def _open(self) -> BulkConnection:
        if self._connection is None or not self.ready:
            raise RuntimeError(f"path {self.path_id} is not connected")
        return self._connection

    def take_symbols(self) -> list[bytes]:
        """Return, and forget, the symbols that arrived."""
        symbols, self._symbols = self._symbols, []
        return symbols

    def take_control(self) -> bytes:
        """Return, and forget, the control octets that arrived."""
        control = bytes(self._control)
        self._control.clear()
        return control

    def take_messages(self) -> list[tuple[int, Buffer]]:
        """Return, and forget, the messages that arrived, as (message_id, data)."""
        messages, self._messages = self._messages, []
        return messages

    def take_reports(self) -> list[SymbolOutcome]:
        """Return, and forget, the outcomes of symbols since the last call."""
        if self._connection is None:
            return []
        symbols = self._connection.packet_sender.symbols
        outcomes, symbols.outcomes = symbols.outcomes, []
        return outcomes

    def _drain(self, connection: BulkConnection) -> None:
        while (event := connection.next_event()) is not None:
            if isinstance(event, DatagramFrameReceived):
                self._symbols.append(event.data)
            elif isinstance(event, StreamDataReceived):
                if self._continuous:
                    self._control += event.data
                else:
                    self._take_message(event, connection)
            elif isinstance(event, ConnectionTerminated):
                self.failure = f"the connection ended: {event.reason_phrase or hex(event.error_code)}"
        if connection.packet_sender.stopped:
            self.refuse("the far end refused a stream")

    def refuse(self, reason: str) -> None:
        """End the connection because the far end has violated the protocol above QUIC, and tell the far end why."""
        if not self.failure:
            self.failure = reason
            if self._connection is not None:
                self._connection.close(error_code=QuicErrorCode.APPLICATION_ERROR, reason=reason)

    def _take_message(self, event: StreamDataReceived, connection: BulkConnection) -> None:
        data = memoryview(event.data)
        if len(data) < IDENTIFIER_BYTES:
            self.refuse(f"the far end sent a message of {len(data)} octets, less than its identifier")
            return
        self._messages.append((int.from_bytes(data[:IDENTIFIER_BYTES], "big"), data[IDENTIFIER_BYTES:]))
        if not event.stream_id & 2:  # a bidirectional stream: end our half, which carries nothing
            connection.finish_stream(event.stream_id)
