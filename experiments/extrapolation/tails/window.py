"""The completion of a message over TCP as a distribution: by how many packets are lost, exactly, and where, by sample.

How many of a message's packets are lost is Poisson, and its far tail is what the slowest of millions of flows is made
of; so F(t) = sum_k P(k losses) G_k(t), where G_k is the distribution with exactly k losses, their places uniform. A
connection whose last packet was lost, which nothing but a probe could show, begins its next messages with a small
window; that is as rare, and decides the tail as much, so it is told apart by how many messages ago that was. Each G_k
comes from a sample of its own (stratified sampling: Cochran, "Sampling Techniques", chapter 5).

A message that loses more than `MOST_EXACT` packets is a sum over so many intervals between losses that three moments
are enough: the gamma distribution, shifted, that has the mean, variance and skewness of a sample (Bowers et al.,
"Actuarial Mathematics", 1997, section 12.5), by Wilson and Hilferty's approximation of its quantiles.
"""

from dataclasses import dataclass
from math import ceil, erfc, exp, expm1, lgamma, log, log1p, sqrt

import numpy as np
import numpy.typing as npt

from bicoastal.experiments.extrapolation.tails.model import Array, Crossing
from bicoastal.experiments.extrapolation.tails.pointwise import Distribution, PointwiseModel, from_atoms
from bicoastal.experiments.extrapolation.tails.rounds import send
from bicoastal.experiments.extrapolation.tails.tcp import Flags, Gaps, Indices, TcpFlows, TcpPath, TcpRules
from bicoastal.transports.tcp.segment import IP_HEADER_BYTES, TCP_HEADER_BYTES, TIMESTAMPS_BYTES

Places = npt.NDArray[np.int64]

