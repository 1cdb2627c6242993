"""One path as the sender of coded messages sees it: what waits for it, how fast it is, and what it has lost."""

from collections import deque

from bicoastal.transports.coding.interleaving import PathEstimate
from bicoastal.transports.paths.health import PathHealth
from bicoastal.transports.paths.loss_meter import LossMeter
from bicoastal.transports.quic.path_connection import PathConnection
from bicoastal.wan.units import INFINITY


class CodedPath:
    """One path.

    plan: tags of a message's symbols in the order in which they are to leave. repairs: tags that go before those,
    because a block waits for them. positions: for each tag in flight, its place among the symbols sent on this path.
    lost: tags that were taken for lost, by message. sent: symbols sent on this path. stirred: something has changed
    that may let it send.
    """

    def __init__(self, link: PathConnection, health: PathHealth, initial_loss: float) -> None:
        self.link = link
        self.health = health
        self.meter = LossMeter(initial_loss)
        self.plan: deque[int] = deque()
        self.repairs: deque[int] = deque()
        self.positions: dict[int, int] = {}
        self.lost: dict[int, set[int]] = {}
        self.sent = 0
        self.stirred = True

    @property
    def usable(self) -> bool:
        """Tell whether it takes symbols: connected, sounded, and not down."""
        return self.health.usable

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
