"""QUIC's 1-RTT packets on the wire: variable-length integers, ACK frames, packet protection (RFC 9000, RFC 9001)."""

from collections.abc import Sequence

from aioquic.quic.crypto import CIPHER_SUITES, CryptoContext, derive_key_iv_hp
from aioquic.quic.packet import pull_quic_header
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bicoastal.transports.events import Buffer
from bicoastal.transports.quic.aioquic_private import AioquicBuffer
from bicoastal.transports.recovery.ranges import Range
from bicoastal.wan.checks import FieldError

CONNECTION_ID_BYTES = 8
TAG_BYTES = 16  # RFC 9001 §5.3
NUMBER_BYTES = 4  # of packet numbers sent: enough for 2^31 packets in flight (RFC 9000 §17.1)
KEY_PHASE = 0x04
RESERVED = 0x18
ACK_DELAY_EXPONENT = 3  # RFC 9000 §18.2, its default; aioquic sends no other
_FIXED_BIT = 0x40
_BLOCK_BYTES = 16


class FrameError(ValueError):
    """A frame that cannot be parsed, in an authenticated packet: the peer violates the protocol."""


def encode_varint(value: int) -> bytes:
    """Return `value` as a variable-length integer (RFC 9000 §16). Raises ValueError below 0 and above 2^62 - 1."""
    if value < 0:
        raise FieldError("value", f"{value} is negative")
    if value < 1 << 6:
        return value.to_bytes(1, "big")
    if value < 1 << 14:
        return (value | 1 << 14).to_bytes(2, "big")
    if value < 1 << 30:
        return (value | 2 << 30).to_bytes(4, "big")
    if value < 1 << 62:
        return (value | 3 << 62).to_bytes(8, "big")
    raise FieldError("value", f"{value} does not fit into 62 bits")


def read_varint(octets: bytes, at: int) -> tuple[int, int]:
    """Return the variable-length integer at `at`, and where it ends. Raises FrameError when octets are missing."""
    try:
        first = octets[at]
    except IndexError:
        raise FrameError("an integer is missing") from None
    if first < 0x40:
        return first, at + 1
    size = 1 << (first >> 6)
    stop = at + size
    if stop > len(octets):
        raise FrameError("an integer is cut short")
    return int.from_bytes(octets[at:stop], "big") & ((1 << (8 * size - 2)) - 1), stop


def encode_ack(ranges: Sequence[Range], delay_s: float) -> bytes:
    """Return an ACK frame (RFC 9000 §19.3) for packet-number `ranges`, highest first, of which there is at least one.

    delay_s: since the largest of them arrived.
    """
    start, stop = ranges[0]
    parts = [
        b"\x02",
        encode_varint(stop - 1),
        encode_varint(max(0, int(delay_s * 1e6)) >> ACK_DELAY_EXPONENT),
        encode_varint(len(ranges) - 1),
        encode_varint(stop - start - 1),
    ]
    for next_start, next_stop in ranges[1:]:
        parts.append(encode_varint(start - next_stop - 1))
        parts.append(encode_varint(next_stop - next_start - 1))
        start = next_start
    return b"".join(parts)


def read_ack(octets: bytes, at: int, *, ecn: bool) -> tuple[list[Range], int, int]:
    """Return the ranges of an ACK frame whose type ended at `at`, highest first, its delay field, and where it ends.

    Raises FrameError for a frame cut short, or one with negative packet numbers.
    """
    largest, at = read_varint(octets, at)
    delay, at = read_varint(octets, at)
    count, at = read_varint(octets, at)
    length, at = read_varint(octets, at)
    start = largest - length
    ranges = [(start, largest + 1)]
    if count > len(octets):
        raise FrameError("an ACK frame announces more ranges than its packet can hold")
    for _ in range(count):
        gap, at = read_varint(octets, at)
        length, at = read_varint(octets, at)
        stop = start - gap - 1
        start = stop - length - 1
        ranges.append((start, stop))
    if start < 0:
        raise FrameError("an ACK frame acknowledges negative packet numbers")
    if ecn:
        for _ in range(3):
            _, at = read_varint(octets, at)
    return ranges, delay, at


class Rejected(Exception):  # noqa: N818 (an outcome, not an error)
    """A packet that is not authentic."""


