"""Second copies of repairs. A lost repair costs another round trip, so a repair may be sent twice."""

from heapq import heappop, heappush

from bicoastal.transports.recovery.rack import SentPacket
from bicoastal.wan.units import INFINITY

TRANSMISSIONS = 2  # of a repair that is planned here: itself and one copy


class RepairCopies:
    """The repairs that the sender sends a second time, and the duplicates that it therefore expects.

    due_s: the time from which `take` returns a repair; inf where none waits.
    """

    __slots__ = ("_copied", "_waiting", "due_s")

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, SentPacket]] = []
        self._copied: set[int] = set()
        self.due_s = INFINITY

    def plan(self, packet: SentPacket, at_s: float) -> None:
        """Plan a second copy of a repair at `at_s`. It is dropped if the repair is acknowledged or lost by then."""
        heappush(self._waiting, (at_s, packet.start, packet))
        self.due_s = self._waiting[0][0]

    def take(self, now: float) -> list[SentPacket]:
        """Return the repairs whose second copy is due, and remove them."""
        waiting, due = self._waiting, []
        while waiting and waiting[0][0] <= now:
            packet = heappop(waiting)[2]
            if not packet.done and not packet.lost:
                self._copied.add(packet.start)
                due.append(packet)
        self.due_s = waiting[0][0] if waiting else INFINITY
        return due

    def expected(self, start: int) -> bool:
        """Return whether the sender sent the duplicate at offset `start` on purpose; each is expected once."""
        if start in self._copied:
            self._copied.discard(start)
            return True
        return False

    def cancel(self) -> None:
        """Drop all planned copies: everything is acknowledged. Reports of earlier duplicates stay expected."""
        self._waiting.clear()
        self.due_s = INFINITY

    def forget(self) -> None:
        """Expect no more reports of duplicates: every copy left long ago."""
        self._copied.clear()
