"""The TCP segment: an object that costs little to make, and its exact octets when somebody needs them.

Formats: RFC 9293 §3.1 (header, checksum, maximum segment size), RFC 7323 §2.2 and §3.2 (window scale, timestamps),
RFC 2018 §2 and §3 (selective acknowledgement). The simulator passes segments as they are; `bytes(segment)` encodes.
"""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from bicoastal.transports.events import Buffer
from bicoastal.transports.tcp.checksum import ones_complement_sum
from bicoastal.wan.checks import FieldError

# RFC 9293 §3.1, RFC 3168 §6.1
FIN = 0x01
SYN = 0x02
RST = 0x04
PSH = 0x08
ACK = 0x10
URG = 0x20
ECE = 0x40
CWR = 0x80

IP_HEADER_BYTES = 20
TCP_HEADER_BYTES = 20
MAX_OPTIONS_BYTES = 40
TIMESTAMPS_BYTES = 12  # NOP NOP timestamps, as RFC 7323 appendix A lays them out
MAX_WINDOW_SHIFT = 14  # RFC 7323 §2.3: a larger shift that is received counts as 14

_PROTOCOL_TCP = 6
_END, _NOP, _MSS, _WINDOW_SCALE, _SACK_PERMITTED, _SACK, _TIMESTAMPS = 0, 1, 2, 3, 4, 5, 8

_HEADER_STRUCT = Struct("!HHIIBBHHH")
_MSS_STRUCT = Struct("!BBH")
_TIMESTAMPS_STRUCT = Struct("!BBBBII")
_TIMESTAMPS_ONLY = bytes((_NOP, _NOP, _TIMESTAMPS, 10))
_PAIR_STRUCT = Struct("!II")


class MalformedSegmentError(ValueError):
    """These octets are no segment of this connection; the message says why in one sentence."""


class FourTuple(NamedTuple):
    """Who sends to whom: IPv4 addresses as integers, and ports, as seen by the sender of the segment."""

    source: int
    source_port: int
    destination: int
    destination_port: int

    def reversed(self) -> "FourTuple":
        """Return the same connection as the other end sees it."""
        return FourTuple(self.destination, self.destination_port, self.source, self.source_port)


def four_tuple(role: str, path_id: int) -> FourTuple:
    """Return the addresses that segments of `role` carry on a path; what they are only has to be agreed."""
    client = FourTuple((10 << 24) | (path_id << 8) | 1, 40000, (10 << 24) | (path_id << 8) | 2, 4000)
    return client if role == "client" else client.reversed()


