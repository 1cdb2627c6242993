"""Messages on a byte stream, without copying: what a sender cuts segments from, what a receiver puts together.

Each message is framed by 16 octets: its identifier and its length, both unsigned 64-bit in network order.
"""

from bisect import bisect_right
from struct import Struct

from bicoastal.transports.events import Buffer
from bicoastal.wan.checks import FieldError

_FRAME = Struct("!QQ")
FRAME_BYTES = _FRAME.size
_MAX_U64 = (1 << 64) - 1


class StreamError(ValueError):
    """The peer's stream is malformed and cannot be read further; the message is one sentence."""


class OutgoingStream:
    """The octets a connection has to send, by offset from 0; kept until they are released.

    `end`: octets queued so far. `released`: everything below it is forgotten. Data is referenced, not copied, so it
    must not change before it is released.
    """

    __slots__ = ("_chunks", "_current", "_starts", "end", "released")

    def __init__(self) -> None:
        self.end = 0
        self.released = 0
        self._starts: list[int] = []
        self._chunks: list[memoryview] = []
        self._current = 0  # index of the chunk that was read last: reads are mostly sequential

    def append_message(self, message_id: int, data: Buffer) -> int:
        """Queue a framed message; return the offset where it ends. Raises ValueError for a `message_id` beyond u64."""
        if not 0 <= message_id <= _MAX_U64:
            raise FieldError("message_id", f"{message_id} is not an unsigned 64-bit integer")
        view = memoryview(data).cast("B")
        self._append(memoryview(_FRAME.pack(message_id, len(view))))
        if len(view):
            self._append(view)
        return self.end

    def _append(self, chunk: memoryview) -> None:
        self._starts.append(self.end)
        self._chunks.append(chunk)
        self.end += len(chunk)

    def read(self, offset: int, length: int) -> Buffer:
        """Return the octets from `offset` on: `length` of them, or fewer at the end of what is queued.

        A view where they lie in one chunk, a copy where they straddle. Raises ValueError where `offset` is released or
        beyond the end.
        """
        if not self.released <= offset <= self.end or length < 0:
            raise FieldError("offset", f"{length} octets from {offset} are not within {self.released} to {self.end}")
        starts, chunks = self._starts, self._chunks
        index = self._current
        if index < len(starts):
            begin = offset - starts[index]
            if begin >= 0:
                chunk = chunks[index]
                stop = begin + length
                if stop <= len(chunk):
                    return chunk[begin:stop]
        stop = min(offset + length, self.end)
        if offset == stop:
            return b""
        index = bisect_right(starts, offset) - 1
        pieces = []
        position = offset
        while True:
            begin = position - starts[index]
            piece = chunks[index][begin : begin + stop - position]
            pieces.append(piece)
            position += len(piece)
            if position == stop:
                break
            index += 1
        self._current = index
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def release(self, offset: int) -> None:
        """Release the octets below `offset`, which are acknowledged. Raises ValueError beyond `end`."""
        if offset > self.end:
            raise FieldError("offset", f"{offset} is beyond the end, {self.end}")
        if offset <= self.released:
            return
        self.released = offset
        starts, chunks = self._starts, self._chunks
        if starts[0] + len(chunks[0]) <= offset:
            # The last chunk that begins at or below `offset` is still needed, unless it ends there.
            count = len(starts) if offset == self.end else bisect_right(starts, offset) - 1
            del starts[:count]
            del chunks[:count]
            self._current = max(self._current - count, 0)


class MessageAssembler:
    """Turns the octets of a stream, fed in order in pieces of any size, back into messages.

    Pieces are kept by reference and joined once per message; a message within one piece is a view of it.
    max_message_bytes: a longer one is refused before anything of it is kept.
    """

    __slots__ = ("_complete", "_failure", "_frame", "_max_message_bytes", "_message_id", "_missing", "_pieces")

    def __init__(self, *, max_message_bytes: int = 2**40) -> None:
        if max_message_bytes < 0:
            raise FieldError("max_message_bytes", f"{max_message_bytes} is negative")
        self._max_message_bytes = max_message_bytes
        self._complete: list[tuple[int, Buffer]] = []
        self._frame = b""  # octets of a frame that is not complete
        self._message_id = 0
        self._missing = 0  # octets of the present message still to come; 0 between messages
        self._pieces: list[Buffer] = []
        self._failure: str | None = None

    def feed(self, chunk: Buffer) -> bool:
        """Take the next octets; tell whether they completed a message. `chunk` must not change afterwards.

        Raises StreamError when a message is announced that is too long, and at every call after that.
        """
        size = len(chunk)
        if size < self._missing:
            self._pieces.append(chunk)
            self._missing -= size
            return False
        if self._failure is not None:
            raise StreamError(self._failure)
        count = len(self._complete)
        view = memoryview(chunk)
        while view:
            if not self._missing:
                view = self._take_frame(view)
                continue
            missing = self._missing
            piece = view[:missing]
            self._pieces.append(piece)
            self._missing = missing - len(piece)
            view = view[missing:]
            if not self._missing:
                data: Buffer = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
                self._pieces = []
                self._complete.append((self._message_id, data))
        return len(self._complete) > count

    def _take_frame(self, view: memoryview) -> memoryview:
        """Take octets of a frame; return what follows them."""
        wanted = FRAME_BYTES - len(self._frame)
        self._frame += view[:wanted]
        if len(self._frame) == FRAME_BYTES:
            message_id, length = _FRAME.unpack(self._frame)
            self._frame = b""
            if length > self._max_message_bytes:
                self._failure = f"stream: a message of {length} bytes is announced, {self._max_message_bytes} allowed"
                raise StreamError(self._failure)
            if length:
                self._message_id = message_id
                self._missing = length
            else:
                self._complete.append((message_id, b""))
        return view[wanted:]

    def messages(self) -> list[tuple[int, Buffer]]:
        """Return the messages that are complete, oldest first, and remove them."""
        complete = self._complete
        if complete:
            self._complete = []
            return complete
        return []
