"""TCP round by round: slow start, congestion avoidance, fast recovery and the tail loss probe, for many flows at once.

A window of w packets leaves per round trip, or per w packet times where that is longer. A round without loss doubles
the window below ssthresh (RFC 5681 §3.1 with RFC 3465, L = 2) and above it lets it grow as the algorithm says: by one
(Reno) or along the cubic of RFC 9438 §4.2 to §4.4. Where a round loses packets, those before the first loss still open
the window, those behind it are answered by PRR (RFC 9937) with a share of beta; what is lost before the loss is known
belongs to the same episode. Then the window is beta of what was in flight. In the last round nothing may be left to
show a loss: the last packet is repaired by the tail loss probe two round trips after the last acknowledgement (RFC 8985
§7.2), one of the last three after a reordering window of a quarter (§6.2), and in recovery, which knows no probe, the
last one by the RTO.
Between bursts the window decays (RFC 2861 §3.2). The structure, rounds with a loss probability per packet, is that of
Cardwell, Savage, Anderson, "Modeling TCP latency", INFOCOM 2000.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.extrapolation.tails import Array

Indices = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

C = 0.4  # segments / s³, RFC 9438 §5.1
HYSTART_LEAST_S, HYSTART_MOST_S, HYSTART_SHARE = 0.004, 0.016, 8  # RFC 9406 §4.3
CSS_ROUNDS, CSS_GROWTH = 5, 1.25
LEAST_WINDOW = 2.0  # segments that a reduction leaves (RFC 5681 §3.1 equation 4)
SHOWN_BY = 3  # later packets that show a loss without a reordering window
REORDERING = 1.25  # round trips to the repair of one of the last three
PROBE = 3.0  # and of the last one: two from the last acknowledgement, which comes one after its departure
MOST_ROUNDS = 1_000_000

Gaps = Callable[[Indices], Array]
"""Given the indices of flows, for each of them how many packets pass before its next loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpRules:
    """How a TCP behaves. beta: what a loss leaves of the window. cubic: the growth of RFC 9438 with HyStart++.

    initial_window: segments. first_window_bytes: the peer's first receive window. min_rto_s: floor of the RTO's
    variance term. ack_delay_s: of the far end, which a probe for a single packet allows for (RFC 8985 §7.2).
    ssthresh_share: of the window that ssthresh is raised to before an idle time.
    """

    beta: float = 0.5
    cubic: bool = False
    initial_window: int = 10
    first_window_bytes: int = 65535
    min_rto_s: float = 0.2
    ack_delay_s: float = 0.040
    ssthresh_share: float = 0.75

    @property
    def friendly(self) -> float:
        """Growth per round of CUBIC's Reno-friendly estimate, RFC 9438 §4.3."""
        return 3 * (1 - self.beta) / (1 + self.beta)


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpPath:
    """What a flow meets. packets: of a message. queue_packets: before the bottleneck. short_s: the last packet's."""

    packets: int
    packet_s: float
    rtt_s: float
    queue_packets: float
    segment_bytes: int
    short_s: float = 0.0

    @property
    def bdp_packets(self) -> float:
        """Packets that fill the path."""
        return max(self.rtt_s / self.packet_s, 1.0)

    @property
    def full_packets(self) -> float:
        """The window beyond which the queue overflows."""
        return self.bdp_packets + self.queue_packets

    @property
    def hystart_packets(self) -> float:
        """The window from which the least round trip of a round shows a queue (RFC 9406 §4.2)."""
        threshold_s = min(max(self.rtt_s / HYSTART_SHARE, HYSTART_LEAST_S), HYSTART_MOST_S)
        return self.bdp_packets + threshold_s / self.packet_s


