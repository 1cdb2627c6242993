"""The kernel's figures of a TCP connection: `struct tcp_info` of linux/tcp.h, read with getsockopt(TCP_INFO)."""

import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

from bicoastal.wan.checks import FieldError
from bicoastal.wan.units import INFINITY

# eight octets of state and options; then u32 fields up to total_retrans, u64 pacing_rate … bytes_received, and on
_LAYOUT = struct.Struct("=8x24I4Q2I4I4Q2I2Q3I")
_RTOS = struct.Struct("=H")
_RTOS_AT = 240  # tcpi_total_rto, from Linux 6.7 on
_LONGEST = 512


class TcpInfo(NamedTuple):
    """The state of a connection. Times are in seconds, rates in bit/s of payload, windows in segments.

    bytes_sent: payload, repeats included. segments_sent: with and without payload. timeouts: expiries of the
    retransmission timer, 0 where the kernel is too old to report them. delivery_rate_bps: of the newest sample.
    """

    mss_bytes: int
    in_flight_segments: int
    rtt_s: float
    cwnd_segments: int
    retransmissions: int
    pacing_rate_bps: float
    bytes_acked: int
    segments_sent: int
    min_rtt_s: float
    data_segments_sent: int
    delivery_rate_bps: float
    bytes_sent: int
    spurious: int
    timeouts: int


def read_tcp_info(connection: socket.socket) -> TcpInfo:
    """Return the kernel's figures. Raises OSError, and ValueError for kernels before Linux 4.19."""
    return parse_tcp_info(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LONGEST))


def parse_tcp_info(octets: bytes) -> TcpInfo:
    """Return the figures of a `struct tcp_info`. Raises ValueError when it is too short."""
    if len(octets) < _LAYOUT.size:
        raise ValueError(f"struct tcp_info has {len(octets)} bytes here; Linux 4.19 and later give more")
    fields = _LAYOUT.unpack_from(octets)
    words, wide, rest = fields[:24], fields[24:28], fields[28:]
    unlimited = (1 << 64) - 1
    return TcpInfo(
        mss_bytes=words[2],
        in_flight_segments=max(0, words[4] - words[5] - words[6] + words[7]),
        rtt_s=words[15] * 1e-6,
        cwnd_segments=words[18],
        retransmissions=words[23],
        pacing_rate_bps=INFINITY if wide[0] == unlimited else 8.0 * wide[0],
        bytes_acked=wide[2],
        segments_sent=rest[0],
        min_rtt_s=rest[3] * 1e-6,
        data_segments_sent=rest[5],
        delivery_rate_bps=8.0 * rest[6],
        bytes_sent=rest[12],
        spurious=rest[14],
        timeouts=_RTOS.unpack_from(octets, _RTOS_AT)[0] if len(octets) >= _RTOS_AT + _RTOS.size else 0,
    )


def combined_info(parts: Sequence[TcpInfo]) -> TcpInfo:
    """Return the figures of several subflows together: windows, counts and rates are added.

    rtt_s is the mean, min_rtt_s the least, and mss_bytes that of the first subflow. Raises FieldError for no subflow.
    """
    if not parts:
        raise FieldError("parts", "there is none")
    return TcpInfo(
        mss_bytes=parts[0].mss_bytes,
        in_flight_segments=sum(part.in_flight_segments for part in parts),
        rtt_s=sum(part.rtt_s for part in parts) / len(parts),
        cwnd_segments=sum(part.cwnd_segments for part in parts),
        retransmissions=sum(part.retransmissions for part in parts),
        pacing_rate_bps=sum(part.pacing_rate_bps for part in parts),
        bytes_acked=sum(part.bytes_acked for part in parts),
        segments_sent=sum(part.segments_sent for part in parts),
        min_rtt_s=min(part.min_rtt_s for part in parts),
        data_segments_sent=sum(part.data_segments_sent for part in parts),
        delivery_rate_bps=sum(part.delivery_rate_bps for part in parts),
        bytes_sent=sum(part.bytes_sent for part in parts),
        spurious=sum(part.spurious for part in parts),
        timeouts=sum(part.timeouts for part in parts),
    )
