"""scapy is the independent judge of the format; hypothesis makes the segments."""

import contextlib
from ipaddress import IPv4Address

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP
from scapy.packet import Raw

from bicoastal.transports.tcp.segment import (
    ACK,
    CWR,
    ECE,
    FIN,
    PSH,
    RST,
    SYN,
    URG,
    FourTuple,
    MalformedSegmentError,
    Segment,
    decode,
    unwrap,
)

U16 = st.integers(0, 0xFFFF)
U32 = st.integers(0, 0xFFFFFFFF)
TUPLE = FourTuple(int(IPv4Address("10.1.0.1")), 40000, int(IPv4Address("10.2.0.7")), 5001)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    stamped = draw(st.booleans())
    return Segment(
        FourTuple(draw(U32), draw(U16), draw(U32), draw(U16)),
        draw(U32),
        draw(U32),
        draw(st.integers(0, 255)),
        draw(U16),
        draw(st.one_of(st.binary(max_size=40), st.binary(min_size=1020, max_size=1030), st.just(b"\xff" * 8948))),
        timestamp_value=draw(U32) if stamped else None,
        timestamp_echo=draw(U32) if stamped else None,
        **draw(
            st.one_of(
                st.fixed_dictionaries(
                    {"sack_blocks": st.lists(st.tuples(U32, U32), max_size=3 if stamped else 4).map(tuple)}
                ),
                st.fixed_dictionaries(
                    {
                        "mss": st.none() | U16,
                        "window_scale": st.none() | st.integers(0, 14),
                        "sack_permitted": st.booleans(),
                    }
                ),
            )
        ),
    )


def dissect(segment: Segment) -> TCP:
    """Put the octets into an IP packet, as scapy would read it from the wire."""
    source, destination = (str(IPv4Address(address)) for address in segment.four_tuple[::2])
    packet = IP(bytes(IP(src=source, dst=destination, proto=6) / Raw(bytes(segment))))
    return packet[TCP]


@given(segments())
def test_every_field_reads_the_same_in_scapy(segment: Segment) -> None:
    tcp = dissect(segment)
    assert (tcp.sport, tcp.dport) == (segment.four_tuple.source_port, segment.four_tuple.destination_port)
    assert (tcp.seq, tcp.ack, int(tcp.flags), tcp.window) == (
        segment.sequence,
        segment.acknowledgement,
        segment.flags,
        segment.window,
    )
    assert (tcp.reserved, tcp.urgptr) == (0, 0)
    assert bytes(tcp.payload) == segment.payload
    options = {kind: value for kind, value in tcp.options if kind != "NOP"}
    expected: dict[str, object] = {}
    if segment.mss is not None:
        expected["MSS"] = segment.mss
    if segment.window_scale is not None:
        expected["WScale"] = segment.window_scale
    if segment.sack_permitted:
        expected["SAckOK"] = b""
    if segment.timestamp_value is not None:
        expected["Timestamp"] = (segment.timestamp_value, segment.timestamp_echo)
    if segment.sack_blocks:
        expected["SAck"] = tuple(edge for block in segment.sack_blocks for edge in block)
    assert options == expected
    assert 20 + tcp.dataofs * 4 + len(segment.payload) == segment.wire_bytes


@given(segments())
def test_scapy_computes_the_same_checksum(segment: Segment) -> None:
    tcp = dissect(segment)
    claimed = tcp.chksum
    del tcp.chksum
    source, destination = (str(IPv4Address(address)) for address in segment.four_tuple[::2])
    again = IP(bytes(IP(src=source, dst=destination, proto=6) / tcp))[TCP]
    assert claimed == again.chksum


@given(segments())
def test_decoding_gives_back_the_segment(segment: Segment) -> None:
    data = bytes(segment)
    assert len(data) + 20 == segment.wire_bytes
    assert decode(data, segment.four_tuple) == segment
    assert decode(memoryview(bytearray(data)), segment.four_tuple) == segment


def scapy_octets(tcp: TCP, payload: bytes = b"") -> bytes:
    packet = IP(src="10.1.0.1", dst="10.2.0.7", proto=6) / tcp
    if payload:
        packet = packet / Raw(payload)
    return bytes(IP(bytes(packet))[TCP])


@given(st.tuples(U32, U32, st.integers(0, 255), U16), st.binary(max_size=1500), U32, st.lists(U32, max_size=3))
def test_segments_made_by_scapy_are_read_alike(
    fixed: tuple[int, int, int, int], payload: bytes, value: int, edges: list[int]
) -> None:
    sequence, ack, flags, window = fixed
    echo = value ^ 0xFFFF
    options: list[tuple[str, object]] = [("Timestamp", (value, echo))]
    if edges:
        options.append(("SAck", tuple(edge for left in edges for edge in (left, left ^ 0xFF))))
    tcp = TCP(sport=40000, dport=5001, seq=sequence, ack=ack, flags=flags, window=window, options=options)
    blocks = tuple((left, left ^ 0xFF) for left in edges)
    assert decode(scapy_octets(tcp, payload), TUPLE) == Segment(
        TUPLE, sequence, ack, flags, window, payload, value, echo, blocks
    )


