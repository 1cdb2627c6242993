"""Slow start round by round, and what every loss-based controller does about loss, for Reno and CUBIC alike."""

from collections.abc import Callable
from typing import Any

import pytest

from bicoastal.transports.congestion.base import Ack
from bicoastal.transports.congestion.cubic import Cubic
from bicoastal.transports.congestion.loss_based import LossBased
from bicoastal.transports.congestion.reno import Reno
from helpers.told_of_acks import tell

MSS = 1000
RTT_S = 0.1

Make = Callable[..., LossBased]


def plain_cubic(**arguments: Any) -> Cubic:
    return Cubic(mss_bytes=MSS, hystart=False, **arguments)


def reno(**arguments: Any) -> Reno:
    return Reno(mss_bytes=MSS, **arguments)


both = pytest.mark.parametrize("make", [reno, plain_cubic])


def acknowledge(
    congestion: LossBased,
    segments: float,
    now: float = 0.0,
    *,
    delivered: float | None = None,
    limited: bool = True,
    in_recovery: bool = False,
    rtt_s: float | None = RTT_S,
    round_started: bool = False,
) -> None:
    size = int(segments * MSS)
    delivered_bytes = size if delivered is None else int(delivered * MSS)
    flight = int(congestion.cwnd_bytes)
    tell(congestion, Ack(now, size, delivered_bytes, 0, flight, rtt_s, round_started, limited, in_recovery))


def windows(congestion: LossBased, rounds: int, segments_per_ack: int) -> list[float]:
    """Return the window, in segments, at the beginning of each round; the last ACK of a round covers what is left."""
    seen = []
    for number in range(rounds):
        seen.append(congestion.cwnd_bytes / MSS)
        left = int(seen[-1])
        while left:
            acknowledge(congestion, min(left, segments_per_ack), RTT_S * number)
            left -= min(left, segments_per_ack)
    return seen


@both
def test_without_delayed_acks_the_window_doubles_each_round(make: Make) -> None:
    assert windows(make(byte_count_limit=1), 5, 1) == [10, 20, 40, 80, 160]  # RFC 5681 §3.1 equation 2
    assert windows(make(byte_count_limit=2), 5, 1) == [10, 20, 40, 80, 160]


@both
def test_with_delayed_acks_and_limit_1_the_window_grows_by_half(make: Make) -> None:
    # RFC 5681: one segment per ACK, and there is one for every second segment, rounded up
    assert windows(make(byte_count_limit=1), 6, 2) == [10, 15, 23, 35, 53, 80]


@both
def test_with_delayed_acks_and_limit_2_the_window_doubles(make: Make) -> None:
    assert windows(make(byte_count_limit=2), 5, 2) == [10, 20, 40, 80, 160]  # RFC 3465 §2.2


@both
def test_a_stretch_ack_counts_for_the_limit_only(make: Make) -> None:
    congestion = make(byte_count_limit=2)
    acknowledge(congestion, 10)
    assert congestion.cwnd_bytes == 12 * MSS


@both
def test_an_ack_for_part_of_a_segment_counts_for_its_bytes(make: Make) -> None:
    congestion = make()
    for _ in range(4):
        acknowledge(congestion, 0.25)
    assert congestion.cwnd_bytes == 11 * MSS  # RFC 3465: no gain from dividing ACKs


@both
def test_ten_segments_are_the_initial_window(make: Make) -> None:
    assert make().cwnd_bytes == 10 * MSS  # RFC 6928
    assert make(initial_window_segments=4).cwnd_bytes == 4 * MSS


@both
def test_the_window_waits_while_the_application_limits_the_sender(make: Make) -> None:
    congestion = make()
    acknowledge(congestion, 2, limited=False)
    assert congestion.cwnd_bytes == 10 * MSS


@both
def test_the_window_waits_while_recovery_governs_and_for_acks_that_only_select(make: Make) -> None:
    congestion = make()
    acknowledge(congestion, 2, in_recovery=True)
    acknowledge(congestion, 0, delivered=1)  # RFC 5681 §3.2 step 1: cwnd stays
    assert congestion.cwnd_bytes == 10 * MSS


@both
def test_slow_start_stops_at_ssthresh_and_leaves_the_rest_to_congestion_avoidance(make: Make) -> None:
    congestion = make()
    congestion.ssthresh_bytes = 11.0 * MSS
    acknowledge(congestion, 2)
    assert 11 * MSS <= congestion.cwnd_bytes < 11.2 * MSS


