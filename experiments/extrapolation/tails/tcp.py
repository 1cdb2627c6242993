"""TCP between messages: what a connection keeps, for many flows at once; `rounds` has what happens in a message.

The structure, rounds with a loss probability per packet, is that of Cardwell, Savage, Anderson, "Modeling TCP latency",
INFOCOM 2000; the rules are those of `transports.tcp` with its defaults, which follow Linux.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bicoastal.experiments.extrapolation.tails.model import Array
from bicoastal.transports.congestion import reno
from bicoastal.transports.congestion.base import IDLE_SSTHRESH_SHARE
from bicoastal.transports.tcp.parameters import TcpParameters

Indices = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

DEFAULTS = TcpParameters()  # what the transports themselves begin with

Gaps = Callable[[Indices], Array]
"""Given the indices of flows, for each of them how many packets pass before its next loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpRules:
    """How a TCP behaves. beta: what a loss leaves of the window. cubic: the growth of RFC 9438 with Linux's HyStart.

    initial_window_segments: the first window. first_window_bytes: the peer's first receive window.
    min_rto_s: floor of the RTO's
    variance term. delayed_ack_s: how long the peer keeps the acknowledgement of a single packet back.
    quick_acks: packets of a new connection that are acknowledged one by one.
    ssthresh_share: of the window that ssthresh is raised to before an idle time (RFC 2861 §3.2).
    """

    beta: float = reno.BETA
    cubic: bool = False
    initial_window_segments: int = DEFAULTS.initial_window_segments
    first_window_bytes: int = DEFAULTS.receive_window_bytes
    min_rto_s: float = DEFAULTS.min_rto_s
    delayed_ack_s: float = DEFAULTS.delayed_ack_s
    quick_acks: int = DEFAULTS.quick_acks
    ssthresh_share: float = IDLE_SSTHRESH_SHARE

    @property
    def friendly(self) -> float:
        """Growth per round of CUBIC's Reno-friendly estimate, RFC 9438 §4.3."""
        return 3 * (1 - self.beta) / (1 + self.beta)

    def timeout_s(self, rtt_s: float) -> float:
        """Return the retransmission timeout, whose variance term is at its floor on a path without other traffic."""
        return rtt_s + self.min_rto_s

    def probe_s(self, rtt_s: float) -> tuple[float, float]:
        """Return how much later the last packet arrives if it is lost and nothing shows that but silence.

        First where the packet before it was acknowledged at once. Then the last is outstanding alone, and a probe
        allows a delayed acknowledgement as much as the timeout, which comes first (RFC 8985 §7.2). Second where that
        acknowledgement was kept back: then two are outstanding, two round trips are waited for, and it is counted anew
        when the acknowledgement comes before that.
        """
        alone_s = rtt_s + self.timeout_s(rtt_s)
        return alone_s, 3 * rtt_s if 2 * rtt_s < self.delayed_ack_s else alone_s + self.delayed_ack_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpPath:
    """What a flow meets. packets: of a message. queue_packets: before the bottleneck. short_s: the last packet's.

    both_ways: the other direction carries a message of that size at the same time, as in an exchange.
    """

    packets: int
    packet_s: float
    rtt_s: float
    queue_packets: float
    segment_bytes: int
    short_s: float = 0.0
    both_ways: bool = True

    @property
    def bdp_packets(self) -> float:
        """Packets that fill the path."""
        return max(self.rtt_s / self.packet_s, 1.0)

    @property
    def full_packets(self) -> float:
        """The window beyond which the queue overflows; of what goes both ways, half is acknowledged at once."""
        return self.bdp_packets / (2 if self.both_ways else 1) + self.queue_packets


class TcpFlows:
    """The connections of many flows, from message to message; windows in segments, one element of each array for each.

    most, age_s, turn_s, estimate: CUBIC's W_max, the age of its stage (negative: none has begun), K and W_est.
    counted: Reno's acknowledged packets towards the next segment. hystart: it still governs slow start. probed: a tail
    loss probe has mended the end of the last message, which the first acknowledgement of the next shows.
    """

    KEPT = ("window", "ssthresh", "most", "age_s", "turn_s", "estimate", "counted", "hystart", "probed")

    def __init__(self, rules: TcpRules, path: TcpPath, flows: int) -> None:
        self.rules = rules
        self.path = path
        self.fresh = True
        self.window = np.full(flows, float(rules.initial_window_segments))
        self.ssthresh = np.full(flows, np.inf)
        self.most, self.turn_s, self.estimate, self.counted = (np.zeros(flows) for _ in range(4))
        self.age_s = np.full(flows, -1.0)
        self.hystart = np.full(flows, rules.cubic)
        self.probed = np.zeros(flows, bool)

    def settle(self, ssthresh: float) -> None:
        """Let every flow be one that has had its first losses: with this ssthresh and the window it stands for."""
        self.fresh = False
        self.ssthresh[:] = self.window[:] = self.most[:] = ssthresh
        self.hystart[:] = False

    def rest(self, idle_s: float, which: Flags | None = None) -> None:
        """Let an idle time pass: the window is halved per RTO, not below the initial one (RFC 2861 §3.2)."""
        halvings = min(int(idle_s / self.rules.timeout_s(self.path.rtt_s)), 64)
        self.fresh = False
        if halvings:
            rested = np.ones(len(self.window), bool) if which is None else which
            raised = np.maximum(self.ssthresh, self.rules.ssthresh_share * self.window)
            floor = np.minimum(float(self.rules.initial_window_segments), self.window)
            self.ssthresh = np.where(rested, raised, self.ssthresh)
            self.window = np.where(rested, np.maximum(floor, self.window * 0.5**halvings), self.window)
