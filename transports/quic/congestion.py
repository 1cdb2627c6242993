"""Congestion controllers for QUIC, where one acknowledgement covers many packets."""

from bicoastal.transports.congestion.adaptive import Adaptive
from bicoastal.transports.congestion.cubic import Cubic
from bicoastal.transports.congestion.hystart import HyStart
from bicoastal.transports.congestion.reno import Reno
from bicoastal.transports.congestion.startup import SparseAckStartup
from bicoastal.wan.units import INFINITY

NO_LIMIT_SEGMENTS = 1 << 30


class QuicAdaptive(Adaptive):
    """`Adaptive`, started up by few acknowledgements (`SparseAckStartup`), with probes that have to be verified."""

    def __init__(self, *, mss_bytes: int, initial_window_segments: int = 10, headroom: float = 0.02) -> None:
        super().__init__(
            mss_bytes=mss_bytes,
            initial_window_segments=initial_window_segments,
            headroom=headroom,
            startup=SparseAckStartup(mss_bytes=mss_bytes),
            verify_probes=True,
        )


class QuicCubic(Cubic):
    """`Cubic`, whose slow start grows by all that is acknowledged (RFC 9002 §7.3.1, RFC 9406 §4.2: L with pacing)."""

    def __init__(self, *, mss_bytes: int, initial_window_segments: int = 10) -> None:
        super().__init__(
            mss_bytes=mss_bytes,
            initial_window_segments=initial_window_segments,
            byte_count_limit=NO_LIMIT_SEGMENTS,
        )
        self._hystart = HyStart(mss_bytes=mss_bytes, limit_segments=INFINITY)


class QuicReno(Reno):
    """`Reno`, whose slow start grows by all that is acknowledged (RFC 9002 §7.3.1)."""

    def __init__(self, *, mss_bytes: int, initial_window_segments: int = 10) -> None:
        super().__init__(
            mss_bytes=mss_bytes,
            initial_window_segments=initial_window_segments,
            byte_count_limit=NO_LIMIT_SEGMENTS,
        )
