"""TCP round by round: slow start, congestion avoidance, fast recovery and the tail loss probe, for many flows at once.

A window of w packets leaves per round trip, or per w packet times where that is longer: the bottleneck's queue is first
in, first out. A round without loss doubles the window below ssthresh (RFC 5681 §3.1 with RFC 3465, L = 2) and above it
lets it grow as the algorithm says: by one (Reno) or along the cubic of RFC 9438 §4.2 to §4.4. It grows as long as it,
not the end of the message, holds the sender back. Where a round loses packets, those before the first loss still open
the window, those behind it are answered by PRR (RFC 9937) with a share of beta; what is lost before the loss is known
belongs to the same episode. Then the window is beta of what it was, however little of it was in use.

What leaves faster than it is acknowledged queues, and is dropped where the queue is full. Where the other direction
carries a message alike at the same time, acknowledgements wait behind its data and come all at once when that has gone:
the two directions fall into step, each round takes the window's packet times and half a round trip, and what has been
acknowledged at once leaves at once (L. Zhang, S. Shenker, D. Clark, "Observations on the dynamics of a congestion
control algorithm: the effects of two-way traffic", SIGCOMM 1991). Both directions are taken to have the same window.

In the last round no later packet may show a loss. The loss of one of the last three packets shows after a quarter of a
round trip (RFC 8985 §6.2). The loss of the last packet is repaired by a probe (§7.2); the window of the next message,
which idle time has decayed, is reduced for it (§7.4.2). Recovery has no probe, so there the sender waits for the RTO.
"""

from typing import NamedTuple

import numpy as np

from bicoastal.experiments.extrapolation.tails.model import Array, ArrayLike
from bicoastal.experiments.extrapolation.tails.tcp import Flags, Gaps, TcpFlows
from bicoastal.transports.congestion.ack_train import (
    DELAY_DIVISOR,
    LOW_WINDOW_SEGMENTS,
    MAX_DELAY_S,
    MIN_DELAY_S,
    N_SAMPLES,
    TRAIN_GAP_S,
)
from bicoastal.transports.congestion.cubic import C
from bicoastal.transports.congestion.loss_based import LEAST_WINDOW_SEGMENTS
from bicoastal.transports.recovery.rack import REORDERING_RTTS, SHOWN_BY

BY_ONE_ACK = 4.0  # packets that leave together in slow start
MOST_ROUNDS = 1_000_000


def send(flows: TcpFlows, gaps: Gaps, *, which: Flags | None = None, spared: bool = False) -> Array:
    """Send one message per flow and return how long each took, until its last packet has arrived, seconds.

    which: the flows that send; the others stay as they are, and their time is 0. spared: what only silence would show
    is not lost, so that its probability can be reckoned apart.
    """
    out = np.zeros(len(flows.window))
    burst = Burst(flows, gaps, spared=spared)
    if which is not None:
        burst.keep(which)
    for number in range(MOST_ROUNDS):
        if not len(burst.who):
            return out
        done, times_s = burst.round(gaps, first=flows.fresh and number == 0)
        if np.any(done):
            out[burst.who[done]] = times_s[done]
            burst.store(flows, done)
            burst.keep(~done)
    raise RuntimeError(f"a message took more than {MOST_ROUNDS} rounds")


class Round(NamedTuple):
    """What became of a window; one element of each array for each flow.

    first_s: when the first packet reached the bottleneck's transmitter. sent: packets. limited: the window held them
    back, not the end of the message. lost: of them, together; dropped: because the queue was full, the first of them at
    full_at. lossy: an episode begins, with the loss at `place` (else what was sent); last: the place of the last loss.
    acked: what is acknowledged before a loss shows; late: of it, too late for the round.
    """

    first_s: Array
    sent: Array
    limited: Flags
    lost: Array
    dropped: Array
    full_at: Array
    lossy: Flags
    place: Array
    last: Array
    acked: Array
    late: Array