class OtherPhase(Exception):  # noqa: N818
    """A packet that claims to be protected with other keys of the same connection (RFC 9001 §6)."""


class Protection:
    """Protects, or unprotects, short-header packets with the keys of one direction (RFC 9001 §5.3, §5.4).

    The keys are those that aioquic's handshake has set up in `context`. After a key update, a new `Protection` is made
    from it and from its `predecessor`, which gives the header keys (RFC 9001 §6).
    Raises ValueError for a cipher suite other than AES-GCM.
    """

    def __init__(self, context: CryptoContext, predecessor: "Protection | None" = None) -> None:
        if context.cipher_suite is None or context.secret is None or context.version is None:
            raise FieldError("context", "it has no keys yet")
        if CIPHER_SUITES[context.cipher_suite][1] == b"chacha20-poly1305":
            raise FieldError("cipher_suite", "only AES-GCM is protected here")
        key, iv, header_key = derive_key_iv_hp(
            cipher_suite=context.cipher_suite, secret=context.secret, version=context.version
        )
        self.secret = context.secret
        self.phase = KEY_PHASE if context.key_phase else 0
        self._aead = AESGCM(key)
        self._iv = int.from_bytes(iv, "big")
        if predecessor is None:
            self._mask = Cipher(algorithms.AES(header_key), modes.ECB()).encryptor().update
        else:
            self._mask = predecessor._mask

    def protect(self, connection_id: bytes, number: int, payload: Buffer) -> bytes:
        """Return the packet `number` to `connection_id`, which carries `payload` (at least one octet)."""
        first = _FIXED_BIT | self.phase | (NUMBER_BYTES - 1)
        low = number & 0xFFFFFFFF
        header = b"%c%b%b" % (first, connection_id, low.to_bytes(NUMBER_BYTES, "big"))
        sealed = self._aead.encrypt((self._iv ^ number).to_bytes(12, "big"), payload, header)
        mask = self._mask(sealed[:_BLOCK_BYTES])  # with 4 octets of packet number, the sample is what follows them
        masked = low ^ int.from_bytes(mask[1:5], "big")
        return b"%c%b%b%b" % (first ^ (mask[0] & 0x1F), connection_id, masked.to_bytes(4, "big"), sealed)

    def unprotect(self, packet: bytes, connection_id_bytes: int, expected: int) -> tuple[int, int, bytes]:
        """Return a packet's number, first octet and payload. expected: one more than the largest number so far.

        Raises Rejected when it is not authentic, OtherPhase when its key phase differs from `phase`.
        """
        at = 1 + connection_id_bytes
        sample = packet[at + 4 : at + 4 + _BLOCK_BYTES]
        if len(sample) < _BLOCK_BYTES:
            raise Rejected
        mask = self._mask(sample)
        first = packet[0] ^ (mask[0] & 0x1F)
        if first & KEY_PHASE != self.phase:
            raise OtherPhase
        size = (first & 3) + 1
        stop = at + size
        low = int.from_bytes(packet[at:stop], "big") ^ int.from_bytes(mask[1 : 1 + size], "big")
        header = b"%c%b%b" % (first, packet[1:at], low.to_bytes(size, "big"))
        # RFC 9000 §A.3: the number with these low bits that lies closest to the expected one
        window = 1 << (8 * size)
        number = (expected & -window) | low
        if number <= expected - window // 2 and number < (1 << 62) - window:
            number += window
        elif number > expected + window // 2 and number >= window:
            number -= window
        try:
            payload = self._aead.decrypt((self._iv ^ number).to_bytes(12, "big"), packet[stop:], header)
        except InvalidTag:
            raise Rejected from None
        return number, first, payload


def count_packets(data: bytes, *, id_bytes: int) -> tuple[int, bool]:
    """Return how many QUIC packets a datagram holds, and whether all of it could be parsed.

    id_bytes: the length of the connection identifier in short headers. Padding may follow the last packet.
    """
    buffer = AioquicBuffer(data=data)
    count = start = 0
    try:
        while not buffer.eof():
            header = pull_quic_header(buffer, host_cid_length=id_bytes)
            start += header.packet_length
            buffer.seek(start)
            count += 1
    except ValueError:
        return count, count > 0 and not data[start:].strip(b"\0")
    return count, count > 0
