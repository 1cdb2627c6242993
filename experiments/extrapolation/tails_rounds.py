"""TCP round by round: slow start, congestion avoidance, fast recovery and the tail loss probe, for many flows at once.

A window of w packets leaves per round trip, or per w packet times where that is longer. A round without loss doubles
the window below ssthresh (RFC 5681 §3.1 with RFC 3465, L = 2) and above it lets it grow as the algorithm says: by one
(Reno) or along the cubic of RFC 9438 §4.2 to §4.4. It grows as long as it, not the end of the message, holds the sender
back. Where a round loses packets, those before the first loss still open the window, those behind it are answered by
PRR (RFC 9937) with a share of beta; what is lost before the loss is known belongs to the same episode. Then the window
is beta of what it was, however little of it was in use.

In the last round nothing may be left to show a loss: one of the last three packets waits a quarter of a round trip for
that (RFC 8985 §6.2), the last one for a probe (§7.2), which the next message pays for with a window that an idle time
has decayed (§7.4.2); and in recovery, which knows no probe, it waits for the RTO.
"""

import numpy as np

from experiments.extrapolation.tails import Array
from experiments.extrapolation.tails_tcp import REORDERING, Flags, Gaps, TcpFlows

C = 0.4  # segments / s³, RFC 9438 §5.1
LEAST_WINDOW = 2.0  # segments that a reduction leaves (RFC 5681 §3.1 equation 4)
SHOWN_BY = 3  # later packets that show a loss without a reordering window
MOST_ROUNDS = 1_000_000
# Linux's HyStart: how close acknowledgements follow in a train, the window below which nothing is judged, the delay
# that shows a queue and how many round trips are looked at (`transports.congestion.ack_train`).
TRAIN_GAP_S, LOW_WINDOW = 0.002, 16.0
DELAY_LEAST_S, DELAY_MOST_S, DELAY_SHARE, DELAY_SAMPLES = 0.004, 0.016, 8, 8.0


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


