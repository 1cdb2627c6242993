"""What the frames of an authenticated 1-RTT packet ask for: the common ones are read here, the rare ones by aioquic."""

from aioquic.quic.connection import QuicConnectionError, QuicReceiveContext
from aioquic.quic.events import DatagramFrameReceived
from aioquic.quic.packet import QuicErrorCode, QuicFrameType
from aioquic.quic.stream import FinalSizeError, QuicStream, StreamFinishedError
from aioquic.tls import Epoch

from bicoastal.transports.quic.handshake import SeededConnection
from bicoastal.transports.quic.packet_sender import PacketSender
from bicoastal.transports.quic.sent_packets import SentPackets
from bicoastal.transports.quic.streams import Incoming
from bicoastal.transports.quic.wire import ACK_DELAY_EXPONENT, FrameError, read_ack, read_varint
from bicoastal.transports.recovery.ranges import Range

_KNOWN = frozenset((0x00, 0x01, 0x02, 0x03, *range(0x08, 0x10), 0x30, 0x31))  # RFC 9000 §19, RFC 9221 §4


class FrameReader(SeededConnection):
    """A connection that acts on frames.

    sent: told of acknowledgements. sending: asked whether streams are finished by them. A subclass sets both, and
    `_rare` to False; it becomes true when aioquic may have something to send.
    """

    sent: SentPackets
    packet_sender: PacketSender
    _continuous: bool
    _rare: bool

    def _frames(self, payload: bytes, now: float) -> bool:
        """Act on the frames of a packet; tell whether it asks for an acknowledgement. Raises QuicConnectionError."""
        at, eliciting, size = 0, False, len(payload)
        try:
            while at < size:
                kind = payload[at]
                if kind not in _KNOWN:
                    return self._rare_frames(payload[at:], now) or eliciting
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

    def _rare_frames(self, payload: bytes, now: float) -> bool:
        """Let aioquic act on the rest of a packet."""
        self._rare = True
        context = QuicReceiveContext(
            epoch=Epoch.ONE_RTT,
            host_cid=self.host_cid,
            network_path=self._network_paths[0],
            quic_logger_frames=None,
            time=now,
            version=self._version,
        )
        return super()._payload_received(context, payload)[0]

    def _ack_frame(self, ranges: list[Range], delay: int, now: float) -> None:
        sent = self.sent
        sent.next_number = self._packet_number
        self._loss.peer_completed_address_validation = True
        try:
            sent.on_ack(ranges, (delay << ACK_DELAY_EXPONENT) * 1e-6, now)
        except ValueError as error:
            raise QuicConnectionError(QuicErrorCode.PROTOCOL_VIOLATION, QuicFrameType.ACK, str(error)) from error
        if self.packet_sender.finished():
            self._rare = True  # aioquic forgets the streams, and may grant the peer new ones

    def _datagram_frame(self, kind: int, payload: bytes, at: int) -> int:
        stop = len(payload)
        if kind == 0x31:
            length, at = read_varint(payload, at)
            stop = at + length
            if stop > len(payload):
                raise FrameError("a DATAGRAM frame is cut short")
        self._events.append(DatagramFrameReceived(data=payload[at:stop]))
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
        self._assert_stream_can_receive(kind, stream_id)
        try:
            stream = self._streams.get(stream_id) or self._get_or_create_stream(kind, stream_id)
        except StreamFinishedError:
            return stop
        receiver = stream.receiver
        if not isinstance(receiver, Incoming):
            receiver = self._replace_receiver(stream)
        end = offset + stop - at
        fresh = end - receiver.highest_offset
        limit = self._local_max_data
        if fresh > 0:
            if end > stream.max_stream_data_local:
                raise QuicConnectionError(QuicErrorCode.FLOW_CONTROL_ERROR, kind, "Over stream data limit")
            if limit.used + fresh > limit.value:
                raise QuicConnectionError(QuicErrorCode.FLOW_CONTROL_ERROR, kind, "Over connection data limit")
            limit.used += fresh
        event = receiver.take(offset, memoryview(payload)[at:stop], fin=bool(kind & 1))
        if event is not None:
            self._events.append(event)
        if limit.used * 2 > limit.value or end * 2 > stream.max_stream_data_local or stream.is_finished:
            self._rare = True
        return stop

    def _get_or_create_stream(self, frame_type: int, stream_id: int) -> QuicStream:
        stream = super()._get_or_create_stream(frame_type, stream_id)
        self._replace_receiver(stream)
        return stream

    def _replace_receiver(self, stream: QuicStream) -> Incoming:
        """Give a stream that aioquic has just made a receiver of ours."""
        receiver = stream.receiver
        if not isinstance(receiver, Incoming):
            receiver = Incoming(stream.stream_id or 0, continuous=self._continuous)
            stream.receiver = receiver
        return receiver
