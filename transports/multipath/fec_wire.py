"""What the ends of an FEC-protected connection tell each other: symbols, and a few control frames.

A symbol is a DATAGRAM frame of its own: message number (32 bits), block (16), index (32), then the octets. An
announcement tells how a message is cut and protected; it goes on every path's control stream, and again in DATAGRAM
frames (block 0xFFFF) throughout the message, so that no single loss delays it. The receiver answers on the control
streams: a message is done, or blocks of it miss so many symbols. What sounds a path (block 0xFFFE, see `sounding`) is
answered on that path's control stream. Integers are big-endian.
"""

import struct
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from bicoastal.transports.coding.codes import ErasureCode
from bicoastal.transports.coding.redundancy import ALL_CODES

SYMBOL_HEADER = Struct(">IHI")
ANNOUNCEMENT_BLOCK = 0xFFFF
SOUNDING_BLOCK = 0xFFFE
_SOUNDING = b"\xff\xfe"
MAX_CONTROL_BYTES = 1 << 20

_ANNOUNCEMENT = Struct(">IQQHHB")
_FRAME = Struct(">BI")
_NUMBER = Struct(">I")
_MISSING_HEAD = Struct(">II")
_MISSING = Struct(">HI")
_SPREAD = Struct(">Q")
ANNOUNCE, DONE, MISSING, SPREAD = 1, 2, 3, 4


def is_sounding(octets: bytes) -> bool:
    """Tell whether a DATAGRAM frame only sounds its path."""
    return octets[4:6] == _SOUNDING and len(octets) >= SYMBOL_HEADER.size


def sounding_index(octets: bytes) -> int:
    """Return the place of a DATAGRAM frame among the packets of its sounding."""
    return int(SYMBOL_HEADER.unpack_from(octets)[2])


class FecProtocolError(ValueError):
    """The far end, whose datagrams are authentic, does not speak this protocol; the message says what it did."""


class Announcement(NamedTuple):
    """How message `number` of this direction is cut: block i has `block_sizes(symbols, blocks)[i]` source symbols.

    message_id: the application's. checksums: of each block, padding included (`block_checksum`).
    """

    number: int
    message_id: int
    length_bytes: int
    symbol_bytes: int
    blocks: int
    code: ErasureCode
    checksums: tuple[int, ...]

    @property
    def symbols(self) -> int:
        """Return how many source symbols the message has."""
        return -(-self.length_bytes // self.symbol_bytes)

    def encode(self) -> bytes:
        """Return its octets."""
        head = _ANNOUNCEMENT.pack(
            self.number,
            self.message_id,
            self.length_bytes,
            self.symbol_bytes,
            self.blocks,
            ALL_CODES.index(self.code),
        )
        return head + b"".join(_NUMBER.pack(checksum) for checksum in self.checksums)


def announcement_bytes(blocks: int) -> int:
    """Return how large an announcement of so many blocks is."""
    return _ANNOUNCEMENT.size + blocks * _NUMBER.size


def decode_announcement(octets: bytes) -> Announcement:
    """Return the announcement. Raises FecProtocolError for what is none, or describes blocks that no code has."""
    try:
        number, message_id, length_bytes, symbol_bytes, blocks, code_at = _ANNOUNCEMENT.unpack_from(octets)
        checksums = struct.unpack_from(f">{blocks}I", octets, _ANNOUNCEMENT.size)
    except struct.error as error:
        raise FecProtocolError("an announcement is cut short") from error
    if len(octets) != announcement_bytes(blocks) or code_at >= len(ALL_CODES) or symbol_bytes < 1:
        raise FecProtocolError("an announcement is malformed")
    found = Announcement(number, message_id, length_bytes, symbol_bytes, blocks, ALL_CODES[code_at], checksums)
    if not (blocks <= found.symbols and (blocks > 0 or length_bytes == 0)):
        raise FecProtocolError(f"an announcement has {blocks} blocks for {found.symbols} symbols")
    if blocks:
        try:
            found.code.check_shape(-(-found.symbols // blocks), symbol_bytes)
        except ValueError as error:
            raise FecProtocolError(f"an announcement names a block that its code has not: {error}") from error
    return found


class Done(NamedTuple):
    """Message `number` has been delivered."""

    number: int


class MissingSymbols(NamedTuple):
    """Blocks of message `number`, and how many more symbols each needs.

    serial: grows with each of them, so that copies from other paths are known for what they are.
    """

    number: int
    serial: int
    blocks: dict[int, int]


class Spread(NamedTuple):
    """The packets that sounded this path arrived `interval_ps` picoseconds apart, where they were closest."""

    interval_ps: int


ControlFrame = Announcement | Done | MissingSymbols | Spread


def encode_control(frame: ControlFrame) -> bytes:
    """Return a frame as it stands on the control stream: kind (8 bits), length (32 bits), body."""
    if isinstance(frame, Announcement):
        kind, body = ANNOUNCE, frame.encode()
    elif isinstance(frame, Done):
        kind, body = DONE, _NUMBER.pack(frame.number)
    elif isinstance(frame, Spread):
        kind, body = SPREAD, _SPREAD.pack(frame.interval_ps)
    else:
        pairs = (_MISSING.pack(block, count) for block, count in frame.blocks.items())
        kind, body = MISSING, _MISSING_HEAD.pack(frame.number, frame.serial) + b"".join(pairs)
    return _FRAME.pack(kind, len(body)) + body


class ControlReader:
    """Cuts the octets of one control stream into frames."""

    def __init__(self) -> None:
        self._left = b""

    def feed(self, octets: bytes) -> Iterator[ControlFrame]:
        """Yield the frames that these octets complete. Raises FecProtocolError for what is no frame."""
        data = self._left + octets
        at = 0
        while len(data) - at >= _FRAME.size:
            kind, length = _FRAME.unpack_from(data, at)
            if length > MAX_CONTROL_BYTES:
                raise FecProtocolError(f"a control frame of {length} bytes")
            if len(data) - at - _FRAME.size < length:
                break
            at += _FRAME.size
            body = data[at : at + length]
            at += length
            self._left = data[at:]
            yield _decode_control(kind, body)
        self._left = data[at:]


def _decode_control(kind: int, body: bytes) -> ControlFrame:
    if kind == ANNOUNCE:
        return decode_announcement(body)
    if kind == DONE and len(body) == _NUMBER.size:
        return Done(_NUMBER.unpack(body)[0])
    if kind == SPREAD and len(body) == _SPREAD.size and any(body):
        return Spread(_SPREAD.unpack(body)[0])
    pairs = body[_MISSING_HEAD.size :]
    if kind == MISSING and len(body) >= _MISSING_HEAD.size and len(pairs) % _MISSING.size == 0:
        number, serial = _MISSING_HEAD.unpack_from(body)
        return MissingSymbols(number, serial, dict(_MISSING.iter_unpack(pairs)))
    raise FecProtocolError(f"a control frame of kind {kind} and {len(body)} bytes")
