"""Distributions that are computed point by point: atoms of probability in order, with the tail kept as such."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from bicoastal.experiments.extrapolation.tails.model import Array, ArrayLike, Crossing

REMEMBERED = 64  # distributions; one may take a megabyte
MOST_BEYOND = 1 - 1e-16  # 1 would have no logarithm
LEAST_SHARE = 1e-15  # probability below which the transform has nothing but rounding


@dataclass(frozen=True, slots=True)
class Distribution:
    """Atoms of probability: times_s in ascending order, and log P(completion <= each of them)."""

    times_s: Array
    log_shares: Array

    def log_cdf(self, at_s: float) -> float:
        """Return log F at a time."""
        index = int(np.searchsorted(self.times_s, at_s, side="right"))
        return -np.inf if index == 0 else float(self.log_shares[index - 1])

    def quantile_s(self, log_share: float) -> float:
        """Return the least time with at least that share, inf where none has."""
        index = int(np.searchsorted(self.log_shares, log_share))
        return np.inf if index == len(self.times_s) else float(self.times_s[index])

    def or_later(self, probability: float, delay_s: float) -> "Distribution":
        """Return the distribution where, with a probability, everything is later by `delay_s`."""
        if probability <= 0:
            return self
        shares = np.diff(np.exp(self.log_shares), prepend=0.0)
        shares[0] += 1.0 - shares.sum()
        times_s = np.concatenate((self.times_s, self.times_s + delay_s))
        return from_atoms(times_s, np.concatenate((shares * (1 - probability), shares * probability)))

    def mean_s(self) -> float:
        """Return the mean."""
        return float(np.sum(self.times_s * np.diff(np.exp(self.log_shares), prepend=0.0)))


def from_atoms(times_s: Array, shares: Array) -> Distribution:
    """Return the distribution of times with these probabilities, in any order; they sum to one."""
    order = np.argsort(times_s, kind="stable")
    beyond = np.append(np.cumsum(shares[order][::-1])[::-1][1:], 0.0)  # from the far end, where they are small
    return Distribution(times_s[order], np.log1p(-np.minimum(beyond, MOST_BEYOND)))


class PointwiseModel(ABC):
    """A model that has a `Distribution` at each point; arrays are gone through one by one."""

    @abstractmethod
    def distribution(self, crossing: Crossing) -> Distribution:
        """Return the distribution at one point: a crossing of scalars."""

    def log_cdf(self, crossing: Crossing, at_s: ArrayLike) -> Array:
        """Return log P(completion <= at_s)."""
        return _each(crossing, at_s, lambda point, value: _known(self, point).log_cdf(value))

    def quantile_s(self, crossing: Crossing, log_share: ArrayLike) -> Array:
        """Return the least time by which a flow is complete with probability exp(log_share)."""
        return _each(crossing, log_share, lambda point, value: _known(self, point).quantile_s(value))

    def mean_s(self, crossing: Crossing) -> Array:
        """Return the expected completion."""
        return _each(crossing, 0.0, lambda point, value: _known(self, point).mean_s())


@lru_cache(maxsize=REMEMBERED)
def _known(model: PointwiseModel, crossing: Crossing) -> Distribution:
    """Return a model's distribution at a point; several shares are often asked of one."""
    return model.distribution(crossing)


def _each(crossing: Crossing, argument: ArrayLike, answer: Callable[[Crossing, float], float]) -> Array:
    fields = (
        crossing.payload_bytes,
        crossing.rate_bps,
        crossing.rtt_s,
        crossing.loss,
        crossing.tail_loss,
        argument,
    )
    arrays = np.broadcast_arrays(*(np.asarray(each, dtype=float) for each in fields))
    out = np.empty(arrays[0].shape)
    for index in np.ndindex(out.shape):
        payload_bytes, rate_bps, rtt_s, loss, tail_loss, value = (float(each[index]) for each in arrays)
        point = replace(
            crossing, payload_bytes=payload_bytes, rate_bps=rate_bps, rtt_s=rtt_s, loss=loss, tail_loss=tail_loss
        )
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
        return from_atoms(np.array([base_s, base_s + last[1]]), np.array([1 - last[0], last[0]]))
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
    kept = mass > LEAST_SHARE
    kept[0] = True
    return from_atoms(base_s + step * np.flatnonzero(kept), mass[kept] / mass[kept].sum())
