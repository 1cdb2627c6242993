"""Round-trip time and retransmission timeout (RFC 6298)."""

from collections import deque

INITIAL_RTO_S = 1.0  # RFC 6298 §2.1
MAX_RTO_S = 60.0  # RFC 6298 §2.4


class RttEstimator:
    """Smoothed RTT, its variation, its minimum over a sliding window, and the RTO they make.

    min_rto_s is the floor of the RTO's variance term, so the RTO is never less than SRTT + min_rto_s. That is what
    Linux does (tcp_rto_min, 200 ms); RFC 6298 §2.4 would have the whole RTO be at least 1 s, which no kernel keeps.
    min_rtt_s is the least sample of the last `min_window_s` seconds, inf before the first (RFC 8985 §6.1).
    All times are seconds. Raises ValueError naming the argument.
    """

    __slots__ = (
        "_backoff",
        "_min_window_s",
        "_minima",
        "latest_s",
        "min_rto_s",
        "min_rtt_s",
        "rttvar_s",
        "srtt_s",
    )

    def __init__(self, *, min_rto_s: float = 0.2, min_window_s: float = 300.0) -> None:
        if not min_rto_s > 0:
            raise ValueError(f"min_rto_s: {min_rto_s} is not positive")
        if not min_window_s > 0:
            raise ValueError(f"min_window_s: {min_window_s} is not positive")
        self.min_rto_s = min_rto_s
        self.srtt_s: float | None = None
        self.rttvar_s = 0.0
        self.latest_s: float | None = None
        self.min_rtt_s = float("inf")
        self._min_window_s = min_window_s
        self._minima: deque[tuple[float, float]] = deque()  # (when, sample), ascending in both
        self._backoff = 1

    def sample(self, rtt_s: float, now: float) -> None:
        """Take a sample of a segment that was sent once (Karn's rule is the caller's); it ends any back-off."""
        self._backoff = 1
        self.latest_s = rtt_s
        srtt_s = self.srtt_s
        if srtt_s is None:  # RFC 6298 §2.2
            self.srtt_s = rtt_s
            self.rttvar_s = rtt_s / 2
        else:  # RFC 6298 §2.3: the variation first, with the old mean
            self.rttvar_s += (abs(srtt_s - rtt_s) - self.rttvar_s) * 0.25
            self.srtt_s = srtt_s + (rtt_s - srtt_s) * 0.125
        minima = self._minima
        if rtt_s <= self.min_rtt_s:
            minima.clear()
            minima.append((now, rtt_s))
            self.min_rtt_s = rtt_s
            return
        if now - minima[0][0] > self._min_window_s:
            while minima and now - minima[0][0] > self._min_window_s:
                minima.popleft()
            self.min_rtt_s = min(rtt_s, minima[0][1]) if minima else rtt_s
        if not minima or now - minima[-1][0] > self._min_window_s / 64:
            while minima and minima[-1][1] >= rtt_s:
                minima.pop()
            minima.append((now, rtt_s))

    def back_off(self) -> None:
        """Double the RTO: it has expired (RFC 6298 §5.5)."""
        self._backoff = min(2 * self._backoff, 1 << 16)

    @property
    def rto_s(self) -> float:
        """The retransmission timeout, back-off included (RFC 6298 §2)."""
        if self.srtt_s is None:
            return min(INITIAL_RTO_S * self._backoff, MAX_RTO_S)
        return min((self.srtt_s + max(4 * self.rttvar_s, self.min_rto_s)) * self._backoff, MAX_RTO_S)
