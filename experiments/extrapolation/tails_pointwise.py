"""Distributions that are computed point by point: atoms of probability in order, with the tail kept as such."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.extrapolation.tails import Array, ArrayLike, Crossing

MOST_BEYOND = 1 - 1e-16  # 1 would have no logarithm
LEAST_SHARE = 1e-15  # probability below which the transform has nothing but rounding


@dataclass(frozen=True, slots=True)
class Distribution:
    """times_s in ascending order, and log P(completion <= each of them); between them log F is linear or steps.

    stepped: it steps, and times between two belong to the earlier one.
    """

    times_s: Array
    log_shares: Array
    stepped: bool

    def log_cdf(self, at_s: float) -> float:
        """Return log F at a time."""
        index = int(np.searchsorted(self.times_s, at_s, side="right"))
        if index == 0:
            return -np.inf
        if self.stepped or index == len(self.times_s):
            return float(self.log_shares[index - 1])
        return float(np.interp(at_s, self.times_s, self.log_shares))

    def quantile_s(self, log_share: float) -> float:
        """Return the least time with at least that share, inf where none has."""
        index = int(np.searchsorted(self.log_shares, log_share))
        if index == len(self.times_s):
            return np.inf
        if self.stepped or index == 0:
            return float(self.times_s[index])
        return float(np.interp(log_share, self.log_shares[index - 1 : index + 1], self.times_s[index - 1 : index + 1]))

    def mean_s(self) -> float:
        """Return the mean."""
        shares = np.exp(self.log_shares)
        if self.stepped:
            return float(self.times_s[0] * shares[0] + np.sum(self.times_s[1:] * np.diff(shares)))
        middle = (self.times_s[1:] + self.times_s[:-1]) / 2
        return float(self.times_s[0] * shares[0] + np.sum(middle * np.diff(shares)))


class PointwiseModel(ABC):
    """A model that has a `Distribution` at each point; arrays are gone through one by one."""

    @abstractmethod
    def distribution(self, crossing: Crossing) -> Distribution:
        """Return the distribution at one point: a crossing of scalars."""

    def log_cdf(self, crossing: Crossing, at_s: ArrayLike) -> Array:
        """Return log P(completion <= at_s)."""
        return _each(crossing, at_s, lambda point, value: self.distribution(point).log_cdf(value))

    def quantile_s(self, crossing: Crossing, log_share: ArrayLike) -> Array:
        """Return the least time by which a flow is complete with probability exp(log_share)."""
        return _each(crossing, log_share, lambda point, value: self.distribution(point).quantile_s(value))

    def mean_s(self, crossing: Crossing) -> Array:
        """Return the expected completion."""
        return _each(crossing, 0.0, lambda point, value: self.distribution(point).mean_s())


def _each(crossing: Crossing, argument: ArrayLike, answer: Callable[[Crossing, float], float]) -> Array:
    fields = (crossing.payload_bytes, crossing.rate_bps, crossing.rtt_s, crossing.loss, argument)
    arrays = np.broadcast_arrays(*(np.asarray(each, dtype=float) for each in fields))
    out = np.empty(arrays[0].shape)
    for index in np.ndindex(out.shape):
        payload, rate, rtt, loss, value = (float(each[index]) for each in arrays)
        point = replace(crossing, payload_bytes=payload, rate_bps=rate, rtt_s=rtt, loss=loss)
        out[index] = answer(point, value)
    return out


def compound(base_s: float, kinds: Sequence[tuple[float, float]], *, last: tuple[float, float]) -> Distribution:
    """Return the distribution of base_s + a sum of costs: of each kind (mean count, cost) a Poisson number.

    last: (probability, cost) of one more that happens once at most. The costs are rounded onto a lattice whose step is
    the smallest cost over eight, or coarser where the sum is long; the distribution of a compound Poisson sum on a
    lattice is exp of the transform of its jumps (Panjer, ASTIN Bulletin 12(1), 1981, gives the same by recursion).
    """
    kinds = [(count, cost) for count, cost in kinds if count > 0 and cost > 0]
    if not kinds:
        return Distribution(np.array([base_s]), np.array([0.0]), True)
    mean = sum(count * cost for count, cost in kinds)
    spread = np.sqrt(sum(count * cost * cost for count, cost in kinds))
    longest = max(cost for _, cost in kinds)
    reach = mean + 12 * spread + 12 * longest + last[1]
    step = min(cost for _, cost in kinds) / 8
    cells = 1 << int(np.ceil(np.log2(max(reach / step, 64))))
    cells = min(max(cells, 256), 1 << 17)
    step = max(step, reach / cells)
    jumps = np.zeros(cells)
    total = 0.0
    for count, cost in kinds:
        place = cost / step
        low = int(place)
        jumps[low] += count * (1 - (place - low))
        jumps[low + 1] += count * (place - low)
        total += count
    once = np.zeros(cells)
    once[0] = 1 - last[0]
    once[min(round(last[1] / step), cells - 1)] += last[0]
    transform = np.exp(np.fft.rfft(jumps) - total) * np.fft.rfft(once)
    mass = np.clip(np.fft.irfft(transform, cells), 0.0, None)
    above = np.cumsum(mass[::-1])[::-1]  # P(sum >= cell)
    beyond = np.append(above[1:], 0.0)  # P(sum > cell)
    kept = mass > LEAST_SHARE
    kept[0] = True
    shares = np.log1p(-np.minimum(beyond[kept], MOST_BEYOND))
    times = base_s + step * np.flatnonzero(kept)
    shares[-1] = 0.0
    return Distribution(times, np.maximum.accumulate(shares), True)