class Burst:
    """The flows that are still sending, one element of each array for each.

    who: their indices. left: packets to send, again or for the first time. gap: packets before the next loss. time_s:
    when the sender begins the round. free_s: when the bottleneck has sent what it has. clock: acknowledgements that let
    the round's first `head` packets go. absorbed: packets of this round whose loss belongs to the episode before.
    pending: the window after this round, if this is the round of a recovery, else 0. repaired_s: when the last repair
    of the round before left. since: packets since the last loss or pause, which the peer acknowledges by twos. kept:
    whether it keeps the acknowledgement of one back. limited: the window held the round before back. probing: a probe
    mends the message's end.
    """

    _OWN = (
        "who", "left", "gap", "time_s", "free_s", "clock", "head", "absorbed", "pending", "repaired_s", "since", "kept",
        "limited", "probing",
    )  # fmt: skip
    __slots__ = (*_OWN, *TcpFlows.KEPT, "_fresh", "_path", "_rules", "_spared")

    window: Array
    ssthresh: Array
    most: Array
    age_s: Array
    turn_s: Array
    estimate: Array
    counted: Array
    hystart: Flags
    probed: Flags

    def __init__(self, flows: TcpFlows, gaps: Gaps, *, spared: bool) -> None:
        self._rules, self._path, self._spared, self._fresh = flows.rules, flows.path, spared, flows.fresh
        for name in TcpFlows.KEPT:
            setattr(self, name, getattr(flows, name).copy())
        count = len(self.window)
        self.who = np.arange(count)
        self.left = np.full(count, float(self._path.packets))
        self.gap = gaps(self.who)
        self.time_s, self.free_s, self.repaired_s = (np.zeros(count) for _ in range(3))
        self.clock, self.absorbed, self.pending, self.since, self.kept = (np.zeros(count) for _ in range(5))
        self.probing, self.limited = np.zeros(count, bool), np.zeros(count, bool)
        if flows.fresh:
            first = self._rules.first_window_bytes // self._path.segment_bytes
            self.window = np.minimum(self.window, max(1.0, first))
        self.head = self._permitted()

    def keep(self, kept: Flags) -> None:
        """Forget the other flows."""
        for name in (*self._OWN, *TcpFlows.KEPT):
            setattr(self, name, getattr(self, name)[kept])

    def store(self, flows: TcpFlows, done: Flags) -> None:
        """Give flows that are done back what their connections keep."""
        who = self.who[done]
        for name in TcpFlows.KEPT:
            getattr(flows, name)[who] = getattr(self, name)[done]
        flows.window[who] = np.where(self.pending > 0, self.pending, self.window)[done]
        flows.probed[who] = self.probing[done]

    def round(self, gaps: Gaps, *, first: bool) -> tuple[Flags, Array]:
        """Send a window; return which flows are done with it, and when their last packet arrives."""
        path = self._path
        sent = np.minimum(self._permitted(), self.left)
        limited = self.left > sent
        lost = self._losses(gaps, np.minimum(self.absorbed, sent))
        lossy = self.gap < sent
        place = np.where(lossy, self.gap, sent)
        last = place.copy()
        lost += self._losses(gaps, sent, last)
        self.gap -= sent
        self.left += lost - sent
        silent = lossy & (self.left == lost) & (last >= sent - 1)  # nothing comes behind it
        if self._spared and np.any(silent):
            spared = silent & ((lost == 1) | (self.pending > 0))
            lost, self.left = lost - spared, self.left - spared
            place = np.where(spared & (lost == 0), sent, place)
            lossy, silent = lossy & (place < sent), silent & ~spared
        dropped, full_at = self._overflow(sent)
        dropped[silent] = 0.0
        if np.any(dropped):
            full = dropped > 0
            lost, self.left = lost + dropped, self.left + dropped
            last = np.where(full, np.maximum(np.where(lossy, last, 0.0), np.minimum(self.head, sent) - 1), last)
            full &= full_at >= self.absorbed
            place = np.where(full, np.minimum(place, full_at), place)
            lossy |= full
        first_s = np.maximum(self.time_s, self.free_s)
        self.free_s = first_s + (sent - dropped) * path.packet_s
        times_s = np.maximum(self.free_s, self.repaired_s + path.packet_s)
        acked, late = self._acknowledged(sent, lossy & ~silent, place, last)
        sending = Round(first_s, sent, limited, lost, dropped, full_at, lossy, place, last, acked, late)
        begun_s = self.time_s
        silent = self._pass_time(sending, silent)
        self._next_window(sending._replace(lossy=lossy & ~silent), self.time_s - begun_s, first=first)
        return self.left <= 0, times_s + path.rtt_s / 2 - path.short_s

    def _permitted(self) -> Array:
        """Return how many packets the window lets go; what the peer keeps back is still under way."""
        return np.asarray(np.maximum(np.floor(self.window) - self.kept, 1.0))

    def _losses(self, gaps: Gaps, stop: Array, last: Array | None = None) -> Array:
        """Count the losses among the round's packets below `stop`; note the place of the last."""
        lost = np.zeros(len(self.who))
        while len(hit := np.flatnonzero(self.gap < stop)):
            lost[hit] += 1
            if last is not None:
                last[hit] = self.gap[hit]
            self.gap[hit] += 1 + gaps(self.who[hit])
        return lost

    def _overflow(self, sent: Array) -> tuple[Array, Array]:
        """Return how many of the round's packets find the queue full, and the place of the first of them.

        Of packets that leave as acknowledgements come, the share that these exceed them by queues. Where both
        directions send, all but the last half round trip's acknowledgements come at once, and what they let go queues.
        """
        path = self._path
        waiting = np.maximum(self.free_s - self.time_s, 0.0) / path.packet_s
        head = np.minimum(self.head, sent)
        let_go = self.head / np.maximum(self.clock, 1e-9)  # by one acknowledgement
        queues = np.maximum(1.0 - 1.0 / let_go, 0.0)
        room = np.maximum(path.queue_packets - waiting - np.where(self.clock > 0, queues * BY_ONE_ACK, 0.0), 1.0)
        at_once = np.zeros(len(sent))
        if path.both_ways:
            at_once = np.minimum(np.maximum(self.clock - path.bdp_packets / 2, 0.0) * let_go, head)
        dropped = np.maximum(np.ceil(at_once + (head - at_once) * queues - room), 0.0)
        full_at = np.where(room < at_once, room, at_once + (room - at_once) / np.maximum(queues, 1e-9))
        return dropped, np.minimum(np.floor(full_at), sent - 1)

    def _acknowledged(self, sent: Array, lossy: Flags, place: Array, last: Array) -> tuple[Array, Array]:
        """Return how many packets are acknowledged before a loss shows, and how many of them late; note what is not.

        The peer acknowledges by twos, so of an odd number since the last loss or pause it keeps one back until the next
        packet comes, or until it has waited for long enough.
        """
        pauses = self._path.rtt_s - sent * self._path.packet_s > self._rules.delayed_ack_s
        self.since = np.where(lossy, sent - last, np.where(pauses, 0.0, self.since) + sent)
        at_once = pauses | lossy | (self._fresh & (self.since < self._rules.quick_acks))
        kept = np.where(at_once, 0.0, self.since % 2)
        acked = place + np.where(pauses, 0.0, self.kept) - kept
        self.kept = kept
        return np.maximum(acked, 0.0), np.where(pauses, place % 2, 0.0)

    def _pass_time(self, sending: Round, silent: Flags) -> Flags:
        """Let the round pass, or what it takes to see what is lost; return where only a probe mends it."""
        rules, rtt_s, packet_s = self._rules, self._path.rtt_s, self._path.packet_s
        first_s, sent, lost, last = sending.first_s, sending.sent, sending.lost, sending.last
        full = sending.dropped > 0
        self.time_s = self._answered_s(first_s, 2.0)
        shown_s = self._answered_s(first_s, last - sending.dropped + 1 + SHOWN_BY)
        self.repaired_s = np.where(sending.lossy | full, shown_s, 0.0)
        end = (self.left == lost) & (lost > 0)
        if not np.any(end):
            return silent
        recovering = self.pending > 0
        waits_s = np.where((last >= sent - SHOWN_BY) & ~recovering, REORDERING_RTTS * rtt_s, SHOWN_BY * packet_s)
        probed = silent & (lost == 1) & ~recovering & ~self.probing
        if np.any(silent):
            timed_out = silent & (recovering | self.probing)
            waits_s[silent] = rtt_s  # an earlier repair comes first, and shows it
            at_once_s, kept_back_s = rules.probe_s(rtt_s)
            waits_s[probed] = np.where(self.since % 2 == 0, kept_back_s, at_once_s)[probed] - rtt_s
            waits_s[timed_out] = rules.timeout_s(rtt_s) - rtt_s
            self.ssthresh[timed_out] = np.maximum(rules.beta * self.window, LEAST_WINDOW_SEGMENTS)[timed_out]
            self.window[timed_out] = 1.0
            self.pending[timed_out] = 0.0
            self.probing = (self.probing | probed) & ~timed_out
            silent = probed | timed_out
        shown_s = self._answered_s(first_s, np.where(full, sending.full_at + 1, last + 2 - lost)) + waits_s
        self.time_s = np.where(end, shown_s, self.time_s)
        self.repaired_s[end & ~full] = 0.0
        return silent

    def _answered_s(self, first_s: Array, packets: ArrayLike) -> Array:
        """Return when the acknowledgement of so many packets of the round comes, the first of which left at `first_s`.

        Where the other direction sends too, it waits behind what that has queued, which is as much as here.
        """
        half_s = self._path.rtt_s / 2
        arrived_s = first_s + packets * self._path.packet_s + half_s
        return np.asarray((np.maximum(arrived_s, self.free_s) if self._path.both_ways else arrived_s) + half_s)

    def _next_window(self, sending: Round, round_s: Array, *, first: bool) -> None:
        rules, lossy, limited, place = self._rules, sending.lossy, sending.limited, sending.place
        self._pay_for_probe()
        recovering = self.pending > 0
        slow = (self.window < self.ssthresh) & ~recovering
        if first:  # the first receive window, which follows what has arrived, holds it back
            grown = np.minimum(self.window + 5.0, rules.initial_window_segments + 2.0)
        else:
            held_back = limited | self.limited  # until the message's end left
            grown = self._grown(sending, np.where(held_back & ~recovering, sending.acked, 0.0), slow, round_s)
        self.limited = limited
        self.clock = sending.sent - sending.dropped
        if not np.any(lossy | recovering):
            self.window = grown
            self.head = self._permitted()
            return
        base = np.where(recovering, self.pending, grown)
        reduced = np.maximum(rules.beta * base, LEAST_WINDOW_SEGMENTS)
        self._reduce(lossy, base)
        self.ssthresh = np.where(lossy, reduced, self.ssthresh)
        opened = np.where(limited, place * np.where(slow & (not first), 2.0, 1.0), 0.0)
        fresh = np.maximum(self.left - sending.lost, 0.0)
        share = np.where(limited & (fresh > opened), reduced / base, 1.0)  # all, where less than ssthresh is under way
        opened = np.minimum(opened, fresh)
        behind = np.maximum(sending.sent - place - sending.dropped, 0.0)
        following = np.where(recovering, self.pending, grown)
        self.window = np.maximum(np.where(lossy, opened + behind * share, following), 1.0)
        self.clock = np.where(lossy, place, self.clock)
        self.head = np.where(lossy, np.maximum(opened, 1.0), self._permitted())
        self.absorbed = np.where(lossy, opened, 0.0)
        self.pending = np.where(lossy, reduced, 0.0)

    def _pay_for_probe(self) -> None:
        """Reduce the window that the first acknowledgement finds where a probe mended the end of the last message."""
        if np.any(self.probed):
            reduced = np.maximum(self._rules.beta * self.window, LEAST_WINDOW_SEGMENTS)
            self._reduce(self.probed, self.window)
            self.ssthresh = np.where(self.probed, reduced, self.ssthresh)
            self.window = np.where(self.probed, reduced, self.window)
            self.probed = np.zeros(len(self.who), bool)

    def _reduce(self, reduces: Flags, base: Array) -> None:
        """Note what an algorithm keeps of the window before it was reduced."""
        if self._rules.cubic:
            peak = np.where(base < self.most, base * (1 + self._rules.beta) / 2, base)  # RFC 9438 §4.7
            self.most = np.where(reduces, peak, self.most)
            self.age_s[reduces] = -1.0
        else:
            self.counted[reduces] = 0.0

    def _grown(self, sending: Round, acked: Array, slow: Flags, round_s: Array) -> Array:
        """Return the window after acknowledgements of `acked` packets, in slow start or above it."""
        window, rest = self.window, acked
        if np.any(slow):
            opened = np.maximum(acked - sending.late, 0.0)
            if self._rules.cubic:
                opened = np.minimum(opened, self._judge(sending.sent, acked, slow) - window)
            taken = np.where(slow, np.minimum(opened, self.ssthresh - window), 0.0)
            window = window + taken
            rest = np.where(window >= self.ssthresh, acked - taken, 0.0)
        if self._rules.cubic:
            self.age_s += np.where(self.age_s >= 0, np.minimum(acked / self.window, 1.0) * round_s, 0.0)
            return self._along_cubic(window, rest, round_s)
        return self._by_count(window, rest)

    def _judge(self, sent: Array, acked: Array, slow: Flags) -> Array:
        """Let HyStart end slow start: where the acknowledgements' train is long, or a queue delays them.

        Where both directions send, what would be a long train comes at once, and late.
        """
        path = self._path
        judged = slow & self.hystart & (self.window + acked >= LOW_WINDOW_SEGMENTS)
        delay_s = min(max(path.rtt_s / DELAY_DIVISOR, MIN_DELAY_S), MAX_DELAY_S)
        if path.both_ways:
            shown_after: float = 2 * N_SAMPLES
            ends = judged & ((sent - N_SAMPLES) * path.packet_s > path.rtt_s / 2 + delay_s)
        elif 2 * path.packet_s <= TRAIN_GAP_S:
            shown_after = (path.rtt_s + TRAIN_GAP_S) / 2 / path.packet_s
            ends = judged & (acked > shown_after)
        else:
            shown_after = N_SAMPLES
            ends = judged & (self.window >= path.bdp_packets + delay_s / path.packet_s)
        left_at = np.where(ends, self.window + shown_after, np.inf)
        self.ssthresh = np.where(ends, np.minimum(left_at, self.ssthresh), self.ssthresh)
        self.hystart &= ~ends
        return left_at

    def _by_count(self, window: Array, acked: Array) -> Array:
        """Return the window after one segment more per window that is acknowledged (RFC 5681 §3.1, RFC 3465 §2.1)."""
        self.counted += acked
        more = (self.counted >= window) & (acked > 0)
        self.counted = np.where(more, self.counted - window, self.counted)
        return np.asarray(window + more)

    def _along_cubic(self, window: Array, acked: Array, round_s: Array) -> Array:
        """Return the window along the cubic, or as Reno's where that is more (RFC 9438 §4.2 to §4.5)."""
        avoiding = acked > 0
        starts = avoiding & (self.age_s < 0)
        if np.any(starts):
            self.most = np.where(starts, np.maximum(self.most, window), self.most)
            self.turn_s = np.where(starts, np.cbrt((self.most - window) / C), self.turn_s)
            self.estimate = np.where(starts, window, self.estimate)
            self.age_s = np.where(starts, np.minimum(acked / window, 1.0) * round_s, self.age_s)
        self.estimate += self._rules.friendly * np.minimum(acked / window, 1.0)
        curve = C * (self.age_s - self.turn_s) ** 3 + self.most
        wanted = np.minimum(np.maximum(curve, self.estimate), window + acked / 2)
        return np.where(avoiding, np.maximum(wanted, window), window)