class Segment:
    """One TCP segment. Fields are the raw ones of the wire: 32-bit numbers, an unscaled 16-bit window.

    flags: sum of FIN … CWR. payload: any bytes-like object of single octets, never copied before it is encoded.
    mss (octets), window_scale (shift), sack_permitted: options of SYN segments. timestamp_value, timestamp_echo: both
    or neither. sack_blocks: (left, right) pairs, the first the most recent; at most 4, or 3 beside timestamps.
    Nothing is checked here, in the hot path; `bytes()` raises ValueError for what does not fit.
    """

    __slots__ = (
        "acknowledgement",
        "flags",
        "four_tuple",
        "mss",
        "payload",
        "sack_blocks",
        "sack_permitted",
        "sequence",
        "timestamp_echo",
        "timestamp_value",
        "window",
        "window_scale",
    )

    def __init__(  # noqa: PLR0917  (keywords cost time, and millions are made)
        self,
        four_tuple: FourTuple,
        sequence: int,
        acknowledgement: int,
        flags: int,
        window: int,
        payload: Buffer = b"",
        timestamp_value: int | None = None,
        timestamp_echo: int | None = None,
        sack_blocks: tuple[tuple[int, int], ...] = (),
        mss: int | None = None,
        window_scale: int | None = None,
        sack_permitted: bool = False,
    ) -> None:
        self.four_tuple = four_tuple
        self.sequence = sequence
        self.acknowledgement = acknowledgement
        self.flags = flags
        self.window = window
        self.payload = payload
        self.timestamp_value = timestamp_value
        self.timestamp_echo = timestamp_echo
        self.sack_blocks = sack_blocks
        self.mss = mss
        self.window_scale = window_scale
        self.sack_permitted = sack_permitted

    @property
    def header_bytes(self) -> int:
        """Size of the TCP header with its padded options."""
        size = TCP_HEADER_BYTES
        if self.timestamp_value is not None:
            size += TIMESTAMPS_BYTES
        elif self.sack_permitted:
            size += 4
        if self.sack_blocks:
            size += 4 + 8 * len(self.sack_blocks)
        if self.mss is not None:
            size += 4
        if self.window_scale is not None:
            size += 4
        return size

    @property
    def wire_bytes(self) -> int:
        """Size of the IP packet: IPv4 header without options, TCP header with them, payload."""
        return IP_HEADER_BYTES + self.header_bytes + len(self.payload)

    def __bytes__(self) -> bytes:
        """Encode, checksum included. Raises ValueError when a field or the options do not fit the format."""
        header_bytes = self.header_bytes
        if header_bytes > TCP_HEADER_BYTES + MAX_OPTIONS_BYTES:
            raise FieldError("sack_blocks", f"{header_bytes - TCP_HEADER_BYTES} octets of options do not fit in 40")
        four_tuple = self.four_tuple
        try:
            header = _HEADER_STRUCT.pack(
                four_tuple.source_port,
                four_tuple.destination_port,
                self.sequence,
                self.acknowledgement,
                header_bytes << 2,  # data offset in words, in the upper nibble
                self.flags,
                self.window,
                0,
                0,
            ) + (self._options() if header_bytes > TCP_HEADER_BYTES else b"")
        except struct_error as error:
            raise FieldError("segment", f"a field does not fit the header ({error})") from error
        payload = self.payload
        total = _pseudo_header_sum(four_tuple, header_bytes + len(payload)) + int.from_bytes(header, "big")
        if payload:
            total += ones_complement_sum(payload)
        # The sum is never zero (protocol 6), so its complement is 0, not 0xffff, where it is a multiple of 0xffff.
        checksum = -total % 0xFFFF
        return b"".join((header[:16], checksum.to_bytes(2, "big"), header[18:], payload))

    def _options(self) -> bytes:
        """Encode the options in the order and alignment of common kernels (RFC 7323 appendix A)."""
        parts = []
        if self.mss is not None:
            parts.append(_MSS_STRUCT.pack(_MSS, 4, self.mss))
        if self.timestamp_value is not None:
            if self.timestamp_echo is None:
                raise FieldError("timestamp_echo", "a timestamp value needs an echo beside it, 0 where there is none")
            first, second = (_SACK_PERMITTED, 2) if self.sack_permitted else (_NOP, _NOP)
            parts.append(
                _TIMESTAMPS_STRUCT.pack(first, second, _TIMESTAMPS, 10, self.timestamp_value, self.timestamp_echo)
            )
        elif self.sack_permitted:
            parts.append(bytes((_NOP, _NOP, _SACK_PERMITTED, 2)))
        if self.window_scale is not None:
            if not 0 <= self.window_scale <= 255:
                raise FieldError("window_scale", f"{self.window_scale} does not fit in an octet")
            parts.append(bytes((_NOP, _WINDOW_SCALE, 3, self.window_scale)))
        if self.sack_blocks:
            parts.append(bytes((_NOP, _NOP, _SACK, 2 + 8 * len(self.sack_blocks))))
            parts.extend(_PAIR_STRUCT.pack(left, right) for left, right in self.sack_blocks)
        return b"".join(parts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Segment):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Segment.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        flags = "".join(
            letter
            for bit, letter in zip((SYN, FIN, RST, PSH, ACK, URG, ECE, CWR), "SFRPAUEC", strict=True)
            if self.flags & bit
        )
        return (
            f"Segment({flags or '-'} seq={self.sequence} ack={self.acknowledgement} win={self.window}"
            f" len={len(self.payload)} sack={self.sack_blocks})"
        )


