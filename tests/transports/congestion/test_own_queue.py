"""How much queueing delay a paced sender causes itself, and how much is due to other senders."""

import pytest

from bicoastal.transports.congestion.measurement import QueueDelay
from bicoastal.transports.congestion.own_queue import OwnQueue
from bicoastal.transports.recovery.round_trips import RoundTrips

MSS = 9000
FAST_BPS = 5e9
SEGMENT_S = 8 * MSS / FAST_BPS  # 14 µs


def standing(least_s: float, then_s: float | None = None) -> OwnQueue:
    """Return what is made of the least round trip, and of a round in which all of them took as long as the other."""
    queue = QueueDelay(RoundTrips())
    for rtt_s in [least_s] if then_s is None else [least_s, *[then_s] * 60]:
        queue.rtt.add(rtt_s)
        queue.add(rtt_s)
    queue.low_s = None
    if then_s is not None:
        queue.rtt.add(then_s)
        queue.add(then_s)
    return OwnQueue(headroom=0.02, mss_bytes=MSS, queue=queue)


def test_headroom_probe_and_spare_segments_are_the_senders_own_queue() -> None:
    queue = standing(0.002)
    assert queue.probe_s == pytest.approx(0.002 / 64)
    assert queue.most_s == pytest.approx(0.02 * 0.002 + 0.002 / 64)
    assert queue.spare_s(FAST_BPS) == pytest.approx(4 * SEGMENT_S)
    assert standing(0.06).probe_s == pytest.approx(0.0005)  # as far as any probe goes
    assert queue.spare_s(None) == 0.0


def test_the_window_is_a_bandwidth_delay_product_and_the_own_queue() -> None:
    queue = standing(0.06, 0.06)
    assert queue.window_bytes(FAST_BPS) == pytest.approx(FAST_BPS * (0.06 + 0.0012 + 0.0005) / 8 + 4 * MSS, rel=1e-3)


@pytest.mark.parametrize(
    ("queued_s", "drains", "occupied"), [(0.00005, False, False), (0.00015, True, False), (0.0003, True, True)]
)
def test_on_a_short_path_a_few_segments_stand_without_another_sender(
    queued_s: float, drains: bool, occupied: bool
) -> None:
    """Of 2 ms; most_s is 71 µs there, the spare segments are 58."""
    queue = standing(0.002, 0.002 + queued_s)
    assert (queue.standing_s() > 0) == drains
    assert queue.is_occupied(FAST_BPS) == occupied
    assert queue.is_exceeded() == (queued_s > 2 * queue.most_s)


def test_no_queue_stands_before_the_first_sample_of_a_round() -> None:
    queue = standing(0.002)
    assert queue.standing_s() == 0.0
    assert not queue.is_occupied(FAST_BPS)
    assert not queue.is_exceeded()
