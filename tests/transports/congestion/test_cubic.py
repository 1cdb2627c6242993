"""CUBIC's curve, regions and stages against RFC 9438, with numbers worked out by hand."""

from copy import deepcopy

import pytest

from bicoastal.transports.congestion.base import Ack
from bicoastal.transports.congestion.cubic import Cubic
from helpers.told_of_acks import tell

MSS = 1000
RTT_S = 0.1


def acknowledge(congestion: Cubic, segments: float, now: float, *, limited: bool = True, rtt_s: float = RTT_S) -> None:
    size, flight = int(segments * MSS), int(congestion.cwnd_bytes)
    tell(congestion, Ack(now, size, size, 0, flight, rtt_s, False, limited, False))


def run(congestion: Cubic, begin_s: float, until_s: float, *, rtt_s: float = RTT_S, acks_per_rtt: int = 50) -> float:
    """Acknowledge a window per round trip, in equal portions; return the window in segments."""
    now = begin_s
    for _ in range(round((until_s - begin_s) / rtt_s * acks_per_rtt)):
        now += rtt_s / acks_per_rtt
        acknowledge(congestion, congestion.cwnd_bytes / MSS / acks_per_rtt, now, rtt_s=rtt_s)
    return congestion.cwnd_bytes / MSS


def settled(window: float, *, fast_convergence: bool = True, full_alpha: bool = True) -> Cubic:
    """Return a CUBIC that lost a packet at time 0 with `window` segments in flight."""
    congestion = Cubic(mss_bytes=MSS, hystart=False, fast_convergence=fast_convergence, full_alpha=full_alpha)
    lose(congestion, window, 0.0)
    return congestion


def lose(congestion: Cubic, window: float, now: float) -> None:
    congestion.cwnd_bytes = float(window * MSS)
    congestion.on_congestion(now, int(window * MSS))
    congestion.on_recovery_end(now)


# K = cbrt((1000 - 700) / 0.4) = cbrt(750) = 9.086 s
@pytest.mark.parametrize(
    ("t_s", "window"),
    [
        (0.0, 700.0),
        (4.543, 1000 - 750 * 0.4 / 8),  # half of K: concave
        (9.086, 1000.0),  # K: the plateau
        (13.629, 1000 + 750 * 0.4 / 8),  # as far beyond: convex, and symmetric
        (18.172, 1300.0),
    ],
)
def test_the_window_follows_the_cubic(t_s: float, window: float) -> None:
    assert run(settled(1000), 0.0, t_s) == pytest.approx(window, rel=0.003)


def test_the_curve_does_not_depend_on_the_round_trip() -> None:
    for rtt_s in (0.03, 0.2):
        assert run(settled(1000), 0.0, 13.629, rtt_s=rtt_s) == pytest.approx(1037.5, rel=0.01)


@pytest.mark.parametrize(("full_alpha", "later"), [(True, 1.0), (False, 3 * 0.3 / 1.7)])
def test_in_the_reno_friendly_region_growth_is_alpha_and_then_one_segment_per_round_unless_told_not_to(
    full_alpha: bool, later: float
) -> None:
    congestion = settled(20, full_alpha=full_alpha)  # 14 segments, and 2.5 s to the plateau: 250 rounds of 10 ms
    before = congestion.cwnd_bytes / MSS
    after = run(congestion, 0.0, 0.05, rtt_s=0.01)
    assert (after - before) / 5 == pytest.approx(3 * 0.3 / 1.7, rel=0.01)  # RFC 9438 §4.3
    run(congestion, 0.05, 0.20, rtt_s=0.01)
    assert congestion.cwnd_bytes > 20 * MSS  # cwnd_prior
    before = congestion.cwnd_bytes / MSS
    after = run(congestion, 0.20, 0.25, rtt_s=0.01)
    assert (after - before) / 5 == pytest.approx(later, rel=0.01)


