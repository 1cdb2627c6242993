"""Whether a loss episode was one: what was marked lost in it, and what of that was wrong (RFC 3522, RFC 3708)."""

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
        """Take back all marks, or one, of the packet at `start`; tell whether they were the last there were."""
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
        """Forget the episode: it is over."""
        self._marks.clear()
