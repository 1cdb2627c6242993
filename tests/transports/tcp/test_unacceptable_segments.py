"""Segments that do not belong to the connection as it stands: forged, stale, damaged, or its end."""

import pytest

from bicoastal.transports.events import Failed
from bicoastal.transports.tcp.segment import ACK, FIN, PSH, RST
from helpers.tcp_pair import CLIENT, FRAME, MSS, SERVER, Pair, filler, payload, whole_segments


def test_an_acknowledgement_of_data_never_sent_is_dropped_counted_and_answered() -> None:
    pair = Pair().connect()
    pair.send(payload(2 * MSS))
    (answer,) = pair.inject(CLIENT, pair.forge(SERVER, ACK, ack=2 * MSS + FRAME + 1, payload=filler(10)))
    assert answer.segment.flags == ACK  # RFC 9293 §3.10.7.4
    assert pair.client.counters().rejected == 1
    assert pair.client.receiver.next_offset == 0
    pair.run()
    assert [data for _, data in pair.received()] == [payload(2 * MSS)]


@pytest.mark.parametrize("offset", [-5000, 1 << 30])
def test_nothing_is_taken_from_a_segment_outside_of_the_window_but_it_is_answered(offset: int) -> None:
    """RFC 9293 §3.10.7.4, first check: the acknowledgement in it, too, may be forged or stale."""
    pair = Pair().connect()
    pair.send(payload(5 * MSS))
    (answer,) = pair.inject(CLIENT, pair.forge(SERVER, ACK, offset=offset, ack=5 * MSS))
    assert answer.segment.flags == ACK
    assert pair.client.sender.board.una == 0
    assert pair.client.counters().rejected == (offset > 0)
    pair.run()
    assert [data for _, data in pair.received()] == [payload(5 * MSS)]


def test_selective_acknowledgements_of_data_never_sent_are_ignored() -> None:
    pair = Pair().connect()
    pair.send(whole_segments(4))
    edges = [(pair.iss[CLIENT] + 1 + left, pair.iss[CLIENT] + 1 + right) for left, right in ((MSS, 99 * MSS), (9, 9))]
    pair.inject(CLIENT, pair.forge(SERVER, ACK, sack_blocks=tuple(edges)))
    assert pair.client.sample(pair.now).in_flight_bytes == 4 * MSS
    pair.run()
    assert [data for _, data in pair.received()] == [whole_segments(4)]
    assert pair.repairs() == []


def test_a_reset_counts_only_at_exactly_the_expected_number() -> None:
    """RFC 5961 §3.2: elsewhere in the window it is challenged, outside of it ignored."""
    pair = Pair().connect()
    pair.send(payload(100))
    pair.run()
    expected = pair.server.receiver.next_offset
    window = pair.server.receiver.window_bytes
    for offset in (expected + 1, expected + window - 1):
        (answer,) = pair.inject(SERVER, pair.forge(CLIENT, RST, offset=offset))
        assert (answer.segment.flags, answer.data) == (ACK, None)
    for offset in (expected - 1, expected + window):
        assert pair.inject(SERVER, pair.forge(CLIENT, RST, offset=offset)) == []
    assert pair.failures(SERVER) == []
    assert pair.inject(SERVER, pair.forge(CLIENT, RST, offset=expected)) == []
    ((_, reason),) = pair.failures(SERVER)
    assert "reset" in reason
    assert pair.server.get_timer() is None


def test_a_fin_counts_only_in_order() -> None:
    pair = Pair().connect()
    (answer,) = pair.inject(SERVER, pair.forge(CLIENT, FIN | ACK, offset=1))
    assert answer.segment.flags == ACK
    assert pair.failures(SERVER) == []
    pair.inject(SERVER, pair.forge(CLIENT, FIN | ACK))
    ((_, reason),) = pair.failures(SERVER)
    assert "closed" in reason


@pytest.mark.parametrize("cut", [slice(0, 19), slice(0, 25), slice(0, -1), slice(1, None)])
def test_damaged_octets_are_dropped_and_counted(cut: slice) -> None:
    pair = Pair().connect()
    octets = bytes(pair.forge(CLIENT, ACK, payload=filler(100)))
    assert pair.inject(SERVER, octets[cut]) == []
    assert pair.server.counters().rejected == 1
    pair.inject(SERVER, octets)
    assert pair.server.receiver.next_offset == 100


def test_a_stream_that_makes_no_sense_ends_the_connection_with_its_reason() -> None:
    pair = Pair().connect()
    pair.inject(SERVER, pair.forge(CLIENT, ACK | PSH, payload=b"\xff" * FRAME))
    ((_, reason),) = pair.failures(SERVER)
    assert "message" in reason


def test_after_the_end_nothing_is_sent_and_nothing_comes_of_what_arrives() -> None:
    pair = Pair().connect()
    pair.inject(SERVER, pair.forge(CLIENT, RST))
    pair.send(payload(100), SERVER)
    assert pair.inject(SERVER, pair.forge(CLIENT, ACK, payload=filler(100))) == []
    assert pair.server.get_timer() is None
    assert sum(isinstance(event, Failed) for _, _, event in pair.events) == 1
