"""Round-trip time and retransmission timeout (RFC 6298)."""

from collections import deque
from typing import Literal

from bicoastal.transports.recovery.round_trips import RoundTrips, SmoothedRtt
from bicoastal.wan.checks import FieldError
from bicoastal.wan.units import INFINITY

INITIAL_RTO_S = 1.0  # RFC 6298 §2.1
LOST_HANDSHAKE_RTO_S = 3.0  # RFC 6298 §5.7
MAX_RTO_S = 60.0  # RFC 6298 §2.5: a maximum may be placed on the RTO, provided it is at least 60 seconds
GRANULARITY_S = 0.001  # G of RFC 6298 §2: the resolution of the timers that kernels keep

_BUCKETS = 64


class RttEstimator(SmoothedRtt):
    """Smoothed RTT, its variation, its minimum over a sliding window, and the RTO that follows from them.

    It is the one owner of a connection's samples. `data` has the estimates for congestion control; `publish` feeds it.

    min_rto_s: the least RTO, in the sense of `floor`. "variance": the variance term is at least min_rto_s, so
    RTO >= SRTT + min_rto_s. Linux does that with its tcp_rto_min of 200 ms. "total": the whole RTO is at least
    min_rto_s, as RFC 6298 §2.4 says. The RFC asks for 1 s there, which no kernel uses.
    min_rtt_s: the least sample of the last `min_window_s` seconds (RFC 8985 §6.2 asks for minutes), inf before the
    first sample. A minimum is dropped at most 1/64 of the window late.

    In Linux the variation falls once per round trip only. In RFC 6298, and here, it falls with every sample. Because of
    the floor of 200 ms, the difference matters only where the RTT varies by more than 50 ms.

    All times are seconds. Raises FieldError naming the argument.
    """

    __slots__ = (
        "_backoff",
        "_bucket_min_s",
        "_bucket_s",
        "_bucket_stop_s",
        "_initial_rto_s",
        "_minima",
        "_total_floor_s",
        "_unpublished_s",
        "_variance_floor_s",
        "data",
        "min_rto_s",
        "min_rtt_s",
    )

    def __init__(
        self,
        *,
        min_rto_s: float = 0.2,
        floor: Literal["variance", "total"] = "variance",
        min_window_s: float = 300.0,
    ) -> None:
        if not 0 < min_rto_s <= MAX_RTO_S:
            raise FieldError("min_rto_s", f"{min_rto_s} is not above 0 and at most {MAX_RTO_S:g}")
        if floor not in ("variance", "total"):
            raise FieldError("floor", f"{floor!r} is neither 'variance' nor 'total'")
        if not 0 < min_window_s < INFINITY:
            raise FieldError("min_window_s", f"{min_window_s} is not positive and finite")
        super().__init__()
        self.data = RoundTrips()
        self.min_rto_s = min_rto_s
        self.min_rtt_s = INFINITY
        self._variance_floor_s = max(min_rto_s, GRANULARITY_S) if floor == "variance" else GRANULARITY_S
        self._total_floor_s = min_rto_s if floor == "total" else 0.0
        self._initial_rto_s = INITIAL_RTO_S
        self._backoff = 1
        self._minima: deque[tuple[float, float]] = deque()  # (end of a bucket of time, least sample in it)
        self._bucket_s = min_window_s / _BUCKETS
        self._bucket_stop_s = -INFINITY
        self._bucket_min_s = INFINITY
        self._unpublished_s: float | None = None  # the latest sample of data, until `publish`

    def sample(self, rtt_s: float, now: float, *, handshake: bool = False) -> None:
        """Take a sample, never of a segment sent twice (Karn's rule, RFC 6298 §3). A sample ends any back-off (§5).

        handshake: no data was acknowledged, so congestion control does not see the sample.
        """
        self._backoff = 1
        if not handshake:
            self._unpublished_s = rtt_s
        self.add(rtt_s)
        if now >= self._bucket_stop_s:
            self._begin_bucket(now)
        if rtt_s < self._bucket_min_s:
            self._bucket_min_s = rtt_s
            self.min_rtt_s = min(self.min_rtt_s, rtt_s)

    def publish(self) -> float | None:
        """Add the sample taken since the last call to `data`, and return it; None: there was none.

        Call it when the congestion controller is told of an acknowledgement. It has judged the losses which the same
        acknowledgement showed by the estimates before.
        """
        rtt_s, self._unpublished_s = self._unpublished_s, None
        if rtt_s is not None:
            self.data.add(rtt_s)
        return rtt_s

    def handshake_lost(self) -> None:
        """Set the RTO to 3 s until there is a sample: a SYN was not answered (RFC 6298 §5.7)."""
        self._initial_rto_s = LOST_HANDSHAKE_RTO_S

    def back_off(self) -> None:
        """Double the RTO: it has expired (RFC 6298 §5.5)."""
        self._backoff = min(2 * self._backoff, 1 << 16)

    @property
    def rto_s(self) -> float:
        """The retransmission timeout, back-off included (RFC 6298 §2)."""
        if self.srtt_s is None:
            rto_s = max(self._initial_rto_s, self._total_floor_s)
        else:
            rto_s = max(self.srtt_s + max(4 * self.rttvar_s, self._variance_floor_s), self._total_floor_s)
        return min(rto_s * self._backoff, MAX_RTO_S)

    def _begin_bucket(self, now: float) -> None:
        minima = self._minima
        if self._bucket_min_s < INFINITY:
            minima.append((self._bucket_stop_s, self._bucket_min_s))
        while minima and minima[0][0] <= now - self._bucket_s * _BUCKETS:
            minima.popleft()
        self._bucket_stop_s = now + self._bucket_s
        self._bucket_min_s = INFINITY
        self.min_rtt_s = min((least_s for _, least_s in minima), default=INFINITY)
