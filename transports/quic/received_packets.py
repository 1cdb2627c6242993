"""The packet numbers received in a packet-number space, and when and how to acknowledge them (RFC 9000 §13.2)."""

from bicoastal.transports.quic.wire import encode_ack
from bicoastal.transports.recovery.ranges import RangeSet
from bicoastal.wan.units import INFINITY

ACK_RANGES = 32
"""The most ranges in one ACK frame, the newest first. RFC 9000 §13.2.3 leaves the number to the receiver."""

REMEMBERED_RANGES = 1024
"""The most ranges that are kept. The oldest numbers beyond them count as received: a very late packet is dropped."""

RANGES_BEFORE_PING = 16
"""From so many ranges on, the ACK asks for an acknowledgement. The ranges it has told of are then forgotten."""

QUICK_ACKS, QUICK_EVERY = 64, 2
"""So many packets after a pause are acknowledged two by two: a sender that starts measures their spread."""

PAUSE_S = 0.01


class ReceivedPackets:
    """The packet numbers received in 1-RTT packets, and when the next ACK is due.

    ack_at: when an ACK must leave (inf: none is owed). expected: one more than the largest number received.
    ack_every: so many ack-eliciting packets call for one at once; fewer wait for `ack_delay_s`. A packet out of order
    calls for an ACK at once, because it may show a loss (§13.2.1).
    """

    __slots__ = (
        "_ack_delay_s",
        "_ack_every",
        "_floor",
        "_in_order",
        "_largest_s",
        "_late",
        "_numbers",
        "_pending",
        "_quick",
        "ack_at",
        "expected",
    )

    def __init__(self, *, ack_every: int, ack_delay_s: float) -> None:
        self.ack_at = INFINITY
        self.expected = 0
        self._ack_every = ack_every
        self._ack_delay_s = ack_delay_s
        self._numbers = RangeSet()
        self._floor = 0  # lower numbers count as received, and no ACK tells of them
        self._largest_s = 0.0
        self._in_order = True
        self._quick = QUICK_ACKS
        self._pending = 0  # ack-eliciting packets that no ACK has told of
        self._late: list[int] = []  # numbers that came out of order since the last ACK

    def __contains__(self, number: int) -> bool:
        return number < self._floor or any(start <= number < stop for start, stop in self._numbers)

    def add(self, number: int, now: float) -> bool:
        """Note the arrival of a packet; tell whether it is new (RFC 9000 §12.3: a duplicate must be discarded)."""
        numbers = self._numbers
        if number < self._floor or not numbers.add(number, number + 1):
            return False
        expected = self.expected
        if number >= expected:
            self._in_order = number == expected
            if now - self._largest_s > PAUSE_S:
                self._quick = QUICK_ACKS
            self.expected = number + 1
            self._largest_s = now
        else:
            self._in_order = False
            self._late.append(number)
        if len(numbers) > REMEMBERED_RANGES:
            self._forget_below(next(iter(numbers))[1])
        return True

    def owe(self, now: float) -> None:
        """Note that the packet just added asks for an acknowledgement."""
        self._pending += 1
        every = self._ack_every
        if self._quick:
            self._quick -= 1
            every = min(every, QUICK_EVERY)
        if self._pending >= every or not self._in_order:
            self.ack_at = now
        elif self.ack_at == INFINITY:
            self.ack_at = now + self._ack_delay_s

    def frame(self, now: float) -> tuple[bytes, int, bool]:
        """Return the ACK frame that is due, the largest number it tells of, and whether to ask for its acknowledgement.

        The frame has the highest ranges, and all ranges that changed since the last frame.
        """
        ranges = list(self._numbers)
        told = ranges[: -ACK_RANGES - 1 : -1]
        if self._late and len(ranges) > ACK_RANGES:
            late = set(self._late[-ACK_RANGES:])
            told += [found for found in ranges[-ACK_RANGES - 1 :: -1] if any(found[0] <= n < found[1] for n in late)]
        self.ack_at = INFINITY
        self._pending = 0
        self._late.clear()
        return encode_ack(told, now - self._largest_s), self.expected - 1, len(ranges) > RANGES_BEFORE_PING

    def settle(self, largest: int) -> None:
        """Stop telling of numbers up to `largest`: the peer knows which of them arrived (RFC 9000 §13.2.4).

        A packet that is missing there is at least a round trip late, and is dropped if it comes.
        """
        self._forget_below(largest)

    def _forget_below(self, bound: int) -> None:
        if bound > self._floor:
            self._floor = bound
            self._numbers.discard_below(bound)
