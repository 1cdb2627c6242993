"""TCP Reno: slow start and congestion avoidance by byte counting (RFC 5681, 3465, 6582)."""

from transports.congestion.base import Ack, CongestionControl


class Reno(CongestionControl):
    """Additive increase of one segment per round trip, multiplicative decrease by half.

    byte_count_limit: L of RFC 3465: an ACK opens the window by at most L segments in slow start; 1 makes it RFC 5681's,
    2 makes up for delayed acknowledgements, as kernels do. Raises ValueError when it is less than 1.
    """

    def __init__(self, *, mss_bytes: int, initial_window_segments: int = 10, byte_count_limit: int = 2) -> None:
        super().__init__(mss_bytes=mss_bytes, initial_window_segments=initial_window_segments)
        if byte_count_limit < 1:
            raise ValueError(f"byte_count_limit: {byte_count_limit} is less than 1")
        self._byte_count_limit = byte_count_limit
        self._after_timeout = False
        self._before = (self.cwnd_bytes, self.ssthresh_bytes)

    def on_ack(self, ack: Ack) -> None:
        """Grow while the window is what limits the sender (RFC 5681 §3.1)."""
        if ack.in_recovery or not ack.cwnd_limited:
            return
        acked_bytes = float(ack.acked_bytes)
        if self.cwnd_bytes < self.ssthresh_bytes:
            acked_bytes = self.slow_start(acked_bytes, 1 if self._after_timeout else self._byte_count_limit)
        if acked_bytes > 0:
            self.cwnd_bytes += self.mss_bytes * acked_bytes / self.cwnd_bytes  # RFC 3465 §2.1

    def on_congestion(self, now: float, in_flight_bytes: int) -> None:
        """Halve (RFC 5681 §3.1 equation 4)."""
        self._before = (self.cwnd_bytes, self.ssthresh_bytes)
        self.ssthresh_bytes = max(in_flight_bytes / 2, 2.0 * self.mss_bytes)

    def on_recovery_end(self, now: float) -> None:
        """Set the window to ssthresh (RFC 6582 §3.2 step 3)."""
        self.cwnd_bytes = self.ssthresh_bytes
        self._after_timeout = False

    def on_timeout(self, now: float, in_flight_bytes: int, *, first: bool) -> None:
        """Fall back to the loss window of one segment (RFC 5681 §3.1)."""
        if first:
            self.on_congestion(now, in_flight_bytes)
        self.cwnd_bytes = float(self.mss_bytes)
        self._after_timeout = True  # RFC 3465 §2.3: L = 1 while the timeout's data is repaired

    def undo(self) -> None:
        """Take the last reduction back."""
        cwnd_bytes, ssthresh_bytes = self._before
        self.cwnd_bytes = max(self.cwnd_bytes, cwnd_bytes)
        self.ssthresh_bytes = max(self.ssthresh_bytes, ssthresh_bytes)
        self._after_timeout = False
