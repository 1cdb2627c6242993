"""The wire format: four kinds of frame in UDP datagrams, each with a CRC and the connection's token.

All numbers are unsigned and big-endian. Every frame begins with::

    crc32 (4) of all that follows | kind (1) | token (8)

    HELLO    stamp (8) | rate (4) | overhead (2)                         offered by the client, on every path
    WELCOME  stamp (8)                                                   answers a HELLO, on the path that it took
    DATA     flags (1) | number (8) | behind (4) | offset (8) | octets of the stream
    REPORT   path (1) | flags (1) | echo (8) | delay (4) | start (8) | stop (8) | rate (4) | overhead (2)
             | count (2) | count × ( gap start - start (4) | gap length (4) )

A packet number is never used twice on a path. So a report identifies each transmission, and data needs no timestamp.
Rates are in kbit/s: the rate that the client's controller grants to the server on this path, with `overhead` bytes
counted on top of each IP packet.

The simulator passes frames as objects; `bytes(frame)` encodes one.
"""

from itertools import pairwise
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from bicoastal.transports.base import Encodable
from bicoastal.transports.events import Buffer

IP_UDP_BYTES = 20 + 8
RATE_UNIT_BPS = 1000
MAX_U32, MAX_U64 = 2**32 - 1, 2**64 - 1

LAST = 0x01  # the sender has nothing else to send: report at once
NAK = 0x01  # in a report: packet `stop` is missing, and later ones were dropped (go-back-N)

_HELLO, _WELCOME, _DATA, _REPORT = 1, 2, 3, 4
_CRC_BYTES = 4
_HELLO_STRUCT = Struct("!BQQIH")
_WELCOME_STRUCT = Struct("!BQQ")
_DATA_STRUCT = Struct("!BQBQIQ")
_REPORT_STRUCT = Struct("!BQBBQIQQIHH")
_GAP_STRUCT = Struct("!II")
DATA_HEADER_BYTES = _CRC_BYTES + _DATA_STRUCT.size
DATA_OVERHEAD_BYTES = IP_UDP_BYTES + DATA_HEADER_BYTES
_REPORT_HEADER_BYTES = _CRC_BYTES + _REPORT_STRUCT.size


class MalformedFrameError(ValueError):
    """The octets are not a valid frame. The message says why in one sentence."""


class Hello(NamedTuple):
    """The client's offer. stamp: its clock in ns; the answer repeats it. rate_units: the server's rate, kbit/s."""

    token: int
    stamp: int
    rate_units: int
    overhead_bytes: int

    @property
    def wire_bytes(self) -> int:
        """Size of the IP packet."""
        return IP_UDP_BYTES + _CRC_BYTES + _HELLO_STRUCT.size

    def __bytes__(self) -> bytes:
        return _sealed(_HELLO_STRUCT.pack(_HELLO, *self))


class Welcome(NamedTuple):
    """The server's answer to a HELLO. The first one that arrives establishes the connection."""

    token: int
    stamp: int

    @property
    def wire_bytes(self) -> int:
        """Size of the IP packet."""
        return IP_UDP_BYTES + _CRC_BYTES + _WELCOME_STRUCT.size

    def __bytes__(self) -> bytes:
        return _sealed(_WELCOME_STRUCT.pack(_WELCOME, *self))


class Data(NamedTuple):
    """Octets of the stream from `offset` on. A packet without octets only asks for a report.

    number: of this transmission, on its path. behind: the sender needs no report on packets below `number - behind`.
    """

    token: int
    flags: int
    number: int
    behind: int
    offset: int
    payload: Buffer

    def __bytes__(self) -> bytes:
        token, flags, number, behind, offset, payload = self
        return _sealed(b"".join((_DATA_STRUCT.pack(_DATA, token, flags, number, behind, offset), payload)))


class Report(NamedTuple):
    """The acknowledgement of a path: of the packets in [start, stop), all have arrived except those in `gaps`.

    echo: the packet that arrived last, `delay_us` before this report was sent. gaps: ascending, disjoint, half-open.
    """

    token: int
    path_id: int
    flags: int
    echo: int
    delay_us: int
    start: int
    stop: int
    rate_units: int
    overhead_bytes: int
    gaps: tuple[tuple[int, int], ...]

    @property
    def wire_bytes(self) -> int:
        """Size of the IP packet."""
        return IP_UDP_BYTES + _REPORT_HEADER_BYTES + _GAP_STRUCT.size * len(self.gaps)

    def __bytes__(self) -> bytes:
        token, path_id, flags, echo, delay_us, start, stop, rate_units, overhead_bytes, gaps = self
        head = _REPORT_STRUCT.pack(
            _REPORT, token, path_id, flags, echo, delay_us, start, stop, rate_units, overhead_bytes, len(gaps)
        )
        return _sealed(head + b"".join(_GAP_STRUCT.pack(low - start, high - low) for low, high in gaps))


Frame = Hello | Welcome | Data | Report


def most_gaps(mtu_bytes: int) -> int:
    """Return how many gaps a report in one IP packet of `mtu_bytes` can list."""
    return (mtu_bytes - IP_UDP_BYTES - _REPORT_HEADER_BYTES) // _GAP_STRUCT.size


def decode(payload: bytes | Encodable) -> Frame:
    """Return the frame of a payload. The data octets are a view into the payload. Raises MalformedFrameError."""
    if isinstance(payload, Hello | Welcome | Data | Report):
        return payload
    octets = bytes(payload)
    body = memoryview(octets)[_CRC_BYTES:]
    if not body or crc32(body) != int.from_bytes(octets[:_CRC_BYTES], "big"):
        raise MalformedFrameError("frame: the checksum does not fit")
    kind, size = body[0], len(body)
    if kind == _DATA and size >= _DATA_STRUCT.size:
        _, token, flags, number, behind, offset = _DATA_STRUCT.unpack_from(body)
        if behind > number:
            raise MalformedFrameError(f"behind: {behind} is more than the packets up to {number}")
        return Data(token, flags, number, behind, offset, body[_DATA_STRUCT.size :])
    if kind == _REPORT and size >= _REPORT_STRUCT.size:
        return _report(body)
    if kind == _HELLO and size == _HELLO_STRUCT.size:
        return Hello(*_HELLO_STRUCT.unpack(body)[1:])
    if kind == _WELCOME and size == _WELCOME_STRUCT.size:
        return Welcome(*_WELCOME_STRUCT.unpack(body)[1:])
    raise MalformedFrameError(f"frame: {size} octets of kind {kind}")


def _report(body: memoryview) -> Report:
    _, token, path_id, flags, echo, delay_us, start, stop, rate_units, overhead_bytes, count = (
        _REPORT_STRUCT.unpack_from(body)
    )
    if len(body) != _REPORT_STRUCT.size + count * _GAP_STRUCT.size:
        raise MalformedFrameError(f"gaps: {count} are announced in {len(body)} octets")
    pairs = _GAP_STRUCT.iter_unpack(body[_REPORT_STRUCT.size :])
    gaps = tuple((start + low, start + low + length) for low, length in pairs)
    edges = [start, *(edge for gap in gaps for edge in gap), stop]
    if any(low > high for low, high in pairwise(edges)):
        raise MalformedFrameError("gaps: they are not ascending between start and stop")
    return Report(token, path_id, flags, echo, delay_us, start, stop, rate_units, overhead_bytes, gaps)


def _sealed(body: bytes) -> bytes:
    return crc32(body).to_bytes(_CRC_BYTES, "big") + body
