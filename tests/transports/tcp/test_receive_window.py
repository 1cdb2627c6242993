"""The window that the receiving half offers: what it keeps out, and how it grows (RFC 9293 §3.8.6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.transports.stream import FRAME_BYTES
from bicoastal.transports.tcp.receiver import Receiver
from helpers.tcp_pair import HEAD, SERVER, Pair

MSS = 500


def opened(window: int, *, most: int | None = None) -> Receiver:
    """Return a receiver that has the announcement of an endless message, with this window and this most of one."""
    receiver = Receiver(
        mss_bytes=MSS, initial_window_bytes=window, max_window_bytes=window if most is None else most, quick_acks=0
    )
    receiver.on_data(0, HEAD, False, 0.0)
    return receiver


def test_data_beyond_the_window_is_dropped_and_counted() -> None:
    receiver = opened(1000)
    receiver.on_data(FRAME_BYTES, bytes(84), False, 0.0)
    receiver.on_data(1100, bytes(50), False, 0.0)
    assert (receiver.beyond_window_bytes, receiver.sack_blocks(3)) == (50, ())
    receiver.on_data(1050, bytes(100), False, 0.0)
    assert (receiver.beyond_window_bytes, receiver.sack_blocks(3)) == (100, ((1050, 1100),))
    receiver.on_data(100, bytes(1200), False, 0.0)  # in order, yet longer than the window
    assert (receiver.next_offset, receiver.beyond_window_bytes) == (1100, 300)


def test_no_more_is_held_than_the_window_allows() -> None:
    receiver = opened(4096)
    for start in range(FRAME_BYTES + 1, 20_000, 61):
        receiver.on_data(start, bytes(40), False, 0.0)
    held = sum(right - left for left, right in receiver.sack_blocks(10**6))
    assert 4096 * 0.6 < held <= 4096
    assert max(right for _, right in receiver.sack_blocks(10**6)) <= FRAME_BYTES + 4096


def slow_start(receiver: Receiver, *, rtt_s: float, rounds: int, spread_s: float, rtt_known: bool) -> list[int]:
    """Let a sender double per round trip; return by how much each round's window fell short (0 when it did not).

    The flight of each round arrives spread over `spread_s`. Each segment that is acknowledged lets the sender have
    one more in flight; the window that the acknowledgement carries must allow as much.
    """
    offset, flight, short = FRAME_BYTES, 10, []
    for turn in range(rounds):
        missing = 0
        for number in range(flight):
            now = (turn + 1) * rtt_s + spread_s * number / flight
            if rtt_known and number == 0 and turn:
                receiver.on_rtt(rtt_s, now)
            receiver.on_data(offset, bytes(MSS), False, now)
            offset += MSS
            cwnd = (flight + number + 1) * MSS
            missing = max(missing, cwnd - receiver.window_bytes)
        short.append(missing)
        flight *= 2
    return short


@pytest.mark.parametrize("spread_s", [0.0, 0.02, 0.0599])
@pytest.mark.parametrize("rtt_known", [True, False])
def test_a_sender_that_doubles_per_round_trip_is_never_limited(spread_s: float, rtt_known: bool) -> None:
    receiver = opened(20 * MSS, most=1 << 30)
    short = slow_start(receiver, rtt_s=0.06, rounds=10, spread_s=spread_s, rtt_known=rtt_known)
    assert short == [0] * 10


def test_the_window_is_at_least_twice_what_a_round_trip_delivers() -> None:
    """The rule of dynamic right-sizing, at a steady rate; and it does not grow without need."""
    receiver = opened(2 * MSS, most=1 << 30)
    receiver.on_rtt(0.06, 0.0)
    per_round = 100
    for number in range(50 * per_round):
        receiver.on_data(FRAME_BYTES + number * MSS, bytes(MSS), False, 0.06 * number / per_round)
    assert 2 * per_round * MSS <= receiver.window_bytes <= 5 * per_round * MSS


@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 3000), st.integers(1, 900), st.floats(0, 0.2)),
            st.floats(0, 1).map(lambda rtt_s: (rtt_s,)),
        )
    )
)
def test_the_right_edge_never_moves_back_and_the_window_keeps_to_its_bounds(steps: list[tuple[float, ...]]) -> None:
    """RFC 9293 §3.8.6: a receiver must not shrink the window."""
    receiver = opened(1000, most=6000)
    now, edge = 0.0, 0
    for step in steps:
        if len(step) == 1:
            receiver.on_rtt(step[0], now)
        else:
            ahead, size, wait_s = step
            now += wait_s
            receiver.on_data(max(0, receiver.next_offset + int(ahead) - 1000), bytes(int(size)), False, now)
        assert receiver.next_offset + receiver.window_bytes >= edge
        edge = receiver.next_offset + receiver.window_bytes
        assert 1000 <= receiver.window_bytes <= 6000


def test_a_sample_that_includes_idle_time_does_not_blow_up_the_round() -> None:
    receiver = opened(2 * MSS, most=1 << 30)
    receiver.on_rtt(0.06, 0.0)
    receiver.on_rtt(60.0, 1.0)  # one second of computation between two bursts, and more
    offset, now = FRAME_BYTES, 60.0
    for _ in range(1000):
        receiver.on_data(offset, bytes(MSS), False, now)
        offset += MSS
        now += 0.0006
    assert receiver.window_bytes <= 5 * 100 * MSS * 1.25


@pytest.mark.parametrize("rtt_s", [-1.0, float("nan")])
def test_a_senseless_round_trip_is_refused(rtt_s: float) -> None:
    with pytest.raises(ValueError, match=r"^rtt_s"):
        opened(1000).on_rtt(rtt_s, 0.0)


def test_the_window_grows_over_a_path_shorter_than_a_tick_of_the_timestamps() -> None:
    """Within a tick no round trip can be told; rounds of no time at all would count one segment each."""
    pair = Pair(mtu=9000, delay_s=0.0001).connect()
    pair.send(bytes(4_000_000))
    began_s = pair.now
    pair.run()
    ((at_s, data),) = pair.received(SERVER)
    assert data == bytes(4_000_000)
    assert at_s - began_s < 12 * 0.0002  # a doubling per round trip; with 65,535 bytes each it would be 61
