"""The receiving half of an FEC-protected connection: symbols in any order from any path become messages."""

from collections import deque

from bicoastal.transports.coding.codes import CorruptBlockError, Decoder
from bicoastal.transports.coding.interleaving import block_sizes
from bicoastal.transports.events import Buffer
from bicoastal.transports.multipath.fec_wire import (
    ANNOUNCEMENT_BLOCK,
    SYMBOL_HEADER,
    Announcement,
    ControlFrame,
    Done,
    FecProtocolError,
    MissingSymbols,
    decode_announcement,
)
from bicoastal.wan.units import INFINITY

PARKED_BYTES = 64 << 20  # of symbols whose message has not been announced yet
OPEN_MESSAGES = 4096  # announced and not complete
FIRST_PATIENCE_S = 0.01  # without a useful symbol, until a receiver that knows no round trip tells what is missing
MAX_REMINDERS = 8  # the interval doubles with each


class _Incoming:
    """A message being put together."""

    __slots__ = ("announcement", "body", "decoders", "left", "reminders", "tell_at")

    def __init__(self, announcement: Announcement, tell_at: float) -> None:
        self.announcement = announcement
        symbol_bytes = announcement.symbol_bytes
        self.body = memoryview(bytearray(announcement.symbols * symbol_bytes))
        self.decoders: list[Decoder | None] = []  # None: that block is whole and verified
        at = 0
        if announcement.blocks:
            for k in block_sizes(announcement.symbols, announcement.blocks):
                size = k * symbol_bytes
                self.decoders.append(announcement.code.decoder(k, symbol_bytes, self.body[at : at + size]))
                at += size
        self.left = len(self.decoders)
        self.tell_at = tell_at
        self.reminders = 0

    def missing(self) -> dict[int, int]:
        return {at: decoder.missing for at, decoder in enumerate(self.decoders) if decoder is not None}


class FecReceiver:
    """Takes symbols and announcements; gives messages, and control frames for the far end.

    messages: (message_id, data) in the order of their completion. control: frames to be sent on every path. rejected:
    DATAGRAM frames that were no symbol. needless: symbols that came too late or twice. corrupt: blocks that failed
    their checksum and were begun anew. max_message_bytes: of a message that the far end may announce.
    """

    def __init__(self, *, max_message_bytes: int) -> None:
        self.messages: deque[tuple[int, Buffer]] = deque()
        self.control: list[ControlFrame] = []
        self.rejected = self.needless = self.corrupt = 0
        self.patience_s = FIRST_PATIENCE_S
        self._max_message_bytes = max_message_bytes
        self._open: dict[int, _Incoming] = {}
        self._parked: dict[int, list[tuple[int, int, bytes]]] = {}
        self._parked_bytes = 0
        self._over: set[int] = set()  # complete, while one before it is not
        self._over_below = 0
        self._serial = 0

    def on_symbol(self, octets: bytes, now: float) -> None:
        """Take a DATAGRAM frame. Raises FecProtocolError for an announcement that cannot be."""
        if len(octets) < SYMBOL_HEADER.size:
            self.rejected += 1
            return
        number, block, index = SYMBOL_HEADER.unpack_from(octets)
        incoming = self._open.get(number)
        if incoming is not None and block != ANNOUNCEMENT_BLOCK:
            self._add(incoming, block, index, memoryview(octets)[SYMBOL_HEADER.size :], now)
        elif number < self._over_below or number in self._over:
            self.needless += 1
        elif block == ANNOUNCEMENT_BLOCK:
            if incoming is None:
                self.on_announcement(decode_announcement(octets[SYMBOL_HEADER.size :]), now)
        elif self._parked_bytes + len(octets) <= PARKED_BYTES:
            self._parked.setdefault(number, []).append((block, index, octets[SYMBOL_HEADER.size :]))
            self._parked_bytes += len(octets)
        else:
            self.needless += 1  # it was acknowledged: the reminder will tell that it is missing

    def on_announcement(self, announcement: Announcement, now: float) -> None:
        """Open a message that has not been. Raises FecProtocolError when it, or their number, is beyond limits."""
        number = announcement.number
        if number in self._open or number < self._over_below or number in self._over:
            return
        if announcement.length_bytes > self._max_message_bytes:
            raise FecProtocolError(
                f"a message of {announcement.length_bytes} bytes, and at most {self._max_message_bytes} are taken"
            )
        if len(self._open) >= OPEN_MESSAGES:
            raise FecProtocolError(f"more than {OPEN_MESSAGES} messages at once")
        incoming = self._open[number] = _Incoming(announcement, now + self.patience_s)
        if not incoming.left:
            self._complete(incoming)
        for block, index, symbol in self._parked.pop(number, ()):
            self._parked_bytes -= len(symbol) + SYMBOL_HEADER.size
            if number in self._open:
                self._add(incoming, block, index, memoryview(symbol), now)

    def _add(self, incoming: _Incoming, block: int, index: int, symbol: memoryview, now: float) -> None:
        if block >= len(incoming.decoders):
            self.rejected += 1
            return
        decoder = incoming.decoders[block]
        if decoder is None:
            self.needless += 1
            return
        before = decoder.missing
        try:
            useful = decoder.add(index, symbol)
        except ValueError:
            self.rejected += 1
            return
        if not useful:
            self.needless += 1
            return
        incoming.tell_at = now + self.patience_s
        incoming.reminders = 0
        if decoder.missing == 0:
            self._finish(incoming, block, decoder)
        elif decoder.missing >= before:  # there were enough, and the code failed all the same
            self._tell(incoming, {block: decoder.missing})

    def _finish(self, incoming: _Incoming, block: int, decoder: Decoder) -> None:
        try:
            decoder.finish(incoming.announcement.checksums[block])
        except CorruptBlockError:
            self.corrupt += 1
            decoder.reset()
            self._tell(incoming, {block: decoder.missing})
            return
        incoming.decoders[block] = None
        incoming.left -= 1
        if not incoming.left:
            self._complete(incoming)

    def _complete(self, incoming: _Incoming) -> None:
        announcement = incoming.announcement
        del self._open[announcement.number]
        self._over.add(announcement.number)
        while self._over_below in self._over:
            self._over.remove(self._over_below)
            self._over_below += 1
        self.messages.append((announcement.message_id, incoming.body[: announcement.length_bytes]))
        self.control.append(Done(announcement.number))

    def _tell(self, incoming: _Incoming, blocks: dict[int, int]) -> None:
        self._serial += 1
        self.control.append(MissingSymbols(incoming.announcement.number, self._serial, blocks))

    # -- what is missing for long is told -----------------------------------------------------------------------------

    def timer(self) -> float:
        """Return when `on_timer` is due (inf: never)."""
        return min((incoming.tell_at for incoming in self._open.values()), default=INFINITY)

    def on_timer(self, now: float) -> None:
        """Tell what is missing of messages of which nothing useful has come for a while, ever less often."""
        for incoming in self._open.values():
            if incoming.tell_at <= now:
                self._tell(incoming, incoming.missing())
                incoming.reminders = min(incoming.reminders + 1, MAX_REMINDERS)
                incoming.tell_at = now + self.patience_s * 2.0**incoming.reminders
