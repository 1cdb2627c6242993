"""The receivers: they reassemble the stream, and report for each path which packets arrived and which are missing."""

from typing import Protocol

from bicoastal.transports.events import Buffer
from bicoastal.transports.paced.packets import LAST, MAX_U32, Data, Report, most_gaps
from bicoastal.transports.recovery.ranges import RangeSet
from bicoastal.transports.stream import MessageAssembler
from bicoastal.wan.units import INFINITY

MOST_GAPS = 256  # in one report: 2 KiB; a usable path has far fewer per round trip
MOST_AHEAD = 2**31  # missing packets in a row; no path holds as many, and a report cannot list more


class Receiving(Protocol):
    """The interface of a receiver."""

    def on_data(self, path_id: int, packet: Data, now: float) -> bool:
        """Process a packet. Return whether it completed a message. Raises StreamError."""

    def messages(self) -> list[tuple[int, Buffer]]:
        """Remove and return the complete messages, oldest first."""

    def timer(self) -> float:
        """Return when a report is due, or infinity."""

    def reports(self, now: float, token: int) -> list[Report]:
        """Return the reports that are due."""


class Reassembly:
    """The stream in order. A piece keeps its limits when it is sent again, so its offset identifies it."""

    __slots__ = ("_assembler", "_next_offset", "_waiting")

    def __init__(self) -> None:
        self._assembler = MessageAssembler()
        self._next_offset = 0
        self._waiting: dict[int, Buffer] = {}

    def add(self, offset: int, piece: Buffer) -> bool:
        """Add a piece. Return whether it completed a message. Raises StreamError."""
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
        """Remove and return the complete messages."""
        return self._assembler.messages()


class _Arrivals:
    """The packet numbers of one path. missing: those from `floor` to `expected` that have not arrived."""

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

    A report is sent at once when a gap appears or is filled, and when the sender says that no packet follows.
    Otherwise it is sent after `ack_every` packets, or `ack_delay_s` after the first packet that was not reported.
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
        """Process a packet. See `Receiving`."""
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
            path.due_at = self._due_at = min(path.due_at, now)  # a copy: the report on the first one may be lost
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
        """Remove and return the complete messages."""
        return self._reassembly.messages()

    def timer(self) -> float:
        """Return when a report is due, or infinity."""
        return self._due_at

    def reports(self, now: float, token: int) -> list[Report]:
        """Return the reports that are due, one for each path."""
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
            # They do not all fit: newest and oldest take turns, so that each gap is reported.
            self._oldest_first = not self._oldest_first
            if self._oldest_first:
                stop = gaps[self._most_gaps][0]
                gaps = gaps[: self._most_gaps]
            else:
                start = gaps[-self._most_gaps - 1][1]
                gaps = gaps[-self._most_gaps :]
        delay_us = min(round((now - path.echo_at) * 1e6), MAX_U32)
        return Report(token, path_id, 0, path.echo, delay_us, start, stop, 0, 0, gaps)
