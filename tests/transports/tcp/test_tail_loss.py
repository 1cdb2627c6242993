"""What becomes of a flight whose end is lost, or seems to be: the probe of RFC 8985 §7."""

import pytest

from bicoastal.wan.units import INFINITY
from helpers.tcp_pair import (
    CLIENT,
    MIN_RTO_S,
    MSS,
    RATE_BPS,
    RTT_S,
    SERVER,
    Packet,
    Pair,
    lose_data,
    whole_segments,
)


def acknowledged(pair: Pair, count: int) -> float:
    """Return when the client first learned that exactly `count` segments are there."""
    ack = next(ack for ack in pair.acks() if ack.segment.acknowledgement == pair.iss[CLIENT] + 1 + count * MSS)
    assert ack.arrives_s is not None
    return ack.arrives_s


def test_a_lost_tail_is_probed_two_round_trips_after_the_last_acknowledgement() -> None:
    pair = Pair(lose=lose_data(48, 49), ack_every=1).connect()
    pair.send(whole_segments(50))
    pair.run()
    last = acknowledged(pair, 48)
    assert pair.transmissions(49)[1:] == [pytest.approx(last + 2 * RTT_S)]
    # the probe's SACK shows that the other one is lost, too
    assert pair.transmissions(48)[1:] == [pytest.approx(last + 3 * RTT_S)]
    assert (pair.client.counters().probes, pair.client.counters().timeouts) == (1, 0)


def test_a_single_outstanding_segment_is_given_the_time_of_a_delayed_acknowledgement() -> None:
    pair = Pair(lose=lose_data(49), ack_every=1).connect()
    pair.send(whole_segments(50))
    pair.run()
    last = acknowledged(pair, 49)
    assert pair.transmissions(49)[1:] == [pytest.approx(last + RTT_S + MIN_RTO_S)]  # 200 ms more, but not past the RTO


def test_a_sender_that_knows_the_receiver_s_delay_probes_sooner() -> None:
    pair = Pair(lose=lose_data(49), ack_every=1, max_ack_delay_s=0.040).connect()
    pair.send(whole_segments(50))
    pair.run()
    last = acknowledged(pair, 49)
    assert pair.transmissions(49)[1:] == [pytest.approx(last + 2 * RTT_S + 0.040)]


@pytest.mark.parametrize(("congestion", "share"), [("reno", 0.5), ("cubic", 0.7)])
@pytest.mark.parametrize("paused_s", [0.0, 0.6])
def test_a_probe_that_mends_a_loss_counts_as_congestion_once_anything_beyond_is_acknowledged(
    congestion: str, share: float, paused_s: float
) -> None:
    """RFC 8985 §7.4.2, and by then a pause has decayed the window: 0.6 s are two timeouts of 0.26 s."""
    pair = Pair(congestion, lose=lose_data(149), ack_every=1, quick_acks=0, rate_bps=1e9).connect()
    pair.send(whole_segments(150))  # flights of 10, 20, 40, 80
    pair.run()
    before = pair.window()
    assert before == pytest.approx(160, abs=2)
    assert pair.client.sender.congestion.ssthresh_bytes == INFINITY
    pair.run(until=pair.now + paused_s)
    pair.send(whole_segments(10))
    pair.run()
    share_left = share / 4 if paused_s else share
    assert pair.window() == pytest.approx(share_left * before, abs=1)
    assert pair.client.sender.congestion.ssthresh_bytes == pytest.approx(share_left * before * MSS, rel=0.01)
    assert (pair.client.counters().probes, pair.client.counters().timeouts) == (1, 0)


@pytest.mark.parametrize("late_s", [0.3, 0.35])
def test_a_probe_whose_original_was_only_late_changes_no_window(late_s: float) -> None:
    """Whether the original arrives before the probe or after it."""
    pair = Pair(ack_every=1, late=lambda packet: late_s if packet.role == CLIENT and packet.data == 49 else 0.0)
    pair.connect()
    pair.send(whole_segments(50))
    pair.run()
    pair.send(whole_segments(2))
    pair.run()
    original, probe = (packet for packet in pair.sent() if packet.stop == 50 * MSS)
    assert original.arrives_s is not None
    assert probe.arrives_s is not None
    assert (original.arrives_s > probe.arrives_s) == (late_s == 0.35)
    assert (pair.client.counters().probes, pair.client.counters().timeouts) == (1, 0)
    assert pair.window() >= 50  # slow start: every byte acknowledged
    assert pair.client.sender.congestion.ssthresh_bytes == float("inf")


