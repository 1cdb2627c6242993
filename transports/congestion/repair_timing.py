"""When `Adaptive` takes a missing acknowledgement for a loss."""

from bicoastal.transports.congestion.base import RepairTimeout
from bicoastal.transports.congestion.measurement import QueueDelay
from bicoastal.transports.congestion.own_queue import OwnQueue

VARIATION_RTTS = 1 / 32  # of the round trip, at least, that a repair timeout allows for


class RepairTiming:
    """How long after a packet its acknowledgement may arrive. Times are seconds.

    Needless repairs double the margin, up to 32 times. Each burst reduces it again by a tenth.
    """

    def __init__(self) -> None:
        self._margin = 1.0
        self._newest_s = 0.0  # when the newest packet acknowledged so far was sent
        self._valid_from_s = 0.0  # only packets sent later tell the time of an acknowledgement

    def on_sent(self, sent_s: float) -> None:
        """Take the time at which an acknowledged packet was sent."""
        self._newest_s = max(self._newest_s, sent_s)

    def wait_for_packets_after(self, now: float) -> None:
        """Give no timeout until packets that leave after `now` are acknowledged.

        Flights of startup end on odd segments, and the receiver delays the acknowledgement of those.
        """
        self._valid_from_s = now

    def narrow(self) -> None:
        """Reduce the margin: a burst begins."""
        self._margin = max(1.0, 0.9 * self._margin)

    def widen(self) -> None:
        """Double the margin: repairs were needless."""
        self._margin = min(2 * self._margin, 32.0)

    def timeout(
        self, queue: QueueDelay, own_queue: OwnQueue, rate_bps: float | None, *, competing: bool
    ) -> RepairTimeout | None:
        """Return SRTT and a little: sooner than RFC 8985's probe at 2 SRTT, later than any acknowledgement expected.

        competing: bursts of other senders may fill the queue at any time, so the margin is an SRTT at least, which
        gives RFC 8985's 2 SRTT. None: no round trip is known, or only those of startup.
        """
        srtt_s = queue.rtt.steady.srtt_s
        if srtt_s is None or self._newest_s < self._valid_from_s:
            return None
        variation_s = max(4 * queue.rtt.steady.rttvar_s, srtt_s * VARIATION_RTTS)
        little_s = max(variation_s, own_queue.spare_s(rate_bps)) + own_queue.most_s
        if competing:
            little_s = max(little_s, srtt_s)
        return RepairTimeout(srtt_s, self._margin * little_s)
