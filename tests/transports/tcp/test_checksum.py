from hypothesis import example, given
from hypothesis import strategies as st

from bicoastal.transports.tcp.checksum import ones_complement_sum


def fold_words(data: bytes) -> int:
    """RFC 1071 §4.1, word by word: what every faster method has to agree with."""
    total = 0
    for index in range(0, len(data), 2):
        total += int.from_bytes(data[index : index + 2].ljust(2, b"\0"), "big")
        total = (total & 0xFFFF) + (total >> 16)
    return total


def test_numerical_example_of_rfc_1071_section_3() -> None:
    assert ones_complement_sum(bytes.fromhex("0001f203f4f5f6f7")) % 0xFFFF == 0xDDF2


@given(st.one_of(st.binary(max_size=70), st.binary(min_size=1015, max_size=1040)), st.integers(0, 3))
@example(b"\xff" * 8961, 1)
@example(b"\0" * 2000, 0)
def test_sum_agrees_with_the_word_by_word_sum_at_every_size_and_alignment(data: bytes, skip: int) -> None:
    view = memoryview(data)[skip:]
    assert ones_complement_sum(view) % 0xFFFF == fold_words(bytes(view)) % 0xFFFF


@given(st.binary(min_size=1, max_size=4), st.integers(500, 3000))
def test_sum_of_repeated_octets_agrees_for_long_data(pattern: bytes, count: int) -> None:
    data = pattern * count
    assert ones_complement_sum(data) % 0xFFFF == fold_words(data) % 0xFFFF
