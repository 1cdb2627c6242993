"""Redundancy chosen for a whole step. A message of n source symbols is complete when any n symbols have arrived.

The n source symbols and r repair symbols leave evenly paced. Repair symbols go among the others or behind them. With
L symbols lost the message is L packet times late, and L is binomial. r is the least
with which at most `target` of the steps have any message that loses more than r of n + r (an MDS code, or a fountain
code, which fails with a few symbols to spare as rarely; RFC 5510, RFC 6330). Only then is there a second trip.
"""

from dataclasses import dataclass
from math import ceil, exp, inf, lgamma, log, log1p

import numpy as np

from bicoastal.experiments.extrapolation.tails.model import Array, Crossing
from bicoastal.experiments.extrapolation.tails.pointwise import Distribution, PointwiseModel, from_atoms

LEAST_PROBABILITY = 1e-22  # of a number of losses that is told apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Coded(PointwiseModel):
    """A transport that plans its redundancy from the loss; see the module's text.

    messages, target: of a step, and the share of steps that may have a second trip. least_repair: symbols at least.
    most_overhead: repair symbols per source symbol at most.
    """

    name: str
    source: str
    header_bytes: int
    messages: float
    target: float
    least_repair: int = 4
    most_overhead: float = 1.0
    pace: float = 1.0
    spreads: bool = False

    def distribution(self, crossing: Crossing) -> Distribution:
        """Return the distribution at one point."""
        count = int(crossing.packets(self.header_bytes))
        packet_s, rtt_s = float(crossing.packet_s(self.pace)), float(crossing.rtt_s)
        room_bytes = crossing.mtu_bytes - self.header_bytes
        missing = (count * room_bytes - float(crossing.payload_bytes)) / (crossing.mtu_bytes + crossing.framing_bytes)
        ends_s = rtt_s / 2 + (count - missing) * packet_s
        lost = losses(count, float(crossing.loss))
        tail = float(crossing.tail_loss)  # one symbol more that does not come
        shares = np.append((1 - tail) * lost, 0.0).astype(np.float64)
        shares[1:] += tail * lost
        shares /= shares.sum()
        repair = self.repair(count, float(crossing.loss))
        times_s = ends_s + packet_s * np.arange(len(shares), dtype=np.float64)
        times_s[repair + 1 :] += rtt_s
        return from_atoms(times_s, shares)

    def repair(self, count: int, loss: float) -> int:
        """Return how many repair symbols a message of `count` gets."""
        allowed = -log1p(-self.target) / self.messages
        most = max(self.least_repair, int(count * self.most_overhead))
        lost = losses(count, loss)
        beyond = np.append(np.cumsum(lost[::-1])[::-1][1:], 0.0)  # P(more than so many lost)
        enough = int(np.argmax(beyond <= allowed)) + 1  # a margin for what is lost of the repair itself
        enough = ceil(enough / (1 - loss))
        return min(max(enough, self.least_repair), most)


def losses(count: int, loss: float) -> Array:
    """Return the probability of 0, 1, 2, … losses before `count` symbols have arrived: negative binomial."""
    if loss == 0:
        return np.array([1.0])
    values: list[float] = []
    mean = count * loss / (1 - loss)
    lost = 0
    value = inf
    while lost <= mean or value > LEAST_PROBABILITY:
        value = exp(lgamma(count + lost) - lgamma(count) - lgamma(lost + 1) + lost * log(loss) + count * log1p(-loss))
        values.append(value)
        lost += 1
    return np.array(values)
