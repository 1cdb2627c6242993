"""Corruption flips exactly one bit, at the place that the link draws."""

from hypothesis import given
from hypothesis import strategies as st

from bicoastal.emulation.links.corruption import flip_bit


@given(st.binary(min_size=1, max_size=64), st.floats(0, 1, exclude_max=True))
def test_exactly_one_bit_differs_and_it_lies_at_the_given_fraction(octets: bytes, position: float) -> None:
    flipped = flip_bit(octets, position)
    assert len(flipped) == len(octets)
    differing = [
        8 * index + bit
        for index, (before, after) in enumerate(zip(octets, flipped, strict=True))
        for bit in range(8)
        if (before ^ after) >> bit & 1
    ]
    assert len(differing) == 1
    assert differing[0] <= position * 8 * len(octets) < differing[0] + 1


def test_every_bit_can_be_hit() -> None:
    octets = bytes(3)
    assert len({flip_bit(octets, (bit + 0.5) / 24) for bit in range(24)}) == 24


def test_empty_octets_are_returned_unchanged() -> None:
    assert flip_bit(b"", 0.5) == b""
