"""TCP Reno as NewReno keeps it: additive increase by byte counting, halving upon loss (RFC 5681, 3465, 6582)."""

from bicoastal.transports.congestion.loss_based import LossBased

BETA = 0.5  # of the window that a loss leaves (RFC 5681 §3.1 equation 4)


class Reno(LossBased):
    """One segment more per window acknowledged; half of the window, or of the data in flight, at a loss. In bytes.

    With one loss every 1/p packets its window averages sqrt(3 / (2 p)) segments (Mathis et al., "The macroscopic
    behavior of the TCP congestion avoidance algorithm", CCR 27(3), 1997). Raises FieldError naming the argument.
    """

    def __init__(
        self,
        *,
        mss_bytes: int,
        initial_window_segments: int = 10,
        byte_count_limit: int = 2,
        reduces: str = "flight",
    ) -> None:
        super().__init__(
            mss_bytes=mss_bytes,
            initial_window_segments=initial_window_segments,
            byte_count_limit=byte_count_limit,
            decrease=BETA,
            reduces=reduces,
            hystart=None,
        )
        self._counted_bytes = 0

    def _avoid(self, acked_bytes: int, now: float) -> None:
        self._counted_bytes += acked_bytes
        if self._counted_bytes >= self.cwnd_bytes:  # RFC 3465 §2.1, RFC 5681 §3.1
            self._counted_bytes -= int(self.cwnd_bytes)
            self.cwnd_bytes += self.mss_bytes

    def _reduced(self) -> None:
        self._counted_bytes = 0
