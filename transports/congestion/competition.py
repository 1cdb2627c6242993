"""How `Adaptive` competes with other senders: CUBIC's window, and the signs that it can stop."""

from bicoastal.transports.congestion.base import Ack, Limits
from bicoastal.transports.congestion.cubic import BETA, Cubic, regrowth_s
from bicoastal.transports.congestion.startup import CLOSE_PACE
from bicoastal.transports.recovery.round_trips import RoundTrips
from bicoastal.wan.units import INFINITY

FREE_ROUNDS = 4  # with an empty queue, until the other senders count as gone
FREE_PACE = 2.0  # windows per round trip until a queue overflows: the window, not the pace, limits the sender
REGAINED_SHARE = 0.9  # of the rate it cruised at: other senders cannot have much then
OUTGROWN = 1.5  # times the window that was too much: whatever limited it has gone
CONTESTED = 2.0  # times CUBIC's time to regrow: two overflows within it are due to another sender that regrows as well


class Competition:
    """CUBIC's window while other senders use the queue, and what overflows have shown. Bytes, seconds, bit/s.

    overflowed: a loss, not the delay, began the competition, and no other overflow came soon before.
    contested: the queue has overflowed more than once. cruised_bps: the highest rate it cruised at since the last
    pause. yielded_s: when the window was last reduced. yielded_bytes: the window that was too much then.
    """

    def __init__(self, *, mss_bytes: int, initial_window_bytes: int) -> None:
        self.overflowed = self.contested = False
        self.cruised_bps = 0.0
        self.yielded_s = -INFINITY
        self.yielded_bytes = 0.0
        self._overflow_s = -INFINITY
        self._mss_bytes = mss_bytes
        self._initial_window_bytes = initial_window_bytes
        self._cubic = Cubic(mss_bytes=mss_bytes, hystart=False)
        self._begins = True  # the next acknowledgement is the first of a competition

    def forget(self) -> None:
        """Forget earlier overflows and rates: a pause has passed, and the other senders may have changed."""
        self._overflow_s, self.cruised_bps, self.yielded_bytes = -INFINITY, 0.0, 0.0

    def begin(self, cwnd_bytes: float, learned_bps: float, rtt: RoundTrips) -> None:
        """Begin at the present window; `learned_bps` is the rate cruised at until now."""
        self.overflowed = self.contested = False
        self.cruised_bps = max(self.cruised_bps, learned_bps)
        self._cubic = Cubic(mss_bytes=self._mss_bytes, hystart=False)
        self._cubic.follow(rtt)
        self._begins = True
        self._cubic.cwnd_bytes = self._cubic.ssthresh_bytes = max(cwnd_bytes, float(self._initial_window_bytes))

    def begin_reduced(self, *, again: bool) -> None:
        """Note that an overflow began it; again: another overflow came soon before."""
        self.overflowed, self.contested = not again, again
        if again:
            # it grows back to the window that overflowed first, not to what is left of it
            self._cubic.cwnd_bytes = max(self._cubic.cwnd_bytes, self.yielded_bytes)

    def on_ack(self, ack: Ack) -> None:
        """Let CUBIC's window grow."""
        if self._begins:
            self._cubic.rtt.restart(ack.rtt_s)
            self._begins = False
        self._cubic.on_ack(ack._replace(in_recovery=False))

    def note_congestion(self, now: float, cwnd_bytes: float, *, again: bool) -> None:
        """Note the window that was too much; after an overflow soon before (again), the larger of the two counts."""
        self.yielded_s = now
        self.yielded_bytes = max(cwnd_bytes, self.yielded_bytes) if again else cwnd_bytes

    def note_overflow(self, now: float) -> None:
        """Note that the queue has overflowed."""
        self._overflow_s = now

    def overflowed_lately(self, now: float, cwnd_bytes: float) -> bool:
        """Tell whether the last overflow is so recent that another one means a competing sender."""
        return now - self._overflow_s < CONTESTED * regrowth_s(cwnd_bytes / self._mss_bytes)

    def reduced_rate_bps(self, learned_bps: float, delivering_bps: float) -> float:
        """Return the learned rate after an overflow: a full queue drains at the bottleneck's rate.

        Another sender's overshoot may hold that down for a moment. So the rate falls to CUBIC's share at most.
        """
        if self.overflowed and delivering_bps:
            return min(learned_bps, max(delivering_bps, BETA * learned_bps))
        return learned_bps

    def reduce(self, now: float, in_flight_bytes: int) -> None:
        """Reduce CUBIC's window."""
        self._cubic.on_congestion(now, in_flight_bytes)
        self._cubic.on_recovery_end(now)

    def limits(self, now: float, srtt_s: float, limits: Limits) -> Limits:
        """Return the limits for CUBIC's window."""
        window_bytes = self._cubic.cwnd_bytes
        yielding = self.contested and now - self.yielded_s < srtt_s
        # The pace drains the excess. A window reduced at once would leave a gap in the packets, and bursts around it.
        cwnd_bytes = max(window_bytes, self.yielded_bytes) if yielding else window_bytes
        gain = 1.0 if yielding else CLOSE_PACE if self.contested else FREE_PACE
        pacing_rate_bps = gain * 8 * window_bytes / srtt_s if srtt_s else limits.pacing_rate_bps
        return Limits(cwnd_bytes, limits.ssthresh_bytes, pacing_rate_bps)

    def rate_when_over(
        self, now: float, *, free_rounds: int, srtt_s: float, learned_bps: float, average_bps: float, cwnd_bytes: float
    ) -> float | None:
        """Return the rate to cruise at when the competition is over, None while it goes on.

        It is over when this sender's own overflow has drained, or when the other senders have made room.
        """
        if free_rounds < (1 if self.overflowed else FREE_ROUNDS) or now - self.yielded_s <= srtt_s:
            return None
        if self.overflowed:
            return 0.95 * learned_bps
        regrown = now - self.yielded_s > regrowth_s(self.yielded_bytes / self._mss_bytes)
        regained = regrown and average_bps >= REGAINED_SHARE * self.cruised_bps
        if regained or cwnd_bytes >= OUTGROWN * self.yielded_bytes:
            return max(learned_bps, average_bps)
        return None

    def learned_bps(self, best_bps: float, learned_bps: float | None) -> float | None:
        """Return the rate to keep when a burst ends in competition; `best_bps` is the highest one shown (0: none)."""
        if not best_bps:
            return learned_bps
        too_much_bps = learned_bps if self.overflowed else None
        return min(best_bps, 0.95 * too_much_bps) if too_much_bps else best_bps