def test_a_syn_made_by_scapy_is_read_alike() -> None:
    options = [("MSS", 8960), ("SAckOK", b""), ("Timestamp", (77, 0)), ("NOP", None), ("WScale", 14)]
    tcp = TCP(sport=40000, dport=5001, seq=9, flags="S", window=65535, options=options)
    assert decode(scapy_octets(tcp), TUPLE) == Segment(
        TUPLE, 9, 0, SYN, 65535, b"", 77, 0, mss=8960, window_scale=14, sack_permitted=True
    )


def test_flag_bits_are_those_of_rfc_9293_and_3168() -> None:
    assert [int(TCP(flags=letter).flags) for letter in "FSRPAUEC"] == [FIN, SYN, RST, PSH, ACK, URG, ECE, CWR]


def test_timestamps_are_laid_out_as_rfc_7323_appendix_a_recommends() -> None:
    data = bytes(Segment(TUPLE, 1, 2, ACK, 3, b"x", 0x01020304, 0x05060708))
    assert data[20:32] == bytes.fromhex("0101080a 01020304 05060708")


def test_a_kernels_syn_has_forty_octets_of_header() -> None:
    """Linux: MSS 4, SACK permitted + timestamps 12, NOP + window scale 4."""
    segment = Segment(
        TUPLE, 1, 0, SYN, 65535, timestamp_value=1, timestamp_echo=0, mss=1460, window_scale=7, sack_permitted=True
    )
    assert segment.header_bytes == 40
    assert bytes(segment)[20:].hex() == "020405b40402080a000000010000000001030307"


@pytest.mark.parametrize(
    ("payload_bytes", "sack_blocks", "wire_bytes"),
    [(8948, 0, 9000), (1448, 0, 1500), (0, 0, 52), (0, 1, 64), (0, 3, 80)],
)
def test_wire_size_is_that_of_the_ip_packet(payload_bytes: int, sack_blocks: int, wire_bytes: int) -> None:
    """With timestamps, a full segment fills the MTU; a pure ACK takes 52 octets, each SACK block 8, and 4 for all."""
    segment = Segment(TUPLE, 1, 2, ACK, 3, bytes(payload_bytes), 5, 6, ((1, 2),) * sack_blocks)
    assert segment.wire_bytes == wire_bytes


@pytest.mark.parametrize("seed", range(3))
def test_a_sum_of_all_ones_is_sent_as_zero(seed: int) -> None:
    """RFC 9293 §3.1: the complement of a sum; unlike UDP, TCP does not replace the zero."""
    segment = Segment(TUPLE, 1 + seed, 2, ACK, 3, bytes(2))
    checksum = int.from_bytes(bytes(segment)[16:18], "big")
    segment.payload = checksum.to_bytes(2, "big")  # what the complement lacks to all ones
    data = bytes(segment)
    assert data[16:18] == b"\0\0"
    assert decode(data, TUPLE) == segment
    assert dissect(segment).chksum == 0


GOOD = Segment(TUPLE, 1, 2, ACK | PSH, 3, b"payload", 5, 6, ((10, 20),))


@given(segments(), st.data())
def test_one_flipped_bit_never_goes_unnoticed(segment: Segment, draw: st.DataObject) -> None:
    """The sum changes by a power of two, which is never a multiple of 0xffff."""
    data = bytearray(bytes(segment))
    bit = draw.draw(st.integers(0, len(data) * 8 - 1))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(MalformedSegmentError):
        decode(data, segment.four_tuple)


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=120), st.lists(st.tuples(st.integers(0, 70), st.integers(0, 255)), max_size=8)))
def test_hostile_octets_give_a_segment_or_a_malformed_segment_error(noise: bytes | list[tuple[int, int]]) -> None:
    if isinstance(noise, bytes):
        data = bytearray(noise)
    else:
        data = bytearray(bytes(GOOD))
        for index, octet in noise:
            data[index % len(data)] = octet
    data[:4] = bytes(GOOD)[: min(4, len(data))]  # get past the ports
    with contextlib.suppress(MalformedSegmentError):
        assert isinstance(decode(with_checksum(data), TUPLE), Segment)


def with_checksum(data: bytearray) -> bytes:
    """Return `data` with the checksum that scapy computes for it, so that only what lies behind it can fail."""
    if len(data) < 20:
        return bytes(data)
    data[16:18] = b"\0\0"
    pseudo = TUPLE.source.to_bytes(4, "big") + TUPLE.destination.to_bytes(4, "big") + b"\0\x06"
    from scapy.utils import checksum

    data[16:18] = checksum(pseudo + len(data).to_bytes(2, "big") + bytes(data)).to_bytes(2, "big")
    return bytes(data)


