"""What the relay reads from Ethernet frames, and the one change that it may make: a flipped bit.

A frame is an Ethernet II header and an IPv4 packet (RFC 894, RFC 791). Loss models of a burst's tail need the number of
packets of the burst that follow. A classifier finds this number where it can be read from the frames.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from bicoastal.emulation.links.corruption import flip_bit
from bicoastal.wan.checks import FieldError, check_whole

ETHERNET_BYTES = 14  # destination, source, type
_TOS = ETHERNET_BYTES + 1
_PROTOCOL = ETHERNET_BYTES + 9
_TCP = 6
_SYN = 0x02
_MOST_DSCP = 63  # six bits: RFC 2474 §3

Classifier = Callable[[bytes], int | None]


def flip_bit_in_frame(frame: bytes, position: float) -> bytes:
    """Return the frame with one bit after the IP header flipped; `position` is a fraction of those octets."""
    start = ETHERNET_BYTES + _header_bytes(frame)
    end = ETHERNET_BYTES + _total_bytes(frame)
    return frame[:start] + flip_bit(frame[start:end], position) + frame[end:]


def _header_bytes(frame: bytes) -> int:
    return (frame[ETHERNET_BYTES] & 0x0F) * 4


def _total_bytes(frame: bytes) -> int:
    return int.from_bytes(frame[ETHERNET_BYTES + 2 : ETHERNET_BYTES + 4], "big")


def burst_to_tos(burst_left: int | None, ecn: int) -> int:
    """Return the IP TOS octet for a datagram of ours. The DSCP carries `burst_left`, which adds no octet to the packet.

    DSCP 0 is None, 1 to 62 are 0 to 61 packets left, and 63 is 62 or more: longer tails cannot be distinguished.
    """
    code = 0 if burst_left is None else min(burst_left + 1, _MOST_DSCP)
    return code << 2 | ecn


@dataclass(frozen=True, slots=True, kw_only=True)
class DscpBursts:
    """Bursts of our own datagrams, which the sender marks with `burst_to_tos`."""

    def start(self, *, back: bool = False) -> Classifier:
        """Return a classifier, which has no state."""
        return _burst_from_dscp


def _burst_from_dscp(frame: bytes) -> int | None:
    code = frame[_TOS] >> 2
    return code - 1 if code else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpBursts:
    """Bursts of TCP connections to or from `port`: the stream consists of bursts of the given sizes, repeated.

    burst_bytes: sizes of the bursts, in their order. back_bytes: sizes from the path's last site, empty for the same.
    lead_bytes: what a connection sends before its first burst. Raises FieldError.
    """

    port: int
    burst_bytes: tuple[int, ...]
    back_bytes: tuple[int, ...] = ()
    lead_bytes: int = 0

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_whole("port", self.port, 1)
        if not self.burst_bytes:
            raise FieldError("burst_bytes", "there is none")
        for name in ("burst_bytes", "back_bytes"):
            for size in getattr(self, name):
                check_whole(name, size, 1)
        check_whole("lead_bytes", self.lead_bytes, 0)

    def start(self, *, back: bool = False) -> Classifier:
        """Return a new classifier for one direction: from the path's first site, or with `back` from its last."""
        return _TcpClassifier(self.port, (back and self.back_bytes) or self.burst_bytes, self.lead_bytes)


class _Stream:
    """One direction of a connection. next: first stream offset that was not seen yet. most: largest payload seen."""

    __slots__ = ("initial", "most", "next")

    def __init__(self, initial: int) -> None:
        self.initial = initial
        self.next: int = 0
        self.most: int = 1


class _TcpClassifier:
    __slots__ = ("_ends", "_lead_bytes", "_port", "_streams")

    def __init__(self, port: int, burst_bytes: tuple[int, ...], lead_bytes: int) -> None:
        self._port = port
        self._lead_bytes = lead_bytes
        self._ends = tuple(accumulate(burst_bytes))
        self._streams: dict[bytes, _Stream] = {}

    def __call__(self, frame: bytes) -> int | None:
        """Return how many segments of the burst follow, for a first transmission of data; None for other frames.

        A stream is numbered from its SYN (RFC 9293 §3.4). An offset is known modulo 2^32; the value nearest to the last
        one is taken.
        """
        if frame[_PROTOCOL] != _TCP:
            return None
        header_bytes = _header_bytes(frame)
        tcp = ETHERNET_BYTES + header_bytes
        source, destination, sequence, _, offset, flags = struct.unpack_from("!HHIIBB", frame, tcp)
        if self._port not in (source, destination):
            return None
        key = frame[ETHERNET_BYTES + 12 : ETHERNET_BYTES + 20] + frame[tcp : tcp + 4]
        if flags & _SYN:
            self._streams[key] = _Stream(sequence + 1)
            return None
        payload_bytes = _total_bytes(frame) - header_bytes - (offset >> 4) * 4
        stream = self._streams.get(key)
        if payload_bytes <= 0 or stream is None:
            return None
        ahead = (sequence - stream.initial - stream.next + (1 << 31)) % (1 << 32) - (1 << 31)
        end = stream.next + ahead + payload_bytes
        if end <= stream.next:
            return None
        stream.next = end
        stream.most = max(stream.most, payload_bytes)
        if end <= self._lead_bytes:
            return None
        within = (end - self._lead_bytes - 1) % self._ends[-1] + 1
        left_bytes: int = next(burst_end for burst_end in self._ends if burst_end >= within) - within
        return -(-left_bytes // stream.most)


BurstRule = DscpBursts | TcpBursts
