import os

import pytest
from aioquic._buffer import Buffer
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import pull_ack_frame, push_ack_frame
from aioquic.quic.rangeset import RangeSet
from aioquic.tls import CipherSuite
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.transports.quic.wire import (
    FrameError,
    OtherPhase,
    Protection,
    Rejected,
    encode_ack,
    encode_varint,
    read_ack,
    read_varint,
)

RFC_9000_A1 = [
    ("c2197c5eff14e88c", 151_288_809_941_952_652),
    ("9d7f3e7d", 494_878_333),
    ("7bbd", 15_293),
    ("25", 37),
]


@pytest.mark.parametrize(("octets", "value"), RFC_9000_A1)
def test_integers_are_written_as_in_the_rfcs_table(octets: str, value: int) -> None:
    assert encode_varint(value) == bytes.fromhex(octets)
    assert read_varint(bytes.fromhex(octets), 0) == (value, len(octets) // 2)


def test_an_integer_may_be_longer_than_it_needs_but_not_cut_short() -> None:
    assert read_varint(bytes.fromhex("4025"), 0) == (37, 2)  # RFC 9000 §A.1
    for octets in (b"", b"\x7b", bytes.fromhex("c2197c5eff14e8")):
        with pytest.raises(FrameError):
            read_varint(octets, 0)


@pytest.mark.parametrize("value", [-1, 1 << 62])
def test_an_integer_that_62_bits_cannot_hold_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="value"):
        encode_varint(value)


def _ranges(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return disjoint, not adjacent ranges, highest first."""
    ranges, at = [], 0
    for gap, length in steps:
        ranges.append((at + gap, at + gap + length))
        at += gap + length
    return ranges[::-1]


RANGES = st.lists(st.tuples(st.integers(2, 5000), st.integers(1, 5000)), min_size=1, max_size=60).map(_ranges)


@given(RANGES, st.integers(0, 25_000))
def test_ack_frames_read_and_write_as_aioquics_do(ranges: list[tuple[int, int]], delay_us: int) -> None:
    frame = encode_ack(ranges, delay_us * 1e-6 + 1e-9)
    assert frame[0] == 0x02
    theirs, delay = pull_ack_frame(Buffer(data=frame[1:]))
    assert [(r.start, r.stop) for r in reversed(theirs)] == ranges
    assert delay == delay_us >> 3  # RFC 9000 §18.2: the default exponent
    buffer = Buffer(capacity=4096)
    push_ack_frame(buffer, RangeSet(range(*r) for r in ranges[::-1]), delay, 4000)
    assert read_ack(buffer.data + b"rest", 0, ecn=False) == (ranges, delay, len(buffer.data))
    assert read_ack(buffer.data + bytes(3), 0, ecn=True)[2] == len(buffer.data) + 3


@pytest.mark.parametrize(
    "frame",
    [
        "05000006",  # packet numbers below 0
        "0500010100ff",  # a second range below 0, and cut short
        "4020001fffff00",  # announces more ranges than the packet holds
        "05",
    ],
)
def test_an_ack_frame_that_makes_no_sense_is_an_error(frame: str) -> None:
    with pytest.raises(FrameError):
        read_ack(bytes.fromhex(frame), 0, ecn=False)


def _pair(phase: int = 0) -> tuple[CryptoPair, Protection]:
    pair = CryptoPair()
    for context in (pair.send, pair.recv):
        context.setup(cipher_suite=CipherSuite.AES_128_GCM_SHA256, secret=bytes(range(32)), version=1)
        context.key_phase = phase
    return pair, Protection(pair.send)


@pytest.mark.parametrize("number", [0, 1, 255, 65_536, 0xA82F30EA, (1 << 40) + 7])
@pytest.mark.parametrize("size", [1, 3, 1400])
def test_aioquic_reads_what_we_protect(number: int, size: int) -> None:
    pair, ours = _pair()
    payload = os.urandom(size)
    packet = ours.protect(b"12345678", number, payload)
    header, plain, found = pair.decrypt_packet(packet, 9, number)
    assert (plain, found, header[1:9]) == (payload, number, b"12345678")
    assert packet[0] & 0xC0 == 0x40  # RFC 9000 §17.3.1: short header, fixed bit


@pytest.mark.parametrize("number_bytes", [1, 2, 3, 4])
@pytest.mark.parametrize("ahead", [-3, 0, 1, 100])
def test_we_read_what_aioquic_protects(number_bytes: int, ahead: int) -> None:
    pair, ours = _pair()
    number = 0xA82F30EA
    low = (number & ((1 << 8 * number_bytes) - 1)).to_bytes(number_bytes, "big")
    header = bytes([0x40 | number_bytes - 1]) + b"12345678" + low
    packet = pair.encrypt_packet(header, b"payload " * 4, number)
    assert ours.unprotect(packet, 8, number - ahead) == (number, 0x40 | number_bytes - 1, b"payload " * 4)


def test_packet_numbers_are_completed_as_in_the_rfcs_example() -> None:
    pair, ours = _pair()
    header = bytes([0x41]) + b"12345678" + bytes.fromhex("9b32")
    packet = pair.encrypt_packet(header, bytes(20), 0xA82F9B32)
    assert ours.unprotect(packet, 8, 0xA82F30EB)[0] == 0xA82F9B32  # RFC 9000 §A.3


def test_every_flipped_bit_is_noticed() -> None:
    _, ours = _pair()
    packet = ours.protect(b"12345678", 5, b"payload")
    for bit in range(8 * len(packet)):
        flipped = bytearray(packet)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises((Rejected, OtherPhase)):
            ours.unprotect(bytes(flipped), 8, 5)
    for size in range(len(packet)):
        with pytest.raises(Rejected):
            ours.unprotect(packet[:size], 8, 5)


def test_a_packet_of_the_next_key_phase_is_told_from_a_forged_one() -> None:
    packet = _pair(phase=1)[1].protect(b"12345678", 5, b"payload")
    with pytest.raises(OtherPhase):
        _pair()[1].unprotect(packet, 8, 5)