def _pseudo_header_sum(four_tuple: FourTuple, tcp_bytes: int) -> int:
    """Sum, modulo 0xffff, of addresses, protocol and length (RFC 9293 §3.1, figure 2); never reduced to zero here."""
    # A number is congruent to the sum of its 16-bit words modulo 0xffff, so addresses need no splitting (RFC 1071 §2).
    return four_tuple.source + four_tuple.destination + _PROTOCOL_TCP + tcp_bytes


def decode(data: Buffer, four_tuple: FourTuple) -> Segment:
    """Parse the octets of one segment that travelled as `four_tuple` says (source: who sent it).

    The payload is a view into `data`. Reserved bits and the urgent pointer are ignored, unknown options skipped
    (RFC 9293 §3.1, §3.2); of an option that is repeated the last one counts. Options are reported whatever the flags;
    which of them mean something is the connection's to know. Raises MalformedSegmentError for anything that is not
    well-formed, is addressed to other ports or fails its checksum.
    """
    size = len(data)
    if size < TCP_HEADER_BYTES:
        raise MalformedSegmentError(f"segment: {size} octets are less than a header")
    source_port, destination_port, sequence, acknowledgement, offset, flags, window, _, _ = _HEADER_STRUCT.unpack_from(
        data
    )
    header_bytes = (offset >> 4) * 4
    if header_bytes < TCP_HEADER_BYTES or header_bytes > size:
        raise MalformedSegmentError(f"segment: data offset of {header_bytes} octets in {size}")
    if source_port != four_tuple.source_port or destination_port != four_tuple.destination_port:
        raise MalformedSegmentError(f"segment: ports {source_port} to {destination_port} are another connection's")
    if (_pseudo_header_sum(four_tuple, size) + ones_complement_sum(data)) % 0xFFFF:
        raise MalformedSegmentError("segment: the checksum does not fit")
    payload: Buffer = memoryview(data)[header_bytes:] if size > header_bytes else b""
    segment = Segment(four_tuple, sequence, acknowledgement, flags, window, payload)
    if header_bytes > TCP_HEADER_BYTES:
        options = bytes(data[TCP_HEADER_BYTES:header_bytes])
        if len(options) == TIMESTAMPS_BYTES and options.startswith(_TIMESTAMPS_ONLY):
            segment.timestamp_value, segment.timestamp_echo = _PAIR_STRUCT.unpack_from(options, 4)
        else:
            _decode_options(options, segment)
    return segment


def _decode_options(options: bytes, segment: Segment) -> None:
    """Fill in the options of `segment`. Raises MalformedSegmentError."""
    index, end = 0, len(options)
    while index < end:
        kind = options[index]
        if kind == _END:  # RFC 9293 §3.1: what follows is padding
            return
        if kind == _NOP:
            index += 1
            continue
        length = options[index + 1] if index + 1 < end else 0
        if length < 2 or index + length > end:
            raise MalformedSegmentError(f"segment: option {kind} has an impossible length")
        body = index + 2
        if kind == _TIMESTAMPS and length == 10:
            segment.timestamp_value, segment.timestamp_echo = _PAIR_STRUCT.unpack_from(options, body)
        elif kind == _SACK and length > 2 and length % 8 == 2:
            segment.sack_blocks = tuple(_PAIR_STRUCT.iter_unpack(options[body : index + length]))
        elif kind == _MSS and length == 4:
            segment.mss = int.from_bytes(options[body : body + 2], "big")
        elif kind == _WINDOW_SCALE and length == 3:
            segment.window_scale = options[body]
        elif kind == _SACK_PERMITTED and length == 2:
            segment.sack_permitted = True
        elif kind in (_TIMESTAMPS, _SACK, _MSS, _WINDOW_SCALE, _SACK_PERMITTED):
            raise MalformedSegmentError(f"segment: option {kind} has length {length}")
        index += length


def unwrap(sequence: int, near_offset: int) -> int:
    """Return the number closest to `near_offset` that equals `sequence` modulo 2^32 (RFC 9293 §3.4).

    It may be negative where `near_offset` is small: such a number was never sent.
    """
    distance = (sequence - near_offset) & 0xFFFFFFFF
    return near_offset + (distance if distance < 0x80000000 else distance - 0x100000000)