def with_options(options: str, payload: bytes = b"") -> bytes:
    raw = bytes.fromhex(options)
    data = bytearray(bytes(Segment(TUPLE, 1, 2, ACK, 3)) + raw + payload)
    data[12] = (20 + len(raw)) << 2
    return with_checksum(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "less than a header"),
        (bytes(GOOD)[:19], "less than a header"),
        (bytes(GOOD)[:12] + b"\x40" + bytes(GOOD)[13:], "data offset"),
        (bytes(Segment(TUPLE, 1, 2, ACK, 3))[:12] + b"\x60" + bytes(8)[:7], "data offset"),
        (bytes(GOOD)[:30], "data offset"),
        (b"\0\1" + bytes(GOOD)[2:], "another connection"),
        (bytes(GOOD)[:2] + b"\0\1" + bytes(GOOD)[4:], "another connection"),
        (bytes(GOOD)[:-1], "checksum"),
        (bytes(GOOD) + b"\1", "checksum"),
        (with_options("08000101"), "option 8"),
        (with_options("08010101"), "option 8"),
        (with_options("01010108"), "option 8"),
        (with_options("080a0000"), "option 8"),
        (with_options("08040000"), "option 8"),
        (with_options("02030000"), "option 2"),
        (with_options("03040000"), "option 3"),
        (with_options("04030000"), "option 4"),
        (with_options("05020101"), "option 5"),
        (with_options("0506000000000101"), "option 5"),
        (with_options("fd050101"), "option 253"),
    ],
)
def test_malformed_octets_are_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedSegmentError, match=reason):
        decode(data, TUPLE)


def test_unknown_options_are_skipped_and_what_follows_is_read() -> None:
    segment = decode(with_options("fd06cafe0101 02041234 0000", b"hi"), TUPLE)
    assert segment.mss == 0x1234
    assert segment.payload == b"hi"


def test_nothing_is_read_behind_the_end_of_options() -> None:
    assert decode(with_options("00 08 00 00"), TUPLE) == Segment(TUPLE, 1, 2, ACK, 3)


def test_the_last_of_repeated_options_counts() -> None:
    assert decode(with_options("02040001 02040002"), TUPLE).mss == 2


def test_reserved_bits_and_urgent_pointer_are_ignored() -> None:
    data = bytearray(bytes(Segment(TUPLE, 1, 2, ACK | URG, 3, b"x")))
    data[12] |= 0x0F
    data[18:20] = b"\0\1"
    assert decode(with_checksum(data), TUPLE) == Segment(TUPLE, 1, 2, ACK | URG, 3, b"x")


@pytest.mark.parametrize(
    ("segment", "field"),
    [
        (Segment(TUPLE, 1 << 32, 0, 0, 0), "segment"),
        (Segment(TUPLE, 0, -1, 0, 0), "segment"),
        (Segment(TUPLE, 0, 0, 0, 0x10000), "segment"),
        (Segment(TUPLE, 0, 0, 0, 0, mss=0x10000), "segment"),
        (Segment(TUPLE, 0, 0, 0, 0, window_scale=256), "window_scale"),
        (Segment(TUPLE, 0, 0, 0, 0, timestamp_value=1), "timestamp_echo"),
        (Segment(TUPLE, 0, 0, 0, 0, b"", 1, 2, ((0, 1),) * 4), "sack_blocks"),
        (Segment(TUPLE, 0, 0, 0, 0, sack_blocks=((0, 1),) * 5), "sack_blocks"),
    ],
)
def test_what_does_not_fit_the_format_is_not_encoded(segment: Segment, field: str) -> None:
    with pytest.raises(ValueError, match=rf"^{field}"):
        bytes(segment)


def test_segments_compare_by_value_and_describe_themselves() -> None:
    assert decode(bytes(GOOD), TUPLE) == GOOD
    assert Segment(TUPLE, 1, 2, ACK, 3) != Segment(TUPLE, 1, 2, ACK, 4)
    assert bytes(GOOD) != GOOD
    assert repr(GOOD) == "Segment(PA seq=1 ack=2 win=3 len=7 sack=((10, 20),))"


def test_reversed_four_tuple_is_the_other_ends_view() -> None:
    assert TUPLE.reversed() == FourTuple(TUPLE.destination, 5001, TUPLE.source, 40000)
    assert TUPLE.reversed().reversed() == TUPLE


@given(st.integers(0, 1 << 50), st.integers(-(1 << 31) + 1, (1 << 31) - 1))
@example(1 << 40, (1 << 31) - 1)
@example(1 << 40, 1 - (1 << 31))
def test_unwrap_finds_any_number_less_than_half_the_space_away(near: int, distance: int) -> None:
    assert unwrap((near + distance) % (1 << 32), near) == near + distance


@pytest.mark.parametrize(
    ("sequence", "near", "expected"),
    [(0, 0, 0), (5, 0xFFFFFFFF, 0x100000005), (0xFFFFFFFF, 0x100000000, 0xFFFFFFFF), (0xFFFFFFFE, 1, -2)],
)
def test_unwrap_crosses_the_end_of_the_number_space(sequence: int, near: int, expected: int) -> None:
    assert unwrap(sequence, near) == expected
