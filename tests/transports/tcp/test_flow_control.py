"""What is in flight keeps to the peer's window, and the window keeps ahead of a sender that may send more."""

import pytest

from helpers.tcp_pair import CLIENT, MSS, Packet, Pair, payload, whole_segments


@pytest.mark.parametrize("window", [10_000, 65535, 200_000])
def test_no_more_is_in_flight_than_the_peer_allows(window: int) -> None:
    in_flight = []

    def look(packet: Packet) -> bool:
        if packet.role == CLIENT and packet.data is not None:
            in_flight.append(packet.stop - pair.client.sender.board.una)
        return False

    pair = Pair(receive_window_bytes=min(window, 65535), max_receive_window_bytes=window, lose=look).connect()
    pair.send(payload(2_000_000))
    pair.run()
    assert 0.8 * window < max(in_flight) <= window
    assert [data for _, data in pair.received()] == [payload(2_000_000)]
    assert pair.repairs() == []


def test_the_peer_s_window_never_cuts_a_segment_short() -> None:
    """RFC 9293 §3.8.6.2.1: a sender avoids the silly window."""
    pair = Pair(receive_window_bytes=5 * MSS + 700, max_receive_window_bytes=5 * MSS + 700).connect()
    pair.send(whole_segments(60))
    pair.run()
    assert {packet.stop - packet.start for packet in pair.sent()} == {MSS}
    assert [data for _, data in pair.received()] == [whole_segments(60)]


def test_a_window_of_less_than_a_segment_is_used_as_it_is() -> None:
    pair = Pair(receive_window_bytes=1000, max_receive_window_bytes=1000, quick_acks=0).connect()
    pair.send(payload(9_984))
    pair.run()
    assert [data for _, data in pair.received()] == [payload(9_984)]
    assert {packet.stop - packet.start for packet in pair.sent()} == {1000}


def test_the_receive_window_keeps_ahead_of_a_sender_that_doubles() -> None:
    pair = Pair().connect()
    pair.send(payload(8_000_000))
    pair.run()
    flights = {round(packet.at_s, 3): 0 for packet in pair.sent()}
    for packet in pair.sent():
        flights[round(packet.at_s, 3)] += 1
    sizes = list(flights.values())
    assert sizes[:9] == [10, 20, 40, 80, 160, 320, 640, 1280, 2560]
