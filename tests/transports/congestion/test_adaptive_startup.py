"""The startup of the adaptive controller: its window before a rate is known, and how few packets show the rate."""

import pytest

from bicoastal.transports.congestion.adaptive import Adaptive
from bicoastal.transports.congestion.base import Ack
from bicoastal.transports.congestion.modes import Mode
from helpers.told_of_acks import tell

MSS = 8948
RTT_S = 0.060


def ack(now: float, sent_s: float, *, first: bool = False) -> Ack:
    """Return the acknowledgement of one segment."""
    return Ack(now, MSS, MSS, 0, 0, now - sent_s, first, True, False, sent_s)


def begun() -> Adaptive:
    """Return a controller with a burst before it."""
    congestion = Adaptive(mss_bytes=MSS)
    congestion.on_burst(0.0, 10**8)
    return congestion


def unlearned() -> Adaptive:
    """Return a controller whose window has grown to 40 segments by acknowledgements that came all at once."""
    congestion = begun()
    for _ in range(30):
        tell(congestion, ack(RTT_S, 0.0))
    assert congestion.cwnd_bytes == 40 * MSS
    assert congestion.learned_rate_bps is None
    return congestion


def test_before_a_rate_is_known_one_loss_reduces_the_window_and_slow_start_goes_on() -> None:
    congestion = unlearned()
    congestion.on_loss(RTT_S, MSS, 40 * MSS, 0.0)
    assert congestion.cwnd_bytes == pytest.approx(28 * MSS)  # RFC 9438 §4.6
    congestion.on_loss(RTT_S, MSS, 40 * MSS, 0.0)
    assert congestion.cwnd_bytes == pytest.approx(28 * MSS)  # once for what was sent before
    for _ in range(28):
        tell(congestion, ack(2 * RTT_S, RTT_S))
    assert congestion.cwnd_bytes == pytest.approx(56 * MSS)  # slow start goes on
    congestion.on_loss(6 * RTT_S, MSS, 56 * MSS, 5 * RTT_S)
    tell(congestion, ack(7 * RTT_S, 6 * RTT_S))
    assert congestion.cwnd_bytes == pytest.approx((0.7 * 56 + 1) * MSS)


def test_before_a_rate_is_known_a_second_loss_soon_ends_slow_start_and_the_window_is_paced() -> None:
    congestion = unlearned()
    congestion.on_loss(RTT_S, MSS, 40 * MSS, 0.0)
    congestion.on_loss(2 * RTT_S, MSS, 28 * MSS, RTT_S)
    window = 0.7 * 0.7 * 40  # segments
    assert congestion.cwnd_bytes == pytest.approx(window * MSS)
    for _ in range(round(window)):
        tell(congestion, ack(3 * RTT_S, 2 * RTT_S))
    assert congestion.cwnd_bytes == pytest.approx((window + 1) * MSS, rel=0.01)  # RFC 5681 §3.1: a segment each RTT
    assert congestion.pacing_rate_bps == pytest.approx(8 * (window + 1) * MSS / RTT_S, rel=0.15)
    for n in range(4, 21):
        congestion.on_loss(n * RTT_S, MSS, 2 * MSS, (n - 1) * RTT_S)
    assert congestion.cwnd_bytes == 2 * MSS


def test_before_a_rate_is_known_idle_time_halves_the_window_and_a_timeout_halves_ssthresh() -> None:
    congestion = unlearned()
    congestion.restart_after_idle(2.0, 0.35, 0.3, policy="decay")
    assert congestion.cwnd_bytes == 20 * MSS  # RFC 2861 §3.2
    congestion = unlearned()
    congestion.on_timeout(1.0, 40 * MSS, first=True)
    congestion.on_timeout(2.0, MSS, first=False)
    assert (congestion.cwnd_bytes, congestion.ssthresh_bytes) == (MSS, 20 * MSS)  # RFC 5681 §3.1


def test_after_startup_there_is_no_timeout_until_a_later_packet_is_acknowledged() -> None:
    congestion, now = begun(), RTT_S
    while congestion.mode is Mode.STARTUP:
        now += 0.001
        tell(congestion, ack(now, now - RTT_S))
    assert congestion.mode is Mode.CRUISE
    assert congestion.repair_timeout() is None
    tell(congestion, ack(now + RTT_S, now, first=True))
    assert congestion.repair_timeout() is not None


@pytest.mark.parametrize("segment_s", [0.003, 0.006, 0.012])
def test_an_initial_window_shows_the_rate_of_a_slow_path(segment_s: float) -> None:
    """What a BDP of 20, 10 or 5 segments has; but the next burst opens with no less than an initial window."""
    congestion = begun()
    for n in range(10):
        tell(congestion, ack(RTT_S + n * segment_s, 0.0, first=n == 0))
    congestion.on_burst(2.0, 10**6)
    assert congestion.mode is Mode.CRUISE
    assert congestion.learned_rate_bps == pytest.approx(max(8 * MSS / segment_s, 8 * 10 * MSS / RTT_S))


def test_a_probe_is_long_enough_to_put_four_segments_into_the_queue_of_a_slow_path() -> None:
    """An ACK may wait for a segment of the other direction, and an ACK of two segments shows the later one only.

    So the length of the queue is known to within two segments, and half of the probe's extra packets must be found.
    """
    congestion, segment_s = begun(), 0.003
    for n in range(10):
        tell(congestion, ack(RTT_S + n * segment_s, 0.0, first=n == 0))
    congestion.on_burst(2.0, 10**6)
    rate_bps = congestion.learned_rate_bps
    assert rate_bps is not None
    probing = [now for now in (2.0 + 0.001 * n for n in range(500)) if probes(congestion, now, rate_bps)]
    more_bps = 0.05 * rate_bps
    assert more_bps * (probing[-1] - probing[0]) / 8 == pytest.approx(4 * MSS, rel=0.02)


def probes(congestion: Adaptive, now: float, rate_bps: float) -> bool:
    """Tell whether more than the learned rate is sent at a moment, while what was sent before the probe arrives."""
    tell(congestion, ack(now, min(now - RTT_S, 1.99)))
    assert congestion.pacing_rate_bps is not None
    return congestion.pacing_rate_bps > 1.01 * rate_bps


def test_a_burst_that_arrived_slower_than_it_left_corrects_the_rate_for_the_next() -> None:
    congestion, segment_s = begun(), 0.0025
    for n in range(10):
        tell(congestion, ack(RTT_S + n * segment_s, 0.0, first=n == 0))
    congestion.on_burst(2.0, 32 * MSS)
    assert congestion.learned_rate_bps == pytest.approx(8 * MSS / segment_s)
    for n in range(32):
        tell(congestion, ack(2.0 + RTT_S + 1.4 * n * segment_s, 2.0 + n * segment_s))
    congestion.on_burst(4.0, 32 * MSS)
    assert congestion.learned_rate_bps == pytest.approx(8 * MSS / (1.4 * segment_s), rel=0.02)


def test_pauses_of_the_burst_that_showed_the_rate_do_not_lower_it() -> None:
    congestion, segment_s = Adaptive(mss_bytes=MSS), 0.003
    congestion.on_burst(0.0, 30 * MSS)
    for n in range(10):
        tell(congestion, ack(RTT_S + n * segment_s, 0.0, first=n == 0))
    for n in range(20):
        tell(congestion, ack(2 * RTT_S + n * segment_s, RTT_S, first=n == 0))
    assert congestion.mode is Mode.CRUISE
    congestion.on_burst(2.0, 30 * MSS)
    assert congestion.learned_rate_bps == pytest.approx(8 * MSS / segment_s, rel=0.1)
