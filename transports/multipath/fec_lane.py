"""A path as the sender of protected messages sees it: what waits for it, how fast it is, and whether it answers."""

from collections import deque

from transports.multipath.interleaving import Lane
from transports.multipath.loss_meter import LossMeter
from transports.multipath.quic_link import QuicLink

INFINITY = float("inf")
LEAST_PATIENCE_S = 0.002
ACK_DELAY_S = 0.001  # how long the far end may hold an acknowledgement back
UNKNOWN_RTT_S = 0.1


class SendingLane:
    """One path.

    plan: tags of a message's symbols in the order in which they are to leave. repairs: tags that go before those,
    because a block waits for them. positions: of each tag in flight, the how manyth symbol of this path it was.
    lost: tags that were taken for lost, by message. silent_since_s: when it was given up for the time being, or None.
    """

    def __init__(self, link: QuicLink, initial_loss: float) -> None:
        self.link = link
        self.meter = LossMeter(initial_loss)
        self.plan: deque[int] = deque()
        self.repairs: deque[int] = deque()
        self.positions: dict[int, int] = {}
        self.lost: dict[int, set[int]] = {}
        self.silent_since_s: float | None = None
        self.sent = 0
        self.wait_until_s = -INFINITY  # it is too early to tell
        self.tail_lost_s = -INFINITY  # when its last packets were taken for lost, for want of any behind them
        self.stirred = True  # something has changed that may let it send

    @property
    def usable(self) -> bool:
        """Tell whether it takes symbols: connected, and not silent."""
        return self.silent_since_s is None and self.link.ready

    @property
    def rtt_s(self) -> float:
        """Return its smoothed round trip, or a guess."""
        return self.link.rtt.srtt_s or UNKNOWN_RTT_S

    def view(self, now: float, symbol_bytes: int) -> Lane:
        """Return rate, delay and backlog for a plan."""
        link = self.link
        rtt_s = self.rtt_s
        by_window = 8.0 * link.congestion.cwnd_bytes / rtt_s
        rate_bps = max(1.0, min(by_window, link.congestion.pacing_rate_bps or INFINITY))
        shortest_s = min(link.rtt.min_rtt_s, rtt_s)
        backlog_s = 8.0 * symbol_bytes * (len(self.plan) + len(self.repairs)) / rate_bps
        return Lane(rate_bps=rate_bps, delay_s=shortest_s / 2, free_at_s=now + backlog_s)

    @property
    def late_s(self) -> float:
        """Return how much later than a round trip an acknowledgement is late."""
        return max(LEAST_PATIENCE_S, self.rtt_s / 16, 4 * self.link.rtt.rttvar_s) + ACK_DELAY_S

    def overdue_at(self) -> float:
        """Return when its silence means something: the oldest acknowledgement is late, and nothing was heard since."""
        oldest_s, srtt_s = self.link.oldest_in_flight_s, self.link.rtt.srtt_s
        if oldest_s is None or srtt_s is None or self.silent_since_s is not None:
            return INFINITY
        return max(max(oldest_s + srtt_s, self.link.last_heard_s) + self.late_s, self.wait_until_s)

    def tail_lost_at(self) -> float:
        """Return when it is certain that only its last packets are lost; inf if they are not its last, or not few."""
        oldest_s, last_s = self.link.oldest_in_flight_s, self.link.last_sent_s
        if oldest_s is None or last_s - oldest_s > self.late_s or self.link.last_heard_s <= self.tail_lost_s:
            return INFINITY
        return max(last_s + self.rtt_s, self.link.last_heard_s) + self.late_s

    def revived(self) -> bool:
        """Take a path that has been heard again for alive; tell whether that is news."""
        since_s = self.silent_since_s
        if since_s is None or self.link.last_heard_s <= since_s:
            return False
        self.silent_since_s = None
        return True
