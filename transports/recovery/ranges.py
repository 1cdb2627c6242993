"""Sets of integers kept as ranges: what is acknowledged, lost or received of a stream or of a packet-number space."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

Range = tuple[int, int]


class RangeSet:
    """A set of integers as sorted, disjoint, non-adjacent half-open ranges [start, stop).

    With n ranges a change costs O(log n) plus the shift of a list tail and whatever it swallows.
    `total` is the number of integers in the set. Iteration yields (start, stop), ascending; `len` counts ranges.
    """

    __slots__ = ("_starts", "_stops", "total")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        self.total = 0

    def add(self, start: int, stop: int) -> list[Range]:
        """Add [start, stop); return the sub-ranges that were not in the set before, ascending."""
        if start >= stop:
            return []
        starts, stops = self._starts, self._stops
        if not stops or start > stops[-1]:
            starts.append(start)
            stops.append(stop)
            self.total += stop - start
            return [(start, stop)]
        # Ranges low..high-1 overlap [start, stop) or touch it: they become one.
        low = bisect_left(stops, start)
        high = bisect_right(starts, stop, low)
        if low == high:
            starts.insert(low, start)
            stops.insert(low, stop)
            self.total += stop - start
            return [(start, stop)]
        added: list[Range] = []
        cursor = start
        for index in range(low, high):
            if starts[index] > cursor:
                added.append((cursor, starts[index]))
            cursor = max(cursor, stops[index])
        if stop > cursor:
            added.append((cursor, stop))
            cursor = stop
        if high - low == 1:
            starts[low] = min(start, starts[low])
            stops[low] = cursor
        else:
            starts[low:high] = [min(start, starts[low])]
            stops[low:high] = [cursor]
        for new_start, new_stop in added:
            self.total += new_stop - new_start
        return added

    def discard(self, start: int, stop: int) -> list[Range]:
        """Take [start, stop) out; return the sub-ranges that had been in the set, ascending."""
        if start >= stop:
            return []
        starts, stops = self._starts, self._stops
        low = bisect_right(stops, start)
        high = bisect_left(starts, stop, low)
        if low == high:
            return []
        removed = [(max(starts[index], start), min(stops[index], stop)) for index in range(low, high)]
        left, right = starts[low], stops[high - 1]
        kept_starts: list[int] = []
        kept_stops: list[int] = []
        if left < start:
            kept_starts.append(left)
            kept_stops.append(start)
        if right > stop:
            kept_starts.append(stop)
            kept_stops.append(right)
        starts[low:high] = kept_starts
        stops[low:high] = kept_stops
        for old_start, old_stop in removed:
            self.total -= old_stop - old_start
        return removed

    def discard_below(self, bound: int) -> int:
        """Take out everything below `bound`; return how many integers that was."""
        starts, stops = self._starts, self._stops
        if not starts or starts[0] >= bound:
            return 0
        count = bisect_right(stops, bound)
        removed = sum(stops[:count]) - sum(starts[:count])
        del starts[:count]
        del stops[:count]
        if starts and starts[0] < bound:
            removed += bound - starts[0]
            starts[0] = bound
        self.total -= removed
        return removed

    def covers(self, start: int, stop: int) -> bool:
        """Tell whether all of [start, stop) is in the set; an empty range always is."""
        if start >= stop:
            return True
        index = bisect_right(self._starts, start) - 1
        return index >= 0 and stop <= self._stops[index]

    def __iter__(self) -> Iterator[Range]:
        return zip(self._starts, self._stops, strict=True)

    def __len__(self) -> int:
        return len(self._starts)

    def __repr__(self) -> str:
        return f"RangeSet([{', '.join(f'({start}, {stop})' for start, stop in self)}])"
