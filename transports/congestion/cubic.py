"""CUBIC (RFC 9438), with HyStart++ (RFC 9406) in slow start."""

from transports.congestion.base import Ack, CongestionControl
from transports.congestion.hystart import HyStart

C = 0.4  # segments per second cubed (RFC 9438 §5.1)
BETA = 0.7  # RFC 9438 §4.6
HYSTART_LIMIT = 8  # L of RFC 9406 §4.3, for senders that do not pace


class Cubic(CongestionControl):
    """A window that is a cubic function of the time since the last congestion.

    byte_count_limit: L of RFC 3465 in slow start. fast_convergence: give up more when the last maximum was not reached
    again (RFC 9438 §4.7). hystart: HyStart++ on. Raises ValueError when byte_count_limit is less than 1.
    """

    def __init__(
        self,
        *,
        mss_bytes: int,
        initial_window_segments: int = 10,
        byte_count_limit: int = 2,
        fast_convergence: bool = True,
        hystart: bool = True,
    ) -> None:
        super().__init__(mss_bytes=mss_bytes, initial_window_segments=initial_window_segments)
        if byte_count_limit < 1:
            raise ValueError(f"byte_count_limit: {byte_count_limit} is less than 1")
        self._byte_count_limit = byte_count_limit
        self._fast_convergence = fast_convergence
        self._hystart = HyStart() if hystart else None
        self._after_timeout = False
        self._w_max = 0.0  # segments, like all of CUBIC's own arithmetic
        self._epoch_s: float | None = None
        self._k_s = 0.0
        self._w_est = 0.0
        self._cwnd_prior = 0.0
        self._last_ack_s: float | None = None
        self._rtt_s = 0.0
        self._before = (self.cwnd_bytes, self.ssthresh_bytes, 0.0)

    def on_ack(self, ack: Ack) -> None:
        """Grow: slow start below ssthresh, then the larger of Reno's and the cubic window."""
        if ack.in_recovery:
            return
        if not ack.cwnd_limited:
            if self._epoch_s is not None and self._last_ack_s is not None:
                self._epoch_s += ack.now - self._last_ack_s  # RFC 9438 §5.8: no growth for time not used
            self._last_ack_s = ack.now
            return
        self._last_ack_s = ack.now
        acked_bytes = float(ack.acked_bytes)
        if self.cwnd_bytes < self.ssthresh_bytes:
            acked_bytes = self._slow_start(ack, acked_bytes)
        if ack.rtt_s is not None:
            self._rtt_s = ack.rtt_s
        if acked_bytes > 0:
            self._avoid_congestion(ack.now, acked_bytes)

    def _slow_start(self, ack: Ack, acked_bytes: float) -> float:
        limit = 1 if self._after_timeout else self._byte_count_limit
        if self._hystart is None or self._after_timeout:
            return self.slow_start(acked_bytes, limit)
        self._hystart.on_ack(ack.rtt_s, round_started=ack.round_started)
        if self._hystart.done:
            self.ssthresh_bytes = self.cwnd_bytes
            return acked_bytes
        return self.slow_start(acked_bytes, limit, divisor=self._hystart.growth_divisor)

    def _avoid_congestion(self, now: float, acked_bytes: float) -> None:
        cwnd = self.cwnd_bytes / self.mss_bytes
        acked = acked_bytes / self.mss_bytes
        if self._epoch_s is None:
            self._epoch_s = now
            if self._w_max <= cwnd:
                self._w_max, self._k_s = cwnd, 0.0
            else:
                self._k_s = ((self._w_max - cwnd) / C) ** (1 / 3)  # RFC 9438 §4.2 figure 2
            self._w_est = cwnd
        # §4.3: Reno-friendly window; alpha is 1 once the last window is reached again
        alpha = 3 * (1 - BETA) / (1 + BETA) if self._w_est < self._cwnd_prior else 1.0
        self._w_est += alpha * acked / cwnd
        since_s = now - self._epoch_s
        if C * (since_s - self._k_s) ** 3 + self._w_max < self._w_est:
            self.cwnd_bytes = max(self.cwnd_bytes, self._w_est * self.mss_bytes)
            return
        # §4.4, §4.5: towards the window of one RTT from now, at most half as much again per RTT
        target = C * (since_s + self._rtt_s - self._k_s) ** 3 + self._w_max
        target = min(max(target, cwnd), 1.5 * cwnd)
        self.cwnd_bytes += self.mss_bytes * (target - cwnd) / cwnd * acked

    def on_congestion(self, now: float, in_flight_bytes: int) -> None:
        """Reduce by 0.7, and remember the window that was too much (RFC 9438 §4.6, §4.7)."""
        cwnd = self.cwnd_bytes / self.mss_bytes
        self._before = (self.cwnd_bytes, self.ssthresh_bytes, self._w_max)
        if cwnd < self._w_max and self._fast_convergence:
            self._w_max = cwnd * (1 + BETA) / 2
        else:
            self._w_max = cwnd
        self._cwnd_prior = cwnd
        self.ssthresh_bytes = max(in_flight_bytes * BETA, 2.0 * self.mss_bytes)
        self._epoch_s = None

    def on_recovery_end(self, now: float) -> None:
        """Set the window to ssthresh, and begin congestion avoidance."""
        self.cwnd_bytes = self.ssthresh_bytes
        self._after_timeout = False
        self._epoch_s = None

    def on_timeout(self, now: float, in_flight_bytes: int, *, first: bool) -> None:
        """Fall back to one segment, and to slow start (RFC 9438 §4.8)."""
        if first:
            self.on_congestion(now, in_flight_bytes)
        self.cwnd_bytes = float(self.mss_bytes)
        self._after_timeout = True

    def undo(self) -> None:
        """Take the last reduction back (RFC 9438 §4.9)."""
        cwnd_bytes, ssthresh_bytes, w_max = self._before
        self.cwnd_bytes = max(self.cwnd_bytes, cwnd_bytes)
        self.ssthresh_bytes = max(self.ssthresh_bytes, ssthresh_bytes)
        self._w_max = max(self._w_max, w_max)
        self._after_timeout = False