def test_a_probe_whose_original_s_acknowledgement_was_lost_changes_no_window() -> None:
    lost: list[Packet] = []

    def lose(packet: Packet) -> bool:
        if packet.role == SERVER and packet.segment.acknowledgement == pair.iss[CLIENT] + 1 + 50 * MSS and not lost:
            lost.append(packet)
            return True
        return False

    pair = Pair(ack_every=1)
    pair.lose = lose
    pair.connect()
    pair.send(whole_segments(50))
    pair.run()
    assert len(lost) == 1
    assert pair.client.counters().probes == 1
    assert pair.client.sender.congestion.ssthresh_bytes == float("inf")
    assert pair.client.counters().spurious == 1  # the DSACK told


def test_a_probe_carries_new_data_where_there_is_some_even_beyond_the_window() -> None:
    pair = Pair(ack_every=1).connect()
    pair.send(whole_segments(40))
    begin_s = pair.now
    pair.late = lambda packet: 0.08 if packet.role == SERVER else 0.0  # all acknowledgements come after the probe
    pair.run(until=begin_s + 2.1 * RTT_S)
    assert [packet.start // MSS for packet in pair.sent()] == list(range(11))
    assert pair.sent()[10].at_s == pytest.approx(begin_s + 2 * RTT_S)
    pair.run()
    assert pair.repairs() == []
    assert pair.client.counters().probes == 1
    assert pair.window() >= 40


def test_there_is_one_probe_and_then_a_timeout() -> None:
    pair = Pair(ack_every=1).connect()
    pair.send(whole_segments(5))
    begin_s = pair.now
    pair.lose = lambda packet: packet.role == SERVER and packet.at_s < begin_s + 0.4
    pair.run()
    probe, first = pair.repairs()[:2]
    assert (probe.start // MSS, first.start // MSS) == (4, 0)
    assert probe.at_s == pytest.approx(begin_s + 2 * RTT_S)
    assert first.at_s == pytest.approx(probe.at_s + RTT_S + MIN_RTO_S)
    assert (pair.client.counters().probes, pair.client.counters().timeouts) == (1, 1)


def test_on_a_long_path_the_probe_goes_when_the_timeout_would() -> None:
    """RFC 8985 §7.2: the probe is not later than the RTO would be, and goes instead of it."""
    pair = Pair(delay_s=0.25, lose=lose_data(9), ack_every=1).connect()
    pair.run(until=3.0)
    pair.send(whole_segments(10))
    pair.run()
    last = acknowledged(pair, 9)
    (repair,) = pair.repairs()
    assert last + 0.5 < repair.at_s < last + 2 * 0.5
    assert (pair.client.counters().probes, pair.client.counters().timeouts) == (1, 0)


def test_adaptive_repairs_a_lost_tail_soon_after_a_round_trip_burst_after_burst() -> None:
    """It sends the repair twice, and does not take the report of the second one for a sign of its impatience."""
    pair = Pair("adaptive", rate_bps=RATE_BPS).connect()
    waits = []
    for number in range(12):
        begin_s = pair.now
        pair.send(whole_segments(1000), message_id=number)
        pair.run()
        if number:
            (lost,) = (packet for packet in pair.sent(since_s=begin_s) if packet.arrives_s is None)
            again = [packet.at_s for packet in pair.repairs() if packet.start == lost.start]
            assert len(again) == 2
            waits.append(again[0] - lost.at_s)
        pair.lose = lambda packet: packet.role == CLIENT and packet.burst_left == 0
        pair.run(until=pair.now + 1.0)
    assert max(waits) < 1.3 * RTT_S  # RFC 8985's probe would come after 2
    assert max(waits) < min(waits) + 0.1 * RTT_S
    assert pair.client.counters().timeouts == 0
