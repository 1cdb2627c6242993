"""How much queueing delay a paced sender causes itself. More than that is due to other senders.

Times are seconds, rates bit/s of payload.
"""

from bicoastal.transports.congestion.measurement import MIN_POINTS, QueueDelay
from bicoastal.wan.units import INFINITY

SPARE_SEGMENTS = 4  # in the window beside its headroom: one acknowledgement covers two segments
PROBE_SEGMENTS = 4  # at least, beyond the learned rate: an ACK may wait for a segment of the other direction
PROBE_QUEUE_S = 0.0005  # a probe may put this much delay into the queue
PROBE_QUEUE_RTTS = 1 / 64  # or so much of the round trip, where that is less


class OwnQueue:
    """The queueing delay that a window of rate times (least RTT + headroom), and short probes beyond it, can cause.

    headroom: as a share of the least RTT. queue: the measured queueing delay of the path.
    """

    def __init__(self, *, headroom: float, mss_bytes: int, queue: QueueDelay) -> None:
        self._headroom = headroom
        self._mss_bytes = mss_bytes
        self._queue = queue

    @property
    def probe_s(self) -> float:
        """The delay that a probe for more rate may add."""
        return min(PROBE_QUEUE_S, (self._queue.rtt.min_rtt_s or 0.0) * PROBE_QUEUE_RTTS)

    def probe_length_s(self, rate_bps: float | None, gain: float) -> float:
        """Return how long a probe at 1 + gain times a rate has to be, so that the additional packets show."""
        segments = max(2 * MIN_POINTS, PROBE_SEGMENTS / gain)
        return max(self.probe_s / gain, segments * 8 * self._mss_bytes / (rate_bps or INFINITY))

    @property
    def most_s(self) -> float:
        """The delay that the headroom and a probe cause together."""
        return self._headroom * (self._queue.rtt.min_rtt_s or 0.0) + self.probe_s

    def window_bytes(self, rate_bps: float) -> float:
        """Return the window for a rate: a BDP, the headroom (or the RTT's variation if that is more), and a probe."""
        base_s, rttvar_s = self._queue.rtt.min_rtt_s or 0.0, self._queue.rtt.steady.rttvar_s
        varying_s = 2 * rttvar_s if rttvar_s < base_s / 8 else 0.0
        little_s = max(self._headroom * base_s, varying_s) + self.probe_s
        return rate_bps * (base_s + little_s) / 8 + SPARE_SEGMENTS * self._mss_bytes

    def spare_s(self, rate_bps: float | None) -> float:
        """Return how long a path of that rate, if it is known, needs for the window's spare segments."""
        return SPARE_SEGMENTS * 8 * self._mss_bytes / (rate_bps or INFINITY)

    def filled_s(self, rate_bps: float | None) -> float:
        """Return the delay that the window beyond the BDP causes, plus the variation of round trips."""
        return self.most_s + self.spare_s(rate_bps) + 2 * self._queue.rtt.steady.rttvar_s

    def standing_s(self) -> float:
        """Return by how much the queueing delay exceeded this sender's own through all of this round; 0: it did not."""
        low_s = self._queue.low_s
        return max(low_s - self.most_s - 2 * self._queue.rtt.steady.rttvar_s, 0.0) if low_s is not None else 0.0

    def is_exceeded(self) -> bool:
        """Tell whether the delay has been twice what the headroom and a probe cause: the rate may be too high."""
        return self.standing_s() > self.most_s

    def is_occupied(self, rate_bps: float | None) -> bool:
        """Tell whether the delay has been so long that another sender must have caused it."""
        return self.standing_s() > self.most_s + self.spare_s(rate_bps)
