"""Linux's HyStart: slow start ends when a round's acknowledgements fill half a round trip, or arrive late.

S. Ha and I. Rhee, "Taming the elephants: New TCP slow start", Computer Networks 55(9), 2011; the constants are those of
Linux's CUBIC for a sender that is not paced. `hystart` has RFC 9406's HyStart++, which uses delay alone.
"""

from bicoastal.wan.units import INFINITY

TRAIN_GAP_S = 0.002  # at most, between two acknowledgements of one train
LOW_WINDOW_SEGMENTS = 16  # with a smaller window nothing is judged
MIN_DELAY_S, MAX_DELAY_S = 0.004, 0.016
DELAY_DIVISOR = 8  # a queue shows when round trips exceed the least by so much of it
N_SAMPLES = 8
QUIET_S = 1.0  # after a loss: round trips still show its queue


class AckTrainHyStart:
    """Linux's HyStart in slow start, for any congestion controller, instead of `HyStart`.

    A train of acknowledgements longer than half the least round trip shows that the window fills the path once it has
    doubled. A round whose first eight round trips all exceed the least by an eighth (within 4 to 16 ms) shows that a
    queue grows. Either ends slow start at once.

    active: it controls slow start. Unlike HyStart++ it stays active after a loss, and a timeout starts it again.
    Times are seconds.
    """

    conservative = False  # it has no such phase

    __slots__ = ("_last_ack_s", "_least_s", "_quiet_until_s", "_round_least_s", "_round_s", "_samples", "active")

    def __init__(self) -> None:
        self.on_timeout()

    def on_timeout(self) -> None:
        """Start again, without the measurements so far."""
        self.active = True
        self._least_s = INFINITY  # delay_min
        self._round_s = self._last_ack_s = -INFINITY
        self._round_least_s = INFINITY  # curr_rtt
        self._samples = 0
        self._quiet_until_s = -INFINITY

    def growth_bytes(self, acked_bytes: int) -> float:
        """Return by how much an ACK of `acked_bytes` increases the window: by all of it."""
        return acked_bytes

    def on_loss(self, now: float) -> None:
        """Stop judging for `QUIET_S` after a loss."""
        self._quiet_until_s = now + QUIET_S

    def on_ack(self, *, rtt_s: float | None, round_started: bool, now: float, window_segments: float) -> None:
        """Take an ACK in slow start. Clears `active` when slow start is over."""
        if rtt_s is None or now < self._quiet_until_s:
            return
        self._least_s = min(self._least_s, rtt_s)
        if round_started:
            self._round_s = self._last_ack_s = now
            self._round_least_s, self._samples = INFINITY, 0
        if window_segments < LOW_WINDOW_SEGMENTS:
            return
        if now - self._last_ack_s <= TRAIN_GAP_S:
            self._last_ack_s = now
            if now - self._round_s > (self._least_s + TRAIN_GAP_S) / 2:
                self.active = False
        self._round_least_s = min(self._round_least_s, rtt_s)
        if self._samples < N_SAMPLES:
            self._samples += 1
        elif self._round_least_s > self._least_s + max(MIN_DELAY_S, min(self._least_s / DELAY_DIVISOR, MAX_DELAY_S)):
            self.active = False
