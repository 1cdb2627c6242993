"""The receiving half: puts the stream together, and reports per path what has come and what is missing, at once."""

from typing import Protocol

from bicoastal.transports.events import Buffer
from bicoastal.transports.paced.packets import LAST, MAX_U32, Data, Report, most_gaps
from bicoastal.transports.recovery.ranges import RangeSet
from bicoastal.transports.stream import MessageAssembler
from bicoastal.wan.units import INFINITY

MOST_GAPS = 256  # in one report: 2 KiB, far more than a path loses per round trip unless it is nearly dead
MOST_AHEAD = 2**31  # packets that can be missing in a row; no path holds as many, and a report could not tell


class Receiving(Protocol):
    """What an endpoint asks of its receiving half."""

    def on_data(self, path_id: int, packet: Data, now: float) -> bool:
        """Take a packet; tell whether it completed a message. Raises StreamError."""

    def messages(self) -> list[tuple[int, Buffer]]:
        """Return, and forget, the complete messages, oldest first."""

    def timer(self) -> float:
        """Return when a report is due, or infinity."""

    def reports(self, now: float, token: int) -> list[Report]:
        """Return the reports that are due."""


class Reassembly:
    """The stream in order. Pieces are never cut anew when they are sent again, so their offsets identify them."""

    __slots__ = ("_assembler", "_next_offset", "_waiting")

    def __init__(self) -> None:
        self._assembler = MessageAssembler()
        self._next_offset = 0
        self._waiting: dict[int, Buffer] = {}

    def add(self, offset: int, piece: Buffer) -> bool:
        """Take a piece; tell whether it completed a message. Raises StreamError."""
        expected = self._next_offset
        waiting = self._waiting
        if offset != expected:
            if offset > expected and offset not in waiting:
                waiting[offset] = piece
            return False
        feed = self._assembler.feed
        complete = feed(piece)
        expected += len(piece)
        while waiting and (following := waiting.pop(expected, None)) is not None:
            complete |= feed(following)
            expected += len(following)
        self._next_offset = expected
        return complete

    def messages(self) -> list[tuple[int, Buffer]]:
        """Return, and forget, the complete messages."""
        return self._assembler.messages()


class _Arrivals:
    """The packet numbers of one path. missing: those below `expected` that have not come; below `floor` none counts."""

    __slots__ = ("due_at", "echo", "echo_at", "expected", "floor", "missing", "unreported")

    def __init__(self) -> None:
        self.expected = 0
        self.floor = 0
        self.missing = RangeSet()
        self.unreported = 0
        self.due_at = INFINITY
        self.echo = 0
        self.echo_at = 0.0


class SelectiveReceiver:
    """Takes packets in any order, over any path.

    A report goes out at once for a gap, for what fills one, and where the sender says that nothing else is to follow;
    otherwise after `ack_every` packets or `ack_delay_s` after the first that was not reported.
    """

    def __init__(self, *, paths: int, mtu_bytes: int, ack_every: int, ack_delay_s: float) -> None:
        self._reassembly = Reassembly()
        self._arrivals = [_Arrivals() for _ in range(paths)]
        self._ack_every = ack_every
        self._ack_delay_s = ack_delay_s
        self._most_gaps = min(most_gaps(mtu_bytes), MOST_GAPS)
        self._oldest_first = False
        self._due_at = INFINITY

    def on_data(self, path_id: int, packet: Data, now: float) -> bool:
        """Take a packet. See `Receiving`."""
        _, flags, number, behind, offset, payload = packet
        path = self._arrivals[path_id]
        expected = path.expected
        urgent = flags & LAST
        if number == expected:
            path.expected = number + 1
        elif number > expected:
            if number - expected > MOST_AHEAD:
                return False
            path.missing.add(expected, number)
            path.expected = number + 1
            urgent = True
        elif not path.missing.discard(number, number + 1):
            path.due_at = self._due_at = min(path.due_at, now)  # a copy: the report on the first may be lost
            return False
        else:
            urgent = True
        floor = number - behind
        if floor > path.floor:
            path.floor = floor
            if path.missing:
                path.missing.discard_below(floor)
        path.echo, path.echo_at = number, now
        path.unreported += 1
        if urgent or path.unreported >= self._ack_every:
            path.due_at = self._due_at = now
        elif path.unreported == 1:
            path.due_at = now + self._ack_delay_s
            self._due_at = min(self._due_at, path.due_at)
        return bool(payload) and self._reassembly.add(offset, payload)

    def messages(self) -> list[tuple[int, Buffer]]:
        """Return, and forget, the complete messages."""
        return self._reassembly.messages()

    def timer(self) -> float:
        """Return when a report is due, or infinity."""
        return self._due_at

    def reports(self, now: float, token: int) -> list[Report]:
        """Return the reports that are due, each for the path that it is about."""
        if now < self._due_at:
            return []
        out = []
        for path_id, path in enumerate(self._arrivals):
            if path.due_at <= now:
                path.due_at = INFINITY
                path.unreported = 0
                out.append(self._report(path_id, path, now, token))
        self._due_at = min(path.due_at for path in self._arrivals)
        return out

    def _report(self, path_id: int, path: _Arrivals, now: float, token: int) -> Report:
        start, stop = min(path.floor, path.expected), path.expected
        gaps = tuple(path.missing) if path.missing else ()
        if len(gaps) > self._most_gaps:
            # They do not fit: the newest, and every other time the oldest, so that none stays untold.
            self._oldest_first = not self._oldest_first
            if self._oldest_first:
                stop = gaps[self._most_gaps][0]
                gaps = gaps[: self._most_gaps]
            else:
                start = gaps[-self._most_gaps - 1][1]
                gaps = gaps[-self._most_gaps :]
        delay_us = min(round((now - path.echo_at) * 1e6), MAX_U32)
        return Report(token, path_id, 0, path.echo, delay_us, start, stop, 0, 0, gaps)