def test_fast_convergence_aims_lower_after_a_smaller_loss() -> None:
    # RFC 9438 §4.7: 800 < 1000, so W_max = 800 * 0.85 = 680 and K = cbrt((680 - 560) / 0.4) = 6.694 s
    congestion = settled(1000)
    lose(congestion, 800, 1.0)
    assert run(congestion, 1.0, 7.694) == pytest.approx(680, rel=0.003)
    # without it W_max = 800 and K = cbrt(240 / 0.4) = 8.434 s
    congestion = settled(1000, fast_convergence=False)
    lose(congestion, 800, 1.0)
    assert run(congestion, 1.0, 9.434) == pytest.approx(800, rel=0.003)


def test_fast_convergence_leaves_a_larger_loss_alone() -> None:
    congestion = settled(800)
    lose(congestion, 1000, 1.0)
    assert run(congestion, 1.0, 10.086) == pytest.approx(1000, rel=0.003)


def test_a_window_grows_by_half_per_round_trip_at_most() -> None:
    congestion = settled(100)
    acknowledge(congestion, 1, 0.001)
    before = congestion.cwnd_bytes
    acknowledge(congestion, 3 * before / MSS, 1000.0)  # by now the cubic is at 4e8 segments
    assert congestion.cwnd_bytes == pytest.approx(1.5 * before, rel=1e-3)  # RFC 9438 §4.2


def test_a_window_above_the_cubic_does_not_shrink() -> None:
    congestion = settled(1000)
    run(congestion, 0.0, 1.0)
    congestion.cwnd_bytes = 990.0 * MSS
    acknowledge(congestion, 10, 1.1)
    assert congestion.cwnd_bytes >= 990 * MSS


def test_a_window_above_the_reno_friendly_estimate_does_not_shrink() -> None:
    congestion = settled(20)
    run(congestion, 0.0, 0.05, rtt_s=0.01)
    congestion.cwnd_bytes = 30.0 * MSS
    acknowledge(congestion, 1, 0.06, rtt_s=0.01)
    assert congestion.cwnd_bytes == 30 * MSS


def test_time_limited_by_the_application_does_not_count() -> None:
    steady, paused = settled(1000), settled(1000)
    run(steady, 0.0, 2.0)
    run(paused, 0.0, 2.0)
    now = 2.0
    while now < 52.0:  # an application that sends less than the window allows
        now += 0.5
        acknowledge(paused, 1, now, limited=False)
    assert paused.cwnd_bytes == steady.cwnd_bytes
    assert run(paused, now, now + 6.0) == pytest.approx(run(steady, 2.0, 8.0), rel=1e-3)  # RFC 9438 §4.2, §5.8


@pytest.mark.parametrize(("idle_s", "policy"), [(50.0, "keep"), (0.15, "decay"), (0.15, "restart")])
def test_idle_time_does_not_count(idle_s: float, policy: str) -> None:
    steady, paused = settled(1000), settled(1000)
    run(steady, 0.0, 2.0)
    run(paused, 0.0, 2.0)
    paused.restart_after_idle(2.0 + idle_s, idle_s, 0.3, policy=policy)
    assert run(paused, 2.0 + idle_s, 8.0 + idle_s) == pytest.approx(run(steady, 2.0, 8.0), rel=1e-3)


def test_an_application_that_stays_slow_after_idleness_is_not_credited_twice() -> None:
    steady, paused = settled(1000), settled(1000)
    run(steady, 0.0, 2.0)
    run(paused, 0.0, 2.0)
    paused.restart_after_idle(52.0, 50.0, 0.3, policy="keep")
    acknowledge(paused, 1, 52.5, limited=False)
    assert run(paused, 52.5, 58.5) == pytest.approx(run(steady, 2.0, 8.0), rel=1e-3)


