"""Linux's HyStart: when trains of acknowledgements, or late ones, end slow start."""

import pytest

from bicoastal.transports.congestion.ack_train import AckTrainHyStart
from bicoastal.transports.congestion.base import Ack
from bicoastal.transports.congestion.cubic import Cubic

MSS = 1000
RTT_S = 0.060


def play_round(hystart: AckTrainHyStart, begin_s: float, acks: int, gap_s: float, rtt_s: float = RTT_S) -> float:
    """Let a round's ACKs come, `gap_s` apart; return when the last one came that it governed."""
    now = begin_s
    for n in range(acks):
        now = begin_s + n * gap_s
        hystart.on_ack(rtt_s=rtt_s, round_started=n == 0, now=now, window_segments=50)
        if not hystart.active:
            break
    return now


def test_a_train_longer_than_half_a_round_trip_ends_slow_start() -> None:
    hystart = AckTrainHyStart()
    assert play_round(hystart, 1.0, 30, 0.001) == pytest.approx(1.029)
    assert hystart.active
    assert play_round(hystart, 1.1, 60, 0.001) == pytest.approx(1.132)  # (60 + 2) / 2 ms, and the next ACK
    assert not hystart.active


def test_a_train_ends_where_more_than_two_milliseconds_are_between_acknowledgements() -> None:
    hystart = AckTrainHyStart()
    play_round(hystart, 1.0, 60, 0.0021)
    assert hystart.active


@pytest.mark.parametrize(("least_s", "threshold_s"), [(0.010, 0.004), (0.060, 0.0075), (0.400, 0.016)])
def test_eight_late_round_trips_end_slow_start(least_s: float, threshold_s: float) -> None:
    below, above = AckTrainHyStart(), AckTrainHyStart()
    for hystart, excess_s in ((below, -1e-4), (above, 1e-4)):
        play_round(hystart, 1.0, 9, 0.003, least_s)
        play_round(hystart, 2.0, 8, 0.003, least_s + threshold_s + excess_s)
        assert hystart.active
        hystart.on_ack(rtt_s=1.0, round_started=False, now=2.1, window_segments=50)
    assert below.active
    assert not above.active


def test_one_prompt_round_trip_among_late_ones_is_enough() -> None:
    hystart = AckTrainHyStart()
    play_round(hystart, 1.0, 9, 0.003)
    play_round(hystart, 2.0, 1, 0.003)
    for n in range(20):
        hystart.on_ack(rtt_s=0.1, round_started=False, now=2.003 + 0.003 * n, window_segments=50)
    assert hystart.active


def test_nothing_is_judged_below_sixteen_segments_nor_within_a_second_of_a_loss() -> None:
    hystart = AckTrainHyStart()
    for n in range(60):
        hystart.on_ack(rtt_s=RTT_S, round_started=n == 0, now=1.0 + 0.001 * n, window_segments=15.9)
    assert hystart.active
    hystart.on_loss(2.0)
    play_round(hystart, 2.9, 60, 0.001)
    assert hystart.active
    play_round(hystart, 3.1, 60, 0.001)
    assert not hystart.active
    hystart.on_timeout()
    assert hystart.active


def test_cubic_stays_at_the_window_at_which_the_train_became_too_long() -> None:
    congestion = Cubic(mss_bytes=MSS, initial_window_segments=50, ack_trains=True)
    for n in range(40):
        in_flight = int(congestion.cwnd_bytes)
        congestion.on_ack(Ack(1.0 + 0.001 * n, MSS, MSS, 0, in_flight, RTT_S, n == 0, True, False))
    assert congestion.ssthresh_bytes == (50 + 33) * MSS  # slow start until the ACK 32 ms after the first
    assert congestion.cwnd_bytes < (50 + 35) * MSS
