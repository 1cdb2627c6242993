"""The objects that aioquic's connection uses in place of its own loss recovery and received packet numbers.

aioquic handles Initial and Handshake packets. 1-RTT packets are passed on to `SentPackets` and `ReceivedPackets`.
"""

from collections.abc import Callable

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import QuicErrorCode, QuicFrameType

from bicoastal.transports.quic.aioquic_private import (
    AioquicRangeSet,
    HandshakeRecovery,
    QuicConnectionError,
    QuicDeliveryState,
    QuicPacketNumberWindow,
    QuicPacketSpace,
    QuicSentPacket,
)
from bicoastal.transports.quic.received_packets import ReceivedPackets
from bicoastal.transports.quic.sent_packets import SentPacket, SentPackets


class Frames:
    """The frames of a packet that aioquic wrote. Its handlers are told once whether they arrived."""

    __slots__ = ("_on_loss", "_packet")

    def __init__(self, packet: QuicSentPacket, on_loss: Callable[[], None]) -> None:
        self._packet = packet
        self._on_loss = on_loss

    def on_acked(self, packet: SentPacket) -> None:
        """Tell the handlers that the frames arrived, unless they were told of a loss before."""
        if not packet.lost:
            self._tell(QuicDeliveryState.ACKED)

    def on_lost(self, packet: SentPacket) -> None:
        """Tell the handlers that the frames must be sent again."""
        self._tell(QuicDeliveryState.LOST)
        self._on_loss()

    def _tell(self, state: QuicDeliveryState) -> None:
        for handler, arguments in self._packet.delivery_handlers:
            handler(state, *arguments)


class Recovery(HandshakeRecovery):
    """aioquic's loss recovery for the handshake, `SentPackets` for everything after it."""

    def __init__(
        self,
        *,
        configuration: QuicConfiguration,
        sent: SentPackets,
        send_probe: Callable[[], None],
        on_loss: Callable[[], None],
    ) -> None:
        super().__init__(configuration=configuration, send_probe=send_probe)
        self._sent = sent
        self._on_loss = on_loss

    @property
    def bytes_in_flight(self) -> int:
        """Bytes in flight, in all packet-number spaces."""
        return self._sent.in_flight + super().bytes_in_flight

    @property
    def congestion_window(self) -> int:
        """The window of this package's controller, bytes."""
        return int(self._sent.congestion.cwnd_bytes)

    def get_probe_timeout(self, *, include_max_ack_delay: bool = True) -> float:
        """Return the PTO, from which aioquic computes idle and closing periods."""
        if self._sent.rtt.srtt_s is None:
            return float(super().get_probe_timeout(include_max_ack_delay=include_max_ack_delay))
        return self._sent.pto_s

    def on_packet_sent(self, *, packet: QuicSentPacket, space: QuicPacketSpace) -> None:
        """Record a packet that aioquic has written."""
        if not space.is_application_data:
            super().on_packet_sent(packet=packet, space=space)
        elif packet.is_ack_eliciting:
            frames = Frames(packet, self._on_loss)
            self._sent.add(SentPacket(packet.packet_number, packet.sent_time or 0.0, packet.sent_bytes, frames))

    def on_ack_received(
        self, *, ack_rangeset: AioquicRangeSet, ack_delay: float, now: float, space: QuicPacketSpace
    ) -> None:
        """Take an ACK frame that aioquic has parsed. Raises QuicConnectionError for what was never sent."""
        if not space.is_application_data:
            super().on_ack_received(ack_rangeset=ack_rangeset, ack_delay=ack_delay, now=now, space=space)
            return
        try:
            self._sent.on_ack([(r.start, r.stop) for r in reversed(ack_rangeset)], ack_delay, now)
        except ValueError as error:
            raise QuicConnectionError(QuicErrorCode.PROTOCOL_VIOLATION, QuicFrameType.ACK, str(error)) from error


class _Numbers:
    """`ReceivedPackets` as the two collections that aioquic keeps of packet numbers."""

    def __init__(self, received: ReceivedPackets, space: "ApplicationSpace") -> None:
        self._received = received
        self._space = space

    def add(self, number: int) -> None:
        """Note an arrival."""
        self._received.add(number, self._space.now)

    def __contains__(self, number: int) -> bool:
        return number in self._received

    def __len__(self) -> int:
        return 0  # so that aioquic does not trim them


class ApplicationSpace(QuicPacketSpace):
    """The packet-number space of 1-RTT packets, for those that aioquic receives; `now` is to be set before it does."""

    def __init__(self, received: ReceivedPackets) -> None:
        self._received = received
        super().__init__(is_application_data=True)
        self.now = 0.0
        numbers = _Numbers(received, self)
        self.ack_queue = numbers  # type: ignore[assignment]
        self.received_packets = numbers  # type: ignore[assignment]

    @property
    def expected_packet_number(self) -> int:
        """One above the largest received."""
        return self._received.expected

    @expected_packet_number.setter
    def expected_packet_number(self, value: int) -> None:
        """Do nothing: `ReceivedPackets` keeps this number."""


class CountingWindow(QuicPacketNumberWindow):
    """The packet numbers received in a handshake space. It reports duplicates, which are genuine packets."""

    def __init__(self, on_duplicate: Callable[[], None]) -> None:
        super().__init__()
        self._on_duplicate = on_duplicate

    def __contains__(self, number: int) -> bool:
        known = super().__contains__(number)
        if known:
            self._on_duplicate()
        return known
