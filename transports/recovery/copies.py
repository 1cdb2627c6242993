"""Second copies of repairs: a lost repair would cost another round trip, so a repair may go twice."""

from heapq import heappop, heappush

from bicoastal.transports.recovery.rack import SentPacket
from bicoastal.wan.units import INFINITY

TRANSMISSIONS = 2  # of a repair that is planned here: itself and one copy


class RepairCopies:
    """Which repairs are to go a second time, and when; and which duplicates were therefore asked for.

    due_s: when `take` has something, inf for never.
    """

    __slots__ = ("_copied", "_waiting", "due_s")

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, SentPacket]] = []
        self._copied: set[int] = set()
        self.due_s = INFINITY

    def plan(self, packet: SentPacket, at_s: float) -> None:
        """Have a repair sent again at `at_s`, unless it is acknowledged or lost by then."""
        heappush(self._waiting, (at_s, packet.start, packet))
        self.due_s = self._waiting[0][0]

    def take(self, now: float) -> list[SentPacket]:
        """Return, and forget, what is due."""
        waiting, due = self._waiting, []
        while waiting and waiting[0][0] <= now:
            packet = heappop(waiting)[2]
            if not packet.done and not packet.lost:
                self._copied.add(packet.start)
                due.append(packet)
        self.due_s = waiting[0][0] if waiting else INFINITY
        return due

    def expected(self, start: int) -> bool:
        """Tell whether a duplicate reported at offset `start` was sent on purpose; each is expected once."""
        if start in self._copied:
            self._copied.discard(start)
            return True
        return False

    def cancel(self) -> None:
        """Send none of what waits: all is acknowledged. Reports of duplicates may still come, and are expected."""
        self._waiting.clear()
        self.due_s = INFINITY

    def forget(self) -> None:
        """Expect no more reports: whatever was sent is long through."""
        self._copied.clear()
