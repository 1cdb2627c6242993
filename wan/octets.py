"""Messages that consist of a repeated array: sent and checked with little memory.

Every octet is really sent, and every octet is compared when it arrives. But neither end needs a whole copy of a message
in stripes. At the sender the stripes are views of one buffer, as long as the longest of them. At the receiver the
repetitions within each stripe are compared, and only one array is stored.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bicoastal.wan.checks import FieldError

Octets = npt.NDArray[np.uint8]
Buffer = bytes | bytearray | memoryview

_STEP = 1 << 18  # octets compared at a time: they fit a second-level cache


class Repeated:
    """`octets` repeated until there are `size` octets. `octets` must not change while a view of it is in use.

    Raises FieldError when `octets` is empty.
    """

    __slots__ = ("_octets", "size")

    def __init__(self, octets: Octets, size: int) -> None:
        if not octets.size:
            raise FieldError("octets", "there are none to repeat")
        self._octets = octets
        self.size = size

    def stripes(self, edges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return read-only views of the octets from start to stop of each of `edges`, which share memory.

        Memory: none for stripes within the array; for all others together at most the longest stripe and the array.
        Raises FieldError for an edge outside of the message.
        """
        for start, stop in edges:
            if not 0 <= start <= stop <= self.size:
                raise FieldError("edges", f"{start} to {stop} is not within a message of {self.size} bytes")
        period = self._octets.size
        unrepeated = self._octets.data.toreadonly()
        places = [(start % period, stop - start) for start, stop in edges]
        wrapping = [(place, length) for place, length in places if place + length > period]
        shared_bytes = max((place + length for place, length in wrapping), default=0)
        if sum(length for _, length in wrapping) <= shared_bytes:  # copies take no more than the shared buffer
            return [
                unrepeated[place : place + length] if place + length <= period else self._copy(place, length)
                for place, length in places
            ]
        shared = _repeat(self._octets, shared_bytes).data.toreadonly()
        return [
            (unrepeated if place + length <= period else shared)[place : place + length] for place, length in places
        ]

    def _copy(self, place: int, length: int) -> memoryview:
        octets: Octets = np.empty(length, dtype=np.uint8)
        tail = self._octets[place:]
        octets[: tail.size] = tail
        octets[tail.size :] = _repeat(self._octets, length - tail.size)
        return octets.data.toreadonly()


class Collected:
    """A message that arrives in stripes, in any order, and must consist of `size` octets that repeat with `period`.

    Memory: one period, which is kept for the next iteration, since new pages take more time than a copy. It takes none
    where one stripe is the whole message.
    """

    __slots__ = ("_known", "_period", "_room", "_size", "_taken", "intact")

    def __init__(self, size: int, period: int) -> None:
        self._size = size
        self._period = min(period, size)
        self._room: Octets = np.empty(0, dtype=np.uint8)
        self.begin()

    def begin(self) -> None:
        """Forget the arrived stripes and expect the next message."""
        self._taken: list[tuple[int, int]] = []
        self._known: list[tuple[int, int]] = []  # which parts of the buffer are filled
        self.intact = True  # False as soon as one octet differs from the one a period before it

    def take(self, start: int, data: Buffer) -> Octets | None:
        """Take the stripe that begins at `start`; return the first period of the message when it is complete.

        The result is a view that is valid until the next `take`. Raises FieldError for a stripe outside of the message,
        and for a stripe with octets that have already arrived.
        """
        octets: Octets = np.frombuffer(data, dtype=np.uint8)
        stop = start + octets.size
        if start < 0 or stop > self._size or any(start < b and a < stop for a, b in self._taken):
            raise FieldError("data", f"{octets.size} bytes at {start} of {self._size} are not awaited")
        self._taken.append((start, stop))
        self.intact = self.intact and _repeats(octets, self._period)
        if octets.size == self._size:
            return octets[: self._period]
        if not self._room.size:
            self._room = np.empty(self._period, dtype=np.uint8)
        head = octets[: self._period]
        place = start % self._period
        before_wrap = min(head.size, self._period - place)
        self._put(place, head[:before_wrap])
        self._put(0, head[before_wrap:])
        complete = sum(b - a for a, b in self._taken) == self._size
        return self._room if complete else None

    def _put(self, place: int, piece: Octets) -> None:
        stop = place + piece.size
        for known_start, known_stop in self._known:
            low, high = max(place, known_start), min(stop, known_stop)
            if low < high and not np.array_equal(self._room[low:high], piece[low - place : high - place]):
                self.intact = False
        self._known.append((place, stop))
        self._room[place:stop] = piece


def _repeat(octets: Octets, size: int) -> Octets:
    """Return `size` octets, which are `octets` repeated."""
    filled = min(octets.size, size)
    repeated: Octets = np.empty(size, dtype=np.uint8)
    repeated[:filled] = octets[:filled]
    while filled < size:
        more = min(filled, size - filled)
        repeated[filled : filled + more] = repeated[:more]
        filled += more
    return repeated


def _repeats(octets: Octets, period: int) -> bool:
    """Return whether every octet equals the one a period before it."""
    for start in range(period, octets.size, _STEP):
        stop = min(start + _STEP, octets.size)
        if not np.array_equal(octets[start:stop], octets[start - period : stop - period]):
            return False
    return True
