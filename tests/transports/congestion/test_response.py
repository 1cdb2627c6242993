"""Average windows under a given loss rate, against the response functions of RFC 9438 and of Mathis et al. (1997).

An ideal path: a clock in the hand, acknowledgements evenly spread over the round trip, recovery in no time. At low loss
rates one ACK stands for several segments, which congestion avoidance by byte counting makes no difference of.
"""

from collections.abc import Iterator
from itertools import repeat
from math import log, sqrt
from random import Random

import pytest

from bicoastal.transports.congestion.base import Ack, CongestionControl
from bicoastal.transports.congestion.cubic import Cubic
from bicoastal.transports.congestion.reno import Reno
from helpers.told_of_acks import tell

MSS = 1000
RTT_S = 0.1


def average_window(
    congestion: CongestionControl, gaps: Iterator[int], *, events: int, settle: int, segments_per_ack: int, rtt_s: float
) -> float:
    """Return throughput times RTT, in segments, over `events` losses after `settle` more; `gaps` lie between them."""
    congestion.ssthresh_bytes = congestion.cwnd_bytes  # slow start is another matter
    now = begin_s = 0.0
    total = 0
    for number in range(settle + events):
        if number == settle:
            begin_s, total = now, 0
        left = next(gaps)
        total += left
        while left > 0:
            segments = min(left, segments_per_ack)
            left -= segments
            flight = int(congestion.cwnd_bytes)
            now += rtt_s * segments * MSS / congestion.cwnd_bytes
            size = segments * MSS
            tell(congestion, Ack(now, size, size, 0, flight, rtt_s, False, True, False))
        congestion.on_congestion(now, int(congestion.cwnd_bytes))
        congestion.on_recovery_end(now)
    return total * rtt_s / (now - begin_s)


def bernoulli_gaps(loss: float, seed: int) -> Iterator[int]:
    random = Random(seed)
    while True:
        yield 1 + int(log(1 - random.random()) / log(1 - loss))


def reno_window(loss: float) -> float:
    return sqrt(3 / (2 * loss))


def cubic_window(loss: float, rtt_s: float) -> float:
    return 1.054 * float((rtt_s / loss) ** 0.75)  # RFC 9438 §5.1


@pytest.mark.parametrize(("loss", "segments_per_ack"), [(1e-2, 1), (1e-3, 1), (1e-4, 2), (1e-5, 8)])
def test_reno_follows_its_square_root_under_periodic_loss(loss: float, segments_per_ack: int) -> None:
    window = average_window(
        Reno(mss_bytes=MSS),
        repeat(round(1 / loss)),
        events=10,
        settle=10,
        segments_per_ack=segments_per_ack,
        rtt_s=RTT_S,
    )
    assert window == pytest.approx(reno_window(loss), rel=0.05)


@pytest.mark.parametrize(
    ("loss", "segments_per_ack", "window"),
    [(1e-2, 1, 12), (1e-3, 1, 38), (1e-4, 2, 187), (1e-5, 16, 1054), (1e-6, 128, 5926)],
)
def test_cubic_keeps_the_windows_of_the_rfc_s_table_under_periodic_loss(
    loss: float, segments_per_ack: int, window: float
) -> None:
    congestion = Cubic(mss_bytes=MSS, hystart=False)
    average = average_window(
        congestion, repeat(round(1 / loss)), events=15, settle=20, segments_per_ack=segments_per_ack, rtt_s=RTT_S
    )
    assert average == pytest.approx(window, rel=0.10)  # RFC 9438 §5.1, table 1, C = 0.4


@pytest.mark.parametrize(("loss", "window"), [(1e-3, 38), (1e-4, 120)])
def test_at_a_short_round_trip_cubic_is_as_wide_as_reno(loss: float, window: float) -> None:
    congestion = Cubic(mss_bytes=MSS, hystart=False)
    average = average_window(congestion, repeat(round(1 / loss)), events=15, settle=20, segments_per_ack=1, rtt_s=0.01)
    assert average == pytest.approx(window, rel=0.10)  # RFC 9438 §5.1, table 2, C = 0.4


def test_cubic_with_another_c_moves_by_its_fourth_root() -> None:
    congestion = Cubic(mss_bytes=MSS, hystart=False, c=4.0)
    average = average_window(congestion, repeat(10_000), events=15, settle=20, segments_per_ack=2, rtt_s=RTT_S)
    assert average == pytest.approx(333, rel=0.10)  # RFC 9438 §5.1, table 1, C = 4


def test_reno_under_random_loss() -> None:
    # gaps of exponential length instead of equal ones make the mean window of a square-root law 1.065 times as wide
    window = average_window(
        Reno(mss_bytes=MSS), bernoulli_gaps(1e-3, 1), events=1500, settle=100, segments_per_ack=4, rtt_s=RTT_S
    )
    assert window == pytest.approx(1.065 * reno_window(1e-3), rel=0.05)


def test_cubic_under_random_loss() -> None:
    congestion = Cubic(mss_bytes=MSS, hystart=False)
    window = average_window(
        congestion, bernoulli_gaps(1e-4, 1), events=1500, settle=100, segments_per_ack=16, rtt_s=RTT_S
    )
    assert window == pytest.approx(1.12 * cubic_window(1e-4, RTT_S), rel=0.10)
