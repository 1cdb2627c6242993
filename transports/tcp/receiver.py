"""The receiving half of a connection: reassembly, when to acknowledge, what to report, how much to allow.

Offsets are unbounded stream offsets from 0; the connection maps sequence numbers to them.
"""

from bisect import bisect_right
from collections import OrderedDict
from math import inf

from bicoastal.transports.events import Buffer
from bicoastal.transports.stream import MessageAssembler
from bicoastal.wan.checks import FieldError

MAX_QUICK_ACKS = 16  # as Linux (TCP_MAX_QUICKACKS)
_RTT_GAIN = 0.125
# Bytes of one round trip, times this, is the least window. While a sender doubles per round trip, the window it needs
# at the end of a round is four times what arrived in the round before: two for the doubling that the present round
# is, two for the one that its acknowledgements allow.
_WINDOW_PER_ROUND = 4


class _Block:
    """Contiguous octets above a gap: [start, stop), in `pieces` that follow one another."""

    __slots__ = ("pieces", "start", "stop")

    def __init__(self, start: int, stop: int, pieces: list[Buffer]) -> None:
        self.start = start
        self.stop = stop
        self.pieces = pieces


class Receiver:
    """The octets that arrived, and the acknowledgements that the peer must get.

    The connection calls `on_data` per data segment, reads the attributes below, and calls `acked` whenever a segment
    with an acknowledgement leaves.

    next_offset: the cumulative acknowledgement. acked_offset: the last one that was sent (Last.ACK.sent). ack_now:
    acknowledge at once. ack_deadline: when the delayed acknowledgement is due, or None. window_bytes: the window to
    advertise, counted from `next_offset`.
    Counted since the start: duplicate_segments (nothing new in them), duplicate_bytes, out_of_order_segments,
    beyond_window_bytes (dropped).

    Window rule: the application takes in-order octets at once, and out-of-order ones lie inside the window (they are
    at most `window_bytes` beyond `next_offset`), so the window is the whole buffer. It only grows, so the right edge
    never moves back (RFC 9293 §3.8.6), and what is held out of order never exceeds it.
    It grows as Linux's right-sizing does: to 4 times the octets that came in order in the present or an earlier
    round trip, up to max_window_bytes; until `on_rtt` told a round trip, all octets so far count as one round.
    A sender that doubles per round trip therefore never waits for it (below max_window_bytes).
    """

    __slots__ = (
        "_ack_every_segments",
        "_assembler",
        "_blocks",
        "_delayed_ack_s",
        "_duplicate",
        "_quick_acks_left",
        "_recent",
        "_round_ends_at",
        "_round_offset",
        "_rtt_s",
        "_starts",
        "_unacked_segments",
        "ack_deadline",
        "ack_now",
        "acked_offset",
        "beyond_window_bytes",
        "duplicate_bytes",
        "duplicate_segments",
        "max_window_bytes",
        "next_offset",
        "out_of_order_segments",
        "window_bytes",
    )

    def __init__(
        self,
        *,
        mss_bytes: int,
        initial_window_bytes: int,
        max_window_bytes: int,
        delayed_ack_s: float = 0.040,
        ack_every_segments: int = 2,
        quick_acks: int | None = None,
        max_message_bytes: int = 2**40,
    ) -> None:
        """Start with nothing received.

        mss_bytes: payload of a full segment. delayed_ack_s: how long an acknowledgement may wait (below 0.5 s, RFC
        9293 §3.8.6.3). ack_every_segments: as many data segments are acknowledged at the latest; RFC 5681 §4.2 says 2.
        quick_acks: so many data segments are acknowledged one by one at first; None for half the initial window in
        segments, from 2 to 16, as Linux does. Raises ValueError naming the field.
        """
        if mss_bytes < 1:
            raise FieldError("mss_bytes", f"{mss_bytes} is less than 1")
        if not 0 < initial_window_bytes <= max_window_bytes:
            raise FieldError("initial_window_bytes", f"{initial_window_bytes} is not in 1 to {max_window_bytes}")
        if not 0 <= delayed_ack_s < 0.5:
            raise FieldError("delayed_ack_s", f"{delayed_ack_s} is not in [0, 0.5)")
        if ack_every_segments < 1:
            raise FieldError("ack_every_segments", f"{ack_every_segments} is less than 1")
        if quick_acks is None:
            quick_acks = min(max(initial_window_bytes // (2 * mss_bytes), 2), MAX_QUICK_ACKS)
        if quick_acks < 0:
            raise FieldError("quick_acks", f"{quick_acks} is negative")
        self.next_offset = self.acked_offset = 0
        self.ack_now = False
        self.ack_deadline: float | None = None
        self.window_bytes = initial_window_bytes
        self.max_window_bytes = max_window_bytes
        self.duplicate_segments = 0
        self.duplicate_bytes = 0
        self.out_of_order_segments = 0
        self.beyond_window_bytes = 0
        self._delayed_ack_s = delayed_ack_s
        self._ack_every_segments = ack_every_segments
        self._quick_acks_left = quick_acks
        self._unacked_segments = 0
        self._assembler = MessageAssembler(max_message_bytes=max_message_bytes)
        self._starts: list[int] = []  # of _blocks, for bisect
        self._blocks: list[_Block] = []  # ascending, disjoint, not adjacent, all above next_offset
        self._recent: OrderedDict[_Block, None] = OrderedDict()  # the last of it changed last
        self._duplicate: tuple[int, int] | None = None
        self._rtt_s: float | None = None
        self._round_offset = 0
        self._round_ends_at = inf

    def on_data(self, offset: int, payload: Buffer, push: bool, now: float) -> bool:
        """Take the payload of a segment at `offset`; tell whether `take_messages` has something new.

        `push`: the segment's PSH flag. An empty payload changes nothing. Raises StreamError when the peer's stream
        cannot be read on.
        """
        size = len(payload)
        if offset != self.next_offset or self._blocks or not 0 < size <= self.window_bytes:
            return self._on_irregular_data(offset, payload, now) if size else False
        if now >= self._round_ends_at:
            self._start_round(now)
        self.next_offset = stop = offset + size
        complete = self._assembler.feed(payload)
        wanted = (stop - self._round_offset) * _WINDOW_PER_ROUND
        if wanted > self.window_bytes:
            self.window_bytes = min(wanted, self.max_window_bytes)
        self._unacked_segments += 1
        if self._quick_acks_left:
            self._quick_acks_left -= 1
            self.ack_now = True
        elif self._unacked_segments >= self._ack_every_segments:  # RFC 5681 §4.2
            self.ack_now = True
        elif complete and push:
            # Our choice; RFC 5681 §4.2 permits it. The end of a burst is acknowledged at once, so that the sender
            # learns that all is there, or what is not, without waiting for the timer of a delayed acknowledgement.
            self.ack_now = True
        elif self.ack_deadline is None:
            self.ack_deadline = now + self._delayed_ack_s
        return complete

    def on_rtt(self, rtt_s: float, now: float) -> None:
        """Take a round-trip sample of the receiving side, from the echo of a timestamp (RFC 7323 §4).

        One sample per distinct echo is meant: a whole burst repeats the same one. A sample that includes the sender's
        idle time counts as at most twice the average, and a longer round only makes the window larger.
        Raises ValueError for a negative one.
        """
        if not rtt_s >= 0:
            raise FieldError("rtt_s", f"{rtt_s} is negative")
        average = self._rtt_s
        if average is None:
            self._rtt_s = rtt_s
            self._start_round(now)
        else:
            self._rtt_s = average + _RTT_GAIN * (min(rtt_s, 2 * average) - average)

    def _start_round(self, now: float) -> None:
        """Begin to count the octets of another round trip."""
        self._round_offset = self.next_offset
        self._round_ends_at = now + (self._rtt_s or 0.0)

    def sack_blocks(self, limit: int) -> tuple[tuple[int, int], ...]:
        """Return at most `limit` ranges (left, right) for a SACK option.

        First the duplicate that arrived since the last acknowledgement, if any (RFC 2883 §4), then what is held above
        `next_offset`, changed most recently first (RFC 2018 §4).
        """
        blocks: list[tuple[int, int]] = []
        if self._duplicate is not None:
            blocks.append(self._duplicate)
        for block in reversed(self._recent):
            if len(blocks) >= limit:
                break
            blocks.append((block.start, block.stop))
        return tuple(blocks[:limit])

    @property
    def has_sack_blocks(self) -> bool:
        """Whether `sack_blocks` has anything to report."""
        return bool(self._blocks) or self._duplicate is not None

    def acked(self) -> None:
        """Note that a segment with an acknowledgement, and the SACK blocks there are, has left."""
        self.acked_offset = self.next_offset
        self.ack_now = False
        self.ack_deadline = None
        self._unacked_segments = 0
        self._duplicate = None  # RFC 2883 §4: each duplicate is reported once

    def take_messages(self) -> list[tuple[int, Buffer]]:
        """Return the complete messages (message_id, data), oldest first, and remove them."""
        return self._assembler.messages()

    def _on_irregular_data(self, offset: int, payload: Buffer, now: float) -> bool:
        """Take data that is out of order, old, beyond the window, or that comes while there are gaps."""
        # RFC 5681 §4.2: out-of-order segments, and those that fill a gap, are acknowledged at once. RFC 9293 §3.10.7.4:
        # so are those outside of the window.
        self.ack_now = True
        expected = self.next_offset
        edge = expected + self.window_bytes
        stop = offset + len(payload)
        if stop > edge:
            self.beyond_window_bytes += stop - max(offset, edge)
            if offset >= edge:
                return False
            stop = edge
            payload = memoryview(payload)[: stop - offset]
        if offset < expected:
            self._note_duplicate(offset, min(stop, expected))
            if stop <= expected:
                self.duplicate_segments += 1
                return False
            payload = memoryview(payload)[expected - offset :]
            offset = expected
        elif offset > expected:
            self.out_of_order_segments += 1
        blocks = self._blocks
        if blocks and offset == blocks[-1].stop:
            # While a gap is open, everything behind it comes this way.
            block = blocks[-1]
            block.pieces.append(payload)
            block.stop = stop
            self._recent.move_to_end(block)
            return False
        self._insert(offset, stop, payload)
        return blocks[0].start == expected and self._deliver_first_block(now)

    def _insert(self, offset: int, stop: int, payload: Buffer) -> None:
        """Insert [offset, stop) and join it with the blocks that it overlaps or touches."""
        starts, blocks = self._starts, self._blocks
        low = bisect_right(starts, offset)
        if low and blocks[low - 1].stop >= offset:
            low -= 1
        high = bisect_right(starts, stop, low)
        touched = blocks[low:high]
        view = memoryview(payload)
        cursor = offset
        if touched and touched[0].start <= offset:
            start, pieces = touched[0].start, touched[0].pieces
        else:
            start, pieces = offset, []
        fresh = False
        for block in touched:
            if block.start > cursor:
                pieces.append(view[cursor - offset : block.start - offset])
                fresh = True
            if block.pieces is not pieces:
                pieces.extend(block.pieces)
            self._note_duplicate(max(block.start, offset), min(block.stop, stop))
            cursor = block.stop
        if stop > cursor:
            pieces.append(view[cursor - offset :])
            cursor = stop
            fresh = True
        if not fresh:
            self.duplicate_segments += 1
        merged = _Block(start, cursor, pieces)
        for block in touched:
            del self._recent[block]
        self._recent[merged] = None
        starts[low:high] = [start]
        blocks[low:high] = [merged]

    def _note_duplicate(self, start: int, stop: int) -> None:
        """Remember, for the next acknowledgement, that [start, stop) came again."""
        if start >= stop:
            return
        self.duplicate_bytes += stop - start
        if self._duplicate is None:  # of several, RFC 2883 §4 reports the first
            self._duplicate = (start, stop)

    def _deliver_first_block(self, now: float) -> bool:
        """Pass on the first block: it begins at `next_offset`. Tell whether that completed a message."""
        block = self._blocks.pop(0)
        del self._starts[0]
        del self._recent[block]
        if now >= self._round_ends_at:
            self._start_round(now)
        self.next_offset = block.stop
        complete = False
        feed = self._assembler.feed
        for piece in block.pieces:
            if feed(piece):
                complete = True
        wanted = (block.stop - self._round_offset) * _WINDOW_PER_ROUND
        if wanted > self.window_bytes:
            self.window_bytes = min(wanted, self.max_window_bytes)
        return complete
