"""Proportional rate reduction against RFC 9937: its figures (§8) and its properties (§7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.transports.recovery.prr import ProportionalRateReduction

MSS = 1000


class Episode:
    """Counts segments around a PRR whose sender always has data and sends all that it may."""

    def __init__(self, *, in_flight: int, lost: int, ssthresh: int, recover_fs: int) -> None:
        self.prr = ProportionalRateReduction(mss_bytes=MSS)
        self.prr.on_enter(in_flight_bytes=recover_fs * MSS, ssthresh_bytes=ssthresh * MSS)
        self.in_flight = in_flight
        self.lost = lost

    def ack(self, *, advanced: bool = False, send: bool = True) -> tuple[int, int, int]:
        """One segment is delivered; returns the figures' rows "c", "i" and how many segments are sent."""
        self.in_flight -= 1
        before = self.in_flight
        window_bytes = self.prr.on_ack(
            delivered_bytes=MSS, in_flight_bytes=before * MSS, lost_bytes=self.lost * MSS, advanced=advanced
        )
        self.lost = 0
        sent = int(window_bytes - before * MSS) // MSS if send else 0
        self.prr.on_sent(sent * MSS)
        self.in_flight += sent
        return int(window_bytes) // MSS, before, sent


def test_a_single_loss_is_spread_over_the_round_trip_as_in_figure_1() -> None:
    # 20 in flight, segment 0 lost, two sent by limited transmit: ACK#3 begins the episode with 18 in flight after it
    episode = Episode(in_flight=19, lost=1, ssthresh=10, recover_fs=20)
    rows = [episode.ack() for _ in range(3, 22)]
    windows, in_flight, sent = zip(*rows, strict=True)
    # rows c, i and s of figure 1 for ACK#3 to ACK#18
    assert windows[:16] == (19, 18, 18, 17, 17, 16, 16, 15, 15, 14, 14, 13, 13, 12, 12, 11)
    assert in_flight[:16] == (18, 18, 17, 17, 16, 16, 15, 15, 14, 14, 13, 13, 12, 12, 11, 11)
    assert sent[:16] == (1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0)
    # Then as many as ssthresh are in flight. By §6.2's strict comparison that is the reduction bound's, one ACK before
    # the figure has it; both have sent as much, and have ssthresh in flight, after ACK#21.
    assert sent[16:] == (0, 1, 1)
    assert sum(sent) == 10
    assert episode.in_flight == 10


def test_heavy_loss_keeps_to_packet_conservation_as_in_figure_2() -> None:
    # segments 0 to 14 lost; ACK#15 and ACK#16 sent two more by limited transmit; ACK#17 begins the episode
    episode = Episode(in_flight=5, lost=15, ssthresh=10, recover_fs=20)
    assert [episode.ack() for _ in (17, 18, 19)] == [(5, 4, 1), (5, 4, 1), (5, 4, 1)]


def test_after_heavy_loss_acks_that_make_progress_add_one_segment_each_up_to_ssthresh() -> None:
    episode = Episode(in_flight=5, lost=15, ssthresh=10, recover_fs=20)
    for _ in (17, 18, 19):
        episode.ack()
    flights = []
    for _ in range(8):
        episode.ack(advanced=True)
        flights.append(episode.in_flight)
    assert flights == [6, 7, 8, 9, 10, 10, 10, 10]  # §8: exactly one segment per ACK until ssthresh


@pytest.mark.parametrize(("advanced", "lost", "extra"), [(True, 0, 1), (True, 1, 0), (False, 0, 0), (False, 1, 0)])
def test_only_a_safe_ack_earns_the_extra_segment(advanced: bool, lost: int, extra: int) -> None:
    prr = ProportionalRateReduction(mss_bytes=MSS)
    prr.on_enter(in_flight_bytes=20 * MSS, ssthresh_bytes=10 * MSS)
    prr.on_sent(MSS)
    window = prr.on_ack(delivered_bytes=MSS, in_flight_bytes=4 * MSS, lost_bytes=lost * MSS, advanced=advanced)
    assert window == (5 + extra) * MSS


