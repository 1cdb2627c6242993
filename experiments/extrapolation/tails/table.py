"""A model's quantile as a table, for models that are computed point by point and questions with a million points.

What is tabulated is what the quantile exceeds the bound by, in round trips, over the logarithms of rate, round-trip
time and loss, for one size of message and one share; between the table's points it is interpolated linearly.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Self

import numpy as np

from bicoastal.experiments.extrapolation.tails.model import Array, ArrayLike, Crossing, QuantileModel
from bicoastal.wan.checks import FieldError

CHUNK = 4096  # points that are worked on together: a few arrays of them fit a second-level cache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Table:
    """Quantiles of `model` for messages like `crossing`; its rate, round-trip time and loss are only examples.

    axes: logarithms of rate, round-trip time and loss, ascending; excess: of the quantile over the bound, in RTT.
    """

    model: QuantileModel
    crossing: Crossing
    log_share: float
    axes: tuple[Array, Array, Array]
    excess: Array

    @classmethod
    def of(
        cls,
        model: QuantileModel,
        crossing: Crossing,
        log_share: float,
        *,
        rates_bps: Sequence[float] | Array,
        rtts_s: Sequence[float] | Array,
        losses: Sequence[float] | Array,
    ) -> Self:
        """Compute a table over all combinations of the given rates, round-trip times and losses, each ascending.

        crossing, rates_bps: of one flow. Raises ValueError where an axis has fewer than two points or does not ascend.
        """
        for name, points in (("rates_bps", rates_bps), ("rtts_s", rtts_s), ("losses", losses)):
            if len(points) < 2 or not points[0] > 0 or not np.all(np.diff(points) > 0):
                raise FieldError(name, "is not at least two positive numbers in ascending order")
        axes = tuple(np.log(np.asarray(points, dtype=float)) for points in (rates_bps, rtts_s, losses))
        excess = np.empty(tuple(len(axis) for axis in axes))
        for index in product(*(range(len(axis)) for axis in axes)):
            rate_bps, rtt_s, loss = (float(np.exp(axis[at])) for axis, at in zip(axes, index, strict=True))
            point = replace(crossing, rate_bps=rate_bps, rtt_s=rtt_s, loss=loss)
            excess[index] = (model.quantile_s(point, log_share) - point.bound_s()) / rtt_s
        return cls(model=model, crossing=crossing, log_share=log_share, axes=(axes[0], axes[1], axes[2]), excess=excess)

    @property
    def name(self) -> str:
        """The transport's name."""
        return self.model.name

    @property
    def source(self) -> str:
        """Where the formula comes from."""
        return self.model.source

    @property
    def spreads(self) -> bool:
        """Whether one message may use all paths at once."""
        return self.model.spreads

    def quantile_s(self, crossing: Crossing, log_share: ArrayLike) -> Array:
        """Return what the model's own method does, interpolated. Raises ValueError for what is not in the table."""
        same = replace(crossing, rate_bps=self.crossing.rate_bps, rtt_s=self.crossing.rtt_s, loss=self.crossing.loss)
        if same != self.crossing or log_share != self.log_share:
            raise FieldError("crossing", "the table was made for another message or another share")
        fields = (crossing.rate_bps, crossing.rtt_s, crossing.loss)
        values = np.broadcast_arrays(*(np.log(np.asarray(each, dtype=float)) for each in fields))
        low, share = [], []
        for name, axis, value in zip(("rate_bps", "rtt_s", "loss"), self.axes, values, strict=True):
            if np.any(value < axis[0] - 1e-9) or np.any(value > axis[-1] + 1e-9):
                raise FieldError(name, f"some of it is beyond the table's {np.exp(axis[0]):g} to {np.exp(axis[-1]):g}")
            at = np.clip(np.searchsorted(axis, value, side="right") - 1, 0, len(axis) - 2)
            low.append(at)
            share.append((value - axis[at]) / (axis[at + 1] - axis[at]))
        excess = np.zeros(values[0].shape)
        for corner in product((0, 1), repeat=3):
            weight = np.ones(values[0].shape)
            for part, upper in zip(share, corner, strict=True):
                weight = weight * (part if upper else 1.0 - part)
            excess += weight * self.excess[tuple(at + upper for at, upper in zip(low, corner, strict=True))]
        return np.asarray(crossing.bound_s() + excess * np.asarray(crossing.rtt_s))
