"""What two ends agree on by the options of their SYNs: segment size, window scale, timestamps, SACK."""

from collections.abc import Callable

import pytest
from scapy.layers.inet import TCP

from bicoastal.transports.tcp.segment import SYN
from helpers.tcp_pair import (
    CLIENT,
    MSS,
    MTU,
    RTT_S,
    SERVER,
    Packet,
    Pair,
    dissect,
    lose_data,
    options,
    payload,
    whole_segments,
)


@pytest.mark.parametrize("mtu", [576, 1500, 9000])
def test_the_maximum_segment_size_leaves_room_for_both_headers(mtu: int) -> None:
    pair = Pair(mtu=mtu).connect()
    assert options(dissect(pair.packets[0].segment)[TCP])["MSS"] == mtu - 40  # RFC 6691: whatever the options


@pytest.mark.parametrize(("most", "shift"), [(65535, 0), (65536, 1), (1 << 20, 5), (1 << 29, 14), (1 << 30, 14)])
def test_the_window_scale_is_the_least_that_tells_the_largest_window(most: int, shift: int) -> None:
    pair = Pair(max_receive_window_bytes=most).connect()
    assert options(dissect(pair.packets[0].segment)[TCP])["WScale"] == shift  # RFC 7323 §2.3: at most 14


def strip(**missing: object) -> Callable[[Packet], bool]:
    """Take options out of every SYN, as some middleboxes do."""

    def change(packet: Packet) -> bool:
        if packet.segment.flags & SYN:
            for name, value in missing.items():
                setattr(packet.segment, name, value)
        return False

    return change


NO_SCALE = {"window_scale": None}
NO_STAMPS = {"timestamp_value": None, "timestamp_echo": None}
NO_SACK = {"sack_permitted": False}


@pytest.mark.parametrize("missing", [NO_SCALE, NO_STAMPS, NO_SACK, {"mss": None}, NO_SCALE | NO_STAMPS | NO_SACK])
def test_an_option_that_a_syn_lacks_is_not_used_and_the_data_arrives_all_the_same(missing: dict[str, object]) -> None:
    """RFC 7323 §2.2 and §3.2, RFC 2018 §2, RFC 9293 §3.7.1."""
    change = strip(**missing)
    pair = Pair(octets=True, lose=lambda packet: change(packet) or packet.data in (40, 41, 70)).connect()
    pair.send(payload(300_000, 1), CLIENT)
    pair.send(payload(200_000, 2), SERVER)
    pair.run()
    assert [data for _, data in pair.received(SERVER)] == [payload(300_000, 1)]
    assert [data for _, data in pair.received(CLIENT)] == [payload(200_000, 2)]
    known = [options(dissect(packet.segment)[TCP]) for packet in pair.packets]
    answer = options(dissect(pair.handshakes(SERVER)[0].segment)[TCP])
    assert any("SAck" in kinds for kinds in known) == ("sack_permitted" not in missing)
    assert any("Timestamp" in kinds for kinds in known) == ("timestamp_value" not in missing)
    assert ("WScale" in answer) == ("window_scale" not in missing)
    largest = max(packet.stop - packet.start for packet in pair.sent())
    if "mss" in missing:
        assert largest == 536 - 12  # RFC 9293 §3.7.1
    else:
        assert largest == MTU - 40 - (0 if "timestamp_value" in missing else 12)


@pytest.mark.parametrize("octets", [False, True])
def test_windows_that_are_not_scaled_stay_within_16_bits(octets: bool) -> None:
    change = strip(**NO_SCALE)
    in_flight = []

    def look(packet: Packet) -> bool:
        if packet.role == CLIENT and packet.data is not None:
            in_flight.append(packet.stop - pair.client.sender.board.una)
        return change(packet)

    pair = Pair(octets=octets, lose=look, initial_window_segments=100).connect()
    pair.send(payload(1_000_000))
    pair.run()
    assert 60_000 < max(in_flight) <= 65535
    assert {packet.segment.window for packet in pair.acks()} == {65535}
    assert pair.repairs() == []


def test_a_smaller_segment_of_the_peer_s_reaches_the_window_and_its_recovery() -> None:
    """RFC 5681 counts in SMSS, and RFC 9293 §3.7.1 makes that the peer's."""
    pair = Pair(mtu=9000, server_mtu=1500, ack_every=1, quick_acks=0, rate_bps=100e6, lose=lose_data(100)).connect()
    pair.send(whole_segments(900))
    assert len(pair.sent()) == 10
    assert {packet.stop - packet.start for packet in pair.sent()} == {MSS}
    pair.run(stop=lambda: bool(pair.repairs()))
    assert pair.client.sender.congestion.mss_bytes == MSS
    (first,) = pair.repairs()
    begin_s, end_s = first.at_s, first.at_s + RTT_S
    pair.run(until=end_s)
    sent = [packet.at_s for packet in pair.sent() if packet.at_s > begin_s]
    answers = sum(begin_s < (ack.arrives_s or 0.0) <= end_s for ack in pair.acks())
    assert len(sent) == pytest.approx(answers / 2, rel=0.05)
    assert max(sent.count(at_s) for at_s in sent) == 1  # RFC 9937: one for every two that arrive, not six at a time


@pytest.mark.parametrize(("mtu", "segments"), [(1500, 10), (9000, 2), (4000, 3), (576, 10)])
def test_the_initial_window_keeps_to_rfc_6928_where_asked_to(mtu: int, segments: int) -> None:
    """RFC 6928 §2: min(10 MSS, max(2 MSS, 14600 bytes))."""
    pair = Pair(mtu=mtu, initial_window_bounded=True).connect()
    pair.send(bytes(1_000_000))
    assert len(pair.sent()) == segments
