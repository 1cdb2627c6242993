"""The completion of a message over TCP as a distribution: by how many packets are lost, exactly, and where, by sample.

How many of a message's packets are lost is Poisson, and its far tail is what the slowest of millions of flows is made
of; so F(t) = sum_k P(k losses) G_k(t), where G_k is the distribution with exactly k losses, their places uniform. G_k
comes from a fixed sample that `tails_tcp` computes without chance; beyond `MOST_EXACT` expected losses only every so
many k are sampled and G_k is taken to be normal between them, as a sum over many losses is (central limit theorem).
"""

from dataclasses import dataclass
from math import ceil, expm1, lgamma, log, log1p, sqrt
from statistics import NormalDist

import numpy as np

from experiments.extrapolation.tails import Array, Crossing
from experiments.extrapolation.tails_pointwise import Distribution, PointwiseModel, from_atoms
from experiments.extrapolation.tails_tcp import PROBE, Gaps, Indices, TcpFlows, TcpPath, TcpRules

MOST_EXACT = 24.0  # expected losses up to which every k is sampled
SUPPORTS = 13  # numbers of losses that are sampled beyond
NODES = 41  # of the normal distribution between them
LEAST_WEIGHT = 1e-13  # numbers of losses less likely than that are left out
SPARE = 8
WARM_UP = 12  # messages before the one that counts, of a connection that is settled


@dataclass(frozen=True, slots=True, kw_only=True)
class Tcp(PointwiseModel):
    """TCP with slow start, SACK, RACK-TLP and PRR, as `TcpRules` has it.

    settled: the connection has carried messages before and lost packets, as in a training that runs for long;
    otherwise it is fresh, or has carried from 1 to `history` messages, each number as often as any other.
    samples: per number of losses. queue_bdp: the bottleneck's queue in BDP. seed: of the places.
    """

    name: str
    source: str
    rules: TcpRules
    header_bytes: int = 52
    settled: bool = True
    history: int = 0
    samples: int = 192
    queue_bdp: float = 1.0
    seed: int = 7
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
        )

    def start(self, crossing: Crossing, flows: int, rng: np.random.Generator) -> TcpFlows:
        """Return flows before the message that counts."""
        made = TcpFlows(self.rules, self.path(crossing), flows)
        loss = float(crossing.loss)
        gaps = random_gaps(loss, rng) if loss > 0 else no_losses
        if self.settled and loss > 0:
            # where a window that grows by one per round trip, and of which an idle time leaves ssthresh 3/4, comes to
            # rest: w = 4/3 ssthresh after n packets
            made.settle(sqrt(18 * made.path.packets / 7))
            made.rest(crossing.idle_s)
        before = np.full(flows, WARM_UP) if self.settled else np.arange(flows) % max(self.history, 1) + 1
        for number in range(WARM_UP if self.settled else self.history):
            made.send(gaps, which=before > number)
            made.rest(crossing.idle_s, which=before > number)
        return made

    def trials(self, crossing: Crossing, trials: int, rng: np.random.Generator) -> Array:
        """Return the completion of `trials` messages whose losses are drawn one by one, seconds."""
        flows = self.start(crossing, trials, rng)
        return flows.send(random_gaps(float(crossing.loss), rng) if float(crossing.loss) else no_losses)

    def distribution(self, crossing: Crossing) -> Distribution:
        """Return the distribution at one point."""
        found = self._without_tail_loss(crossing)
        probed_s = PROBE * float(crossing.rtt_s) + self.rules.ack_delay_s
        found = found.or_later(float(crossing.tail_loss), probed_s)
        # a repair at the very end that is lost too: rarer than the sample shows
        packets, loss = float(crossing.packets(self.header_bytes)), float(crossing.loss)
        if loss == 0:
            return found
        # half of the window that a connection ends with: what it grows to in a message, or what losses leave it
        # (Mathis et al., CCR 27(3), 1997)
        last = min(packets, sqrt(32 * packets / 7), sqrt(1.5 / loss)) / 2
        return found.or_later(loss * -expm1(last * log1p(-loss)), float(crossing.rtt_s) + self.rules.min_rto_s)

    def _without_tail_loss(self, crossing: Crossing) -> Distribution:
        rng = np.random.default_rng(self.seed)
        loss = float(crossing.loss)
        if loss == 0:
            return Distribution(self.start(crossing, 1, rng).send(no_losses), np.array([0.0]))
        begun = self.start(crossing, self.samples, rng)
        # more than are ever sent, repairs included: places that are not reached change nothing
        length = ceil(begun.path.packets / (1 - loss) + SPARE * (1 + sqrt(begun.path.packets * loss)))
        mean = length * loss
        counts, weights = _poisson(mean)
        if mean <= MOST_EXACT:
            times = np.concatenate([self._sample(begun, int(count), length, rng) for count in counts])
            shares = np.repeat(weights / self.samples, self.samples)
        else:
            chosen = np.unique(np.linspace(counts[0], counts[-1], SUPPORTS).round().astype(int))
            drawn = [self._sample(begun, int(count), length, rng) for count in chosen]
            centre = np.polynomial.Polynomial.fit(chosen, [each.mean() for each in drawn], 3)(counts)
            spread = np.polynomial.Polynomial.fit(chosen, [each.std() for each in drawn], 2)(counts)
            normal = np.array([NormalDist().inv_cdf((node + 0.5) / NODES) for node in range(NODES)])
            times = (centre[:, None] + np.clip(spread, 0.0, None)[:, None] * normal).ravel()
            shares = np.repeat(weights / NODES, NODES)
        return from_atoms(times, shares)

    def _sample(self, begun: TcpFlows, count: int, length: int, rng: np.random.Generator) -> Array:
        """Return completions with exactly `count` losses among the first `length` packets sent."""
        # the first place, which matters most, is spread evenly over its distribution, 1 - (1 - x)^count, and the others
        # lie anywhere behind it; so a single loss, the last packet's too, is not left to chance
        uniform = rng.random((self.samples, count))
        if count:
            even = (np.arange(self.samples) + uniform[:, 0]) / self.samples
            first = -np.expm1(np.log1p(-even) / count)
            uniform[:, 0] = 0.0
            uniform = first[:, None] + (1 - first[:, None]) * uniform
        places = np.sort((uniform * length).astype(np.int64), axis=1)
        steps = np.diff(places, axis=1, prepend=-1) - 1.0
        steps = np.maximum(np.concatenate((steps, np.full((self.samples, 1), 1e18)), axis=1), 0.0)
        taken = np.zeros(self.samples, np.int64)

        def gaps(who: Indices) -> Array:
            found = steps[who, np.minimum(taken[who], count)]
            taken[who] += 1
            return np.asarray(found)

        return begun.copy().send(gaps)


def random_gaps(loss: float, rng: np.random.Generator) -> Gaps:
    """Return the gaps between independent losses."""

    def gaps(who: Indices) -> Array:
        return rng.geometric(loss, len(who)).astype(float) - 1.0

    return gaps


def no_losses(who: Indices) -> Array:
    """Return gaps without end."""
    return np.full(len(who), 1e18)


def _poisson(mean: float) -> tuple[Array, Array]:
    """Return the numbers with a probability worth keeping, and their probabilities, which sum to one."""
    reach = 8 * sqrt(mean) + 14
    counts = np.arange(max(0, int(mean - reach)), ceil(mean + reach) + 1)
    logs = np.array([count * log(mean) - mean - lgamma(count + 1) for count in counts])
    weights = np.exp(logs)
    kept = weights > LEAST_WEIGHT
    return counts[kept], weights[kept] / weights[kept].sum()
