"""Messages as symbols: cut up at one end, put together at the other.

A symbol begins with 12 octets: kind (1), the message's number (4), its first octet's offset (7), all in network order.
Kind 1 is a message's beginning, and tells identifier (8) and length (7) besides; of any other, kind is 0.
"""

from collections import deque

from bicoastal.transports.events import Buffer
from bicoastal.transports.quic.symbols import Symbol, SymbolOutcome
from bicoastal.transports.recovery.ranges import RangeSet

HEADER_BYTES, ANNOUNCEMENT_BYTES = 12, 15
MAX_MESSAGE_BYTES = 1 << 40
LATE_SYMBOLS = 4096  # so many that were taken for lost are remembered, in case they were only late
_MASK = (1 << 32) - 1


class _Outgoing:
    """A message that is not wholly acknowledged. fresh: the first offset never sent. lost: what is to be sent again."""

    __slots__ = ("announced", "delivered", "fresh", "lost", "message_id", "number", "view")

    def __init__(self, number: int, message_id: int, data: Buffer) -> None:
        self.number = number
        self.message_id = message_id
        self.view = memoryview(data).cast("B")
        self.fresh = 0
        self.announced = False  # its beginning is on its way, or has arrived
        self.lost = RangeSet()
        self.delivered = RangeSet()


class Outbox:
    """What one end has to send, in the order in which it was offered; what was lost goes first.

    waiting_bytes: octets that are not on their way (an empty message counts as one).
    """

    def __init__(self) -> None:
        self.waiting_bytes = 0
        self._next_number = 0
        self._queue: deque[_Outgoing] = deque()  # with fresh octets
        self._lossy: deque[_Outgoing] = deque()  # with something lost
        self._tags: dict[int, tuple[_Outgoing, int, int, bool]] = {}  # on their way
        self._late: dict[int, tuple[_Outgoing, int, int]] = {}  # taken for lost; the latest LATE_SYMBOLS of them
        self._late_order: deque[int] = deque()
        self._next_tag = 0

    @property
    def idle(self) -> bool:
        """Tell whether nothing waits and nothing is on its way."""
        return not self._queue and not self._tags and not self._lossy

    def add(self, message_id: int, data: Buffer) -> None:
        """Queue a message; `data` is referenced, not copied."""
        message = _Outgoing(self._next_number & _MASK, message_id, data)
        self._next_number += 1
        self._queue.append(message)
        self.waiting_bytes += max(len(message.view), 1)

    def next_symbol(self, symbol_bytes: int, *, share: float) -> Symbol | None:
        """Return the next symbol of at most `symbol_bytes`, None when nothing waits.

        share: of what waits, how much this path will carry: for `Datagram.burst_left`.
        """
        while self._lossy:
            message = self._lossy[0]
            if message.lost or not message.announced:
                start, stop = next(iter(message.lost), (0, 0))
                return self._cut(message, start, stop, symbol_bytes, repair=True)
            self._lossy.popleft()
        if not self._queue:
            return None
        message = self._queue[0]
        symbol = self._cut(message, message.fresh, len(message.view), symbol_bytes, repair=False)
        left = int(self.waiting_bytes * share / symbol_bytes)
        return symbol._replace(burst_left=left)

    def _cut(self, message: _Outgoing, start: int, stop: int, symbol_bytes: int, *, repair: bool) -> Symbol:
        begins = not message.announced
        head = b"%c%b%b" % (begins, message.number.to_bytes(4, "big"), start.to_bytes(7, "big"))
        if begins:
            head += message.message_id.to_bytes(8, "big") + len(message.view).to_bytes(7, "big")
            message.announced = True
        stop = min(stop, start + symbol_bytes - len(head))
        self.waiting_bytes -= stop - start
        if repair:
            message.lost.discard(start, stop)
        else:
            message.fresh = stop
            if stop == len(message.view):
                self._queue.popleft()
        if not message.view:
            self.waiting_bytes -= 1
        tag = self._next_tag
        self._next_tag += 1
        self._tags[tag] = message, start, stop, begins
        return Symbol(b"".join((head, message.view[start:stop])), tag, repair)

    def report(self, report: SymbolOutcome) -> None:
        """Take the fate of a symbol; a second one may follow on "lost", and then says "arrived"."""
        tag = report.tag
        if report.acked:
            entry = self._tags.pop(tag, None) or self._late.pop(tag, None)
            if entry is not None:
                message, start, stop = entry[:3]
                message.delivered.add(start, stop)
                self.waiting_bytes -= sum(b - a for a, b in message.lost.discard(start, stop))
            return
        message, start, stop, begins = self._tags.pop(tag)
        missing = message.delivered.add(start, stop)
        for a, b in missing:
            message.delivered.discard(a, b)
            message.lost.add(a, b)
            self.waiting_bytes += b - a
        if begins:
            message.announced = False
            if not message.view:
                self.waiting_bytes += 1
        if missing or begins:
            self._lossy.append(message)
        self._late[tag] = message, start, stop
        self._late_order.append(tag)
        if len(self._late_order) > LATE_SYMBOLS:
            self._late.pop(self._late_order.popleft(), None)


class _Incoming:
    """A message that is not complete."""

    __slots__ = ("length", "message_id", "pieces", "received")

    def __init__(self) -> None:
        self.message_id = 0
        self.length: int | None = None
        self.received = RangeSet()
        self.pieces: list[tuple[int, memoryview]] = []


class Assembler:
    """Puts symbols together, in whatever order they come, and each only once. failure: why it cannot go on."""

    def __init__(self) -> None:
        self.failure = ""
        self._open: dict[int, _Incoming] = {}
        self._begun = RangeSet()  # numbers of messages of which anything has come

    def take(self, symbol: bytes) -> tuple[int, Buffer] | None:
        """Take a symbol; return (message_id, data) when it completes a message."""
        if len(symbol) < HEADER_BYTES:
            self.failure = f"the far end sent a symbol of {len(symbol)} octets"
            return None
        kind, number, start = symbol[0], int.from_bytes(symbol[1:5], "big"), int.from_bytes(symbol[5:12], "big")
        message = self._open.get(number)
        if message is None:
            if not self._begun.add(number, number + 1):
                return None  # of a message that is complete
            message = self._open[number] = _Incoming()
        view = memoryview(symbol)[HEADER_BYTES:]
        if kind == 1:
            message.message_id = int.from_bytes(view[:8], "big")
            message.length = int.from_bytes(view[8:ANNOUNCEMENT_BYTES], "big")
            view = view[ANNOUNCEMENT_BYTES:]
        if start + len(view) > (MAX_MESSAGE_BYTES if message.length is None else message.length):
            self.failure = "the far end sent more of a message than there is of it"
            return None
        for a, b in message.received.add(start, start + len(view)):
            message.pieces.append((a, view[a - start : b - start]))
        if message.received.total != message.length:
            return None
        del self._open[number]
        message.pieces.sort(key=lambda piece: piece[0])
        data = b"".join(piece for _, piece in message.pieces)
        return message.message_id, data
