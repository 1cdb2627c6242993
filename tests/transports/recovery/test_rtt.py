"""The RTO against RFC 6298 and against what Linux does; the minimum against a list of all samples."""

from random import Random

import pytest

from bicoastal.transports.recovery.rtt import RttEstimator


def rfc_estimator(min_rto_s: float = 0.000_1) -> RttEstimator:
    return RttEstimator(min_rto_s=min_rto_s, floor="total")


def test_before_any_sample_the_timeout_is_one_second() -> None:
    rtt = RttEstimator()
    assert rtt.rto_s == 1.0  # RFC 6298 §2.1
    assert rtt.srtt_s is None
    assert rtt.min_rtt_s == float("inf")


def test_first_sample_sets_mean_and_variation() -> None:
    rtt = rfc_estimator()
    rtt.sample(0.1, 0.0)
    assert rtt.srtt_s == 0.1
    assert rtt.rttvar_s == 0.05
    assert rtt.rto_s == pytest.approx(0.3)  # RFC 6298 §2.2: R + 4 R/2


def test_later_samples_move_the_variation_by_a_quarter_and_the_mean_by_an_eighth() -> None:
    rtt = rfc_estimator()
    rtt.sample(0.1, 0.0)
    rtt.sample(0.2, 1.0)
    # RFC 6298 §2.3: RTTVAR = 3/4 0.05 + 1/4 |0.1 - 0.2|, then SRTT = 7/8 0.1 + 1/8 0.2
    assert rtt.rttvar_s == pytest.approx(0.0625)
    assert rtt.srtt_s == pytest.approx(0.1125)
    assert rtt.rto_s == pytest.approx(0.3625)
    rtt.sample(0.1, 2.0)
    assert rtt.rttvar_s == pytest.approx(0.75 * 0.0625 + 0.25 * 0.0125)
    assert rtt.srtt_s == pytest.approx(0.875 * 0.1125 + 0.0125)


def steady(rtt: RttEstimator, rtt_s: float) -> RttEstimator:
    for n in range(200):
        rtt.sample(rtt_s, 0.001 * n)
    return rtt


def test_without_variation_linux_adds_its_floor_to_the_mean() -> None:
    assert steady(RttEstimator(), 0.06).rto_s == pytest.approx(0.26)


def test_without_variation_the_rfc_has_a_floor_under_the_whole() -> None:
    assert steady(RttEstimator(min_rto_s=1.0, floor="total"), 0.06).rto_s == 1.0
    assert steady(RttEstimator(min_rto_s=1.0, floor="total"), 3.0).rto_s == pytest.approx(3.001)


def test_the_variance_term_is_at_least_the_timers_granularity() -> None:
    assert steady(rfc_estimator(), 0.06).rto_s == pytest.approx(0.061)  # RFC 6298 §2.3: max(G, K*RTTVAR)
    assert steady(RttEstimator(min_rto_s=0.000_1), 0.06).rto_s == pytest.approx(0.061)


def test_a_floor_above_a_second_holds_before_the_first_sample() -> None:
    assert RttEstimator(min_rto_s=3.0, floor="total").rto_s == 3.0


def test_each_expiry_doubles_the_timeout_up_to_a_minute_and_a_sample_ends_it() -> None:
    rtt = RttEstimator()
    rtt.sample(0.1, 0.0)
    first_s = rtt.rto_s
    assert first_s == pytest.approx(0.3)
    timeouts = []
    for _ in range(9):
        rtt.back_off()
        timeouts.append(rtt.rto_s)
    assert timeouts == pytest.approx([0.6, 1.2, 2.4, 4.8, 9.6, 19.2, 38.4, 60, 60])  # RFC 6298 §2.5, §5.5
    for _ in range(5000):
        rtt.back_off()
    assert rtt.rto_s == 60
    rtt.sample(0.1, 1.0)
    assert rtt.rto_s <= first_s


def test_back_off_holds_before_the_first_sample_too() -> None:
    rtt = RttEstimator()
    rtt.back_off()
    assert rtt.rto_s == 2.0


def test_minimum_is_that_of_the_window_to_a_sixty_fourth() -> None:
    random = Random(6298)
    rtt = RttEstimator(min_window_s=8.0)
    samples: list[tuple[float, float]] = []
    now, level_s = 0.0, 0.06
    for _ in range(4000):
        now += random.expovariate(20)
        level_s = min(max(level_s * random.uniform(0.97, 1.031), 0.02), 0.5)
        samples.append((now, level_s))
        rtt.sample(level_s, now)
        surely = min(s for at, s in samples if at > now - 8.0)
        at_most = min(s for at, s in samples if at > now - 8.0 * (1 + 1 / 32))
        assert at_most <= rtt.min_rtt_s <= surely


def test_a_longer_path_is_believed_once_the_window_has_passed() -> None:
    rtt = RttEstimator(min_window_s=300.0)
    rtt.sample(0.06, 0.0)
    for second in range(1, 299):
        rtt.sample(0.08, float(second))
    assert rtt.min_rtt_s == 0.06
    for second in range(299, 320):
        rtt.sample(0.08, float(second))
    assert rtt.min_rtt_s == 0.08


def test_after_a_pause_longer_than_the_window_only_the_new_sample_counts() -> None:
    rtt = RttEstimator(min_window_s=300.0)
    rtt.sample(0.06, 0.0)
    rtt.sample(0.09, 1000.0)
    assert rtt.min_rtt_s == 0.09


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_rto_s": 0.0}, r"^min_rto_s: 0\.0 is not above 0 and at most 60$"),
        ({"min_rto_s": 61.0}, r"^min_rto_s: 61\.0 is not"),
        ({"min_rto_s": float("nan")}, r"^min_rto_s: nan is not"),
        ({"floor": "none"}, r"^floor: 'none' is neither 'variance' nor 'total'$"),
        ({"min_window_s": 0.0}, r"^min_window_s: 0\.0 is not positive and finite$"),
        ({"min_window_s": float("inf")}, r"^min_window_s: inf is not"),
    ],
)
def test_impossible_arguments_are_refused_by_name(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RttEstimator(**arguments)  # type: ignore[arg-type]
