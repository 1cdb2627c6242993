"""HyStart++: leave the first slow start when the round trip grows, before the queue overflows (RFC 9406)."""

from bicoastal.wan.checks import FieldError
from bicoastal.wan.units import INFINITY

MIN_RTT_THRESH_S = 0.004  # RFC 9406 §4.3, as all the constants here
MAX_RTT_THRESH_S = 0.016
MIN_RTT_DIVISOR = 8
N_RTT_SAMPLE = 8
CSS_GROWTH_DIVISOR = 4
CSS_ROUNDS = 5
LIMIT_SEGMENTS = 8  # L without pacing; with pacing it is infinity


class HyStart:
    """HyStart++ in the first slow start of a connection, for any congestion controller.

    A round whose least RTT exceeds the previous round's by an eighth (within 4 to 16 ms) ends plain slow start.
    Conservative slow start (CSS) follows, a quarter as fast: if the RTT falls again, it was jitter, and slow start goes
    on. After five rounds slow start is over.

    limit_segments: L, the segments of one ACK that may count: 8 without pacing, inf with it. It replaces RFC 3465's
    limit while HyStart++ is active, since RFC 9406 §4.2 gives the whole rule of growth. Where each ACK covers two
    segments at most, every limit from 2 on has the same effect.

    active: HyStart++ controls slow start, the first one only (RFC 9406 §4.3). Sizes are bytes, times seconds. Raises
    FieldError naming the argument.
    """

    __slots__ = (
        "_baseline_s",
        "_css_rounds",
        "_last_min_s",
        "_limit_bytes",
        "_min_s",
        "_samples",
        "active",
    )

    def __init__(self, *, mss_bytes: int, limit_segments: float = LIMIT_SEGMENTS) -> None:
        if mss_bytes < 1:
            raise FieldError("mss_bytes", f"{mss_bytes} is not positive")
        if not limit_segments >= 1:
            raise FieldError("limit_segments", f"{limit_segments} is less than 1")
        self.active = True
        self._limit_bytes = limit_segments * mss_bytes
        self._last_min_s = INFINITY  # lastRoundMinRTT
        self._min_s = INFINITY  # currentRoundMinRTT
        self._samples = 0  # rttSampleCount
        self._baseline_s = INFINITY  # cssBaselineMinRtt
        self._css_rounds = 0

    @property
    def conservative(self) -> bool:
        """Whether this is conservative slow start."""
        return self._baseline_s < INFINITY

    def growth_bytes(self, acked_bytes: int) -> float:
        """Return by how much an ACK of `acked_bytes` increases the window (RFC 9406 §4.2)."""
        growth = min(acked_bytes, self._limit_bytes)
        return growth / CSS_GROWTH_DIVISOR if self._baseline_s < INFINITY else growth

    def on_loss(self, now: float) -> None:
        """End: RFC 9406 §4.3 uses HyStart++ in the first slow start only."""
        self.active = False

    def on_timeout(self) -> None:
        """Do nothing: the slow start that follows is not the first."""

    def on_ack(
        self, *, rtt_s: float | None, round_started: bool, now: float = 0.0, window_segments: float = 0.0
    ) -> None:
        """Take an ACK's RTT sample, after the window has grown by it. Clears `active` when slow start is over.

        round_started: this ACK is the first of a round. The sender knows rounds by its sequence numbers.
        now, window_segments: for `AckTrainHyStart`; not used here.
        """
        if round_started:
            self._last_min_s, self._min_s, self._samples = self._min_s, INFINITY, 0
            if self._baseline_s < INFINITY:
                self._css_rounds += 1  # the round in which CSS began counts too, even if CSS began late in it
                if self._css_rounds >= CSS_ROUNDS:
                    self.active = False
                    return
        if rtt_s is None:
            return
        self._samples += 1
        self._min_s = min(self._min_s, rtt_s)
        if self._samples < N_RTT_SAMPLE:
            return
        if self._baseline_s < INFINITY:
            if self._min_s < self._baseline_s:  # the RTT came down: leaving slow start was premature
                self._baseline_s = INFINITY
        elif self._last_min_s < INFINITY:
            threshold_s = max(MIN_RTT_THRESH_S, min(self._last_min_s / MIN_RTT_DIVISOR, MAX_RTT_THRESH_S))
            if self._min_s >= self._last_min_s + threshold_s:
                self._baseline_s = self._min_s
                self._css_rounds = 0
