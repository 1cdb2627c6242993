"""CUBIC: a window that grows with the cube of the time since the last congestion (RFC 9438)."""

from math import cbrt

from bicoastal.transports.congestion.ack_train import AckTrainHyStart
from bicoastal.transports.congestion.base import Ack
from bicoastal.transports.congestion.hystart import HyStart
from bicoastal.transports.congestion.loss_based import LossBased
from bicoastal.wan.checks import FieldError
from bicoastal.wan.units import INFINITY

C = 0.4  # segments / s³, RFC 9438 §5.1
BETA = 0.7  # RFC 9438 §4.6


def regrowth_s(window_segments: float) -> float:
    """Return how long after a congestion CUBIC's window is again as wide as it was, seconds: K of RFC 9438 §4.2."""
    return cbrt(window_segments * (1 - BETA) / C)


class Cubic(LossBased):
    """CUBIC with HyStart++ in its first slow start. Sizes are bytes, times seconds.

    fast_convergence: reduce more when the window at a loss is smaller than at the one before (RFC 9438 §4.7).
    hystart: HyStart++ (RFC 9406) governs the first slow start, with its own limit L of 8 segments per ACK instead of
    byte_count_limit, which holds for every later slow start, and for all of them without HyStart++.
    ack_trains: Linux's HyStart instead of HyStart++. It also judges by trains of ACKs, and has no limit L.
    full_alpha: once the Reno-friendly estimate is as wide as the window before the loss, it grows a whole segment per
    round trip, as RFC 9438 §4.3 says. Linux goes on with 0.53.
    Raises FieldError naming the argument.
    """

    def __init__(
        self,
        *,
        mss_bytes: int,
        initial_window_segments: int = 10,
        byte_count_limit: int = 2,
        fast_convergence: bool = True,
        hystart: bool = True,
        ack_trains: bool = False,
        reduces: str = "flight",
        full_alpha: bool = True,
        c: float = C,
        beta: float = BETA,
    ) -> None:
        if not c > 0:
            raise FieldError("c", f"{c} is not positive")
        if not 0 < beta < 1:
            raise FieldError("beta", f"{beta} is not between 0 and 1")
        super().__init__(
            mss_bytes=mss_bytes,
            initial_window_segments=initial_window_segments,
            byte_count_limit=byte_count_limit,
            decrease=beta,
            reduces=reduces,
            hystart=(AckTrainHyStart() if ack_trains else HyStart(mss_bytes=mss_bytes)) if hystart else None,
        )
        self._c = c * mss_bytes  # bytes / s³
        self._alpha = 3 * (1 - beta) / (1 + beta)  # RFC 9438 §4.3
        self._full_alpha = 1.0 if full_alpha else self._alpha
        self._fast_convergence = fast_convergence
        self._convergence = (1 + beta) / 2
        self._last_ack_s = 0.0
        # Before any congestion, 0 gives what RFC 9438 §4.10 asks for after HyStart++: a plateau at cwnd, alpha 1
        self._prior_bytes = 0.0  # cwnd_prior
        self._max_bytes = 0.0  # W_max
        self._k_s = 0.0  # K
        self._epoch_s = INFINITY  # t_epoch; inf: the stage has not begun
        self._estimate_bytes = 0.0  # W_est

    def on_ack(self, ack: Ack) -> None:
        """Let the window grow along the cubic, or as Reno's would where that is more."""
        if not ack.cwnd_limited:
            self._epoch_s += ack.now - self._last_ack_s  # RFC 9438 §4.2: t excludes time limited by the application
        self._last_ack_s = ack.now
        super().on_ack(ack)

    def restart_after_idle(self, now: float, idle_s: float, rto_s: float, *, policy: str) -> None:
        """Leave the idle time out of t (RFC 9438 §5.8), and adapt the window as `policy` says.

        The stage goes on, as in Linux: a window that has decayed returns to the curve by at most half per round trip. A
        new stage would take K again to reach the old maximum. Bursts shorter than K would never reach it.
        """
        super().restart_after_idle(now, idle_s, rto_s, policy=policy)
        self._epoch_s += now - self._last_ack_s
        self._last_ack_s = now

    # -- congestion avoidance -----------------------------------------------------------------------------------------

    def _avoid(self, acked_bytes: int, now: float) -> None:
        cwnd_bytes = self.cwnd_bytes
        if self._epoch_s == INFINITY:
            self._begin_stage(now)
        t_s = now - self._epoch_s
        share = min(acked_bytes / cwnd_bytes, 1.0)  # of a window; 1 segment per segment of cwnd in the RFC's units
        # once as wide as before the congestion, it grows as fast as Reno (RFC 9438 §4.3)
        alpha = self._alpha if self._estimate_bytes < self._prior_bytes else self._full_alpha
        self._estimate_bytes += alpha * share * self.mss_bytes  # RFC 9438 §4.3, figure 4
        if self._cubic_bytes(t_s) < self._estimate_bytes:  # Reno-friendly region
            # the limit of §4.2 holds here too: a window that idle time has decayed may be far below
            self.cwnd_bytes = max(cwnd_bytes, min(self._estimate_bytes, cwnd_bytes + acked_bytes / 2))
            return
        # concave and convex regions (RFC 9438 §4.4, §4.5): towards where the cubic will be one RTT later (§4.2)
        target_bytes = min(max(self._cubic_bytes(t_s + (self.rtt.srtt_s or 0.0)), cwnd_bytes), 1.5 * cwnd_bytes)
        self.cwnd_bytes += (target_bytes - cwnd_bytes) * share

    def _cubic_bytes(self, t_s: float) -> float:
        past_s = t_s - self._k_s
        return self._c * past_s * past_s * past_s + self._max_bytes  # RFC 9438 §4.2, figure 1

    def _begin_stage(self, now: float) -> None:
        cwnd_bytes = self.cwnd_bytes
        self._epoch_s = now
        self._estimate_bytes = cwnd_bytes  # RFC 9438 §4.3
        if self._max_bytes <= cwnd_bytes:
            # after a timeout (RFC 9438 §4.8), after a slow start without loss (§4.10), or already past the old maximum
            self._max_bytes, self._k_s = cwnd_bytes, 0.0
        else:
            self._k_s = cbrt((self._max_bytes - cwnd_bytes) / self._c)  # RFC 9438 §4.2, figure 2

    # -- congestion ---------------------------------------------------------------------------------------------------

    def _reduced(self) -> None:
        cwnd_bytes = self.cwnd_bytes
        converges = self._fast_convergence and cwnd_bytes < self._max_bytes
        self._max_bytes = cwnd_bytes * self._convergence if converges else cwnd_bytes  # RFC 9438 §4.7
        self._prior_bytes = cwnd_bytes  # RFC 9438 §4.6
        self._epoch_s = INFINITY

    def on_timeout(self, now: float, in_flight_bytes: int, *, first: bool) -> None:
        """Begin again with one segment; the stage after slow start begins on a plateau (RFC 9438 §4.8)."""
        super().on_timeout(now, in_flight_bytes, first=first)
        self._max_bytes = 0.0  # the next stage begins on a plateau at its first window

    def _own_state(self) -> tuple[float, ...]:
        return (self._prior_bytes, self._max_bytes, self._k_s, self._epoch_s, self._estimate_bytes)

    def _restore_own_state(self, own: tuple[float, ...]) -> None:
        # RFC 9438 §4.9.2
        self._prior_bytes, self._max_bytes, self._k_s, self._epoch_s, self._estimate_bytes = own
