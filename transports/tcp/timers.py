"""The timers for the end of a flight: retransmission timeout (RFC 6298), tail loss probe (RFC 8985 §7), repair timeout.

A congestion controller that knows when an acknowledgement is due may ask for a repair timeout (`RepairTimeout`). That
timeout replaces the probe and is earlier. Times are seconds.
"""

from bicoastal.transports.congestion.base import CongestionControl
from bicoastal.transports.recovery.rack import Rack, SentPacket
from bicoastal.transports.recovery.rtt import RttEstimator
from bicoastal.transports.recovery.scoreboard import Scoreboard
from bicoastal.wan.units import INFINITY

SILENCE = 1.5
"""How many round trips without a single acknowledgement of a burst mean that the path, not a packet, is gone."""


class TailLossProbe:
    """The outstanding tail loss probe, if there is one (RFC 8985 §7.1: TLP.end_seq and TLP.is_retrans).

    packet: the packet that the probe repeats; None where the probe carries new data.
    """

    __slots__ = ("_stop", "packet")

    def __init__(self) -> None:
        self._stop: int | None = None
        self.packet: SentPacket | None = None

    @property
    def pending(self) -> bool:
        """Whether a probe is outstanding."""
        return self._stop is not None

    def begin(self, stop: int, packet: SentPacket | None) -> None:
        """Note a probe; once `stop` is acknowledged, so is all that was sent up to it."""
        self._stop = stop
        self.packet = packet

    def cancel(self) -> None:
        """Forget the outstanding probe."""
        self._stop = None

    def original_arrived(self, stop: int) -> None:
        """The packet that ends at `stop` was not lost; if the probe repeated it, there was nothing to mend (§7.4.2)."""
        if self.packet is not None and stop == self._stop:
            self._stop = None

    def acknowledged(self, ack: int) -> SentPacket | None:
        """Process an acknowledgement. Return the packet that was lost and that the probe repaired, or None.

        The acknowledgement of the packet itself does not tell yet whether original or probe has arrived: if both have,
        a DSACK comes before anything beyond is acknowledged (§7.4.2).
        """
        if self._stop is None or ack < self._stop or (ack == self._stop and self.packet is not None):
            return None
        self._stop = None
        return self.packet


class TailTimers:
    """The timers that act when no acknowledgement comes. rto_at, probe_at, expiry_at: due times, inf for never.

    `arm` sets them from the outstanding packets. The sender acts when a timer is due.
    """

    __slots__ = (
        "_board",
        "_congestion",
        "_expiries",
        "_floor_s",
        "_last_ack_s",
        "_max_ack_delay_s",
        "_mss_bytes",
        "_rack",
        "_rtt",
        "expiry_at",
        "probe_at",
        "rto_at",
    )

    def __init__(
        self,
        *,
        mss_bytes: int,
        max_ack_delay_s: float,
        congestion: CongestionControl,
        rtt: RttEstimator,
        rack: Rack,
        board: Scoreboard,
    ) -> None:
        self.rto_at = self.probe_at = self.expiry_at = INFINITY
        self._mss_bytes = mss_bytes
        self._max_ack_delay_s = max_ack_delay_s
        self._congestion = congestion
        self._rtt = rtt
        self._rack = rack
        self._board = board
        self._last_ack_s = 0.0
        self._expiries = 0  # of the repair timeout, one after the other
        self._floor_s = 0.0  # the repair timeout is not due before

    def arm(self, now: float, last_sent_s: float, *, may_probe: bool, answered: bool) -> None:
        """Set all timers for what is outstanding.

        may_probe: a silence would be the first sign of loss. answered: an acknowledgement, not a transmission, is the
        occasion, and only that sets the retransmission timeout anew while it is running (RFC 6298 §5.1, §5.3).
        """
        last_s = max(now, last_sent_s)
        if answered or self.rto_at == INFINITY:
            self.rto_at = last_s + self._rtt.rto_s
        self.probe_at = self.expiry_at = INFINITY
        timeout = self._congestion.repair_timeout()
        if timeout is not None:
            oldest = self._rack.oldest()
            if oldest is not None:
                due_s = max(oldest.sent_s + timeout.expected_s, self._last_ack_s) + timeout.margin_s
                self.expiry_at = max(due_s, self._floor_s)
        elif may_probe:
            self.probe_at = min(last_s + self._probe_timeout_s(), self.rto_at)  # RFC 8985 §7.2: instead of the RTO

    def stop(self) -> None:
        """Stop all timers: no packet is outstanding."""
        self.rto_at = self.probe_at = self.expiry_at = INFINITY

    def restart_rto(self, last_sent_s: float) -> None:
        """Count the retransmission timeout from `last_sent_s` on."""
        self.rto_at = last_sent_s + self._rtt.rto_s

    def answered(self, now: float) -> None:
        """Note that an acknowledgement has delivered something."""
        self._last_ack_s = now
        self._expiries = 0
        self._floor_s = 0.0

    def _probe_timeout_s(self) -> float:
        """Return RFC 8985 §7.2's PTO."""
        if self._rtt.srtt_s is None:
            return 1.0
        timeout_s = 2 * self._rtt.srtt_s
        if self._board.in_flight <= self._mss_bytes:
            timeout_s += self._max_ack_delay_s
        return timeout_s

    def expire(self, now: float, burst_s: float) -> list[SentPacket] | None:
        """Return what has gone unacknowledged for longer than the repair timeout allows; None means everything.

        None is returned when nothing of a burst that began at `burst_s` is acknowledged, or nothing since the last
        expiry. Then the path may be down, and all packets are sent again as after a retransmission timeout. The timer
        waits a little longer before that. An expiry that returns packets or None doubles the next timeout.
        """
        self.expiry_at = INFINITY
        timeout, oldest = self._congestion.repair_timeout(), self._rack.oldest()
        if timeout is None or oldest is None:
            return []
        silent = self._expiries > 0 or self._rack.newest_sent_s < burst_s
        lost: list[SentPacket] | None = None
        if silent and self._board.in_flight > self._congestion.initial_window_bytes:  # less may go again on no evidence
            gone_s = oldest.sent_s + SILENCE * timeout.expected_s
            if now < gone_s:
                self.expiry_at = self._floor_s = gone_s
                return []
        else:
            lost = self._rack.expire(now - timeout.expected_s)
            if not lost:  # the oldest packet was sent again after this timer was set
                self.expiry_at = oldest.sent_s + timeout.expected_s + timeout.margin_s
                return lost
        self._expiries += 1
        self._floor_s = now + (timeout.expected_s + timeout.margin_s) * 2 ** min(self._expiries, 16)
        return lost
