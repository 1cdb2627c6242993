"""The kernel's TCP for periodic bursts of known size: each burst begins with what the last one has learned.

Two values of the kernel's figures (TCP_INFO) during a burst are kept for the next bursts:

- The rate of acknowledgements that arrive without a pause, which is the rate of the bottleneck. New bursts are paced a
  little above it (SO_MAX_PACING_RATE). So they fill no queue, and a faster path can still be detected.
- The window that was reached without loss. When a loss has reduced the window, a new connection replaces the old one in
  the pause between two bursts. Its initial window is the learned one (`initcwnd` and `initrwnd` of the route).

The namespace's setting `tcp_slow_start_after_idle` keeps the window during idle time. CUBIC decides everything else,
the response to congestion included.
"""

import socket
from collections import deque
from dataclasses import dataclass

from bicoastal.emulation.driver import APPLICATION
from bicoastal.emulation.ends.flow_end import EndContext
from bicoastal.emulation.ends.kernel_options import set_initial_windows, set_pacing_rate
from bicoastal.emulation.ends.kernel_tcp import KernelTcpEnd
from bicoastal.emulation.ends.tcp_info import TcpInfo
from bicoastal.transports.registry import TransportSpec
from bicoastal.wan.units import INFINITY

_POLL_S = 0.002
_ROW_S = 0.016  # the least time of acknowledgements in a row from which a rate is calculated
_ROW_SEGMENTS = 16
_GAP_SHARE = 0.25  # the longest pause within a row, as a share of `_ROW_S`
_PACE = 1.05
_WINDOW_HEADROOM = 1.25  # above the bandwidth-delay product, for the path's jitter
_FIRST_WINDOW = 10  # RFC 6928
_PAUSE_RTTS = 2.0  # after a burst, until its last acknowledgements have arrived


class RowRate:
    """The bottleneck's rate, from acknowledged bytes over time in rows that no pause interrupts."""

    def __init__(self) -> None:
        self.rate_bps = 0.0
        self._points: deque[tuple[float, int]] = deque()

    def clear(self) -> None:
        """Begin a new burst: earlier points belong to no row of it."""
        self._points.clear()

    def add(self, now: float, acked_bytes: int, *, mss_bytes: int) -> None:
        """Add a point. A point without newly acknowledged bytes is ignored."""
        points = self._points
        if points and points[-1][1] == acked_bytes:
            return
        if points and now - points[-1][0] > max(_GAP_SHARE * _ROW_S, 2 * _POLL_S, self._four_packets_s(mss_bytes)):
            points.clear()
        points.append((now, acked_bytes))
        while (
            len(points) > 2
            and now - points[1][0] >= _ROW_S
            and (acked_bytes - points[1][1] >= _ROW_SEGMENTS * mss_bytes)
        ):
            points.popleft()
        began_s, began_bytes = points[0]
        long_enough = now - began_s >= _ROW_S and acked_bytes - began_bytes >= _ROW_SEGMENTS * mss_bytes
        if long_enough:
            self.rate_bps = max(self.rate_bps, 8 * (acked_bytes - began_bytes) / (now - began_s))

    def _four_packets_s(self, mss_bytes: int) -> float:
        return 4 * 8 * mss_bytes / self.rate_bps if self.rate_bps else 0.0


@dataclass(slots=True)
class Learned:
    """What was learned about a path. window_segments: the window reached without loss."""

    window_segments: int = 0
    min_rtt_s: float = INFINITY


class KernelAdaptiveEnd(KernelTcpEnd):
    """See the module's text. Raises UnsupportedError where routes cannot be changed."""

    def __init__(self, context: EndContext) -> None:
        super().__init__(context, congestion_control="cubic")
        set_initial_windows(context.ends[0], _FIRST_WINDOW)
        self._learned = Learned()
        self._rate = RowRate()
        self._burst_began: TcpInfo | None = None
        self._goal_bytes = 0

    def prepare(self, connection: socket.socket) -> None:
        """Set the learned pacing rate of a new connection."""
        self._pace(connection)

    def _pace(self, connection: socket.socket) -> None:
        if self._rate.rate_bps:
            set_pacing_rate(connection, _PACE * self._rate.rate_bps)

    # -- a burst ------------------------------------------------------------------------------------------------------

    def send(self, message_id: int, data: memoryview, now: float) -> None:
        """Give a message to the kernel, and observe its acknowledgements."""
        info = self.info()
        if info is not None:
            first = not self._goal_bytes or info.bytes_acked >= self._goal_bytes
            if first:
                self._burst_began = info
                self._rate.clear()
                self.context.driver.at(now + _POLL_S, APPLICATION, self._poll, None)
            self._goal_bytes = max(self._goal_bytes, info.bytes_acked) + len(data)
        super().send(message_id, data, now)

    def _poll(self, _: object, now: float) -> None:
        info = self.info()
        if info is None:
            return
        self._rate.add(now, info.bytes_acked, mss_bytes=info.mss_bytes)
        self._learned.min_rtt_s = min(self._learned.min_rtt_s, info.min_rtt_s)
        if info.bytes_acked < self._goal_bytes:
            self.context.driver.at(now + _POLL_S, APPLICATION, self._poll, None)

    # -- the pause ----------------------------------------------------------------------------------------------------

    def rest(self, now: float) -> None:
        """Learn from the burst when its last acknowledgements have arrived."""
        info = self.info()
        if self.context.role == "client" and info is not None:
            self.context.driver.at(now + _PAUSE_RTTS * info.rtt_s, APPLICATION, self._learn, None)

    def _learn(self, _: object, now: float) -> None:
        info, began = self.info(), self._burst_began
        if info is None or began is None:
            return
        lost = info.retransmissions > began.retransmissions
        if not lost:
            self._learned.window_segments = max(self._learned.window_segments, info.cwnd_segments)
        bdp_segments = self._rate.rate_bps * self._learned.min_rtt_s / 8 / info.mss_bytes
        if self._rate.rate_bps:
            most = max(round(_WINDOW_HEADROOM * bdp_segments), 10)
            self._learned.window_segments = min(self._learned.window_segments, most)
        self._burst_began = None
        if self._connection is not None:
            self._pace(self._connection)
        if lost and info.cwnd_segments < self._learned.window_segments:
            self._reconnect()

    def _reconnect(self) -> None:
        """Replace a connection whose window a loss has reduced by one that begins with the learned window."""
        set_initial_windows(self.context.ends[0], self._learned.window_segments)
        self.retire()
        self._goal_bytes = 0
        self.connect()


def adaptive_end(context: EndContext) -> KernelAdaptiveEnd:
    """Return an end of `kernel-adaptive`."""
    return KernelAdaptiveEnd(context)


KERNEL_ADAPTIVE = TransportSpec(
    name="kernel-adaptive",
    kind="native",
    paths="one",
    description="The kernel's CUBIC, opened at what the last burst has taught: window by route, paced, not idled away",
    requires=frozenset({"kernel cubic", "learned windows"}),
    program="bicoastal.emulation.ends.kernel_adaptive:adaptive_end",
    colour="#a1d99b",
    marker="D",
)