@both
@pytest.mark.parametrize(("reduces", "window"), [("flight", 30), ("window", 100)])
def test_a_loss_takes_its_share_of_what_is_in_flight_or_of_the_window(make: Make, reduces: str, window: int) -> None:
    congestion = make(initial_window_segments=100, reduces=reduces)
    share = 0.5 if isinstance(congestion, Reno) else 0.7  # RFC 5681 §3.1 equation 4, RFC 9438 §4.6
    congestion.on_congestion(1.0, 30 * MSS)
    congestion.on_timeout(1.1, 10 * MSS, first=False)
    assert congestion.ssthresh_bytes == pytest.approx(share * window * MSS)


def test_what_a_loss_is_to_reduce_is_checked_by_name() -> None:
    with pytest.raises(ValueError, match=r"^reduces: "):
        reno(reduces="cwnd")


def test_reno_counts_what_is_left_at_ssthresh() -> None:
    congestion = reno()
    congestion.ssthresh_bytes = 11.0 * MSS
    acknowledge(congestion, 2)
    assert congestion.cwnd_bytes == 11 * MSS
    for _ in range(9):
        acknowledge(congestion, 1)
    assert congestion.cwnd_bytes == 11 * MSS
    acknowledge(congestion, 1)  # 1 left at ssthresh and 10 since: a window of 11
    assert congestion.cwnd_bytes == 12 * MSS


def test_reno_carries_over_what_exceeds_a_window() -> None:
    congestion = reno()
    congestion.ssthresh_bytes = congestion.cwnd_bytes
    for _ in range(4):
        acknowledge(congestion, 3)
    assert congestion.cwnd_bytes == 11 * MSS
    for _ in range(3):
        acknowledge(congestion, 3)
    assert congestion.cwnd_bytes == 12 * MSS  # RFC 3465 §2.1: 2 left and 9 since make a window of 11


def test_reno_counts_anew_after_a_loss() -> None:
    congestion = reno(initial_window_segments=100)
    congestion.ssthresh_bytes = congestion.cwnd_bytes
    acknowledge(congestion, 99)
    congestion.on_congestion(1.0, 100 * MSS)
    congestion.on_recovery_end(1.1)
    acknowledge(congestion, 49, 1.2)
    assert congestion.cwnd_bytes == 50 * MSS
    acknowledge(congestion, 1, 1.2)
    assert congestion.cwnd_bytes == 51 * MSS


# -- loss --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "share"), [(reno, 0.5), (plain_cubic, 0.7)])
def test_loss_takes_its_share_of_what_is_in_flight(make: Make, share: float) -> None:
    congestion = make(initial_window_segments=100)
    congestion.on_congestion(1.0, 80 * MSS)
    assert congestion.ssthresh_bytes == pytest.approx(80 * MSS * share)  # RFC 5681 equation 4, RFC 9438 §4.6
    assert congestion.cwnd_bytes == 100 * MSS  # until then PRR governs
    congestion.on_recovery_end(1.1)
    assert congestion.cwnd_bytes == congestion.ssthresh_bytes


@both
def test_ssthresh_never_falls_below_two_segments(make: Make) -> None:
    congestion = make()
    congestion.on_congestion(1.0, MSS)
    assert congestion.ssthresh_bytes == 2 * MSS
    congestion.on_timeout(2.0, 0, first=True)
    assert congestion.ssthresh_bytes == 2 * MSS


@both
def test_the_ack_that_ends_recovery_counts_only_for_what_it_delivers(make: Make) -> None:
    congestion = make(initial_window_segments=100)
    congestion.on_congestion(1.0, 100 * MSS)
    congestion.on_recovery_end(1.1)
    before = congestion.cwnd_bytes
    acknowledge(congestion, 100, 1.1, delivered=1)
    assert congestion.cwnd_bytes < before + MSS / 10
    acknowledge(congestion, 100, 1.2)
    assert congestion.cwnd_bytes > before + MSS / 3


@pytest.mark.parametrize(("make", "share"), [(reno, 0.5), (plain_cubic, 0.7)])
def test_a_timeout_begins_again_with_one_segment_and_a_repeated_one_keeps_ssthresh(make: Make, share: float) -> None:
    congestion = make(initial_window_segments=100)
    congestion.on_timeout(1.0, 80 * MSS, first=True)
    assert congestion.cwnd_bytes == MSS  # RFC 5681 §3.1: the loss window
    assert congestion.ssthresh_bytes == pytest.approx(80 * MSS * share)
    congestion.on_timeout(3.0, MSS, first=False)
    assert congestion.cwnd_bytes == MSS
    assert congestion.ssthresh_bytes == pytest.approx(80 * MSS * share)


@both
def test_after_a_timeout_one_ack_counts_for_one_segment_until_ssthresh(make: Make) -> None:
    congestion = make(initial_window_segments=20)
    congestion.on_timeout(1.0, 20 * MSS, first=True)
    threshold = int(congestion.ssthresh_bytes / MSS)
    for number in range(1, threshold):
        assert congestion.cwnd_bytes == number * MSS
        acknowledge(congestion, 5, 1.0 + 0.1 * number)  # RFC 3465 §2.3
    assert congestion.cwnd_bytes == threshold * MSS


