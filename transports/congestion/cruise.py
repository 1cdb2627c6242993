"""How `Adaptive` cruises: the learned rate, its window, and probes for more."""

from bicoastal.transports.congestion.base import Limits
from bicoastal.transports.congestion.measurement import BurstRate, Point, QueueDelay, RateProbe, Round
from bicoastal.transports.congestion.own_queue import OwnQueue
from bicoastal.wan.units import INFINITY

PROBE_PAUSE = 4  # round trips between two probes
DRAINED = 0.95  # of the rate, at least, remains after a round that drains the queue


class Cruise:
    """The learned rate and what changes it. Rates are bit/s of payload, times seconds, sizes bytes.

    rate_bps: None until a burst has shown it. loss: the share of packets that the path loses without congestion.
    own_queue: how much queueing delay this sender causes itself. headroom: by how much the window exceeds the BDP.
    """

    def __init__(self, *, mss_bytes: int, initial_window_bytes: int, headroom: float, queue: QueueDelay) -> None:
        self.rate_bps: float | None = None
        self.loss = 0.0
        self.own_queue = OwnQueue(headroom=headroom, mss_bytes=mss_bytes, queue=queue)
        self._initial_window_bytes = initial_window_bytes
        self._queue = queue
        self._burst = BurstRate(INFINITY)
        self._probe = RateProbe()

    def begin_burst(self, burst_bytes: int) -> None:
        """Begin to measure a burst."""
        self._burst = BurstRate(burst_bytes)

    def begin(self, rate_bps: float, now: float) -> None:
        """Cruise at a rate that was found in the middle of a burst."""
        self.rate_bps = rate_bps
        self._burst = BurstRate(INFINITY)  # the packets of this burst so far left at other rates
        self._probe.gain = RateProbe.FIRST_GAIN
        self._probe.next_s = now + PROBE_PAUSE * (self._queue.rtt.steady.srtt_s or 0.0)

    def probe_soon(self, now: float) -> None:
        """Probe at once, and for much more: the rate may be far too low."""
        self._probe.gain = RateProbe.MAX_GAIN
        self._probe.next_s = now

    def measure(self, point: Point) -> None:
        """Take an acknowledgement as one of the burst."""
        self._burst.add(point)

    def judge_probe(self, point: Point) -> None:
        """Take an acknowledgement while cruising; a probe that ends with it may raise the rate."""
        if self.rate_bps is not None:
            found_bps = self._probe.judge(point, self.rate_bps, PROBE_PAUSE * (self._queue.rtt.steady.srtt_s or 0.0))
            self.rate_bps = found_bps or self.rate_bps

    def start_probe(self, now: float, train_span_s: float) -> None:
        """Send a little more than the learned rate for a short while; `train_span_s`: over which rates are measured."""
        needed_s = self.own_queue.probe_length_s(self.rate_bps, self._probe.gain)
        self._probe.start(now, max(needed_s, 1.25 * train_span_s))

    def cancel_probe(self) -> None:
        """End a probe without a result."""
        self._probe.cancel()

    def end_round(self, now: float, ended: Round, *, occupied: bool, train_span_s: float) -> None:
        """Drain a standing queue, probe when it is time, learn the loss; occupied: others used the queue."""
        if not occupied:
            self._drain()
            if now >= self._probe.next_s:
                self.start_probe(now, train_span_s)
        if ended.total_bytes:
            self.loss += (ended.lost_bytes / ended.total_bytes - self.loss) / 8

    def _drain(self) -> None:
        """Lower the rate by what kept a queue through this round: acknowledgements that queued made it too high."""
        standing_s = self.own_queue.standing_s()
        if standing_s and self.rate_bps is not None:
            self.rate_bps *= max(1 - standing_s / (self._queue.rtt.steady.srtt_s or 0.0), DRAINED)

    def limits(self, now: float, limits: Limits) -> Limits:
        """Return the limits for the learned rate; unchanged while no round trip is known."""
        base_s = self._queue.rtt.min_rtt_s
        if self.rate_bps is None or base_s is None:
            return limits
        # never less than an initial window per round trip, which any connection may send at first (RFC 6928)
        self.rate_bps = max(self.rate_bps, 8 * self._initial_window_bytes / base_s)
        gain = 1 + self._probe.gain if self._probe.running(now) else 1.0
        pacing_rate_bps = gain * self.rate_bps
        return Limits(self.own_queue.window_bytes(pacing_rate_bps), limits.ssthresh_bytes, pacing_rate_bps)

    def correct(self, best_bps: float) -> None:
        """Lower the rate when a burst ends that the path delivered more slowly; `best_bps`: the highest rate shown."""
        if self.rate_bps:
            exceeded_bps = best_bps if best_bps and self.own_queue.is_exceeded() else self.rate_bps
            self.rate_bps = min(self.rate_bps, exceeded_bps, self._burst.rate_bps or INFINITY)
