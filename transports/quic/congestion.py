"""Congestion controllers where one acknowledgement tells of many packets."""

from bicoastal.transports.congestion.adaptive import FREE_ROUNDS, Adaptive, Mode
from bicoastal.transports.congestion.base import Ack
from bicoastal.transports.congestion.cubic import Cubic
from bicoastal.transports.congestion.hystart import HyStart
from bicoastal.transports.congestion.measurement import FlightDispersion
from bicoastal.transports.congestion.reno import Reno

NO_LIMIT_SEGMENTS = 1 << 30
TCP_LIMIT_SEGMENTS = 2  # what `Adaptive` lets one ACK add to the window at startup (RFC 3465 §2.2)
STARTUP_PACE = 1.25  # of the rate found so far: a flight paced at just that could never show a higher one


class BestFlight(FlightDispersion):
    """The fastest flight so far: one with gaps, or of few acknowledgements, shows too low a rate and never too high."""

    __slots__ = ()

    def add(self, now: float, delivered_bytes: int, *, min_rtt_s: float, mss_bytes: int) -> None:
        """Take an acknowledgement; `delivered_bytes` in all."""
        before_bps = self.rate_bps
        super().add(now, delivered_bytes, min_rtt_s=min_rtt_s, mss_bytes=mss_bytes)
        if before_bps is not None and self.rate_bps is not None:
            self.rate_bps = max(before_bps, self.rate_bps)


class QuicAdaptive(Adaptive):
    """`Adaptive`, started up by acknowledgements that are few and far between.

    The window grows by all that is acknowledged, however few ACKs tell of it (RFC 9002 §7.3.1). Such ACKs leave gaps
    in the next flight, so that its dispersion as a whole shows less than the bottleneck's rate: the best stretch of
    the best flight counts.
    """

    taught_by_acks = False  # of a short flight there are too few, and what sounds a path needs whole trains

    def __init__(self, *, mss_bytes: int, initial_window_segments: int = 10, headroom: float = 0.02) -> None:
        super().__init__(mss_bytes=mss_bytes, initial_window_segments=initial_window_segments, headroom=headroom)
        self._flight = BestFlight()
        self._proven_bps: float | None = None  # the rate before probes found more, until rounds without a queue follow

    def on_ack(self, ack: Ack) -> None:
        """Take one acknowledgement."""
        before_bps = self.learned_rate_bps if self.mode is Mode.CRUISE else None
        super().on_ack(ack)
        if before_bps is not None and self.mode is Mode.CRUISE and (self.learned_rate_bps or 0.0) > before_bps:
            self._doubt(before_bps, ack.now)
        elif self._free_rounds >= FREE_ROUNDS:
            self._proven_bps = None
        if self.mode is not Mode.STARTUP:
            return
        if ack.cwnd_limited:
            self.cwnd_bytes += max(0, ack.delivered_bytes - TCP_LIMIT_SEGMENTS * self.mss_bytes)
        if self._flight.rate_bps is not None:
            self._flight.rate_bps = max(self._flight.rate_bps, self._round.best_bps, self._last_best_bps)
            self.pacing_rate_bps = STARTUP_PACE * self._flight.rate_bps

    def _doubt(self, before_bps: float, now: float) -> None:
        """Take what a probe has found for true until a queue shows that it is not; beside a queue, do not at all."""
        if self._queue.now_s <= self._own_queue.most_s:
            self._proven_bps = self._proven_bps or before_bps
            self._free_rounds = 0
        else:
            self._settle(before_bps, now)

    def _begin_competing(self, now: float) -> None:
        """Go back to what was proven, if the queue may be due to a rate that a probe has only seemed to find.

        Acknowledgements that come in trains, or wait behind the data of the other direction, can show too much.
        """
        proven_bps, self._proven_bps = self._proven_bps, None
        if proven_bps is None or self._occupied_rounds < 2:  # or the queue has overflowed
            super()._begin_competing(now)
        else:
            self._occupied_rounds = 0
            self._settle(proven_bps, now)

    @property
    def starting(self) -> bool:
        """Tell whether nothing is known of the path yet."""
        return self.mode is Mode.STARTUP

    def take_rate(self, rate_bps: float | None) -> None:
        """Start up from what the far end has seen (None: nothing), in place of what acknowledgements have shown.

        The next burst opens at it.
        """
        self._flight = BestFlight()
        self._flight.rate_bps = rate_bps
        self.pacing_rate_bps = None if rate_bps is None else STARTUP_PACE * rate_bps

    def on_timeout(self, now: float, in_flight_bytes: int, *, first: bool) -> None:
        """Take a timeout; what flights have shown at startup is forgotten with it."""
        super().on_timeout(now, in_flight_bytes, first=first)
        if not isinstance(self._flight, BestFlight):
            self._flight = BestFlight()


class QuicCubic(Cubic):
    """`Cubic`, whose slow start grows by all that is acknowledged (RFC 9002 §7.3.1, RFC 9406 §4.2: L with pacing)."""

    def __init__(self, *, mss_bytes: int, initial_window_segments: int = 10) -> None:
        super().__init__(
            mss_bytes=mss_bytes,
            initial_window_segments=initial_window_segments,
            byte_count_limit=NO_LIMIT_SEGMENTS,
        )
        self._hystart = HyStart(mss_bytes=mss_bytes, limit_segments=float("inf"))


class QuicReno(Reno):
    """`Reno`, whose slow start grows by all that is acknowledged (RFC 9002 §7.3.1)."""

    def __init__(self, *, mss_bytes: int, initial_window_segments: int = 10) -> None:
        super().__init__(
            mss_bytes=mss_bytes,
            initial_window_segments=initial_window_segments,
            byte_count_limit=NO_LIMIT_SEGMENTS,
        )
