"""What a connection puts on the wire, read by scapy, and that it is a function of its bits and the losses alone."""

from random import Random

import pytest
from scapy.layers.inet import IP, TCP

from bicoastal.transports.tcp.segment import PSH
from helpers.tcp_pair import CLIENT, MSS, SERVER, U32, Pair, addresses, dissect, options, payload, whole_segments


@pytest.mark.parametrize("mtu", [576, 1500, 9000])
def test_scapy_finds_every_segment_of_a_lossy_exchange_well_formed(mtu: int) -> None:
    random = Random(mtu)
    pair = Pair(
        "cubic",
        mtu=mtu,
        lose=lambda packet: random.random() < 0.05,
        late=lambda packet: 0.004 if random.random() < 0.1 else 0.0,
        octets=True,
    )
    size = 60 * mtu
    pair.send(payload(size, 1), CLIENT, 7)
    pair.send(payload(size, 2), SERVER, 8)
    pair.run()
    assert [data for _, data in pair.received(SERVER)] == [payload(size, 1)]
    assert [data for _, data in pair.received(CLIENT)] == [payload(size, 2)]
    seen_sack = 0
    for packet in pair.packets:
        ip = dissect(packet.segment)
        tcp, data = ip[TCP], bytes(packet.segment.payload)
        assert len(ip) == packet.wire_bytes <= mtu
        assert bytes(tcp.payload) == data
        known = options(tcp)
        assert "Timestamp" in known
        flags = str(tcp.flags)
        assert set(flags) <= set("SAP")
        assert ("S" in flags) == ("MSS" in known) == ("WScale" in known) == ("SAckOK" in known)
        assert ("A" in flags) == (packet.number > 0 or packet.role == SERVER) or flags == "S"
        if "SAck" in known:
            seen_sack += 1
            assert not data  # a full segment has no room for them
            assert len(known["SAck"]) <= 6  # three blocks beside timestamps: RFC 2018 §3
        claimed = tcp.chksum
        source, destination = addresses(packet.segment.four_tuple)
        del tcp.chksum
        assert IP(bytes(IP(src=source, dst=destination, proto=6) / tcp))[TCP].chksum == claimed
    assert seen_sack > 10


def test_the_end_of_what_is_offered_is_pushed() -> None:
    pair = Pair().connect()
    pair.send(whole_segments(3))
    pair.run()
    assert [bool(packet.segment.flags & PSH) for packet in pair.sent()] == [False, False, True]


def test_packets_tell_how_many_of_their_burst_are_to_come_and_repairs_do_not() -> None:
    pair = Pair(lose=lambda packet: packet.role == CLIENT and packet.data == 5).connect()
    pair.send(payload(19 * MSS + 100))
    pair.run()
    first = [packet.burst_left for packet in pair.sent() if not packet.repair]
    assert first == list(range(19, -1, -1))
    assert [packet.burst_left for packet in pair.repairs()] == [None]
    assert all(packet.burst_left is None for packet in pair.acks())


def test_sizes_on_the_wire_are_those_of_the_octets() -> None:
    pair = Pair(lose=lambda packet: packet.data in (3, 9)).connect()
    pair.send(payload(50_000))
    pair.run()
    assert all(packet.wire_bytes == 20 + len(bytes(packet.segment)) for packet in pair.packets)


def test_encoded_and_unencoded_segments_make_the_same_exchange() -> None:
    def exchange(octets: bool) -> list[tuple[float, str, bytes]]:
        pair = Pair("cubic", lose=lambda packet: packet.number % 17 == 9, octets=octets)
        pair.send(payload(100_000, 1), CLIENT)
        pair.send(payload(50_000, 2), SERVER)
        pair.run()
        return [(packet.at_s, packet.role, bytes(packet.segment)) for packet in pair.packets]

    assert exchange(False) == exchange(True)


def test_the_same_bits_make_the_same_exchange_and_others_only_shift_its_numbers() -> None:
    def exchange(bits: tuple[int, int]) -> list[tuple[float, str, int, int]]:
        pair = Pair(client_bits=bits, lose=lambda packet: packet.number % 13 == 7)
        pair.send(payload(100_000))
        pair.run()
        return [(packet.at_s, packet.role, packet.start, packet.stop) for packet in pair.packets]

    assert exchange((1, 2)) == exchange((1, 2)) == exchange((U32 - 3, U32 - 50))
