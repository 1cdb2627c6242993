"""HyStart++: leave slow start when the round trips grow, before the queue overflows (RFC 9406)."""

MIN_RTT_THRESHOLD_S = 0.004
MAX_RTT_THRESHOLD_S = 0.016
MIN_RTT_DIVISOR = 8
RTT_SAMPLES = 8
CSS_GROWTH_DIVISOR = 4
CSS_ROUNDS = 5


class HyStart:
    """Follows the rounds of slow start. `growth_divisor` is 1 in standard slow start, 4 in conservative slow start.

    `done` turns True when conservative slow start has lasted its rounds: ssthresh is to become the window (§4.2).
    """

    __slots__ = ("_baseline_s", "_css_rounds", "_current_s", "_last_s", "_samples", "done", "growth_divisor")

    def __init__(self) -> None:
        self._last_s = self._current_s = self._baseline_s = float("inf")
        self._samples = 0
        self._css_rounds = 0
        self.growth_divisor = 1
        self.done = False

    def on_ack(self, rtt_s: float | None, *, round_started: bool) -> None:
        """Take an acknowledgement in slow start (RFC 9406 §4.2)."""
        if rtt_s is not None:
            self._current_s = min(self._current_s, rtt_s)
            self._samples += 1
        if self._samples >= RTT_SAMPLES and self._current_s < float("inf"):
            if self.growth_divisor == 1 and self._last_s < float("inf"):
                threshold_s = max(MIN_RTT_THRESHOLD_S, min(self._last_s / MIN_RTT_DIVISOR, MAX_RTT_THRESHOLD_S))
                if self._current_s >= self._last_s + threshold_s:
                    self._baseline_s = self._current_s
                    self.growth_divisor = CSS_GROWTH_DIVISOR
                    self._css_rounds = 0
            elif self.growth_divisor > 1 and self._current_s < self._baseline_s:
                self._baseline_s = float("inf")  # the exit was spurious: resume slow start
                self.growth_divisor = 1
        if round_started:
            if self.growth_divisor > 1:
                self._css_rounds += 1
                self.done = self._css_rounds >= CSS_ROUNDS
            self._last_s, self._current_s = self._current_s, float("inf")
            self._samples = 0
