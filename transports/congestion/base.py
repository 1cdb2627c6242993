"""The interface of all congestion controllers: they set the sender's window and pacing rate."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from bicoastal.transports.recovery.round_trips import RoundTrips
from bicoastal.wan.units import INFINITY

IDLE_SSTHRESH_SHARE = 3 / 4  # of the window, to which ssthresh is raised before an idle time (RFC 2861 §3.2)


class Ack(NamedTuple):
    """What one acknowledgement reports. It is a tuple, not a dataclass, because one is made per ACK.

    now: seconds. acked_bytes: newly acknowledged, cumulatively. delivered_bytes: newly acknowledged or selectively
    acknowledged. lost_bytes: newly marked lost. in_flight_bytes: outstanding after this ACK (RFC 6675 pipe).
    rtt_s: the sample of the newest packet this ACK covers, None without one. The controller's `rtt` contains it.
    round_started: this ACK is the first to cover data sent after the previous round began (RFC 9406 §4.2 rounds).
    cwnd_limited: the window, not the application, has limited the sender. in_recovery: a loss episode is under way.
    The sender's PRR sets the window then, so the controller must not let it grow.
    newest_sent_s: when the newest packet that this ACK covers was sent (None when it covers nothing new).
    """

    now: float
    acked_bytes: int
    delivered_bytes: int
    lost_bytes: int
    in_flight_bytes: int
    rtt_s: float | None
    round_started: bool
    cwnd_limited: bool
    in_recovery: bool
    newest_sent_s: float | None = None


def pacing_ahead_s(srtt_s: float) -> float:
    """Return how far ahead of their departure paced packets are handed out, seconds.

    The time is short, so that a repair never waits long behind them. A change of pace takes effect within a fraction
    of a round trip.
    """
    return min(0.001, srtt_s / 16)


class Limits(NamedTuple):
    """What a controller sets: window and ssthresh, bytes; pacing rate, bit/s of payload (None: not paced)."""

    cwnd_bytes: float
    ssthresh_bytes: float
    pacing_rate_bps: float | None


class RepairTimeout(NamedTuple):
    """When a packet counts as lost because no acknowledgement has arrived.

    The acknowledgement is expected `expected_s` after the packet was sent. The packet counts as lost when it is
    `margin_s` late, and no other acknowledgement has arrived in that time.
    """

    expected_s: float
    margin_s: float


class CongestionControl(ABC):
    """A congestion controller. The sender reads `cwnd_bytes`, `ssthresh_bytes` and `pacing_rate_bps` after each call.

    mss_bytes: payload of a full segment. pacing_rate_bps: a rate of payload bits; None: only the ACK clock times the
    packets. rtt: the connection's estimates of the round trip. The connection gives them (`follow`) and feeds them; a
    controller has none of its own. Times are seconds, sizes bytes.
    """

    def __init__(self, *, mss_bytes: int, initial_window_segments: int = 10) -> None:
        self.mss_bytes = mss_bytes
        self.rtt = RoundTrips()
        self.initial_window_bytes = initial_window_segments * mss_bytes
        self.cwnd_bytes: float = float(self.initial_window_bytes)
        self.ssthresh_bytes: float = INFINITY
        self.pacing_rate_bps: float | None = None

    def follow(self, rtt: RoundTrips) -> None:
        """Read the round trips from `rtt` from now on. The connection calls it once, before any data."""
        self.rtt = rtt

    @abstractmethod
    def on_ack(self, ack: Ack) -> None:
        """Take one acknowledgement; the window may grow."""

    @abstractmethod
    def on_congestion(self, now: float, in_flight_bytes: int) -> None:
        """Begin a loss episode (fast recovery): set `ssthresh_bytes`. Called once per episode, before PRR starts."""

    @abstractmethod
    def on_recovery_end(self, now: float) -> None:
        """End the episode: the window becomes ssthresh (RFC 6582 §3.2, RFC 9937)."""

    @abstractmethod
    def on_timeout(self, now: float, in_flight_bytes: int, *, first: bool) -> None:
        """Take a retransmission timeout (RFC 5681 §3.1 equation 4, window to one segment).

        first is False for a repeated timeout of the same data: ssthresh is then kept (RFC 5681 §3.1).
        """

    @abstractmethod
    def undo(self) -> None:
        """Undo the last `on_congestion` or `on_timeout`, which was spurious (RFC 8985 §7.4.2, RFC 3522)."""

    # -- what an algorithm may set besides a window; the defaults are what the RFCs prescribe -------------------------

    governs_recovery = False
    """True: `cwnd_bytes` is the window during loss recovery too, instead of the one that PRR computes."""

    duplicate_repair_after_s: float | None = None
    """Not None: send every repair of a lost packet a second time, this much later, unless it is acknowledged first."""

    def on_burst(self, now: float, burst_bytes: int) -> None:  # noqa: B027 - most algorithms do nothing
        """Begin a burst: the application has offered `burst_bytes` to an idle connection."""

    def on_loss(self, now: float, lost_bytes: int, in_flight_bytes: int, sent_s: float) -> None:  # noqa: B027
        """Take a loss; `sent_s`: when the newest lost packet was sent. Called before `on_congestion`."""

    def repair_timeout(self) -> "RepairTimeout | None":
        """Return when a missing acknowledgement means loss; None: only RFC 8985's tail loss probe and the RTO tell."""
        return None

    def restart_after_idle(self, now: float, idle_s: float, rto_s: float, *, policy: str) -> None:
        """Adapt the window after the sender was idle for longer than an RTO.

        policy "restart": min(IW, cwnd) (RFC 5681 §4.1). "decay": halved per RTO of idleness, not below min(IW, cwnd),
        ssthresh at least 3/4 of the old window (RFC 2861 §3.2), as Linux does. "keep": unchanged.
        """
        if policy == "keep" or idle_s <= rto_s:
            return
        floor = min(float(self.initial_window_bytes), self.cwnd_bytes)
        if policy == "restart":
            self.cwnd_bytes = floor
            return
        self.ssthresh_bytes = max(self.ssthresh_bytes, IDLE_SSTHRESH_SHARE * self.cwnd_bytes)
        halvings = min(int(idle_s / rto_s), 64)
        self.cwnd_bytes = max(floor, self.cwnd_bytes * 0.5**halvings)