def test_cubic_s_smaller_reduction_sends_seven_for_ten() -> None:
    episode = Episode(in_flight=101, lost=0, ssthresh=70, recover_fs=101)
    sent = sum(episode.ack()[2] for _ in range(50))
    assert sent == 35  # ceil(50 * 70 / 101) is 35
    assert episode.in_flight == 101 - 50 + 35


def test_the_first_repair_goes_at_once_however_small_the_share() -> None:
    prr = ProportionalRateReduction(mss_bytes=MSS)
    prr.on_enter(in_flight_bytes=20 * MSS, ssthresh_bytes=10 * MSS)
    # nothing delivered, as when a timer found the loss
    assert prr.on_ack(delivered_bytes=0, in_flight_bytes=15 * MSS, lost_bytes=0, advanced=False) == 16 * MSS
    # in flight is ssthresh exactly, so the bound is nothing at all
    assert prr.on_ack(delivered_bytes=1, in_flight_bytes=10 * MSS, lost_bytes=0, advanced=False) == 11 * MSS


def test_an_ack_that_delivers_nothing_changes_nothing() -> None:
    prr = ProportionalRateReduction(mss_bytes=MSS)
    prr.on_enter(in_flight_bytes=20 * MSS, ssthresh_bytes=10 * MSS)
    window = prr.on_ack(delivered_bytes=MSS, in_flight_bytes=18 * MSS, lost_bytes=MSS, advanced=False)
    prr.on_sent(MSS)
    assert prr.on_ack(delivered_bytes=0, in_flight_bytes=15 * MSS, lost_bytes=0, advanced=False) == window == 19 * MSS


def test_what_was_sent_beyond_the_share_is_not_taken_back() -> None:
    prr = ProportionalRateReduction(mss_bytes=MSS)
    prr.on_enter(in_flight_bytes=20 * MSS, ssthresh_bytes=10 * MSS)
    prr.on_sent(5 * MSS)
    assert prr.on_ack(delivered_bytes=MSS, in_flight_bytes=18 * MSS, lost_bytes=0, advanced=False) == 18 * MSS


def test_below_ssthresh_too_chances_missed_are_banked() -> None:
    episode = Episode(in_flight=8, lost=12, ssthresh=10, recover_fs=20)
    episode.ack()
    for _ in range(3):
        episode.ack(send=False)
    assert episode.ack() == (8, 4, 4)  # min(10 - 4, prr_delivered - prr_out = 5 - 1)


def test_chances_missed_for_want_of_data_are_banked() -> None:
    stalled = Episode(in_flight=19, lost=1, ssthresh=10, recover_fs=20)
    steady = Episode(in_flight=19, lost=1, ssthresh=10, recover_fs=20)
    stalled.ack()
    steady.ack()
    for _ in range(6):
        stalled.ack(send=False)
        steady.ack()
    stalled.ack()
    steady.ack()
    # §7: a partial window burst catches up to exactly where it would have been
    assert stalled.in_flight == steady.in_flight


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=60),
    st.integers(2, 40),
)
def test_conservation_never_sends_more_than_was_delivered(acks: list[tuple[int, int]], ssthresh: int) -> None:
    prr = ProportionalRateReduction(mss_bytes=MSS)
    prr.on_enter(in_flight_bytes=80 * MSS, ssthresh_bytes=ssthresh * MSS)
    delivered = sent = 0
    in_flight = min(ssthresh, 20)
    for most, losses in acks:
        segments = min(most, in_flight)
        in_flight -= segments
        lost = min(losses, in_flight)
        in_flight -= lost
        delivered += segments
        window = prr.on_ack(
            delivered_bytes=segments * MSS, in_flight_bytes=in_flight * MSS, lost_bytes=lost * MSS, advanced=False
        )
        now = int(window) // MSS - in_flight
        prr.on_sent(now * MSS)
        sent += now
        in_flight += now
        # Appendix A's bound; the forced first repair may come before its ACK
        assert sent <= max(delivered, 1)
        assert in_flight <= max(ssthresh, 1)


def test_a_segment_size_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^mss_bytes: 0 is not positive$"):
        ProportionalRateReduction(mss_bytes=0)
