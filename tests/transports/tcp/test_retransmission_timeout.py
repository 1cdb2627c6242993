"""The retransmission timeout between two endpoints: when, how often, and what it costs (RFC 6298)."""

from itertools import pairwise

import pytest

from helpers.tcp_pair import (
    CLIENT,
    FRAME,
    MIN_RTO_S,
    MSS,
    RATE_BPS,
    RTT_S,
    SERVER,
    Pair,
    lose_data,
    rounds,
    whole_segments,
)


def cut_off(pair: Pair, until_s: float) -> None:
    """Lose everything, both ways, up to a time."""
    pair.lose = lambda packet: packet.at_s < until_s


def test_timeouts_double_send_one_segment_each_and_then_slow_start_repairs_everything_once() -> None:
    pair = Pair(ack_every=1, quick_acks=0, lose=lose_data(*range(10, 34))).connect()
    pair.send(whole_segments(30))  # 10 are acknowledged, and 20 in flight
    pair.run()
    begin_s = pair.sent()[29].at_s
    probe, *rest = pair.repairs()
    assert probe.at_s == pytest.approx(begin_s + 2 * RTT_S)
    rto_s = RTT_S + MIN_RTO_S
    timeouts = [probe.at_s + rto_s * (2**n - 1) for n in (1, 2, 3, 4)]
    assert [packet.at_s for packet in rest[:4]] == pytest.approx(timeouts)  # RFC 6298 §5.5
    assert {packet.start // MSS for packet in rest[:4]} == {10}  # §5.4: the earliest that is not acknowledged
    # data packets 31 to 34 were those four; the last of them arrived
    assert pair.client.counters().timeouts == 4
    after = [len(flight) for flight in rounds(rest[4:], RTT_S / 2)]
    assert after == [2, 4, 8, 5]  # slow start from one segment, with L = 1: RFC 5681 §3.1, RFC 3465 §2.3
    assert sorted(packet.start // MSS for packet in rest[3:]) == list(range(10, 30))
    assert len(pair.received()) == 1


def test_a_timeout_halves_what_was_in_flight_once_however_often_it_is_repeated() -> None:
    pair = Pair(ack_every=1, quick_acks=0, lose=lose_data(*range(10, 34))).connect()
    pair.send(whole_segments(30))
    pair.run(until=3.0)
    assert pair.client.counters().timeouts >= 3
    assert pair.window() == 1  # RFC 5681 §3.1
    assert pair.client.sender.congestion.ssthresh_bytes == 10 * MSS  # of the 20 that were in flight


def test_the_timeout_is_srtt_plus_four_variations_where_that_is_more_than_the_floor() -> None:
    pair = Pair(ack_every=1, delay_s=0.2, min_rto_s=0.001).connect()  # RTTVAR is half of the first sample, 0.4 s
    pair.send(whole_segments(2))
    begin_s = pair.now
    pair.lose = lambda packet: packet.role == SERVER and packet.at_s < begin_s + 3.0
    pair.run()
    probe, first = pair.repairs()[:2]
    assert probe.at_s == pytest.approx(begin_s + 2 * 0.4)
    assert first.at_s == pytest.approx(probe.at_s + 0.4 + 4 * 0.2)  # RFC 6298 §2.2


def test_an_acknowledgement_ends_the_back_off() -> None:
    pair = Pair(ack_every=1).connect()
    pair.send(whole_segments(5))
    pair.run(until=pair.now + 2 * RTT_S)
    begin_s = pair.now
    cut_off(pair, begin_s + 3.0)
    pair.send(whole_segments(5), message_id=2)
    pair.run()
    assert pair.client.counters().timeouts >= 3
    pair.send(whole_segments(5), message_id=3)
    pair.run()
    begin_s = pair.now
    cut_off(pair, begin_s + 1.0)
    pair.send(whole_segments(2), message_id=4)
    pair.run()
    probe, first = (packet for packet in pair.repairs() if begin_s < packet.at_s < begin_s + 0.5)
    assert first.at_s - probe.at_s == pytest.approx(RTT_S + MIN_RTO_S, abs=0.01)


def test_data_that_goes_on_being_sent_puts_off_no_timeout_and_is_not_taken_for_lost_by_it() -> None:
    """RFC 6298 §5.1: only a timer that does not run is started; RFC 8985 §6.3: what has just been sent may arrive."""
    pair = Pair(ack_every=1).connect()
    pair.send(bytes(100 - FRAME), message_id=99)
    pair.run()
    begin_s = pair.now
    pair.lose = lambda packet: packet.role == CLIENT
    for number in range(7):
        pair.run(until=begin_s + 0.1 * number)
        assert pair.client.counters().timeouts == (number > 5)
        pair.send(bytes(100 - FRAME), message_id=number)
    rto_s = pair.client.sender.rtt.srtt_s + MIN_RTO_S
    probe, first = pair.repairs()
    assert probe.at_s == pytest.approx(begin_s + rto_s)  # RFC 8985 §7.2: instead of the timeout
    assert (first.start, first.at_s) == (100, pytest.approx(begin_s + 2 * rto_s))
    assert pair.client.sample(pair.now).in_flight_bytes == 200  # that repair, and what was sent 20 ms before it


def test_after_fifteen_timeouts_without_an_answer_the_connection_is_given_up() -> None:
    pair = Pair().connect()
    pair.lose = lambda packet: True
    pair.send(whole_segments(5))
    pair.run()
    (failure,) = pair.failures()
    assert "15 timeouts" in failure[1]
    gaps = [later - earlier for earlier, later in pairwise(packet.at_s for packet in pair.repairs()[1:])]
    assert len(gaps) == 14
    assert gaps[-1] == pytest.approx(60)  # RFC 6298 §2.5
    assert pair.client.get_timer() is None


def test_an_outage_of_both_directions_is_survived() -> None:
    pair = Pair(rate_bps=RATE_BPS).connect()
    pair.send(whole_segments(1000))
    pair.run(until=pair.now + 4 * RTT_S)
    cut_off(pair, pair.now + 1.5)
    pair.run()
    assert len(pair.received()) == 1
    assert pair.client.counters().timeouts >= 2
    assert pair.client.counters().spurious <= 2