class Burst:
    """The flows that are still sending, one element of each array for each.

    who: their indices. left: packets to send, again or for the first time. gap: packets before the next loss.
    absorbed: packets of this round whose loss belongs to the episode before. pending: the window after this round, if
    this is the round of a recovery, else 0. repaired_s: when the last repair of the round before left. since: packets
    since the last loss or pause, which the peer acknowledges by twos. probing: a probe mends the message's end.
    """

    _OWN = ("who", "left", "gap", "time_s", "absorbed", "pending", "repaired_s", "since", "probing")
    __slots__ = (*_OWN, *TcpFlows.KEPT, "_path", "_rules", "_spared")

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
        self._rules, self._path, self._spared = flows.rules, flows.path, spared
        for name in TcpFlows.KEPT:
            setattr(self, name, getattr(flows, name).copy())
        count = len(self.window)
        self.who = np.arange(count)
        self.left = np.full(count, float(self._path.packets))
        self.gap = gaps(self.who)
        self.time_s, self.absorbed, self.pending, self.repaired_s, self.since = (np.zeros(count) for _ in range(5))
        self.probing = np.zeros(count, bool)
        if flows.fresh:
            first = self._rules.first_window_bytes // self._path.segment_bytes
            self.window = np.minimum(self.window, max(1.0, first))

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
        sent = np.minimum(np.maximum(np.floor(self.window), 1.0), self.left)
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
        times_s = np.maximum(self.time_s + sent * path.packet_s, self.repaired_s + path.packet_s)
        idle_s = path.rtt_s - sent * path.packet_s
        paired = np.where(idle_s > self._rules.delayed_ack_s, 0.0, self.since)  # else what was kept back has gone
        self.since = np.where(lossy & ~silent, sent - last, paired + sent)
        silent = self._pass_time(sent, lost, lossy, last, silent)
        self._next_window(sent, limited, lossy & ~silent, place, lost, first=first)
        return self.left <= 0, times_s + path.rtt_s / 2 - path.short_s

    def _losses(self, gaps: Gaps, stop: Array, last: Array | None = None) -> Array:
        """Count the losses among the round's packets below `stop`; note the place of the last."""
        lost = np.zeros(len(self.who))
        while len(hit := np.flatnonzero(self.gap < stop)):
            lost[hit] += 1
            if last is not None:
                last[hit] = self.gap[hit]
            self.gap[hit] += 1 + gaps(self.who[hit])
        return lost

    def _pass_time(self, sent: Array, lost: Array, lossy: Flags, last: Array, silent: Flags) -> Flags:
        """Let the round pass, or what it takes to see what is lost; return where only a probe mends it."""
        rules, rtt_s, packet_s = self._rules, self._path.rtt_s, self._path.packet_s
        begun_s, round_s = self.time_s, np.maximum(rtt_s + 2 * packet_s, sent * packet_s)
        doubles = self.window < self.ssthresh  # what leaves at twice the rate of acknowledgements queues
        held_s = np.clip(sent * packet_s - rtt_s / 2, 0.0, rtt_s / 2)
        self.time_s = begun_s + np.maximum(round_s, np.where(doubles, rtt_s + held_s, 0.0))
        self.repaired_s = np.where(lossy, begun_s + rtt_s + (last + 1 + SHOWN_BY) * packet_s, 0.0)
        end = (self.left == lost) & (lost > 0)
        if not np.any(end):
            return silent
        recovering = self.pending > 0
        waits_s = np.full(len(lost), rtt_s)
        waits_s += np.where((last >= sent - SHOWN_BY) & ~recovering, REORDERING * rtt_s, SHOWN_BY * packet_s)
        probed = silent & (lost == 1) & ~recovering & ~self.probing
        if np.any(silent):
            timed_out = silent & (recovering | self.probing)
            waits_s[silent] = 2 * rtt_s  # an earlier repair comes first, and shows it
            at_once_s, kept_back_s = rules.probe_s(rtt_s)
            waits_s[probed] = np.where(self.since % 2 == 0, kept_back_s, at_once_s)[probed]
            waits_s[timed_out] = rules.timeout_s(rtt_s)
            self.ssthresh[timed_out] = np.maximum(rules.beta * self.window, LEAST_WINDOW)[timed_out]
            self.window[timed_out] = 1.0
            self.pending[timed_out] = 0.0
            self.probing = (self.probing | probed) & ~timed_out
            silent = probed | timed_out
        self.time_s = np.where(end, begun_s + waits_s + (last + 2 - lost) * packet_s, self.time_s)
        self.repaired_s[end] = 0.0
        return silent

    def _next_window(
        self, sent: Array, limited: Flags, lossy: Flags, place: Array, lost: Array, *, first: bool
    ) -> None:
        rules, full = self._rules, self._path.full_packets
        round_s = np.maximum(self._path.rtt_s, sent * self._path.packet_s)
        self._pay_for_probe()
        recovering = self.pending > 0
        slow = (self.window < self.ssthresh) & ~recovering
        overflow = ~lossy & limited & (sent > full)
        if first:  # the first receive window, which follows what has arrived, holds it back
            grown = np.minimum(self.window + 5.0, rules.initial_window + 2.0)
        else:
            grown = self._grown(np.where(limited & ~recovering, place, 0.0), slow, round_s)
        reduces = lossy | overflow
        if not np.any(reduces | recovering):
            self.window = grown
            return
        base = np.where(recovering, self.pending, np.where(overflow, np.where(slow, 2.0, 1.0) * full, grown))
        reduced = np.maximum(rules.beta * base, LEAST_WINDOW)
        self._reduce(reduces, base)
        self.left += np.where(overflow & slow, np.maximum(sent - full, 0.0), 0.0)  # what did not fit goes again
        self.ssthresh = np.where(reduces, reduced, self.ssthresh)
        following = np.where(overflow, reduced, np.where(recovering, self.pending, grown))
        opened = np.where(limited, place * np.where(slow & (not first), 2.0, 1.0), 0.0)
        share = np.where(limited, reduced / base, 1.0)
        self.window = np.maximum(np.where(lossy, opened + (sent - place) * share, following), 1.0)
        self.absorbed = np.where(lossy, np.clip(self.left - lost, 0.0, opened), 0.0)
        self.pending = np.where(lossy, reduced, 0.0)

    def _pay_for_probe(self) -> None:
        """Reduce the window that the first acknowledgement finds where a probe mended the end of the last message."""
        if np.any(self.probed):
            reduced = np.maximum(self._rules.beta * self.window, LEAST_WINDOW)
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

    def _grown(self, acked: Array, slow: Flags, round_s: Array) -> Array:
        """Return the window after acknowledgements of as many packets, in slow start or above it."""
        window, rest = self.window, acked
        if np.any(slow):
            opened = acked - acked % 2  # an odd one is acknowledged late
            if self._rules.cubic:
                opened = np.minimum(opened, self._judge(acked, slow) - window)
            taken = np.where(slow, np.minimum(opened, self.ssthresh - window), 0.0)
            window = window + taken
            rest = np.where(window >= self.ssthresh, acked - taken, 0.0)
        if self._rules.cubic:
            self.age_s += np.where(self.age_s >= 0, np.minimum(acked / self.window, 1.0) * round_s, 0.0)
            return self._along_cubic(window, rest, round_s)
        return self._by_count(window, rest)

    def _judge(self, acked: Array, slow: Flags) -> Array:
        """Let HyStart end slow start: where the acknowledgements' train is long, or a queue delays them."""
        path = self._path
        judged = slow & self.hystart & (self.window + acked >= LOW_WINDOW)
        if 2 * path.packet_s <= TRAIN_GAP_S:
            shown_after = (path.rtt_s + TRAIN_GAP_S) / 2 / path.packet_s
            ends = judged & (acked > shown_after)
        else:
            delay_s = min(max(path.rtt_s / DELAY_SHARE, DELAY_LEAST_S), DELAY_MOST_S)
            shown_after = DELAY_SAMPLES
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
