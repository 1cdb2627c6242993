"""One owner of a connection's round trips: what congestion control reads is what the estimator has published."""

import pytest

from bicoastal.transports.congestion.adaptive import Adaptive
from bicoastal.transports.congestion.base import Ack, CongestionControl
from bicoastal.transports.congestion.cubic import Cubic
from bicoastal.transports.quic.sent_packets import SentPackets
from bicoastal.transports.recovery.round_trips import RoundTrips
from bicoastal.transports.recovery.rtt import RttEstimator
from bicoastal.transports.tcp.sender import Sender

MSS = 1000


def test_a_single_long_round_trip_does_not_change_the_steady_estimate() -> None:
    """As when the receiver delays the acknowledgement of each burst's last segment."""
    data = RoundTrips()
    for _ in range(10):
        for _ in range(8):
            data.add(0.06)
        data.add(0.1)
    assert data.steady.srtt_s == pytest.approx(0.06)
    assert data.steady.rttvar_s < 0.001
    for _ in range(20):  # but a queue that grows shows in all of them
        data.add(0.1)
    assert data.steady.srtt_s == pytest.approx(0.1, rel=0.05)


def test_the_least_round_trip_is_forgotten_after_four_bursts_on_a_longer_path() -> None:
    data = RoundTrips()
    data.add(0.060)
    for _ in range(4):
        data.begin_burst()
        data.add(0.090)
    assert data.min_rtt_s == 0.060
    data.begin_burst()
    assert data.min_rtt_s == pytest.approx(0.090)


@pytest.mark.parametrize(("first_s", "then_s"), [(None, None), (0.2, 0.2)])
def test_a_restart_forgets_what_was_smoothed_before(first_s: float | None, then_s: float | None) -> None:
    data = RoundTrips()
    data.add(0.1)
    data.restart(first_s)
    assert data.srtt_s == then_s
    assert data.steady.srtt_s == 0.1
    data.add(0.2)
    assert data.srtt_s == 0.2


def test_congestion_control_sees_a_sample_when_it_is_published_and_none_of_the_handshake() -> None:
    rtt = RttEstimator()
    rtt.sample(0.01, 0.0, handshake=True)
    assert rtt.publish() is None
    assert rtt.data.srtt_s is rtt.data.min_rtt_s is None
    rtt.sample(0.06, 1.0)
    assert rtt.data.srtt_s is None
    assert rtt.publish() == rtt.data.srtt_s == rtt.data.min_rtt_s == rtt.data.steady.srtt_s == 0.06
    assert rtt.publish() is None
    assert rtt.srtt_s == pytest.approx(0.01 + 0.05 / 8)  # the timers count both


def tcp(congestion: CongestionControl, rtt: RttEstimator) -> None:
    """Acknowledge a TCP segment 60 ms after it left."""
    sender = Sender(mss_bytes=MSS, congestion=congestion, rtt=rtt, after_idle="decay", max_ack_delay_s=0.025)
    sender.window_edge = 100 * MSS
    sender.offer(MSS, 0.0)
    sender.transmissions(0.0)
    sender.on_ack(MSS, (), 0.06, None)


@pytest.mark.parametrize("doctored_s", [0.0, 0.5])
def test_every_reader_of_a_connection_follows_what_its_owner_takes_for_the_round_trip(doctored_s: float) -> None:
    class Doctored(RttEstimator):
        """Takes every round trip for longer than it was."""

        def sample(self, rtt_s: float, now: float, *, handshake: bool = False) -> None:
            super().sample(rtt_s + doctored_s, now, handshake=handshake)

    controllers: tuple[CongestionControl, ...] = (Cubic(mss_bytes=MSS), Adaptive(mss_bytes=MSS))
    for congestion in controllers:
        rtt = Doctored()
        tcp(congestion, rtt)
        assert congestion.rtt is rtt.data
        assert congestion.rtt.srtt_s == rtt.srtt_s == pytest.approx(0.06 + doctored_s)
        assert congestion.rtt.steady.srtt_s == congestion.rtt.min_rtt_s == rtt.min_rtt_s == rtt.srtt_s


def test_quic_gives_its_controller_the_estimates_of_the_path() -> None:
    congestion, rtt = Adaptive(mss_bytes=MSS), RttEstimator()
    SentPackets(congestion=congestion, rtt=rtt)
    assert congestion.rtt is rtt.data


def test_the_timeout_and_the_window_of_adaptive_follow_the_owner() -> None:
    """No acknowledgement carries the second series of samples: only the owner knows them."""
    congestion, rtt = Adaptive(mss_bytes=MSS), RttEstimator()
    congestion.follow(rtt.data)
    for n in range(20):
        rtt.sample(0.06, 0.06 + 0.001 * n)
        sample_s = rtt.publish()
        congestion.on_ack(Ack(0.06 + 0.001 * n, MSS, MSS, 0, 0, sample_s, n == 0, False, False, 0.0))
    congestion.on_burst(1.0, 10**6)
    before = congestion.repair_timeout()
    assert before is not None
    assert before.expected_s == pytest.approx(0.06)
    for n in range(200):
        rtt.sample(0.6, 1.0 + n)
        rtt.publish()
    after = congestion.repair_timeout()
    assert after is not None
    assert after.expected_s == rtt.data.steady.srtt_s == pytest.approx(0.6)