def test_a_window_that_idleness_has_decayed_returns_to_its_curve_by_half_per_round_trip_at_most() -> None:
    congestion = settled(1000)
    run(congestion, 0.0, 9.086)
    congestion.restart_after_idle(100.0, 0.45, 0.3, policy="decay")
    assert congestion.cwnd_bytes / MSS == pytest.approx(500, rel=0.003)
    assert congestion.ssthresh_bytes / MSS == pytest.approx(750, rel=0.003)
    acknowledge(congestion, 2, 100.1)
    assert congestion.cwnd_bytes / MSS == pytest.approx(502, rel=0.003)  # slow start
    while congestion.cwnd_bytes < congestion.ssthresh_bytes:
        acknowledge(congestion, 2, 100.1)
    # where it was before, and on from there: K of 9.086 s has passed, so a second later it is at 1000 + 0.4 * 1 s³
    assert run(congestion, 100.1, 100.1 + RTT_S) == pytest.approx(1000, rel=0.1)
    assert run(congestion, 100.1 + RTT_S, 101.1) == pytest.approx(1000, rel=0.005)


def test_a_decayed_window_does_not_jump_to_the_reno_friendly_estimate() -> None:
    congestion = settled(10)  # 7 segments: Reno's share of the curve
    run(congestion, 0.0, 5.0)
    estimate = congestion.cwnd_bytes
    congestion.restart_after_idle(100.0, 2.0, 0.3, policy="restart")
    congestion.cwnd_bytes = congestion.ssthresh_bytes = 10.0 * MSS
    acknowledge(congestion, 2, 100.1)
    assert 10 * MSS < congestion.cwnd_bytes <= 11 * MSS < estimate


def test_after_a_timeout_the_stage_begins_on_a_plateau() -> None:
    congestion = Cubic(mss_bytes=MSS, hystart=False)
    congestion.cwnd_bytes = 1000.0 * MSS
    congestion.on_timeout(0.0, 1000 * MSS, first=True)
    while congestion.cwnd_bytes < congestion.ssthresh_bytes:
        acknowledge(congestion, 1, 1.0)
    # RFC 9438 §4.8: K = 0 and W_max = 700, so 8 s later 700 + 0.4 * 8³
    assert run(congestion, 1.0, 9.0) == pytest.approx(700 + 204.8, rel=0.003)


def test_a_loss_in_slow_start_after_a_timeout_is_no_plateau() -> None:
    congestion = Cubic(mss_bytes=MSS, hystart=False)
    congestion.on_timeout(0.0, 3000 * MSS, first=True)
    lose(congestion, 1000, 1.0)
    assert run(congestion, 1.0, 5.543) == pytest.approx(962.5, rel=0.003)


def test_undoing_a_spurious_loss_in_slow_start_after_a_timeout_keeps_the_plateau_to_come() -> None:
    congestion = Cubic(mss_bytes=MSS, hystart=False)
    congestion.cwnd_bytes = 1000.0 * MSS
    congestion.on_timeout(0.0, 1000 * MSS, first=True)
    congestion.cwnd_bytes = 300.0 * MSS
    congestion.on_congestion(0.5, 300 * MSS)
    congestion.on_recovery_end(0.6)
    congestion.undo()
    while congestion.cwnd_bytes < congestion.ssthresh_bytes:
        acknowledge(congestion, 1, 1.0)
    assert run(congestion, 1.0, 9.0) == pytest.approx(700 + 204.8, rel=0.003)


def test_undoing_a_spurious_loss_goes_on_as_if_nothing_had_been() -> None:
    congestion = settled(1000)
    run(congestion, 0.0, 3.0)
    twin = deepcopy(congestion)
    congestion.on_congestion(3.0, 700 * MSS)
    congestion.on_recovery_end(3.1)
    acknowledge(congestion, 1, 3.2)
    congestion.undo()
    assert run(congestion, 3.2, 9.0) == pytest.approx(run(twin, 3.2, 9.0), rel=1e-12)  # RFC 9438 §4.9.2


# -- with HyStart++ ----------------------------------------------------------------------------------------------------


