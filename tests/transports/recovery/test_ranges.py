"""Every operation of a RangeSet is compared with the same operation on a plain set of integers."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bicoastal.transports.recovery.ranges import RangeSet

NUMBERS = st.integers(0, 60)


def range_set(ranges: Iterable[tuple[int, int]]) -> RangeSet:
    made = RangeSet()
    for start, stop in ranges:
        made.add(start, stop)
    return made


def runs(numbers: set[int]) -> list[tuple[int, int]]:
    """Return the maximal runs of consecutive integers, ascending."""
    return [
        (start, next(stop for stop in range(start, 10**6) if stop not in numbers))
        for start in sorted(numbers)
        if start - 1 not in numbers
    ]


class AgainstASet(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ranges = RangeSet()
        self.model: set[int] = set()

    @rule(start=NUMBERS, stop=NUMBERS)
    def add(self, start: int, stop: int) -> None:
        fresh = set(range(start, stop)) - self.model
        assert self.ranges.add(start, stop) == runs(fresh)
        self.model |= fresh

    @rule(start=NUMBERS, stop=NUMBERS)
    def discard(self, start: int, stop: int) -> None:
        gone = set(range(start, stop)) & self.model
        assert self.ranges.discard(start, stop) == runs(gone)
        self.model -= gone

    @rule(bound=NUMBERS)
    def discard_below(self, bound: int) -> None:
        gone = {number for number in self.model if number < bound}
        assert self.ranges.discard_below(bound) == len(gone)
        self.model -= gone

    @rule(start=NUMBERS, stop=NUMBERS)
    def covers(self, start: int, stop: int) -> None:
        assert self.ranges.covers(start, stop) == (set(range(start, stop)) <= self.model)

    @invariant()
    def alike(self) -> None:
        assert list(self.ranges) == runs(self.model)
        assert self.ranges.total == len(self.model)
        assert len(self.ranges) == len(runs(self.model))


TestAgainstASet = AgainstASet.TestCase


@given(st.lists(st.tuples(NUMBERS, NUMBERS)))
def test_the_order_of_additions_does_not_matter(ranges: list[tuple[int, int]]) -> None:
    assert list(range_set(ranges)) == list(range_set(reversed(ranges)))


def test_adjacent_ranges_become_one() -> None:
    ranges = range_set([(0, 5), (10, 15)])
    assert ranges.add(5, 10) == [(5, 10)]
    assert list(ranges) == [(0, 15)]


def test_it_shows_its_ranges() -> None:
    assert repr(range_set([(1, 3), (5, 6)])) == "RangeSet([(1, 3), (5, 6)])"