@both
def test_the_next_slow_start_counts_two_segments_again(make: Make) -> None:
    congestion = make(initial_window_segments=20)
    congestion.on_timeout(1.0, 20 * MSS, first=True)
    for number in range(20):
        acknowledge(congestion, 1, 1.1 + 0.1 * number)
    congestion.ssthresh_bytes = float("inf")
    before = congestion.cwnd_bytes
    acknowledge(congestion, 2, 4.0)
    assert congestion.cwnd_bytes == before + 2 * MSS


# -- undoing -----------------------------------------------------------------------------------------------------------


@both
def test_a_spurious_recovery_is_undone(make: Make) -> None:
    congestion = make(initial_window_segments=100)
    congestion.on_congestion(1.0, 100 * MSS)
    congestion.on_recovery_end(1.1)
    congestion.undo()
    assert (congestion.cwnd_bytes, congestion.ssthresh_bytes) == (100 * MSS, float("inf"))


@both
def test_a_spurious_timeout_is_undone_however_often_it_was_repeated(make: Make) -> None:
    congestion = make(initial_window_segments=100)
    congestion.on_timeout(1.0, 100 * MSS, first=True)
    congestion.on_timeout(2.0, MSS, first=False)
    acknowledge(congestion, 1, 2.1)
    congestion.undo()
    assert (congestion.cwnd_bytes, congestion.ssthresh_bytes) == (100 * MSS, float("inf"))
    acknowledge(congestion, 2, 2.2)
    assert congestion.cwnd_bytes == 102 * MSS  # limit 2 again


@both
def test_undoing_a_timeout_within_recovery_goes_back_to_before_the_recovery(make: Make) -> None:
    congestion = make(initial_window_segments=100)
    congestion.on_congestion(1.0, 100 * MSS)
    congestion.on_timeout(1.5, 60 * MSS, first=True)
    congestion.undo()
    assert (congestion.cwnd_bytes, congestion.ssthresh_bytes) == (100 * MSS, float("inf"))


@both
def test_undoing_a_timeout_after_a_recovery_goes_back_to_before_the_timeout(make: Make) -> None:
    congestion = make(initial_window_segments=100)
    congestion.on_congestion(1.0, 100 * MSS)
    congestion.on_recovery_end(1.1)
    before = (congestion.cwnd_bytes, congestion.ssthresh_bytes)
    congestion.on_timeout(2.0, 50 * MSS, first=True)
    congestion.undo()
    assert (congestion.cwnd_bytes, congestion.ssthresh_bytes) == before


@both
def test_undoing_a_second_timeout_goes_back_to_before_it_not_to_before_the_recovery(make: Make) -> None:
    congestion = make(initial_window_segments=100)
    congestion.on_congestion(1.0, 100 * MSS)
    congestion.on_timeout(1.5, 60 * MSS, first=True)
    acknowledge(congestion, 1, 2.0)
    before = (congestion.cwnd_bytes, congestion.ssthresh_bytes)
    congestion.on_timeout(9.0, 2 * MSS, first=True)
    congestion.undo()
    assert (congestion.cwnd_bytes, congestion.ssthresh_bytes) == before


@both
def test_a_window_that_has_grown_beyond_stays(make: Make) -> None:
    congestion = make(initial_window_segments=10)
    congestion.on_congestion(1.0, 10 * MSS)
    congestion.on_recovery_end(1.1)
    congestion.cwnd_bytes = 30.0 * MSS
    congestion.undo()
    assert congestion.cwnd_bytes == 30 * MSS  # RFC 9438 §4.9.2
    assert congestion.ssthresh_bytes < 10 * MSS


@both
def test_there_is_only_one_reduction_to_undo(make: Make) -> None:
    congestion = make(initial_window_segments=100)
    congestion.undo()
    congestion.on_congestion(1.0, 100 * MSS)
    congestion.on_recovery_end(1.1)
    congestion.undo()
    congestion.cwnd_bytes = 20.0 * MSS
    congestion.undo()
    assert congestion.cwnd_bytes == 20 * MSS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mss_bytes": 0}, r"^mss_bytes: 0 is not positive$"),
        ({"mss_bytes": MSS, "initial_window_segments": 0}, r"^initial_window_segments: 0 is less than 1$"),
        ({"mss_bytes": MSS, "byte_count_limit": 0}, r"^byte_count_limit: 0 is less than 1$"),
    ],
)
@pytest.mark.parametrize("kind", [Reno, Cubic])
def test_impossible_arguments_are_refused_by_name(kind: Make, arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**arguments)
