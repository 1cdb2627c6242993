"""What acknowledgements show of a path, on trains whose bottleneck is known."""

import pytest

from bicoastal.transports.congestion.measurement import (
    AckTrain,
    BurstRate,
    FlightDispersion,
    Point,
    QueueDelay,
    RateProbe,
    rate_between,
)
from bicoastal.transports.recovery.round_trips import RoundTrips

MSS = 1000
GAP_S = 0.001  # one segment per millisecond: 8 Mbit/s


def test_compressed_acknowledgements_do_not_show_more_than_was_sent() -> None:
    sent_over_ten = rate_between(Point(1.0, 0, 0.0), Point(1.0001, 10 * MSS, 10 * GAP_S))
    assert sent_over_ten == pytest.approx(8e6)
    assert rate_between(Point(1.0, 0, 0.5), Point(1.0, MSS, 0.5)) == 0.0


def test_a_train_shows_no_rate_before_its_window_is_full_and_then_follows_the_path() -> None:
    train = AckTrain()
    train.span_s = 0.010
    rates = [train.add(Point(n * GAP_S, n * MSS, n * GAP_S - 0.06)) for n in range(30)]
    assert rates[:10] == [0.0] * 10
    assert rates[10:] == pytest.approx([8e6] * 20)
    slower = [train.add(Point(0.029 + 2 * n * GAP_S, (29 + n) * MSS, 0.029 + n * GAP_S - 0.06)) for n in range(1, 30)]
    assert slower[-1] == pytest.approx(4e6)


def flight(dispersion: FlightDispersion, begins_s: float, segments: int, delivered: int, gap_s: float = GAP_S) -> int:
    for n in range(segments):
        delivered += MSS
        dispersion.add(begins_s + n * gap_s, delivered, min_rtt_s=0.06, mss_bytes=MSS)
    return delivered


def test_dispersion_takes_the_rate_from_each_flight_and_not_from_the_pauses_between() -> None:
    dispersion = FlightDispersion()
    delivered = flight(dispersion, 0.060, 10, 0)
    assert dispersion.rate_bps is None  # ten segments are too few to tell
    delivered = flight(dispersion, 0.120, 20, delivered)
    assert dispersion.rate_bps == pytest.approx(8e6)
    delivered = flight(dispersion, 0.180, 40, delivered)
    assert dispersion.rate_bps == pytest.approx(8e6)
    flight(dispersion, 0.240, 18, delivered, gap_s=4 * GAP_S)  # a fragment, slowed down by a repair
    assert dispersion.rate_bps == pytest.approx(8e6)


def short_flight(dispersion: FlightDispersion, gaps_s: list[float], *, leaving_gap_s: float = 0.0) -> float | None:
    """Acknowledge one segment, then one more after each gap, of a flight that left at time 0; RTT 60 ms."""
    at_s = 0.060
    for n, gap_s in enumerate([0.0, *gaps_s]):
        at_s += gap_s
        dispersion.add(at_s, (n + 1) * MSS, min_rtt_s=0.06, mss_bytes=MSS)
        point = Point(at_s, (n + 1) * MSS, n * leaving_gap_s)
        dispersion.add_short(point, new_flight=n == 0, min_rtt_s=0.06)
    return dispersion.rate_bps


def test_a_few_segments_show_the_rate_of_a_slow_path() -> None:
    assert short_flight(FlightDispersion(), 7 * [0.010]) == pytest.approx(0.8e6)
    assert short_flight(FlightDispersion(), 7 * [0.002]) is None  # 14 ms in all: an error of some would be too much
    assert short_flight(FlightDispersion(), 2 * [0.010]) is None  # of three acknowledgements
    assert short_flight(FlightDispersion(), [*6 * [0.010], 0.040]) == pytest.approx(0.8e6)  # the last was delayed


def test_segments_that_the_sender_has_spread_show_no_rate() -> None:
    assert short_flight(FlightDispersion(), 7 * [0.010], leaving_gap_s=0.010) is None
    assert short_flight(FlightDispersion(), 7 * [0.010], leaving_gap_s=0.005) == pytest.approx(0.8e6)


def test_a_short_flight_does_not_count_after_a_long_one() -> None:
    dispersion = FlightDispersion()
    flight(dispersion, 0.0, 20, 0)
    assert short_flight(dispersion, 7 * [0.010]) == pytest.approx(8e6)


def test_one_delayed_acknowledgement_is_not_a_queue_but_several_late_ones_are() -> None:
    queue = QueueDelay(RoundTrips())
    for rtt_s in (0.060, 0.060, 0.100, 0.060, 0.060):
        queue.rtt.add(rtt_s)
        queue.add(rtt_s)
    assert queue.now_s == 0.0
    for _ in range(4):
        queue.rtt.add(0.075)
        queue.add(0.075)
    assert queue.now_s == pytest.approx(0.015)
    assert queue.low_s == 0.0


def probe_of(found_share: float) -> tuple[RateProbe, float | None]:
    """Probe a path that delivers `found_share` of the extra five per cent."""
    probe, learned_bps = RateProbe(), 8e6
    probe.start(0.0, 0.020)
    rate_bps = learned_bps * (1 + found_share * probe.gain)
    found = None
    for n in range(30):
        sent_s = n * GAP_S
        found = found or probe.judge(Point(0.06 + n * 8 * MSS / rate_bps, n * MSS, sent_s * 0.9), learned_bps, 0.24)
    return probe, found


@pytest.mark.parametrize(
    ("found_share", "expected", "gain"), [(1.0, 8.4e6, 0.10), (0.6, 8.24e6, 0.05), (0.0, None, 0.05)]
)
def test_a_probe_takes_what_it_found_and_doubles_only_while_all_of_it_arrives(
    found_share: float, expected: float | None, gain: float
) -> None:
    probe, found = probe_of(found_share)
    assert found == (None if expected is None else pytest.approx(expected, rel=1e-3))
    assert probe.gain == pytest.approx(gain)
    assert not probe.running(0.01)


def burst_rate(*, arrive_s: float, leave_s: float, late_s: dict[int, float], segments: int = 32) -> float | None:
    """Return what a burst shows whose segments leave and arrive as far apart as given, some acknowledged later."""
    burst = BurstRate(segments * MSS)
    arrived = [(n * arrive_s + late_s.get(n, 0.0), n) for n in range(segments)]
    for at_s, n in sorted(arrived):
        burst.add(Point(0.06 + at_s, (n + 1) * MSS, n * leave_s))
    return burst.rate_bps


def test_a_burst_that_arrives_slower_than_it_left_shows_the_rate_despite_late_acknowledgements() -> None:
    assert burst_rate(arrive_s=0.003, leave_s=0.002, late_s={}) == pytest.approx(8 * MSS / 0.003)
    # the last comes 100 ms late, having been repaired; three came together, having waited; neither changes it by much
    late_s = {31: 0.1, 18: 0.006, 19: 0.003, 4: 0.003}
    assert burst_rate(arrive_s=0.003, leave_s=0.002, late_s=late_s) == pytest.approx(8 * MSS / 0.003, rel=0.02)


def test_a_burst_that_arrives_as_it_left_shows_no_rate() -> None:
    assert burst_rate(arrive_s=0.002, leave_s=0.002, late_s={31: 0.1}) is None
    assert burst_rate(arrive_s=0.0022, leave_s=0.002, late_s={}) is None