def hystart_round(congestion: Cubic, now: float, rtt_s: float) -> None:
    """A round of ACKs for two segments each, at the same RTT."""
    acks = int(congestion.cwnd_bytes / MSS) // 2
    for number in range(acks):
        flight = int(congestion.cwnd_bytes)
        tell(congestion, Ack(now, 2 * MSS, 2 * MSS, 0, flight, rtt_s, number == 0, True, False))


def test_hystart_ends_slow_start_without_loss_and_the_stage_begins_on_a_plateau() -> None:
    congestion = Cubic(mss_bytes=MSS, initial_window_segments=20)
    hystart_round(congestion, 0.0, 0.06)
    assert congestion.cwnd_bytes == 40 * MSS
    hystart_round(congestion, 0.1, 0.08)  # of 20 ACKs, 8 in slow start and 12 in conservative slow start
    assert congestion.cwnd_bytes == (40 + 16 + 24 / 4) * MSS
    rounds = 1
    while congestion.ssthresh_bytes == float("inf"):
        rounds += 1
        hystart_round(congestion, 0.1 * rounds, 0.08)
        assert rounds <= 6
    assert rounds == 6  # five rounds in all, the partial one included, end with the sixth's first ACK
    window = congestion.ssthresh_bytes / MSS
    assert window == pytest.approx(62 * 1.25**4, rel=0.02)
    begin_s = 0.1 * rounds
    # RFC 9438 §4.10: K = 0 and W_max = cwnd
    assert run(congestion, begin_s, begin_s + 8) == pytest.approx(window + 0.4 * 8**3, rel=0.03)


def test_hystart_s_limit_of_eight_holds_in_the_first_slow_start_only() -> None:
    congestion = Cubic(mss_bytes=MSS)
    acknowledge(congestion, 10, 0.0)
    assert congestion.cwnd_bytes == 18 * MSS  # RFC 9406 §4.3: L = 8 without pacing
    congestion.on_congestion(1.0, 18 * MSS)
    congestion.on_recovery_end(1.1)
    congestion.ssthresh_bytes = float("inf")
    before = congestion.cwnd_bytes
    acknowledge(congestion, 10, 1.2)
    assert congestion.cwnd_bytes == before + 2 * MSS


def test_after_a_loss_rising_round_trips_no_longer_end_slow_start() -> None:
    congestion = Cubic(mss_bytes=MSS, initial_window_segments=20)
    congestion.on_timeout(0.0, 2000 * MSS, first=True)
    congestion.cwnd_bytes = 20.0 * MSS
    for number, rtt_s in enumerate((0.06, 0.08, 0.10)):
        hystart_round(congestion, 1 + 0.1 * number, rtt_s)
    assert congestion.ssthresh_bytes == 1400 * MSS
    # one segment per ACK since the timeout, one ACK for two segments: 20, 30, 45, 67
    assert congestion.cwnd_bytes == 67 * MSS


def test_undoing_a_spurious_loss_gives_slow_start_back_to_hystart() -> None:
    congestion = Cubic(mss_bytes=MSS)
    congestion.on_congestion(1.0, 10 * MSS)
    congestion.undo()
    acknowledge(congestion, 10, 1.2)
    assert congestion.cwnd_bytes == 18 * MSS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"c": 0.0}, r"^c: 0\.0 is not positive$"),
        ({"beta": 1.0}, r"^beta: 1\.0 is not between 0 and 1$"),
    ],
)
def test_impossible_constants_are_refused_by_name(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Cubic(mss_bytes=MSS, **arguments)  # type: ignore[arg-type]


def test_the_prediction_uses_the_connections_round_trip_and_no_estimate_of_its_own() -> None:
    windows = []
    for owners_rtt_s in (0.01, 1.0):
        congestion = settled(1000)
        congestion.rtt.add(owners_rtt_s)
        for n in range(20):  # the same acknowledgements in both cases
            congestion.on_ack(Ack(0.1 + 0.01 * n, 20 * MSS, 20 * MSS, 0, 700 * MSS, RTT_S, False, True, False))
        windows.append(congestion.cwnd_bytes)
    assert windows[0] < windows[1]
