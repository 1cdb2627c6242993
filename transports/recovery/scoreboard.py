"""What was sent and what became of it: acknowledged, selectively acknowledged, in flight, or lost (RFC 6675 §3)."""

from bisect import bisect_right
from collections.abc import Iterable
from heapq import heappop, heappush

from bicoastal.transports.recovery.rack import SentPacket
from bicoastal.transports.recovery.ranges import Range, RangeSet

COMPACT = 4096  # acknowledged packets that may stand at the front of the list before they are cut off


class Scoreboard:
    """The packets from the first unacknowledged offset on, by offset, and the queue of those to be sent again.

    una: the first offset not acknowledged. in_flight: bytes sent and neither acknowledged nor marked lost (RFC 6675's
    pipe). sacked_segments: packets above `una` that were selectively acknowledged. delivered_bytes: acknowledged since
    the connection began, one way or the other.
    """

    __slots__ = (
        "_head",
        "_lost",
        "_packets",
        "_sacked",
        "_starts",
        "delivered_bytes",
        "in_flight",
        "sacked_segments",
        "una",
    )

    def __init__(self) -> None:
        self.una = 0
        self.in_flight = self.delivered_bytes = 0
        self.sacked_segments = 0
        self._packets: list[SentPacket] = []  # by offset; those before _head are acknowledged
        self._starts: list[int] = []  # of _packets, for bisect
        self._head = 0
        self._sacked = RangeSet()
        self._lost: list[tuple[int, SentPacket]] = []  # heap by offset; entries may be out of date

    def add(self, packet: SentPacket) -> None:
        """Take in a packet of data never sent before; each begins where the last one ended."""
        self._packets.append(packet)
        self._starts.append(packet.start)
        self.in_flight += packet.stop - packet.start

    def acknowledge(self, ack: int) -> list[SentPacket]:
        """Take a cumulative acknowledgement beyond `una`; return the packets it is the first to acknowledge."""
        packets, head = self._packets, self._head
        delivered: list[SentPacket] = []
        while head < len(packets):
            packet = packets[head]
            if packet.stop > ack:
                break
            head += 1
            if packet.done:
                self.sacked_segments -= 1
                continue
            self._deliver(packet, delivered)
        self.una = ack
        self._head = head
        if head > COMPACT and 2 * head > len(packets):
            del packets[:head], self._starts[:head]
            self._head = 0
        if self._sacked.total:
            self._sacked.discard_below(ack)
        return delivered

    def select(self, blocks: Iterable[Range], sent_to: int) -> list[SentPacket]:
        """Take SACK blocks (offsets; what is not below `sent_to` is a lie); return the packets that are new in them.

        A packet counts once all of it is acknowledged, be it bit by bit.
        """
        una, starts, packets = self.una, self._starts, self._packets
        delivered: list[SentPacket] = []
        for left, right in blocks:
            if right <= una or left >= right or right > sent_to:
                continue
            for start, stop in self._sacked.add(max(left, una), right):
                index = max(bisect_right(starts, start) - 1, self._head)
                while index < len(packets) and starts[index] < stop:
                    packet = packets[index]
                    index += 1
                    whole = start <= packet.start and packet.stop <= stop
                    if not packet.done and (whole or self._sacked.covers(max(packet.start, una), packet.stop)):
                        self.sacked_segments += 1
                        self._deliver(packet, delivered)
        return delivered

    def _deliver(self, packet: SentPacket, delivered: list[SentPacket]) -> None:
        size = packet.stop - packet.start
        packet.done = True
        self.delivered_bytes += size
        if not packet.lost:
            self.in_flight -= size
        delivered.append(packet)

    def lose(self, packets: Iterable[SentPacket]) -> int:
        """Queue packets that have been marked lost to be sent again; return their bytes."""
        size = 0
        for packet in packets:
            size += packet.stop - packet.start
            heappush(self._lost, (packet.start, packet))
        self.in_flight -= size
        return size

    def next_lost(self) -> SentPacket | None:
        """Return the lost packet with the lowest offset, and leave it in the queue."""
        lost = self._lost
        while lost:
            packet = lost[0][1]
            if packet.lost and not packet.done:
                return packet
            heappop(lost)
        return None

    def resent(self, packet: SentPacket) -> None:
        """Note that the packet that `next_lost` returned was sent again."""
        heappop(self._lost)
        packet.lost = False
        self.in_flight += packet.stop - packet.start

    def restore(self) -> list[SentPacket]:
        """Put packets back in flight that were marked lost and not sent again, and return them."""
        late = [packet for _, packet in self._lost if packet.lost and not packet.done]
        self._lost.clear()
        for packet in late:
            packet.lost = False
            self.in_flight += packet.stop - packet.start
        return late

    def first(self) -> SentPacket:
        """Return the first packet that is not acknowledged cumulatively. Raises IndexError when there is none."""
        return self._packets[self._head]

    def last(self) -> SentPacket:
        """Return the packet with the highest offset. Raises IndexError when there is none."""
        return self._packets[-1]
