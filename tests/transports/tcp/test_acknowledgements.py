"""When an end acknowledges, and by which segment (RFC 5681 §4.2)."""

import pytest

from bicoastal.transports.tcp.segment import ACK
from helpers.tcp_pair import CLIENT, DELAY_S, MSS, SERVER, Pair, filler, payload, whole_segments


def test_every_second_segment_is_acknowledged() -> None:
    pair = Pair(quick_acks=0).connect()
    pair.send(whole_segments(10))
    pair.run(until=pair.now + 0.9 * DELAY_S)
    begin_s = pair.now
    pair.run()
    acks = [packet.segment.acknowledgement - pair.iss[CLIENT] - 1 for packet in pair.acks(since_s=begin_s)]
    assert acks == [2 * MSS, 4 * MSS, 6 * MSS, 8 * MSS, 10 * MSS]  # RFC 5681 §4.2


def test_each_of_the_first_segments_is_acknowledged_at_once() -> None:
    pair = Pair(quick_acks=4).connect()
    begin_s = pair.now
    pair.send(whole_segments(10))
    pair.run()
    acks = [packet.segment.acknowledgement - pair.iss[CLIENT] - 1 for packet in pair.acks(since_s=begin_s)]
    assert acks == [MSS, 2 * MSS, 3 * MSS, 4 * MSS, 6 * MSS, 8 * MSS, 10 * MSS]


@pytest.mark.parametrize("delayed_ack_s", [0.040, 0.010])
def test_an_odd_segment_is_acknowledged_after_the_delay(delayed_ack_s: float) -> None:
    pair = Pair(quick_acks=0, delayed_ack_s=delayed_ack_s, initial_window_segments=1).connect()
    begin_s = pair.now
    pair.send(whole_segments(2))  # the window holds the second back, so the first is not the end of the message
    pair.run()
    assert pair.acks(since_s=begin_s)[0].at_s == pytest.approx(begin_s + DELAY_S + delayed_ack_s)


def test_data_going_the_other_way_carries_the_acknowledgement() -> None:
    pair = Pair(quick_acks=0, initial_window_segments=1).connect()
    begin_s = pair.now
    pair.send(whole_segments(2))
    pair.run(until=begin_s + DELAY_S + 0.010)  # the first is here, and its acknowledgement is being delayed
    pair.send(payload(100), SERVER)
    (answer,) = pair.sent(SERVER)
    assert answer.segment.acknowledgement == pair.iss[CLIENT] + 1 + MSS
    pair.run(until=pair.now + 0.040)
    assert pair.acks(since_s=begin_s) == []


def test_where_data_may_go_it_carries_the_acknowledgement_that_is_due() -> None:
    pair = Pair().connect()
    pair.send(whole_segments(50), SERVER)
    answers = pair.inject(SERVER, pair.forge(CLIENT, ACK, ack=2 * MSS, payload=filler(MSS)))
    assert len(answers) >= 2
    assert all(packet.data is not None for packet in answers)
    assert {packet.segment.acknowledgement for packet in answers} == {pair.iss[CLIENT] + 1 + MSS}


def test_sack_blocks_go_at_once_and_alone_even_where_data_is_waiting() -> None:
    pair = Pair().connect()
    pair.send(whole_segments(50), SERVER)
    hole = pair.forge(CLIENT, ACK, offset=MSS, ack=2 * MSS, payload=filler(MSS))
    alone, *data = pair.inject(SERVER, hole)
    base = pair.iss[CLIENT] + 1
    assert (alone.data, alone.segment.sack_blocks) == (None, ((base + MSS, base + 2 * MSS),))
    assert len(data) >= 2
    assert all(packet.segment.sack_blocks == () for packet in data)


def test_with_ack_every_1_there_is_one_acknowledgement_per_segment() -> None:
    pair = Pair(quick_acks=0, ack_every=1).connect()
    begin_s = pair.now
    pair.send(whole_segments(10))
    pair.run()
    assert len(pair.acks(since_s=begin_s)) == 10
