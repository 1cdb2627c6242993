"""A path as the sender of protected messages sees it: what waits for it, how fast it is, and whether it answers."""

from collections import deque
from enum import Enum

from bicoastal.transports.coding.interleaving import PathEstimate
from bicoastal.transports.paths.loss_meter import LossMeter
from bicoastal.transports.quic.path_connection import ACK_DELAY_S, ACK_EVERY, PathConnection
from bicoastal.wan.units import INFINITY

LEAST_PATIENCE_S = 0.002
# Late packets that make a silence: more than three acknowledgements would tell of, or are due over so long a time.
# Fewer can be lost themselves, or their one acknowledgement.
SILENT_PACKETS = 3 * ACK_EVERY
FEW_PACKETS, SILENT_S = 4, 3 * ACK_DELAY_S


class Verdict(Enum):
    """What late acknowledgements mean: it has fallen silent, its last packets are lost, or it is too early to tell."""

    SILENT = "silent"
    TAIL_LOST = "tail lost"
    TOO_EARLY = "too early"


class SendingLane:
    """One path.

    plan: tags of a message's symbols in the order in which they are to leave. repairs: tags that go before those,
    because a block waits for them. positions: of each tag in flight, the how manyth symbol of this path it was.
    lost: tags that were taken for lost, by message. silent_since_s: when it was given up for the time being, or None.
    sounded: it is known how fast it is, or that this cannot be found out.
    """

    def __init__(self, link: PathConnection, initial_loss: float) -> None:
        self.link = link
        self.meter = LossMeter(initial_loss)
        self.plan: deque[int] = deque()
        self.repairs: deque[int] = deque()
        self.positions: dict[int, int] = {}
        self.lost: dict[int, set[int]] = {}
        self.silent_since_s: float | None = None
        self.sounded = False
        self.sent = 0
        self.wait_until_s = -INFINITY  # it is too early to tell
        self.tail_lost_s = -INFINITY  # when its last packets were taken for lost, for want of any behind them
        self.stirred = True  # something has changed that may let it send

    @property
    def usable(self) -> bool:
        """Tell whether it takes symbols: connected, sounded, and not silent."""
        return self.silent_since_s is None and self.sounded and self.link.ready

    @property
    def rtt_s(self) -> float:
        """Return its smoothed round trip, or a guess."""
        return self.link.rtt_s

    def view(self, now: float, symbol_bytes: int) -> PathEstimate:
        """Return rate, delay and backlog for a plan."""
        link = self.link
        rtt_s = self.rtt_s
        by_window = 8.0 * link.congestion.cwnd_bytes / rtt_s
        rate_bps = max(1.0, min(by_window, link.congestion.pacing_rate_bps or INFINITY))
        shortest_s = min(link.rtt.min_rtt_s, rtt_s)
        backlog_s = 8.0 * symbol_bytes * (len(self.plan) + len(self.repairs)) / rate_bps
        return PathEstimate(rate_bps=rate_bps, delay_s=shortest_s / 2, free_at_s=now + backlog_s)

    @property
    def late_s(self) -> float:
        """Return how much later than a round trip an acknowledgement is late."""
        return max(LEAST_PATIENCE_S, self.rtt_s / 16, 4 * self.link.rtt.rttvar_s) + ACK_DELAY_S

    def overdue_at(self) -> float:
        """Return when its silence means something: an acknowledgement is late, and nothing was heard since it was due.

        What left more than a round trip before the path was last heard was passed over: it is lost, not awaited.
        """
        link = self.link
        if link.oldest_in_flight_s is None or link.rtt.srtt_s is None or self.silent_since_s is not None:
            return INFINITY
        count, first_s, _ = link.awaited(link.last_heard_s - self.rtt_s, INFINITY)
        if not count:
            return INFINITY
        return max(max(first_s + self.rtt_s, link.last_heard_s) + self.late_s, self.wait_until_s)

    def verdict(self, now: float) -> Verdict:
        """Tell what it means that acknowledgements are late."""
        link, since_s = self.link, self.link.last_heard_s - self.rtt_s
        late, first_s, last_s = link.awaited(since_s, now - self.rtt_s - self.late_s)
        if late >= SILENT_PACKETS or (late >= FEW_PACKETS and last_s - first_s >= SILENT_S):
            return Verdict.SILENT
        if late == link.awaited(since_s, INFINITY)[0]:
            return Verdict.TAIL_LOST if link.last_heard_s > self.tail_lost_s else Verdict.SILENT
        return Verdict.TOO_EARLY

    def revived(self) -> bool:
        """Take a path that has been heard again for alive; tell whether that is news."""
        since_s = self.silent_since_s
        if since_s is None or self.link.last_heard_s <= since_s:
            return False
        self.silent_since_s = None
        return True
