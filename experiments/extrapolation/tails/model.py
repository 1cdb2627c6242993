"""The completion time of one message as a distribution: what every model of a transport answers, and what it is given.

A model speaks of log F(t), the logarithm of the probability that a message is complete by `t`. The slowest of N
independent messages has N log F(t), so no tail is ever computed as a difference from one, and N may be millions.

All arguments may be arrays; they are broadcast against one another. Times are seconds from the first byte offered to
the last byte delivered at the receiver.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bicoastal.wan.checks import FieldError

Array = npt.NDArray[np.float64]
ArrayLike = float | Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """One flow's part of a message and the path that it takes; every field may be an array.

    payload_bytes: of the flow. rate_bps: of the path. loss: probability of each packet, independent, both directions.
    tail_loss: probability, besides, that the last packet of a message is lost at its first transmission.
    mtu_bytes: largest IP packet. framing_bytes: what a packet takes on the wire below IP. idle_s: since the burst
    before, which lets a TCP's window decay. Raises ValueError naming the field.
    """

    payload_bytes: ArrayLike
    rate_bps: ArrayLike
    rtt_s: ArrayLike
    loss: ArrayLike
    tail_loss: ArrayLike = 0.0
    mtu_bytes: int = 9000
    framing_bytes: int = 38
    idle_s: float = 2.0

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("payload_bytes", "rate_bps"):
            if not np.all(np.isfinite(getattr(self, name))) or not np.all(np.asarray(getattr(self, name)) > 0):
                raise FieldError(name, "not all of it is finite and above zero")
        if not np.all(np.isfinite(self.rtt_s)) or not np.all(np.asarray(self.rtt_s) >= 0):
            raise FieldError("rtt_s", "not all of it is finite and at least zero")
        for name in ("loss", "tail_loss"):
            values = np.asarray(getattr(self, name))
            if not np.all((values >= 0) & (values < 1)):
                raise FieldError(name, "not all of it is a probability below one")

    def packets(self, header_bytes: int) -> ArrayLike:
        """Return how many packets the payload takes, `header_bytes` of each being headers from IP on."""
        return np.asarray(np.ceil(np.asarray(self.payload_bytes) / (self.mtu_bytes - header_bytes)))

    def packet_s(self, pace: float = 1.0) -> ArrayLike:
        """Return what a full packet takes at `pace` times the path's rate."""
        return np.asarray(8.0 * (self.mtu_bytes + self.framing_bytes) / (np.asarray(self.rate_bps) * pace))

    def bound_s(self) -> ArrayLike:
        """Return one-way propagation + payload / rate."""
        return np.asarray(np.asarray(self.rtt_s) / 2 + 8.0 * np.asarray(self.payload_bytes) / np.asarray(self.rate_bps))


class QuantileModel(Protocol):
    """When a flow's part of a message is complete, with some probability, by one transport.

    source: where its formula comes from. spreads: a message may use all paths at once (its rate is then their sum);
    otherwise it is cut into one flow per plane.
    """

    @property
    def name(self) -> str:
        """Return the transport's name."""

    @property
    def source(self) -> str:
        """Return where the formula comes from."""

    @property
    def spreads(self) -> bool:
        """Tell whether one message may use all paths at once."""

    def quantile_s(self, crossing: Crossing, log_share: ArrayLike) -> Array:
        """Return the least time by which a flow is complete with probability exp(log_share)."""


class TailModel(QuantileModel, Protocol):
    """The completion time of a flow's part of a message, as a whole distribution."""

    def log_cdf(self, crossing: Crossing, at_s: ArrayLike) -> Array:
        """Return log P(completion <= at_s), -inf where that is impossible."""

    def mean_s(self, crossing: Crossing) -> Array:
        """Return the expected completion."""


class PiecewiseModel(ABC):
    """A model whose log F is linear between knots, with steps at some of them: it can be inverted and integrated.

    Subclasses give the knots. Before the first knot nothing is complete; behind the last, log F is taken to stay.
    """

    @abstractmethod
    def knots(self, crossing: Crossing) -> tuple[Array, Array, Array]:
        """Return (times, log F just before, log F at them), along a last axis on top of the broadcast shape."""

    def log_cdf(self, crossing: Crossing, at_s: ArrayLike) -> Array:
        """Return log P(completion <= at_s), -inf before the earliest possible."""
        times, before, after = self.knots(crossing)
        shape = np.broadcast_shapes(times.shape[:-1], np.shape(at_s))
        times, before, after = (np.broadcast_to(each, (*shape, times.shape[-1])) for each in (times, before, after))
        at = np.broadcast_to(np.asarray(at_s, dtype=float), shape)[..., None]
        passed = np.sum(times <= at, axis=-1)
        low = np.clip(passed - 1, 0, None)[..., None]
        high = np.clip(passed, None, times.shape[-1] - 1)[..., None]
        t0, t1 = np.take_along_axis(times, low, -1), np.take_along_axis(times, high, -1)
        v0 = np.take_along_axis(after, low, -1)
        v1 = np.where(high > 0, np.take_along_axis(before, high, -1), v0)
        share = np.where(t1 > t0, (at - t0) / np.where(t1 > t0, t1 - t0, 1.0), 0.0)
        inside = v0 + (v1 - v0) * np.clip(share, 0.0, 1.0)
        last = passed[..., None] >= times.shape[-1]
        value = np.where(last, after[..., -1:], inside)
        return np.asarray(np.where(passed[..., None] == 0, -np.inf, value)[..., 0])

    def quantile_s(self, crossing: Crossing, log_share: ArrayLike) -> Array:
        """Return the least time by which a flow is complete with probability exp(log_share); inf beyond the knots."""
        times, before, after = self.knots(crossing)
        shape = np.broadcast_shapes(times.shape[:-1], np.shape(log_share))
        times, before, after = (np.broadcast_to(each, (*shape, times.shape[-1])) for each in (times, before, after))
        wanted = np.broadcast_to(np.asarray(log_share, dtype=float), shape)[..., None]
        short = np.sum(after < wanted, axis=-1)  # knots at which that share is not reached
        beyond = short >= times.shape[-1]
        high = np.clip(short, None, times.shape[-1] - 1)[..., None]
        low = np.clip(high - 1, 0, None)
        t0, t1 = np.take_along_axis(times, low, -1), np.take_along_axis(times, high, -1)
        v0, v1 = np.take_along_axis(after, low, -1), np.take_along_axis(before, high, -1)
        rising = (v1 > v0) & (v1 >= wanted) & (high > 0)
        share = np.where(rising, (wanted - v0) / np.where(rising, v1 - v0, 1.0), 1.0)
        found = np.where(high > 0, t0 + (t1 - t0) * share, t1)[..., 0]
        return np.asarray(np.where(beyond, np.inf, found))

    def mean_s(self, crossing: Crossing) -> Array:
        """Return the expected completion: the integral of 1 - F, exact where log F is linear."""
        times, before, after = self.knots(crossing)
        widths = np.diff(times, axis=-1)
        v0, v1 = after[..., :-1], before[..., 1:]
        slope = v1 - v0
        flat = np.abs(slope) < 1e-9
        below = np.where(flat, np.exp((v0 + v1) / 2), (np.exp(v1) - np.exp(v0)) / np.where(flat, 1.0, slope))
        return np.asarray(times[..., 0] + np.sum(widths * (1.0 - below), axis=-1))