class TcpFlows:
    """The windows of many flows, from message to message, in segments."""

    def __init__(self, rules: TcpRules, path: TcpPath, flows: int) -> None:
        self.rules = rules
        self.path = path
        self.fresh = True
        self.window = np.full(flows, float(rules.initial_window))
        self.ssthresh = np.full(flows, np.inf)
        self.most = np.zeros(flows)  # CUBIC's W_max
        self.hystart = np.full(flows, rules.cubic)

    def copy(self) -> "TcpFlows":
        """Return the same flows once more, so that another message can be tried."""
        made = TcpFlows(self.rules, self.path, len(self.window))
        made.fresh = self.fresh
        made.window, made.ssthresh = self.window.copy(), self.ssthresh.copy()
        made.most, made.hystart = self.most.copy(), self.hystart.copy()
        return made

    def settle(self, ssthresh: float) -> None:
        """Let every flow be one that has had its first losses: with this ssthresh and the window it stands for."""
        self.fresh = False
        self.ssthresh[:] = self.window[:] = self.most[:] = ssthresh
        self.hystart[:] = False

    def rest(self, idle_s: float, which: Flags | None = None) -> None:
        """Let an idle time pass: the window is halved per RTO, not below the initial one (RFC 2861 §3.2)."""
        halvings = min(int(idle_s / (self.path.rtt_s + self.rules.min_rto_s)), 64)
        self.fresh = False
        if halvings:
            rested = np.ones(len(self.window), bool) if which is None else which
            raised = np.maximum(self.ssthresh, self.rules.ssthresh_share * self.window)
            floor = np.minimum(float(self.rules.initial_window), self.window)
            self.ssthresh = np.where(rested, raised, self.ssthresh)
            self.window = np.where(rested, np.maximum(floor, self.window * 0.5**halvings), self.window)

    def send(self, gaps: Gaps, which: Flags | None = None) -> Array:
        """Send one message per flow and return how long each took, until its last packet has arrived, seconds.

        which: the flows that send; the others stay as they are, and their time is 0.
        """
        out = np.zeros(len(self.window))
        burst = _Burst(self, gaps)
        if which is not None:
            burst.keep(which)
        for number in range(MOST_ROUNDS):
            if not len(burst.who):
                return out
            done, times_s = burst.round(gaps, first=self.fresh and number == 0)
            if np.any(done):
                flows = burst.who[done]
                out[flows] = times_s[done]
                self.window[flows] = np.where(burst.pending > 0, burst.pending, burst.window)[done]
                self.ssthresh[flows], self.most[flows] = burst.ssthresh[done], burst.most[done]
                self.hystart[flows] = burst.hystart[done]
                burst.keep(~done)
        raise RuntimeError(f"a message took more than {MOST_ROUNDS} rounds")


