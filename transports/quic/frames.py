"""Acts on the frames of an authenticated 1-RTT packet. The common ones are read here, the others by aioquic."""

from collections import deque
from collections.abc import Callable

from aioquic.quic.events import DatagramFrameReceived, QuicEvent
from aioquic.quic.packet import QuicErrorCode, QuicFrameType

from bicoastal.transports.quic.aioquic_private import AioquicConnection, FinalSizeError, QuicConnectionError
from bicoastal.transports.quic.packet_sender import PacketSender
from bicoastal.transports.quic.sent_packets import SentPackets
from bicoastal.transports.quic.streams import Incoming
from bicoastal.transports.quic.wire import ACK_DELAY_EXPONENT, FrameError, read_ack, read_varint
from bicoastal.transports.recovery.ranges import Range

_KNOWN = frozenset((0x00, 0x01, 0x02, 0x03, *range(0x08, 0x10), 0x30, 0x31))  # RFC 9000 §19, RFC 9221 §4


class FrameReader:
    """Acts on frames.

    sent: is told of acknowledgements. packet_sender: is asked whether they finish streams. events: what is received is
    appended to it. look_again: is called when aioquic may have something to send.
    """

    def __init__(
        self,
        *,
        aioquic: AioquicConnection,
        sent: SentPackets,
        packet_sender: PacketSender,
        events: deque[QuicEvent],
        look_again: Callable[[], None],
    ) -> None:
        self._aioquic = aioquic
        self._sent = sent
        self._packet_sender = packet_sender
        self._new_events = events
        self._look_again = look_again

    def read(self, payload: bytes, now: float) -> bool:
        """Act on the frames of a packet; tell whether it asks for an acknowledgement. Raises QuicConnectionError."""
        at, eliciting, size = 0, False, len(payload)
        try:
            while at < size:
                kind = payload[at]
                if kind not in _KNOWN:
                    self._look_again()
                    return self._aioquic.handle_frames(payload[at:], now) or eliciting
                at += 1
                if 0x08 <= kind < 0x10:
                    eliciting = True
                    at = self._stream_frame(kind, payload, at)
                elif kind >= 0x30:
                    eliciting = True
                    at = self._datagram_frame(kind, payload, at)
                elif kind in (0x02, 0x03):
                    ranges, delay, at = read_ack(payload, at, ecn=kind == 0x03)
                    self._ack_frame(ranges, delay, now)
                elif kind == 0x01:
                    eliciting = True
                else:
                    at = size - len(payload[at:].lstrip(b"\0"))
        except (FrameError, FinalSizeError) as error:
            final = isinstance(error, FinalSizeError)
            code = QuicErrorCode.FINAL_SIZE_ERROR if final else QuicErrorCode.FRAME_ENCODING_ERROR
            raise QuicConnectionError(code, kind, str(error)) from error
        return eliciting

    def _ack_frame(self, ranges: list[Range], delay: int, now: float) -> None:
        sent = self._sent
        sent.next_number = self._aioquic.next_number
        self._aioquic.recovery.peer_completed_address_validation = True
        try:
            sent.on_ack(ranges, (delay << ACK_DELAY_EXPONENT) * 1e-6, now)
        except ValueError as error:
            raise QuicConnectionError(QuicErrorCode.PROTOCOL_VIOLATION, QuicFrameType.ACK, str(error)) from error
        if self._packet_sender.finished():
            self._look_again()  # aioquic forgets the streams, and may grant the peer new ones

    def _datagram_frame(self, kind: int, payload: bytes, at: int) -> int:
        stop = len(payload)
        if kind == 0x31:
            length, at = read_varint(payload, at)
            stop = at + length
            if stop > len(payload):
                raise FrameError("a DATAGRAM frame is cut short")
        self._new_events.append(DatagramFrameReceived(data=payload[at:stop]))
        return stop

    def _stream_frame(self, kind: int, payload: bytes, at: int) -> int:
        stream_id, at = read_varint(payload, at)
        offset, stop = 0, len(payload)
        if kind & 4:
            offset, at = read_varint(payload, at)
        if kind & 2:
            length, at = read_varint(payload, at)
            stop = at + length
            if stop > len(payload):
                raise FrameError("a STREAM frame is cut short")
        stream = self._aioquic.receiving_stream(kind, stream_id)
        if stream is None:
            return stop
        receiver = stream.receiver
        if not isinstance(receiver, Incoming):
            raise TypeError(f"stream {stream_id} is received by {receiver!r}")
        end = offset + stop - at
        fresh = end - receiver.highest_offset
        limit = self._aioquic.receive_limit
        if fresh > 0:
            if end > stream.max_stream_data_local:
                raise QuicConnectionError(QuicErrorCode.FLOW_CONTROL_ERROR, kind, "Over stream data limit")
            if limit.used + fresh > limit.value:
                raise QuicConnectionError(QuicErrorCode.FLOW_CONTROL_ERROR, kind, "Over connection data limit")
            limit.used += fresh
        event = receiver.take(offset, memoryview(payload)[at:stop], fin=bool(kind & 1))
        if event is not None:
            self._new_events.append(event)
        if limit.used * 2 > limit.value or end * 2 > stream.max_stream_data_local or stream.is_finished:
            self._look_again()
        return stop
