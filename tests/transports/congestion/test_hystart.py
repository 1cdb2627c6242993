"""HyStart++ against the rules of RFC 9406 §4.2 and the constants of §4.3."""

import pytest

from bicoastal.transports.congestion.hystart import HyStart

MSS = 1000


def play_round(hystart: HyStart, rtt_s: float, samples: int = 8) -> None:
    for n in range(samples):
        hystart.on_ack(rtt_s=rtt_s, round_started=n == 0)


@pytest.mark.parametrize(
    ("base_s", "threshold_s"),
    [
        (0.010, 0.004),  # an eighth is 1.25 ms: MIN_RTT_THRESH
        (0.060, 0.0075),  # an eighth
        (0.200, 0.016),  # an eighth is 25 ms: MAX_RTT_THRESH
    ],
)
def test_slow_start_turns_conservative_when_the_rtt_has_grown_by_the_threshold(
    base_s: float, threshold_s: float
) -> None:
    below, above = HyStart(mss_bytes=MSS), HyStart(mss_bytes=MSS)
    for hystart in (below, above):
        play_round(hystart, base_s)
    play_round(below, base_s + threshold_s - 1e-6)
    play_round(above, base_s + threshold_s + 1e-6)
    assert not below.conservative
    assert above.conservative
    assert above.active


def test_the_first_round_has_nothing_to_compare_with() -> None:
    hystart = HyStart(mss_bytes=MSS)
    for rtt_s in (0.06, 0.07, 0.08, 0.09, 0.10, 0.11, 0.12, 0.13, 0.14, 0.15):
        hystart.on_ack(rtt_s=rtt_s, round_started=False)
    assert not hystart.conservative


def test_eight_samples_are_needed_and_acks_without_one_do_not_count() -> None:
    hystart = HyStart(mss_bytes=MSS)
    play_round(hystart, 0.06)
    play_round(hystart, 0.08, samples=7)
    for _ in range(5):
        hystart.on_ack(rtt_s=None, round_started=False)
    assert not hystart.conservative
    hystart.on_ack(rtt_s=0.08, round_started=False)
    assert hystart.conservative


def test_the_least_rtt_of_a_round_decides() -> None:
    hystart = HyStart(mss_bytes=MSS)
    play_round(hystart, 0.06)
    hystart.on_ack(rtt_s=0.06, round_started=True)
    for _ in range(20):
        hystart.on_ack(rtt_s=0.09, round_started=False)
    assert not hystart.conservative


def test_a_round_with_few_samples_still_is_the_next_one_s_reference() -> None:
    hystart = HyStart(mss_bytes=MSS)
    play_round(hystart, 0.06)
    play_round(hystart, 0.08, samples=3)
    play_round(hystart, 0.08)
    assert not hystart.conservative  # 80 ms against 80 ms


def test_conservative_slow_start_grows_a_quarter_as_fast() -> None:
    hystart = HyStart(mss_bytes=MSS)
    assert hystart.growth_bytes(2 * MSS) == 2 * MSS
    play_round(hystart, 0.06)
    play_round(hystart, 0.08)
    assert hystart.growth_bytes(2 * MSS) == MSS / 2


def test_one_ack_counts_for_eight_segments_at_most_or_for_all_when_paced() -> None:
    assert HyStart(mss_bytes=MSS).growth_bytes(50 * MSS) == 8 * MSS
    assert HyStart(mss_bytes=MSS, limit_segments=float("inf")).growth_bytes(50 * MSS) == 50 * MSS
    conservative = HyStart(mss_bytes=MSS)
    play_round(conservative, 0.06)
    play_round(conservative, 0.08)
    assert conservative.growth_bytes(50 * MSS) == 2 * MSS  # min(N, L SMSS) / 4


def test_slow_start_ends_after_five_rounds_the_partial_one_included() -> None:
    hystart = HyStart(mss_bytes=MSS)
    play_round(hystart, 0.06)
    play_round(hystart, 0.08)  # in whose eighth ACK conservative slow start begins: round 1 of 5
    for _ in range(4):
        play_round(hystart, 0.08)
        assert hystart.active
    hystart.on_ack(rtt_s=0.08, round_started=True)
    assert not hystart.active


def test_slow_start_resumes_when_the_rtt_comes_down_again() -> None:
    hystart = HyStart(mss_bytes=MSS)
    play_round(hystart, 0.06)
    play_round(hystart, 0.08)
    play_round(hystart, 0.079, samples=7)
    assert hystart.conservative
    hystart.on_ack(rtt_s=0.079, round_started=False)
    assert not hystart.conservative
    assert hystart.growth_bytes(MSS) == MSS


def test_resumed_slow_start_counts_its_five_rounds_anew() -> None:
    hystart = HyStart(mss_bytes=MSS)
    play_round(hystart, 0.06)
    for rtt_s in (0.08, 0.08, 0.08, 0.07):
        play_round(hystart, rtt_s)
    assert not hystart.conservative
    play_round(hystart, 0.09)
    assert hystart.conservative
    for _ in range(4):
        play_round(hystart, 0.09)
        assert hystart.active
    play_round(hystart, 0.09)
    assert not hystart.active


def test_equal_rtt_does_not_count_as_coming_down() -> None:
    hystart = HyStart(mss_bytes=MSS)
    play_round(hystart, 0.06)
    play_round(hystart, 0.08)
    play_round(hystart, 0.08)
    assert hystart.conservative


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mss_bytes": 0}, r"^mss_bytes: 0 is not positive$"),
        ({"mss_bytes": MSS, "limit_segments": 0.5}, r"^limit_segments: 0\.5 is less than 1$"),
        ({"mss_bytes": MSS, "limit_segments": float("nan")}, r"^limit_segments: nan is less than 1$"),
    ],
)
def test_impossible_arguments_are_refused_by_name(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HyStart(**arguments)  # type: ignore[arg-type]