class _Burst:
    """The flows that are still sending, one element of each array for each.

    who: their indices. left: packets to send, again or for the first time. gap: packets before the next loss.
    absorbed: packets of this round whose loss belongs to the episode before. pending: the window after this round, if
    this is the round of a recovery, else 0. age_s: of the cubic's stage; negative where none has begun.
    """

    __slots__ = (
        "_path", "_rules", "absorbed", "age_s", "begun", "css", "gap", "hystart", "left", "most", "pending",
        "ssthresh", "time_s", "turn_s", "who", "window",
    )  # fmt: skip

    def __init__(self, flows: TcpFlows, gaps: Gaps) -> None:
        self._rules, self._path = flows.rules, flows.path
        count = len(flows.window)
        self.who = np.arange(count)
        self.left = np.full(count, float(self._path.packets))
        self.gap = gaps(self.who)
        self.window = flows.window.copy()
        if flows.fresh:
            first = self._rules.first_window_bytes // self._path.segment_bytes
            self.window = np.minimum(self.window, max(1.0, first))
        self.ssthresh, self.most, self.hystart = flows.ssthresh.copy(), flows.most.copy(), flows.hystart.copy()
        self.time_s, self.absorbed, self.pending, self.css = (np.zeros(count) for _ in range(4))
        self.age_s, self.turn_s, self.begun = np.full(count, -1.0), np.zeros(count), np.zeros(count)

    def keep(self, kept: Flags) -> None:
        """Forget the flows that are done."""
        for name in self.__slots__:
            if not name.startswith("_"):
                setattr(self, name, getattr(self, name)[kept])

    def round(self, gaps: Gaps, *, first: bool) -> tuple[Flags, Array]:
        """Send a window; return which flows are done with it, and when their last packet arrives."""
        path = self._path
        sent = np.minimum(np.maximum(np.floor(self.window), 1.0), self.left)
        lost = self._losses(gaps, np.minimum(self.absorbed, sent))
        lossy = self.gap < sent
        place = np.where(lossy, self.gap, 0.0)
        last = place.copy()
        lost += self._losses(gaps, sent, last)
        self.gap -= sent
        self.left += lost - sent
        done = self.left <= 0
        times_s = self.time_s + sent * path.packet_s + path.rtt_s / 2 - path.short_s
        round_s = self._round_s(sent, lost, last)
        self.time_s += round_s
        self._next_window(sent, lossy, place, round_s, first=first)
        return done, times_s

    def _losses(self, gaps: Gaps, stop: Array, last: Array | None = None) -> Array:
        """Count the losses among the round's packets below `stop`; note the place of the last."""
        lost = np.zeros(len(self.who))
        while len(hit := np.flatnonzero(self.gap < stop)):
            lost[hit] += 1
            if last is not None:
                last[hit] = self.gap[hit]
            self.gap[hit] += 1 + gaps(self.who[hit])
        return lost

    def _round_s(self, sent: Array, lost: Array, last: Array) -> Array:
        """Return how long until the next round, which is longer where nothing new is left to show a loss."""
        path, rtt_s = self._path, self._path.rtt_s
        round_s = np.maximum(rtt_s, sent * path.packet_s)
        end = (self.left == lost) & (lost > 0)
        if np.any(end):
            probed_s = PROBE * rtt_s + self._rules.ack_delay_s
            recovering = self.pending > 0
            last_s = np.where(recovering, rtt_s + self._rules.min_rto_s, probed_s)
            shown_s = np.where((last >= sent - SHOWN_BY) & ~recovering, REORDERING, 1.0) * rtt_s
            waits_s = np.where(last >= sent - 1, last_s, shown_s)
            round_s = np.where(end, np.maximum(waits_s, round_s), round_s)
        return round_s

    def _next_window(self, sent: Array, lossy: Flags, place: Array, round_s: Array, *, first: bool) -> None:
        beta, full = self._rules.beta, self._path.full_packets
        recovering = self.pending > 0
        slow = (self.window < self.ssthresh) & ~recovering
        overflow = ~lossy & (self.window > full)
        reduces = lossy | overflow
        doubles = slow & (not first)  # the first receive window, which follows what has arrived, holds it back
        in_flight = np.where(slow, sent, np.maximum(sent, np.where(recovering, self.pending, self.window)))
        in_flight += np.where(doubles, place, 0.0)
        reduced = np.maximum(beta * np.where(overflow, full, in_flight), LEAST_WINDOW)
        opened = place * np.where(doubles, 2.0, 1.0)  # by the packets before the first loss
        held_back = np.minimum(self.window + 5.0, self._rules.initial_window + 2.0)
        grown = held_back if first else self._grown(sent, slow)
        if self._rules.cubic:
            grown = np.where(slow | recovering, grown, self._curve(reduces | slow | recovering, round_s))
            peak = np.where(self.window < self.most, self.window * (1 + beta) / 2, self.window)  # RFC 9438 §4.7
            self.most = np.where(reduces, peak, self.most)
            self.age_s[reduces] = -1.0
            self.hystart &= ~reduces
        self.left += np.where(overflow & slow, np.maximum(self.window - full, 0.0), 0.0)  # what did not fit goes again
        self.ssthresh = np.where(reduces, reduced, self.ssthresh)
        following = np.where(overflow, reduced, np.where(recovering, self.pending, grown))
        self.window = np.maximum(np.where(lossy, opened + (sent - place) * beta, following), 1.0)
        self.absorbed = np.where(lossy, opened, 0.0)
        self.pending = np.where(lossy, reduced, 0.0)

    def _grown(self, sent: Array, slow: Flags) -> Array:
        """Return the window after a round without loss: slow start, that of HyStart++, or one packet more."""
        queued = self.hystart & slow & (self.window >= self._path.hystart_packets)
        self.css += queued
        opened = self.window + np.where(queued, (CSS_GROWTH - 1) * sent, sent - 0.5)  # an odd one is acknowledged late
        grown = np.where(slow, np.minimum(opened, self.ssthresh), self.window + sent / self.window)
        over = self.hystart & (self.css >= CSS_ROUNDS)
        self.ssthresh[over] = np.minimum(self.ssthresh[over], grown[over])
        self.hystart &= ~over
        return np.asarray(grown)

    def _curve(self, elsewhere: Flags, round_s: Array) -> Array:
        """Return the window along the cubic, or as Reno's where that is more (RFC 9438 §4.2 to §4.5)."""
        avoiding = ~elsewhere
        starts = avoiding & (self.age_s < 0)
        self.most = np.where(starts, np.maximum(self.most, self.window), self.most)
        self.turn_s = np.where(starts, np.cbrt((self.most - self.window) / C), self.turn_s)
        self.begun = np.where(starts, self.window, self.begun)
        self.age_s = np.where(starts, round_s, np.where(avoiding, self.age_s + round_s, self.age_s))
        curve = C * (self.age_s - self.turn_s) ** 3 + self.most
        friendly = self.begun + self._rules.friendly * self.age_s / max(self._path.rtt_s, self._path.packet_s)
        return np.clip(np.maximum(curve, friendly), self.window, 1.5 * self.window)
