"""Reading frames and flipping bits in them, on frames that scapy made."""

from typing import Any

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from bicoastal.emulation.relay.frames import DscpBursts, TcpBursts, burst_to_tos, flip_bit_in_frame


def octets(packet: Packet) -> bytes:
    return bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / packet)


def datagram(tos: int = 0) -> bytes:
    return octets(IP(src="10.64.0.1", dst="10.64.0.2", tos=tos) / UDP(sport=1, dport=2) / Raw(b"shard of gradients"))


def segment(sequence: int, payload: bytes = b"", *, flags: str = "A", sport: int = 4000, dport: int = 5001) -> bytes:
    ends = IP(src="10.64.0.1", dst="10.64.0.2", options=[])
    timestamps = [("Timestamp", (1, 2)), ("NOP", None), ("NOP", None)]
    tcp = TCP(sport=sport, dport=dport, seq=sequence % 2**32, flags=flags, options=timestamps)
    return octets(ends / tcp / Raw(payload) if payload else ends / tcp)


@pytest.mark.parametrize("position", [0.0, 0.3, 0.999999])
def test_the_flipped_bit_is_one_that_a_checksum_covers(position: float) -> None:
    before = datagram()
    after = flip_bit_in_frame(before, position)
    assert len(after) == len(before)
    assert after[:34] == before[:34]  # Ethernet 14, IPv4 20
    assert sum((a ^ b).bit_count() for a, b in zip(before, after, strict=True)) == 1
    parsed = Ether(after)
    found = parsed[UDP].chksum
    del parsed[UDP].chksum
    assert Ether(bytes(parsed))[UDP].chksum != found


def test_padding_after_the_packet_is_not_hit() -> None:
    short = octets(IP(src="10.64.0.1", dst="10.64.0.2") / UDP(sport=1, dport=2)) + bytes(18)
    assert flip_bit_in_frame(short, 0.999999)[42:] == bytes(18)


@pytest.mark.parametrize("left", [None, 0, 1, 61])
def test_a_datagram_says_how_many_of_its_burst_follow(left: int | None) -> None:
    classify = DscpBursts().start()
    for ecn in (0, 3):
        tos = burst_to_tos(left, ecn)
        assert tos & 3 == ecn
        assert classify(datagram(tos)) == left


def test_long_tails_have_the_same_mark() -> None:
    assert DscpBursts().start()(datagram(burst_to_tos(5000, 0))) == 62
    assert burst_to_tos(5000, 2) == 0xFE


INITIAL = 2**32 - 2000  # so that the numbers wrap


def transfer(classify, bursts: list[int], *, size: int = 1000, **ends: int) -> list[int | None]:
    classify(segment(INITIAL, flags="S", **ends))
    seen, offset = [], 0
    for burst in bursts:
        left = burst
        while left:
            now = min(size, left)
            seen.append(classify(segment(INITIAL + 1 + offset, b"x" * now, **ends)))
            offset += now
            left -= now
    return seen


def test_segments_of_a_burst_are_counted_down() -> None:
    classify = TcpBursts(port=5001, burst_bytes=(3500, 1000)).start()
    assert transfer(classify, [3500, 1000, 3500, 1000]) == [3, 2, 1, 0, 0, 3, 2, 1, 0, 0]


def test_both_directions_of_a_connection_are_streams_of_their_own() -> None:
    classify = TcpBursts(port=5001, burst_bytes=(2000,)).start()
    assert transfer(classify, [2000]) == [1, 0]
    assert transfer(classify, [2000], sport=5001, dport=4000) == [1, 0]


def test_only_the_first_transmission_of_data_belongs_to_a_burst() -> None:
    classify = TcpBursts(port=5001, burst_bytes=(3000,)).start()
    assert classify(segment(INITIAL, flags="S")) is None
    assert classify(segment(INITIAL + 1)) is None  # a bare acknowledgement
    assert classify(segment(INITIAL + 1, b"x" * 1000)) == 2
    assert classify(segment(INITIAL + 1, b"x" * 1000)) is None  # repaired
    assert classify(segment(INITIAL + 1001, b"x" * 1000)) == 1
    assert classify(segment(INITIAL + 501, b"x" * 1000)) is None
    assert classify(segment(INITIAL + 2001, b"x" * 1000)) == 0


def test_what_leads_a_connection_belongs_to_no_burst() -> None:
    classify = TcpBursts(port=5001, burst_bytes=(2000,), lead_bytes=24).start()
    assert transfer(classify, [24, 2000, 2000]) == [None, 1, 0, 1, 0]
    assert transfer(classify, [2024], sport=4001) == [2, 1, 0]  # the greeting and the burst's beginning in one segment


def test_the_way_back_may_have_bursts_of_other_sizes() -> None:
    rule = TcpBursts(port=5001, burst_bytes=(1500, 1000), back_bytes=(1000, 1500))
    assert transfer(rule.start(), [1500, 1000]) == [1, 0, 0]
    assert transfer(rule.start(back=True), [1000, 1500]) == [0, 1, 0]
    alike = TcpBursts(port=5001, burst_bytes=(1500, 1000))
    assert transfer(alike.start(back=True), [1500, 1000]) == [1, 0, 0]


def test_other_ports_are_not_classified() -> None:
    classify = TcpBursts(port=5001, burst_bytes=(3000,)).start()
    assert transfer(classify, [3000], dport=22) == [None, None, None]
    assert classify(datagram()) is None
    assert classify(octets(IP(dst="10.64.0.2") / ICMP())) is None
    assert classify(segment(7, b"data of a connection whose beginning was not seen")) is None


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("port", {"port": 0}),
        ("burst_bytes", {"burst_bytes": ()}),
        ("burst_bytes", {"burst_bytes": (5, 0)}),
        ("back_bytes", {"back_bytes": (0,)}),
        ("lead_bytes", {"lead_bytes": -1}),
    ],
)
def test_burst_rules_are_checked(field: str, values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        TcpBursts(**{"port": 1, "burst_bytes": (1,), **values})
