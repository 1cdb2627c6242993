"""The startup of `Adaptive`: slow start until the flights' dispersion shows the bottleneck's rate."""

from collections.abc import Callable

from bicoastal.transports.congestion.base import Ack, Limits
from bicoastal.transports.congestion.cubic import BETA
from bicoastal.transports.congestion.measurement import FlightDispersion, Point

LIMIT_SEGMENTS = 2  # what one acknowledgement may add to the window (RFC 3465 §2.2)
CLOSE_PACE = 1.1  # windows per round trip: no bursts, which would overflow a shallow queue too early


class Startup:
    """Slow start, and the rate that it finds. Rates are bit/s of payload, times seconds, sizes bytes.

    frequent_acks: acknowledgements are frequent enough that a short flight shows the rate. Then a loss before a rate
    is known counts as congestion, and idle time reduces the window as for any TCP.
    dispersion: makes the measurement of the flights. finished: the rate is found, and the window covers it.
    """

    frequent_acks = True

    def __init__(self, *, mss_bytes: int, dispersion: Callable[[], FlightDispersion] = FlightDispersion) -> None:
        self.finished = False
        self._mss_bytes = mss_bytes
        self._dispersion = dispersion
        self._flight = dispersion()

    @property
    def rate_bps(self) -> float | None:
        """The rate found so far; None: none."""
        return self._flight.rate_bps

    def on_point(self, point: Point, *, new_flight: bool, min_rtt_s: float) -> None:
        """Take an acknowledgement as one of a flight that may be short."""
        if self.frequent_acks:
            self._flight.add_short(point, new_flight=new_flight, min_rtt_s=min_rtt_s)

    def on_ack(
        self, ack: Ack, limits: Limits, *, delivered_bytes: int, min_rtt_s: float, srtt_s: float, best_bps: float
    ) -> Limits:
        """Take an acknowledgement; return the new limits.

        delivered_bytes: in all. best_bps: the highest rate of the latest two rounds, for startups that use it.
        """
        self._flight.add(ack.now, delivered_bytes, min_rtt_s=min_rtt_s, mss_bytes=self._mss_bytes)
        cwnd_bytes, ssthresh_bytes, pacing_rate_bps = limits
        slow_start = cwnd_bytes < ssthresh_bytes
        if ack.cwnd_limited:
            growth_bytes = min(ack.delivered_bytes, LIMIT_SEGMENTS * self._mss_bytes)
            cwnd_bytes += growth_bytes * (1.0 if slow_start else self._mss_bytes / cwnd_bytes)
        rate_bps = self._flight.rate_bps
        if rate_bps is not None:
            pacing_rate_bps = rate_bps  # a higher rate would only fill the queue
            self.finished = not slow_start or cwnd_bytes >= rate_bps * min_rtt_s / 8
        elif not slow_start and srtt_s:  # the queue that has overflowed may hold only a few segments
            pacing_rate_bps = CLOSE_PACE * 8 * cwnd_bytes / srtt_s
        return Limits(cwnd_bytes, ssthresh_bytes, pacing_rate_bps)

    def on_early_loss(self, limits: Limits, *, repeated: bool) -> Limits:
        """Return the limits after a congestion before a rate is known.

        The window is reduced as RFC 9438 §4.6 has it. One loss alone may be chance: only another one soon after it
        (repeated) ends slow start.
        """
        if not self.frequent_acks:
            return limits
        cwnd_bytes = max(BETA * limits.cwnd_bytes, 2.0 * self._mss_bytes)
        return Limits(cwnd_bytes, cwnd_bytes if repeated else limits.ssthresh_bytes, limits.pacing_rate_bps)

    def on_timeout(self, limits: Limits, in_flight_bytes: int, *, first: bool) -> Limits:
        """Forget what flights have shown; return the limits to start again with: one segment, not paced."""
        self._flight = self._dispersion()
        ssthresh_bytes = limits.ssthresh_bytes
        if first and self.frequent_acks:
            ssthresh_bytes = max(in_flight_bytes / 2, 2.0 * self._mss_bytes)  # RFC 5681 §3.1
        return Limits(float(self._mss_bytes), ssthresh_bytes, None)

    def take_rate(self, rate_bps: float | None) -> float | None:
        """Replace what acknowledgements have shown by a rate (None: none is known); return the pacing rate for it."""
        self._flight = self._dispersion()
        self._flight.rate_bps = rate_bps
        return rate_bps


class BestFlight(FlightDispersion):
    """The rate of the fastest flight: gaps and few acknowledgements make a flight's rate too low, never too high."""

    __slots__ = ()

    def add(self, now: float, delivered_bytes: int, *, min_rtt_s: float, mss_bytes: int) -> None:
        """Take an acknowledgement; `delivered_bytes` in all."""
        before_bps = self.rate_bps
        super().add(now, delivered_bytes, min_rtt_s=min_rtt_s, mss_bytes=mss_bytes)
        if before_bps is not None and self.rate_bps is not None:
            self.rate_bps = max(before_bps, self.rate_bps)


class SparseAckStartup(Startup):
    """`Startup` where one acknowledgement covers many packets, as with QUIC.

    The window grows by all that is acknowledged, however few ACKs there are (RFC 9002 §7.3.1). Such ACKs leave gaps
    in the next flight. The dispersion of that whole flight shows less than the bottleneck's rate. So the best stretch
    of the best flight counts. A short flight has too few ACKs to show a rate.
    """

    frequent_acks = False
    PACE = 1.25  # of the rate found so far: a flight paced at that rate alone could never show a higher one

    def __init__(self, *, mss_bytes: int) -> None:
        super().__init__(mss_bytes=mss_bytes, dispersion=BestFlight)

    def on_ack(
        self, ack: Ack, limits: Limits, *, delivered_bytes: int, min_rtt_s: float, srtt_s: float, best_bps: float
    ) -> Limits:
        """Take an acknowledgement; return the new limits."""
        cwnd_bytes, ssthresh_bytes, pacing_rate_bps = super().on_ack(
            ack, limits, delivered_bytes=delivered_bytes, min_rtt_s=min_rtt_s, srtt_s=srtt_s, best_bps=best_bps
        )
        if not self.finished:
            if ack.cwnd_limited:
                cwnd_bytes += max(0, ack.delivered_bytes - LIMIT_SEGMENTS * self._mss_bytes)
            if self._flight.rate_bps is not None:
                self._flight.rate_bps = max(self._flight.rate_bps, best_bps)
                pacing_rate_bps = self.PACE * self._flight.rate_bps
        return Limits(cwnd_bytes, ssthresh_bytes, pacing_rate_bps)

    def take_rate(self, rate_bps: float | None) -> float | None:
        """Replace what acknowledgements have shown by a rate (None: none is known); return the pacing rate for it."""
        super().take_rate(rate_bps)
        return None if rate_bps is None else self.PACE * rate_bps
