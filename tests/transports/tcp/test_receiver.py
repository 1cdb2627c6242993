"""The receiving half against the tables of RFC 2018 and RFC 2883, and against any order of arrival."""

import itertools
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicoastal.transports.stream import StreamError
from bicoastal.transports.tcp.receiver import Receiver
from helpers.tcp_pair import HEAD

MSS = 500


def make(*, quick_acks: int = 0, **more: float) -> Receiver:
    return Receiver(
        mss_bytes=MSS, initial_window_bytes=100_000, max_window_bytes=100_000, quick_acks=quick_acks, **more
    )


def started_at(offset: int) -> Receiver:
    """Return a receiver that has all octets below `offset`, acknowledged."""
    receiver = make()
    receiver.on_data(0, HEAD.ljust(offset, b"\0"), False, 0.0)
    receiver.acked()
    return receiver


def arrive(receiver: Receiver, start: int, stop: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Let [start, stop) arrive; return the acknowledgement and the SACK blocks it triggers."""
    receiver.on_data(start, bytes(stop - start), False, 0.0)
    answer = receiver.next_offset, receiver.sack_blocks(3)
    receiver.acked()
    return answer


# RFC 2018 §4: eight segments of 500 octets, the left window edge at 5000.


def test_rfc_2018_case_1_the_last_four_are_dropped() -> None:
    receiver = started_at(5000)
    answers = [arrive(receiver, start, start + 500) for start in range(5000, 7000, 500)]
    assert answers == [(5500, ()), (6000, ()), (6500, ()), (7000, ())]


def test_rfc_2018_case_2_the_first_is_dropped() -> None:
    receiver = started_at(5000)
    answers = [arrive(receiver, start, start + 500) for start in range(5500, 9000, 500)]
    assert answers == [(5000, ((5500, right),)) for right in range(6000, 9500, 500)]


def test_rfc_2018_case_3_every_second_is_dropped_and_two_come_late() -> None:
    receiver = started_at(5000)
    assert [arrive(receiver, start, start + 500) for start in (5000, 6000, 7000, 8000)] == [
        (5500, ()),
        (5500, ((6000, 6500),)),
        (5500, ((7000, 7500), (6000, 6500))),
        (5500, ((8000, 8500), (7000, 7500), (6000, 6500))),
    ]
    assert arrive(receiver, 6500, 7000) == (5500, ((6000, 7500), (8000, 8500)))
    assert arrive(receiver, 5500, 6000) == (7500, ((8000, 8500),))


# RFC 2883 §4.1: whole duplicates.


def test_rfc_2883_a_duplicate_segment_is_reported_first_and_once() -> None:
    receiver = started_at(3000)
    assert arrive(receiver, 3000, 3500) == (3500, ())
    assert arrive(receiver, 3500, 4000) == (4000, ())
    assert arrive(receiver, 3000, 3500) == (4000, ((3000, 3500),))
    assert arrive(receiver, 4000, 4500) == (4500, ())
    assert (receiver.duplicate_segments, receiver.duplicate_bytes) == (1, 500)


def test_rfc_2883_an_out_of_order_segment_and_a_duplicate() -> None:
    receiver = started_at(4000)
    assert arrive(receiver, 4500, 5000) == (4000, ((4500, 5000),))
    assert arrive(receiver, 3000, 3500) == (4000, ((3000, 3500), (4500, 5000)))


def test_rfc_2883_a_duplicate_of_an_out_of_order_segment_is_followed_by_its_block() -> None:
    receiver = started_at(4000)
    assert arrive(receiver, 4500, 5000) == (4000, ((4500, 5000),))
    assert arrive(receiver, 5000, 5500) == (4000, ((4500, 5500),))
    assert arrive(receiver, 6000, 6500) == (4000, ((6000, 6500), (4500, 5500)))
    assert arrive(receiver, 5000, 5500) == (4000, ((5000, 5500), (4500, 5500), (6000, 6500)))


# RFC 2883 §4.2: duplicates that are part of a segment.


def test_rfc_2883_one_duplicate_part() -> None:
    receiver = started_at(1000)
    assert arrive(receiver, 2000, 2500) == (1000, ((2000, 2500),))
    assert arrive(receiver, 1000, 1500) == (1500, ((2000, 2500),))
    assert arrive(receiver, 1000, 2000) == (2500, ((1000, 1500),))
    assert (receiver.duplicate_segments, receiver.duplicate_bytes) == (0, 500)


def test_rfc_2883_of_two_duplicate_parts_the_first_is_reported() -> None:
    receiver = started_at(1000)
    arrive(receiver, 1500, 2000)
    arrive(receiver, 2500, 3000)
    assert arrive(receiver, 1000, 3500) == (3500, ((1500, 2000),))
    assert receiver.duplicate_bytes == 1000


def test_rfc_2883_duplicate_parts_above_the_acknowledgement() -> None:
    receiver = started_at(500)
    arrive(receiver, 1500, 2000)
    arrive(receiver, 2500, 3000)
    assert arrive(receiver, 1000, 3000) == (500, ((1500, 2000), (1000, 3000)))


def test_blocks_are_limited_to_what_fits() -> None:
    receiver = started_at(1000)
    for start in range(2000, 12000, 1000):
        receiver.on_data(start, bytes(500), False, 0.0)
    assert not receiver.sack_blocks(0)
    assert receiver.sack_blocks(3) == ((11000, 11500), (10000, 10500), (9000, 9500))
    receiver.on_data(0, bytes(10), False, 0.0)
    assert receiver.sack_blocks(3) == ((0, 10), (11000, 11500), (10000, 10500))
    assert receiver.sack_blocks(1) == ((0, 10),)


def test_it_says_whether_there_is_anything_to_report() -> None:
    receiver = started_at(1000)
    assert not receiver.has_sack_blocks
    receiver.on_data(0, bytes(10), False, 0.0)
    assert receiver.has_sack_blocks
    receiver.acked()
    assert not receiver.has_sack_blocks
    receiver.on_data(1500, bytes(10), False, 0.0)
    receiver.acked()
    assert receiver.has_sack_blocks


# When to acknowledge.


def test_at_least_every_second_segment_is_acknowledged_at_once() -> None:
    """RFC 5681 §4.2."""
    receiver, answered = started_at(16), []
    for turn in range(6):
        receiver.on_data(16 + turn * MSS, bytes(MSS), False, float(turn))
        answered.append(receiver.ack_now)
        if receiver.ack_now:
            assert receiver.next_offset == 16 + (turn + 1) * MSS
            receiver.acked()
    assert answered == [False, True] * 3


def test_a_single_segment_waits_for_the_delayed_acknowledgement_and_no_longer() -> None:
    """RFC 9293 §3.8.6.3: within half a second; the first segment that waits sets the deadline."""
    receiver = make(delayed_ack_s=0.1, ack_every_segments=3)
    assert receiver.ack_deadline is None
    receiver.on_data(0, HEAD, False, 5.0)
    receiver.on_data(16, bytes(MSS), False, 5.05)
    assert not receiver.ack_now
    assert receiver.ack_deadline == pytest.approx(5.1)
    receiver.acked()
    assert receiver.ack_deadline is None
    receiver.on_data(16 + MSS, bytes(MSS), False, 6.0)
    assert receiver.ack_deadline == pytest.approx(6.1)


def test_an_acknowledgement_that_leaves_for_another_reason_restarts_the_count() -> None:
    receiver = started_at(16)
    receiver.on_data(16, bytes(MSS), False, 0.0)
    receiver.acked()
    receiver.on_data(16 + MSS, bytes(MSS), False, 0.0)
    assert not receiver.ack_now


def test_the_first_segments_are_acknowledged_one_by_one() -> None:
    receiver, answered = make(quick_acks=3), []
    for offset, payload in ((0, HEAD), *((16 + turn * MSS, bytes(MSS)) for turn in range(5))):
        receiver.on_data(offset, payload, False, 0.0)
        answered.append(receiver.ack_now)
        if receiver.ack_now:
            receiver.acked()
    assert answered == [True, True, True, False, True, False]


@pytest.mark.parametrize(("window", "expected"), [(65535, 16), (10 * MSS, 5), (MSS, 2)])
def test_quick_acknowledgements_by_default_are_those_of_linux(window: int, expected: int) -> None:
    """Linux, tcp_incr_quickack: window / (2 MSS), at least 2, at most 16."""
    receiver = Receiver(mss_bytes=MSS, initial_window_bytes=window, max_window_bytes=1 << 20)
    quick = 0
    receiver.on_data(0, HEAD, False, 0.0)
    while receiver.ack_now:
        quick += 1
        receiver.acked()
        receiver.on_data(receiver.next_offset, b"x", False, 0.0)
    assert quick == expected


@pytest.mark.parametrize(
    ("start", "stop"),
    [(1500, 2000), (500, 1000), (900, 1100), (2500, 2700), (1000, 1200), (101_000, 101_500)],
    ids=["out of order", "duplicate", "partly duplicate", "second gap", "part of a gap", "beyond the window"],
)
def test_whatever_is_irregular_is_acknowledged_at_once(start: int, stop: int) -> None:
    """RFC 5681 §4.2, RFC 9293 §3.10.7.4."""
    receiver = started_at(1000)
    if (start, stop) in ((2500, 2700), (1000, 1200)):
        arrive(receiver, 2000, 2500)
    assert not receiver.ack_now
    receiver.on_data(start, bytes(stop - start), False, 0.0)
    assert receiver.ack_now


def test_a_segment_that_fills_the_gap_is_acknowledged_at_once() -> None:
    """RFC 5681 §4.2."""
    receiver = started_at(1000)
    arrive(receiver, 1500, 2000)
    receiver.on_data(1000, bytes(500), False, 0.0)
    assert (receiver.ack_now, receiver.next_offset) == (True, 2000)
    receiver.acked()
    receiver.on_data(2000, bytes(500), False, 0.0)
    assert not receiver.ack_now  # the gap is closed


def test_the_end_of_a_burst_is_acknowledged_at_once() -> None:
    whole = (9).to_bytes(8, "big") + (4).to_bytes(8, "big") + b"data"
    receiver = make()
    assert receiver.on_data(0, whole, True, 0.0)
    assert receiver.ack_now
    receiver = make()
    assert receiver.on_data(0, whole, False, 0.0)  # complete, but more is to come
    assert not receiver.ack_now
    receiver = make()
    assert not receiver.on_data(0, whole[:-1], True, 0.0)  # pushed, but not complete
    assert not receiver.ack_now


def test_an_empty_payload_changes_nothing() -> None:
    receiver = started_at(1000)
    for offset in (999, 1000, 5000):
        assert not receiver.on_data(offset, b"", True, 0.0)
    assert not receiver.ack_now
    assert receiver.ack_deadline is None


# Reassembly.


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]]]:
    """Return a stream of messages, and pieces of it in any order that cover it, with overlaps and repeats."""
    messages = draw(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=120)), min_size=1, max_size=4))
    octets = b"".join(
        identifier.to_bytes(8, "big") + len(data).to_bytes(8, "big") + data for identifier, data in messages
    )
    cuts = sorted({0, len(octets), *draw(st.lists(st.integers(0, len(octets)), max_size=12))})
    pieces = list(itertools.pairwise(cuts))
    extra = draw(
        st.lists(st.tuples(st.integers(0, len(octets)), st.integers(1, 200)).map(lambda two: (two[0], sum(two))))
    )
    pieces += [(start, min(stop, len(octets))) for start, stop in extra if start < len(octets)]
    return octets, draw(st.permutations(pieces))


@settings(max_examples=300)
@given(deliveries())
def test_any_order_with_overlaps_and_repeats_is_reassembled_byte_exactly(
    delivery: tuple[bytes, list[tuple[int, int]]],
) -> None:
    octets, pieces = delivery
    receiver = make()
    have: set[int] = set()
    got = b""
    duplicates = repeats = 0
    for start, stop in pieces:
        fresh = set(range(start, stop)) - have
        duplicates += stop - start - len(fresh)
        repeats += not fresh
        have |= fresh
        complete = receiver.on_data(start, memoryview(octets)[start:stop], False, 0.0)
        messages = receiver.take_messages()
        assert complete == bool(messages)
        for message_id, data in messages:
            got += message_id.to_bytes(8, "big") + len(data).to_bytes(8, "big") + data
        expected = next(n for n in range(len(octets) + 1) if n not in have)
        assert receiver.next_offset == expected
        receiver.acked()
        above = {number for number in have if number > expected}
        blocks = receiver.sack_blocks(1000)
        assert {number for left, right in blocks for number in range(left, right)} == above
        assert all(left - 1 not in have and right not in have for left, right in blocks)
        assert len(set(blocks)) == len(blocks)
        if blocks and fresh and min(fresh) > expected:
            assert blocks[0][0] <= min(fresh) < blocks[0][1]  # RFC 2018 §4: what came last is reported first
    assert got == octets
    assert (receiver.duplicate_bytes, receiver.duplicate_segments) == (duplicates, repeats)
    assert not receiver.has_sack_blocks


def test_a_message_is_reassembled_when_its_last_gap_is_filled() -> None:
    octets = (5).to_bytes(8, "big") + (10).to_bytes(8, "big") + b"0123456789"
    receiver = make()
    receiver.on_data(20, octets[20:], True, 0.0)
    assert receiver.take_messages() == []
    assert receiver.on_data(0, octets[:20], False, 0.0)
    assert [(message_id, bytes(data)) for message_id, data in receiver.take_messages()] == [(5, b"0123456789")]
    assert receiver.out_of_order_segments == 1


def test_a_stream_that_makes_no_sense_is_reported_in_order_and_out_of_order() -> None:
    absurd = (1).to_bytes(8, "big") + (2**63).to_bytes(8, "big")
    with pytest.raises(StreamError):
        make().on_data(0, absurd, False, 0.0)
    receiver = make()
    receiver.on_data(10, absurd[10:], False, 0.0)
    with pytest.raises(StreamError):
        receiver.on_data(0, absurd[:10], False, 0.0)


# What is refused.


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mss_bytes", 0),
        ("initial_window_bytes", 0),
        ("initial_window_bytes", 2001),
        ("delayed_ack_s", -0.1),
        ("delayed_ack_s", 0.5),
        ("delayed_ack_s", inf),
        ("ack_every_segments", 0),
        ("quick_acks", -1),
        ("max_message_bytes", -1),
    ],
)
def test_senseless_parameters_are_refused_by_name(field: str, value: float) -> None:
    arguments = {"mss_bytes": 500, "initial_window_bytes": 1000, "max_window_bytes": 2000, field: value}
    with pytest.raises(ValueError, match=rf"^{field}"):
        Receiver(**arguments)
