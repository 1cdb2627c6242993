"""What all loss-based controllers share: slow start by byte counting, the reduction at a loss, and its undoing."""

from abc import abstractmethod
from typing import NamedTuple

from bicoastal.transports.congestion.ack_train import AckTrainHyStart
from bicoastal.transports.congestion.base import Ack, CongestionControl
from bicoastal.transports.congestion.hystart import HyStart
from bicoastal.wan.checks import FieldError
from bicoastal.wan.units import INFINITY

REDUCES = ("flight", "window")
LEAST_WINDOW_SEGMENTS = 2.0  # that a reduction leaves (RFC 5681 §3.1 equation 4)


class Undo(NamedTuple):
    """The state before a reduction. `own` holds what the algorithm adds."""

    cwnd_bytes: float
    ssthresh_bytes: float
    hystart_active: bool
    own: tuple[float, ...]


class LossBased(CongestionControl):
    """Slow start and the reaction to loss. A subclass gives the growth of congestion avoidance.

    byte_count_limit: L of RFC 3465 §2.2, how many segments of one ACK count in slow start: 1 makes a window of
    delayed ACKs grow by half per round as RFC 5681 has it, 2 doubles it. After a timeout it is 1 (RFC 3465 §2.3).
    decrease: the share that ssthresh becomes. reduces: of what. "flight" is what is in flight (RFC 5681 §3.1
    equation 4). "window" is the window: kernels do that, and RFC 9438 §4.6 allows it where only a window that is used
    grows. The window may then be up to twice what the application has used. hystart: decides when slow start ends.
    The window grows only while it, not the application, limits the sender (RFC 9438 §5.8, RFC 7661).
    Raises FieldError naming the argument.
    """

    def __init__(
        self,
        *,
        mss_bytes: int,
        initial_window_segments: int,
        byte_count_limit: int,
        decrease: float,
        reduces: str,
        hystart: HyStart | AckTrainHyStart | None,
    ) -> None:
        if mss_bytes < 1:
            raise FieldError("mss_bytes", f"{mss_bytes} is not positive")
        if initial_window_segments < 1:
            raise FieldError("initial_window_segments", f"{initial_window_segments} is less than 1")
        if byte_count_limit < 1:
            raise FieldError("byte_count_limit", f"{byte_count_limit} is less than 1")
        if not 0 < decrease < 1:
            raise FieldError("decrease", f"{decrease} is not between 0 and 1")
        if reduces not in REDUCES:
            raise FieldError("reduces", f"{reduces!r} is neither 'flight' nor 'window'")
        super().__init__(mss_bytes=mss_bytes, initial_window_segments=initial_window_segments)
        self._limit_bytes = byte_count_limit * mss_bytes
        self._decrease = decrease
        self._reduces_window = reduces == "window"
        self._hystart = hystart
        self._after_timeout = False
        self._in_episode = False
        self._recovered_s = -INFINITY
        self._undo: Undo | None = None

    # -- what a subclass defines --------------------------------------------------------------------------------------

    @abstractmethod
    def _avoid(self, acked_bytes: int, now: float) -> None:
        """Grow by an acknowledgement of `acked_bytes` in congestion avoidance."""

    def _reduced(self) -> None:
        """Update the own state: congestion has set `ssthresh_bytes`, and `cwnd_bytes` is still the old one."""

    def _own_state(self) -> tuple[float, ...]:
        """Return what `_restore_own_state` needs to undo a reduction."""
        return ()

    def _restore_own_state(self, own: tuple[float, ...]) -> None:
        """Restore the state that `_own_state` returned."""

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    def on_ack(self, ack: Ack) -> None:
        """Grow the window, unless a loss episode is under way or the application limits the sender."""
        if ack.in_recovery:
            return
        acked_bytes = ack.acked_bytes
        if ack.now <= self._recovered_s:
            # the ACK that ends recovery covers a window of bytes that were SACKed long ago
            acked_bytes = min(acked_bytes, ack.delivered_bytes)
        if ack.cwnd_limited and acked_bytes > 0:
            if self.cwnd_bytes < self.ssthresh_bytes:
                acked_bytes = self._slow_start(acked_bytes)
            if acked_bytes > 0:
                self._avoid(acked_bytes, ack.now)
        hystart = self._hystart
        if hystart is not None and hystart.active and self.cwnd_bytes < self.ssthresh_bytes:
            hystart.on_ack(
                rtt_s=ack.rtt_s,
                round_started=ack.round_started,
                now=ack.now,
                window_segments=self.cwnd_bytes / self.mss_bytes,
            )
            if not hystart.active:
                self.ssthresh_bytes = self.cwnd_bytes  # RFC 9406 §4.2

    def _slow_start(self, acked_bytes: int) -> int:
        """Grow exponentially up to ssthresh; return what is left of `acked_bytes` for congestion avoidance."""
        hystart = self._hystart
        if hystart is not None and hystart.active:
            growth_bytes = hystart.growth_bytes(acked_bytes)
        else:
            # RFC 3465 §2.2 and §2.3: after a timeout one ACK may cover much that had long arrived
            growth_bytes = min(acked_bytes, self.mss_bytes if self._after_timeout else self._limit_bytes)
        room_bytes = self.ssthresh_bytes - self.cwnd_bytes
        if growth_bytes < room_bytes:
            self.cwnd_bytes += growth_bytes
            return 0
        self.cwnd_bytes = self.ssthresh_bytes
        self._after_timeout = False
        return int(growth_bytes - room_bytes)

    # -- loss ---------------------------------------------------------------------------------------------------------

    def on_congestion(self, now: float, in_flight_bytes: int) -> None:
        """Set ssthresh. PRR brings the window there, and `on_recovery_end` sets it."""
        self._save()
        self._in_episode = True
        self._reduce(now, in_flight_bytes)

    def on_recovery_end(self, now: float) -> None:
        """End the episode: the window is ssthresh (RFC 6582 §3.2 step 3, RFC 9937 §6.4)."""
        self.cwnd_bytes = self.ssthresh_bytes
        self._recovered_s = now
        self._in_episode = self._after_timeout = False

    def on_timeout(self, now: float, in_flight_bytes: int, *, first: bool) -> None:
        """Begin again with one segment (RFC 5681 §3.1); a repeated timeout keeps ssthresh."""
        if first:
            if not self._in_episode:  # what a fast recovery saved reaches further back
                self._save()
            self._reduce(now, in_flight_bytes)
        if self._hystart is not None:
            self._hystart.on_timeout()
        self.cwnd_bytes = float(self.mss_bytes)
        self._in_episode = False
        self._after_timeout = True

    def undo(self) -> None:
        """Restore the window from before the last reduction, unless it has grown beyond that since (RFC 9438 §4.9)."""
        undo, self._undo = self._undo, None
        if undo is None:
            return
        self._in_episode = self._after_timeout = False
        if self.cwnd_bytes <= undo.cwnd_bytes:
            self.cwnd_bytes = undo.cwnd_bytes
            self.ssthresh_bytes = undo.ssthresh_bytes
            self._restore_own_state(undo.own)
            if self._hystart is not None:
                self._hystart.active = undo.hystart_active

    def _save(self) -> None:
        active = self._hystart is not None and self._hystart.active
        self._undo = Undo(self.cwnd_bytes, self.ssthresh_bytes, active, self._own_state())

    def _reduce(self, now: float, in_flight_bytes: int) -> None:
        base_bytes = self.cwnd_bytes if self._reduces_window else in_flight_bytes
        self.ssthresh_bytes = max(base_bytes * self._decrease, LEAST_WINDOW_SEGMENTS * self.mss_bytes)
        if self._hystart is not None:
            self._hystart.on_loss(now)
        self._reduced()
