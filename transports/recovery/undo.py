"""Whether a loss episode was needless: the packets marked lost, and the marks that were wrong (RFC 3522, RFC 3708)."""

from collections.abc import Iterable

from bicoastal.transports.recovery.rack import SentPacket


class LossMarks:
    """Counts, by packet, how often it was marked lost in the present episode without that having been disproved.

    Two things disprove a mark. A timestamp echo older than the first repair says that the original arrived, so every
    mark of its packet was wrong. A DSACK says that one transmission was needless, so one mark was.
    """

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks: dict[int, int] = {}

    def add(self, lost: Iterable[SentPacket]) -> None:
        """Mark packets once more."""
        marks = self._marks
        for packet in lost:
            marks[packet.start] = marks.get(packet.start, 0) + 1

    def disprove(self, start: int, *, once: bool = False) -> bool:
        """Remove one mark, or all, of the packet at `start`; return whether no mark is left."""
        marks = self._marks
        left = marks.get(start, 0)
        if not left:
            return False  # of an earlier episode, or disproved already
        if once and left > 1:
            marks[start] = left - 1
        else:
            del marks[start]
        return not marks

    def clear(self) -> None:
        """Remove all marks: the episode is over."""
        self._marks.clear()
