"""RowRate: the bottleneck's rate from acknowledgements, with any pauses between rows."""

import pytest

from bicoastal.emulation.ends.kernel_adaptive import RowRate

MSS = 1448
RATE_BPS = 50e6


def feed(rate: RowRate, *, start_s: float, duration_s: float, rate_bps: float, acked: float = 0.0) -> float:
    """Add points every 2 ms, as a poll does; return what is acknowledged at the end."""
    for step in range(round(duration_s / 0.002)):
        acked += rate_bps * 0.002 / 8
        rate.add(start_s + step * 0.002, int(acked), mss_bytes=MSS)
    return acked


def test_acknowledgements_in_a_row_tell_the_bottlenecks_rate() -> None:
    rate = RowRate()
    feed(rate, start_s=0.0, duration_s=0.1, rate_bps=RATE_BPS)
    assert rate.rate_bps == pytest.approx(RATE_BPS, rel=0.01)


def test_pauses_between_rows_do_not_slow_it_down() -> None:
    rate = RowRate()
    acked = 0.0
    for burst in range(5):  # slow start at 60 ms: 20 ms of acknowledgements, 40 ms of silence
        acked = feed(rate, start_s=0.06 * burst, duration_s=0.02, rate_bps=RATE_BPS, acked=acked)
    assert rate.rate_bps == pytest.approx(RATE_BPS, rel=0.02)


@pytest.mark.parametrize(
    ("duration_s", "rate_bps"), [(0.014, RATE_BPS), (0.1, 16 * MSS * 8 / 0.2)], ids=["too short", "too few segments"]
)
def test_a_row_that_is_too_short_tells_nothing(duration_s: float, rate_bps: float) -> None:
    rate = RowRate()
    feed(rate, start_s=0.0, duration_s=duration_s, rate_bps=rate_bps)
    assert rate.rate_bps == 0.0


def test_points_at_which_nothing_is_new_do_not_count() -> None:
    rate = RowRate()
    for step in range(30):
        rate.add(step * 0.002, 1_000_000, mss_bytes=MSS)
    assert rate.rate_bps == 0.0


def test_an_acknowledgement_for_much_at_once_is_no_row() -> None:
    """After a loss is repaired, one acknowledgement covers what had arrived long before."""
    rate = RowRate()
    acked = feed(rate, start_s=0.0, duration_s=0.03, rate_bps=RATE_BPS)
    rate.add(0.1, int(acked) + 5_000_000, mss_bytes=MSS)
    feed(rate, start_s=0.102, duration_s=0.03, rate_bps=RATE_BPS, acked=acked + 5_000_000)
    assert rate.rate_bps == pytest.approx(RATE_BPS, rel=0.05)


def test_the_fastest_row_counts_and_a_new_burst_begins_with_no_row() -> None:
    rate = RowRate()
    acked = feed(rate, start_s=0.0, duration_s=0.05, rate_bps=RATE_BPS)
    rate.clear()
    acked = feed(rate, start_s=0.0505, duration_s=0.05, rate_bps=RATE_BPS / 2, acked=acked + 10_000_000)
    assert rate.rate_bps == pytest.approx(RATE_BPS, rel=0.02)
    feed(rate, start_s=0.2, duration_s=0.05, rate_bps=2 * RATE_BPS, acked=acked)
    assert rate.rate_bps == pytest.approx(2 * RATE_BPS, rel=0.02)


def test_a_slow_path_whose_acknowledgements_are_far_apart_still_has_rows() -> None:
    rate = RowRate()
    slow_bps = 2e6  # two segments take 11.6 ms: farther apart than a quarter of a row
    rate.rate_bps = slow_bps / 2  # once something is known, a pause of four packets is none
    acked = 0
    for step in range(40):
        acked += 2 * MSS
        rate.add(step * 2 * MSS * 8 / slow_bps, acked, mss_bytes=MSS)
    assert rate.rate_bps == pytest.approx(slow_bps, rel=0.05)
