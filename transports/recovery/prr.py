"""Proportional Rate Reduction: how much may be sent during fast recovery (RFC 9937)."""


class ProportionalRateReduction:
    """One recovery episode's accounts; sizes are bytes.

    RecoverFS is what was in flight when the episode began; what is delivered meanwhile is answered in the proportion
    ssthresh / RecoverFS while more than ssthresh is in flight, and by conservation (PRR-CRB) or slow start (PRR-SSRB,
    when the ACK shows progress and no further loss) below it.
    """

    __slots__ = ("_delivered", "_mss_bytes", "_out", "_recover_fs", "_ssthresh")

    def __init__(self, *, mss_bytes: int) -> None:
        self._mss_bytes = mss_bytes
        self._recover_fs = 1.0
        self._ssthresh = 0.0
        self._delivered = 0  # prr_delivered
        self._out = 0  # prr_out

    def on_enter(self, *, in_flight_bytes: int, ssthresh_bytes: float) -> None:
        """Begin an episode (RFC 9937 §6, initialisation)."""
        self._recover_fs = float(max(in_flight_bytes, 1))
        self._ssthresh = ssthresh_bytes
        self._delivered = self._out = 0

    def on_sent(self, sent_bytes: int) -> None:
        """Note what was sent during the episode, new or again."""
        self._out += sent_bytes

    def on_ack(self, *, delivered_bytes: int, in_flight_bytes: int, lost_bytes: int, advanced: bool) -> float:
        """Take an acknowledgement and return the window: what is in flight plus what may be sent now."""
        self._delivered += delivered_bytes
        if in_flight_bytes > self._ssthresh:
            allowed = -(-self._delivered * self._ssthresh // self._recover_fs) - self._out
        else:
            allowed = max(self._delivered - self._out, delivered_bytes)  # PRR-CRB
            if advanced and not lost_bytes:  # safeACK: PRR-SSRB
                allowed += self._mss_bytes
            allowed = min(allowed, self._ssthresh - in_flight_bytes)
        if not self._out:
            allowed = max(allowed, self._mss_bytes)  # the first repair goes at once (RFC 9937 §6)
        return in_flight_bytes + max(allowed, 0.0)
