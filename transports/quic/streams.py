"""QUIC streams without copies, in place of aioquic's buffers.

A message is a stream of its own: its identifier (an unsigned 64-bit integer in network order), its octets, and FIN.
The control stream has no end, and is read as it arrives.
"""

from abc import abstractmethod

from aioquic.quic.events import StreamDataReceived
from aioquic.quic.packet import QuicStreamFrame

from bicoastal.transports.events import Buffer
from bicoastal.transports.quic.aioquic_private import FinalSizeError, QuicStreamSender, StreamReceiver
from bicoastal.transports.quic.sent_packets import SentPacket
from bicoastal.transports.quic.wire import encode_varint
from bicoastal.transports.recovery.ranges import RangeSet

IDENTIFIER_BYTES = 8
_FIN, _LENGTH, _OFFSET, _STREAM = 1, 2, 4, 8  # RFC 9000 §19.8


class OutgoingStream(QuicStreamSender):
    """What one end sends on a stream. `buffer_is_empty` stays true, so aioquic itself writes no STREAM frames of it.

    end: octets there are to send. fresh: the first offset never sent. fresh_packets: how many packets of new data are
    left. stopped: the peer wants no more of it. `header_bytes` is the size of every frame's header, which keeps the
    packets of a stream alike: offsets are written with as many octets as the longest needs (RFC 9000 §16 lets them).
    """

    def __init__(self, stream_id: int, end: int, *, fixed_end: bool, packet_bytes: int) -> None:
        super().__init__(stream_id=stream_id, writable=True)
        self.end = end
        self.fresh = 0
        self.stopped = False
        self._fixed_end = fixed_end
        self._id = encode_varint(stream_id)
        self._offset_bytes = 4 if fixed_end and end < 1 << 30 else 8
        self.header_bytes = 1 + len(self._id) + self._offset_bytes
        self.capacity = packet_bytes - self.header_bytes
        self._lost = RangeSet()
        self._delivered = RangeSet()

    @property
    def has_data(self) -> bool:
        """Tell whether something waits to be sent, or sent again."""
        return self.fresh < self.end or len(self._lost) > 0

    @property
    def has_repairs(self) -> bool:
        """Tell whether something waits to be sent again."""
        return len(self._lost) > 0

    @property
    def fresh_packets(self) -> int:
        """How many packets the octets never sent will fill."""
        return -(-(self.end - self.fresh) // self.capacity)

    @abstractmethod
    def read(self, start: int, stop: int) -> list[Buffer]:
        """Return octets [start, stop), in pieces."""

    def next_range(self, fresh_limit: int) -> tuple[int, int]:
        """Return what to send next: what was lost first, then new octets below `fresh_limit`; empty when nothing."""
        for start, stop in self._lost:
            return start, min(stop, start + self.capacity)
        return self.fresh, min(self.end, self.fresh + self.capacity, fresh_limit)

    def frame(self, start: int, stop: int) -> bytes:
        """Return the STREAM frame that holds [start, stop) and extends to the end of its packet; it counts as sent."""
        kind = _STREAM | _OFFSET
        if self._fixed_end and stop == self.end:
            kind |= _FIN
        if start == self.fresh:
            self.fresh = self.highest_offset = stop
        else:
            self._lost.discard(start, stop)
        offset = (start | (3 << 62 if self._offset_bytes == 8 else 2 << 30)).to_bytes(self._offset_bytes, "big")
        return b"".join((b"%c%b%b" % (kind, self._id, offset), *self.read(start, stop)))

    def on_acked(self, packet: SentPacket) -> None:
        """Note that octets have arrived."""
        self._delivered.add(*packet.span)
        if self._lost:
            self._lost.discard(*packet.span)
        if self._fixed_end and self._delivered.total == self.end:
            self.is_finished = True

    def on_lost(self, packet: SentPacket) -> None:
        """Send octets again, except those that another packet has delivered."""
        missing = self._delivered.add(*packet.span)
        for start, stop in missing:
            self._delivered.discard(start, stop)
            self._lost.add(start, stop)

    def reset(self, error_code: int) -> None:
        """Note that the peer refuses more data (STOP_SENDING). The sender reads `stopped`."""
        self.stopped = True


class OutgoingMessage(OutgoingStream):
    """A message on its own stream; its data is referenced, not copied."""

    def __init__(self, stream_id: int, message_id: int, data: Buffer, *, packet_bytes: int) -> None:
        self._head = message_id.to_bytes(IDENTIFIER_BYTES, "big")
        self._view = memoryview(data).cast("B")
        super().__init__(stream_id, IDENTIFIER_BYTES + len(self._view), fixed_end=True, packet_bytes=packet_bytes)

    def read(self, start: int, stop: int) -> list[Buffer]:
        """Return octets of identifier and data."""
        begin = start - IDENTIFIER_BYTES
        if begin >= 0:
            return [self._view[begin : stop - IDENTIFIER_BYTES]]
        return [self._head[start:stop], self._view[: max(stop - IDENTIFIER_BYTES, 0)]]


class OutgoingControl(OutgoingStream):
    """A stream without an end."""

    def __init__(self, stream_id: int, *, packet_bytes: int) -> None:
        super().__init__(stream_id, 0, fixed_end=False, packet_bytes=packet_bytes)
        self._octets = bytearray()
        self._begin = 0  # offset of its first octet

    def append(self, data: bytes) -> None:
        """Queue octets."""
        self._octets += data
        self.end += len(data)

    def read(self, start: int, stop: int) -> list[Buffer]:
        """Return queued octets."""
        return [bytes(self._octets[start - self._begin : stop - self._begin])]

    def on_acked(self, packet: SentPacket) -> None:
        """Note that octets have arrived, and forget those before the first gap."""
        super().on_acked(packet)
        for start, stop in self._delivered:
            if start <= self._begin < stop:
                del self._octets[: stop - self._begin]
                self._begin = stop
            break


class Incoming(StreamReceiver):
    """What one end receives on a stream: pieces by reference, in any order.

    continuous: octets are handed on as soon as they are in order; otherwise all at once, after the last has arrived.
    """

    def __init__(self, stream_id: int, *, continuous: bool) -> None:
        super().__init__(stream_id)
        self._continuous = continuous
        self._received = RangeSet()
        self._pieces: list[tuple[int, Buffer]] = []
        self._handed = 0  # octets handed on

    def handle_frame(self, frame: QuicStreamFrame) -> StreamDataReceived | None:
        """Take a frame as aioquic parses it. See `take`."""
        return self.take(frame.offset, frame.data, fin=frame.fin)

    def take(self, offset: int, data: Buffer, *, fin: bool) -> StreamDataReceived | None:
        """Take octets; return the event of those that are now ready. Raises FinalSizeError (RFC 9000 §4.5)."""
        stop = offset + len(data)
        if fin or self.final_bytes is not None:
            self._check_final_size(stop, fin=fin)
        self.highest_offset = max(self.highest_offset, stop)
        if self.is_finished:
            return None
        view = memoryview(data)
        for start, end in self._received.add(offset, stop):
            self._pieces.append((start, view[start - offset : end - offset]))
        complete = self._received.total == self.final_bytes
        if complete:
            self.is_finished = True
        if complete or self._continuous:
            return self._hand_on(complete)
        return None

    def _check_final_size(self, stop: int, *, fin: bool) -> None:
        final = self.final_bytes
        if final is not None and (stop > final or (fin and stop != final)):
            raise FinalSizeError("Cannot change final size")
        if fin:
            if stop < self.highest_offset:
                raise FinalSizeError("Data received beyond final size")
            self.final_bytes = stop

    def _hand_on(self, complete: bool) -> StreamDataReceived | None:
        pieces = self._pieces
        pieces.sort(key=lambda piece: piece[0])
        at = self._handed
        count = 0
        for start, piece in pieces:
            if start != at:
                break
            at += len(piece)
            count += 1
        if not count and not complete:
            return None
        data = b"".join(piece for _, piece in pieces[:count])
        del pieces[:count]
        self._handed = at
        return StreamDataReceived(data=data, end_stream=complete, stream_id=self.stream_id)