MOST_EXACT = 24.0  # expected losses up to which their number is told apart
LEAST_WEIGHT = 1e-13  # what is less likely than that is left out
LEAST_FLOWS = 4  # that stand for what is unlikely
SHORT_PACKETS, LONG_FLOWS = 2000, 2048  # up to which a message gets all flows, and what the longest get
MOMENTS_FLOWS = 1024  # whose three moments stand for a message with many losses
TAILS_WEIGHT = 0.4  # exponent of a probability by which flows are given to it
LEAST_WARM_UP, MOST_WARM_UP = 1, 20  # messages before the one that counts, of a connection that is settled
SETTLED_LOSSES = 8.0  # in the course of which a connection forgets how it began
AFTER_PROBE = 12  # messages that a probe's window is told apart for
FARTHEST, NODES = 8.2, 400  # standard deviations that a sum over many losses is followed, in as many steps
LEAST_SKEWNESS = 0.02  # below which a sum over many losses is as good as normal
SPARE = 8
TOGETHER = 8192  # flows whose arrays fit a second-level cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Tcp(PointwiseModel):
    """TCP with slow start, SACK, RACK-TLP and PRR, as `TcpRules` has it.

    settled: the connection has carried messages before and lost packets, as in a training that runs for long;
    otherwise it is fresh, or has carried from 1 to `history` messages, each number as often as any other.
    samples: flows that stand for all. queue_bdp: the bottleneck's queue in BDP. seed: of the places. both_ways: the
    message is one of an exchange, and as much crosses in the other direction at the same time; else the path has no
    other traffic. That matters where the window is longer than half a round trip.
    """

    name: str
    source: str
    rules: TcpRules
    header_bytes: int = IP_HEADER_BYTES + TCP_HEADER_BYTES + TIMESTAMPS_BYTES
    settled: bool = True
    history: int = 0
    samples: int = 8192
    queue_bdp: float = 1.0
    seed: int = 7
    both_ways: bool = True
    spreads: bool = False

    def path(self, crossing: Crossing) -> TcpPath:
        """Return what a flow meets, from a crossing of scalars."""
        packets = int(crossing.packets(self.header_bytes))
        packet_s, rtt_s = float(crossing.packet_s()), float(crossing.rtt_s)
        room = crossing.mtu_bytes - self.header_bytes
        missing = packets * room - float(crossing.payload_bytes)
        return TcpPath(
            packets=packets,
            packet_s=packet_s,
            rtt_s=rtt_s,
            queue_packets=max(self.queue_bdp * rtt_s / packet_s, 1.0),
            segment_bytes=room,
            short_s=8 * missing / float(crossing.rate_bps),
            both_ways=self.both_ways,
        )

    def start(
        self, crossing: Crossing, flows: int, rng: np.random.Generator, since: Places | None = None
    ) -> tuple[TcpFlows, Array]:
        """Return flows before the message that counts, and what each of them weighs.

        since: how many messages ago the last packet of one was lost, 0: not as far back as is told apart. Without it
        that is left to chance, as all other losses are, and all flows weigh the same.
        """
        made = TcpFlows(self.rules, self.path(crossing), flows)
        tail_loss = _silent_loss(crossing)
        messages = self.warm_up(crossing) if self.settled else self.history
        before = np.full(flows, messages) if self.settled else np.arange(flows) % max(messages, 1) + 1
        packets = messages * float(made.path.packets)
        losses = _Losses(float(crossing.loss), rng, flows, likely=1 / packets if since is not None else 0.0)
        if self.settled and tail_loss > 0:
            made.settle(self._at_rest(made.path))
            made.rest(crossing.idle_s)
        for number in range(messages):
            which = before > number
            send(made, losses.gaps, which=which, spared=True)
            ago = messages - number
            lost: Flags = which & (rng.random(flows) < tail_loss)
            if since is not None:
                lost = np.where(ago > np.where(since > 0, since, AFTER_PROBE), lost, since == ago)
            made.probed |= lost
            made.rest(crossing.idle_s, which=which)
        return made, losses.weights(packets, messages)

    def _at_rest(self, path: TcpPath) -> float:
        """Return the ssthresh that a connection comes to rest at where it loses nothing any more."""
        if self.rules.cubic:  # the older its stage, the steeper its cubic, until all of a message is slow start
            return min(float(path.packets), path.full_packets)
        # a window that grows by one per round trip is w = 4/3 ssthresh after n packets, of which idle time leaves 3/4
        return sqrt(18 * path.packets / 7)

    def warm_up(self, crossing: Crossing) -> int:
        """Return how many messages settle a connection."""
        losses = float(crossing.packets(self.header_bytes)) * float(crossing.loss)
        return max(min(ceil(SETTLED_LOSSES / max(losses, 1e-9)), MOST_WARM_UP), LEAST_WARM_UP)

    def trials(self, crossing: Crossing, trials: int, rng: np.random.Generator) -> Array:
        """Return the completion of `trials` messages whose losses are drawn one by one, seconds."""
        parts = []
        for begin in range(0, trials, TOGETHER):
            flows, _ = self.start(crossing, min(TOGETHER, trials - begin), rng)
            parts.append(send(flows, random_gaps(float(crossing.loss), rng)))
        return np.concatenate(parts)

    def distribution(self, crossing: Crossing) -> Distribution:
        """Return the distribution at one point."""
        rng = np.random.default_rng(self.seed)
        packets, loss = float(crossing.packets(self.header_bytes)), float(crossing.loss)
        if loss == 0 and not float(crossing.tail_loss):
            histories = 1 if self.settled else max(self.history, 1)
            return from_atoms(
                send(self.start(crossing, histories, rng)[0], no_losses), np.full(histories, 1 / histories)
            )
        if packets * loss <= MOST_EXACT:
            times_s, shares = self._by_count(crossing, rng)
        else:
            flows, _ = self.start(crossing, min(self.samples, MOMENTS_FLOWS), rng)
            times_s, shares = _of_moments(send(flows, random_gaps(loss, rng), spared=True))
        delays_s, odds = self._silences(crossing)
        return from_atoms((times_s[:, None] + delays_s).ravel(), (shares[:, None] * odds).ravel())

    def _silences(self, crossing: Crossing) -> tuple[Array, Array]:
        """Return by how much losses at the very end, which only silence shows, delay a message; and how likely."""
        packets, loss, rtt_s = float(crossing.packets(self.header_bytes)), float(crossing.loss), float(crossing.rtt_s)
        at_once_s, kept_back_s = self.rules.probe_s(rtt_s)
        # without loss or pause the peer acknowledges by twos from the message's first packet on
        clean = exp(-packets * loss) if rtt_s < self.rules.delayed_ack_s else 0.0
        even = clean * (packets % 2 == 0) + (1 - clean) / 2
        first = _silent_loss(crossing)
        # half of the window that a connection ends with: what it grows to in a message, or what losses leave it
        # (Mathis et al., CCR 27(3), 1997)
        last = min(packets, sqrt(32 * packets / 7), sqrt(1.5 / loss) if loss else packets) / 2
        again = loss * -expm1(last * log1p(-loss))  # a repair in the last round trip
        timeout_s = self.rules.timeout_s(rtt_s)
        kinds = [
            (at_once_s, first * (1 - even) * (1 - loss)),
            (kept_back_s, first * even * (1 - loss)),
            (at_once_s + timeout_s, first * loss),
            (timeout_s, again),
        ]
        delays_s, odds = np.array([0.0, *(delay for delay, _ in kinds)]), np.array([0.0, *(odd for _, odd in kinds)])
        odds[0] = 1 - odds.sum()
        return delays_s[odds > 0], odds[odds > 0]

    def _by_count(self, crossing: Crossing, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return completions and their probabilities, sampled for each number of losses, silence at the end apart."""
        loss, silent = float(crossing.loss), _silent_loss(crossing)
        packets = int(crossing.packets(self.header_bytes))
        # more than are ever sent, repairs included: places that are not reached change nothing
        length = ceil(packets / (1 - loss) + SPARE * (1 + sqrt(packets * loss)))
        counts, weights = _poisson(length * loss)
        told = min(AFTER_PROBE, self.warm_up(crossing)) if self.settled else 0
        ages = np.arange(told + 1)
        rare = np.where(ages > 0, silent * (1 - silent) ** (ages - 1.0), (1 - silent) ** told)
        cells = np.outer(rare, weights).ravel()
        cells[cells < LEAST_WEIGHT] = 0.0
        parts = cells**TAILS_WEIGHT  # more for what is rare than it weighs: that is where tails are
        # a long message has fewer steps, and takes more rounds to follow
        flows = max(self.samples * min(sqrt(SHORT_PACKETS / packets), 1.0), min(self.samples, LONG_FLOWS))
        sizes = np.where(cells > 0, np.maximum(flows * parts / parts.sum(), LEAST_FLOWS).round(), 0).astype(int)
        lost = np.repeat(np.tile(counts, told + 1), sizes)
        order = np.concatenate([np.arange(size) for size in sizes])
        since = np.repeat(np.repeat(ages, len(counts)), sizes) if told else None
        begun, heavy = self.start(crossing, len(lost), rng, since)
        gaps = _placed(lost, (order + rng.random(len(lost))) / np.repeat(sizes, sizes), length, rng)
        cell = np.repeat(np.arange(len(sizes)), sizes)
        shares = cells[cell] * heavy / np.bincount(cell, heavy)[cell]
        return send(begun, gaps, spared=True), shares / shares.sum()


class _Losses:
    """Losses before the message that counts, drawn more often than they are: at least with probability `likely`.

    Where they are rare, a connection that has not yet recovered from one is what a far tail is made of. Flows are
    weighed by the ratio of the probabilities (importance sampling).
    """

    def __init__(self, loss: float, rng: np.random.Generator, flows: int, *, likely: float) -> None:
        self._loss, self._drawn = loss, max(loss, likely if loss else 0.0)
        self._next = random_gaps(self._drawn, rng)
        self._counted = np.zeros(flows)

    def gaps(self, who: Indices) -> Array:
        """Return how many packets pass before each flow's next loss."""
        self._counted[who] += 1
        return self._next(who)

    def weights(self, packets: float, messages: int) -> Array:
        """Return what each flow weighs after so many packets in so many messages, each of which begins with a gap."""
        if self._drawn == self._loss:
            return np.ones(len(self._counted))
        lost = self._counted - messages  # each is sent once more
        return np.asarray(
            np.exp(lost * log(self._loss / self._drawn) + packets * (log1p(-self._loss) - log1p(-self._drawn)))
        )


def random_gaps(loss: float, rng: np.random.Generator) -> Gaps:
    """Return the gaps between independent losses."""
    if loss <= 0:
        return no_losses

    def gaps(who: Indices) -> Array:
        return rng.geometric(loss, len(who)).astype(float) - 1.0

    return gaps


def no_losses(who: Indices) -> Array:
    """Return gaps without end."""
    return np.full(len(who), 1e18)


def _placed(lost: Places, even: Array, length: int, rng: np.random.Generator) -> Gaps:
    """Return the gaps of flows of which each loses exactly so many of `length` packets.

    The first place, which matters most, is where its distribution, 1 - (1 - x)^count, is `even`, and the others lie
    anywhere behind it: so a single loss is not left to chance.
    """
    most = max(int(lost.max()), 1)
    places = rng.random((len(lost), most))
    first = -np.expm1(np.log1p(-even) / np.maximum(lost, 1))
    places = first[:, None] + (1 - first[:, None]) * places
    places[:, 0] = first
    places[np.arange(most) >= lost[:, None]] = np.inf
    places = np.sort(np.floor(places * length), axis=1)
    places = np.concatenate((places, np.full((len(lost), 1), np.inf)), axis=1)
    steps = np.diff(np.minimum(places, 1e18), axis=1, prepend=-1.0) - 1.0
    steps = np.where(np.isfinite(places), np.maximum(steps, 0.0), 1e18)
    taken = np.zeros(len(lost), np.int64)

    def gaps(who: Indices) -> Array:
        found = steps[who, np.minimum(taken[who], most)]
        taken[who] += 1
        return np.asarray(found)

    return gaps


def _silent_loss(crossing: Crossing) -> float:
    """Return the probability that a message's last packet is lost at its first transmission."""
    return 1 - (1 - float(crossing.loss)) * (1 - float(crossing.tail_loss))


def _poisson(mean: float) -> tuple[Places, Array]:
    """Return the numbers with a probability worth keeping, and their probabilities, which sum to one."""
    if mean <= 0:
        return np.zeros(1, np.int64), np.ones(1)
    reach = 8 * sqrt(mean) + 14
    counts = np.arange(max(0, int(mean - reach)), ceil(mean + reach) + 1)
    logs = np.array([count * log(mean) - mean - lgamma(count + 1) for count in counts])
    weights = np.exp(logs)
    kept = weights > LEAST_WEIGHT
    return counts[kept], weights[kept] / weights[kept].sum()


def _of_moments(sample: Array) -> tuple[Array, Array]:
    """Return values and their probabilities, of the shifted gamma distribution with a sample's three moments."""
    mean, spread = float(sample.mean()), float(sample.std())
    edges = np.linspace(-FARTHEST, FARTHEST, NODES + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    upper = middles > 0  # a tail's probability as such, not as what another lacks of one
    near = np.where(upper, edges[:-1], -edges[1:])
    far = np.where(upper, edges[1:], -edges[:-1])
    shares = np.array([(erfc(a / sqrt(2)) - erfc(b / sqrt(2))) / 2 for a, b in zip(near, far, strict=True)])
    skewness = float(np.mean((sample - mean) ** 3)) / max(spread, 1e-300) ** 3
    if skewness > LEAST_SKEWNESS:
        shape = 4 / skewness**2
        cube = np.clip(1 - 1 / (9 * shape) + middles / (3 * sqrt(shape)), 0.0, None) ** 3
        middles = (shape * cube - shape) / sqrt(shape)
    return mean + spread * middles, shares / shares.sum()
