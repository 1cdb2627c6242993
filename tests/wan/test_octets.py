"""Messages that repeat an array, against Python's own repetition of bytes."""

from itertools import cycle, islice, pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.wan.octets import Collected, Repeated


def array_of(size: int) -> np.ndarray:
    return np.frombuffer(Random(size).randbytes(size), dtype=np.uint8)


def cut(size: int, cuts: list[float]) -> list[tuple[int, int]]:
    edges = sorted(round(part * size) for part in cuts)
    return list(pairwise([0, *edges, size]))


@given(
    period=st.integers(1, 60), more=st.integers(0, 300), cuts=st.lists(st.floats(0, 1), max_size=5), seed=st.integers()
)
def test_any_stripes_in_any_order_are_the_message_and_make_the_array_again(
    period: int, more: int, cuts: list[float], seed: int
) -> None:
    octets, size = array_of(period), period + more
    expected = bytes(islice(cycle(octets.tolist()), size))
    edges = cut(size, cuts)
    stripes = Repeated(octets, size).stripes(edges)
    assert b"".join(stripes) == expected
    collected = Collected(size, period)
    for _ in range(2):  # an iteration after the other
        collected.begin()
        arriving = [(start, view) for (start, _), view in zip(edges, stripes, strict=True) if len(view)]
        Random(seed).shuffle(arriving)
        *early, last = [collected.take(start, view) for start, view in arriving]
        assert early == [None] * len(early)
        assert last is not None
        assert bytes(last) == octets.tobytes()
        assert collected.intact


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize(("period", "size"), [(100, 100), (99, 100), (60, 100), (7, 100), (1, 100)])
def test_one_flipped_bit_shows_in_the_repetition_or_in_the_array(
    order: tuple[int, ...], period: int, size: int
) -> None:
    octets, edges = array_of(period), [(0, 30), (30, 65), (65, size)]
    stripes = [bytes(view) for view in Repeated(octets, size).stripes(edges)]
    for position in range(size):
        collected = Collected(size, period)
        for index in order:
            (start, stop), data = edges[index], bytearray(stripes[index])
            if start <= position < stop:
                data[position - start] ^= 1
            last = collected.take(start, data)
        assert last is not None
        assert not (collected.intact and bytes(last) == octets.tobytes())


def test_stripes_take_no_more_memory_than_the_longest_and_the_array() -> None:
    octets = array_of(1000)
    stripes = Repeated(octets, 400_000).stripes([(start, start + 100_000) for start in range(0, 400_000, 100_000)])
    assert len({id(view.obj) for view in stripes}) == 1
    assert memoryview(stripes[0].obj).nbytes <= 101_000
    inside, across = Repeated(octets, 1001).stripes([(0, 500), (500, 1001)])
    assert np.shares_memory(np.frombuffer(inside, dtype=np.uint8), octets)
    assert memoryview(across.obj).nbytes == 501


def test_stripes_outside_of_the_message_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^octets: there are none"):
        Repeated(array_of(0), 5)
    with pytest.raises(ValueError, match=r"^edges: 3 to 6 is not within a message of 5 bytes"):
        Repeated(array_of(5), 5).stripes([(3, 6)])
    collected = Collected(10, 4)
    collected.take(2, bytes(3))
    for start, size in ((-1, 2), (8, 3), (0, 3), (4, 1), (2, 3)):
        with pytest.raises(ValueError, match=rf"^data: {size} bytes at {start} of 10 are not awaited"):
            collected.take(start, bytes(size))
