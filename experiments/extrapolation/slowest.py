"""When the last of all messages is across: a training step waits for the slowest of them.

With N independent flows, each complete by t with probability F(t), all are with F(t)^N. Independence is an assumption,
so two bounds stand beside it. Whatever the dependence, P(some flow is late) is at most N (1 - F(t)) (the union bound)
and at least 1 - F(t), which is reached where all flows lose the same packets at the same time.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from experiments.extrapolation.tails import Array, ArrayLike, Crossing, QuantileModel
from wan.deployment import Deployment

Scope = Literal["layer", "step"]
SCOPES: tuple[Scope, ...] = ("layer", "step")
LEVELS = 64  # at which the distribution of the slowest is looked at for its mean
Dependence = Literal["independent", "correlated", "any"]


def messages_in(deployment: Deployment, scope: Scope) -> int:
    """Return how many messages a wait is for: one layer's group of GPUs, or all of the step, both directions.

    Raises ValueError for another scope.
    """
    if scope == "layer":
        return deployment.messages_per_layer
    if scope == "step":
        return deployment.messages_per_step
    raise ValueError(f"scope: {scope!r} is not one of {', '.join(SCOPES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Messages that are all waited for: how many, and over how many planes each of them goes.

    Raises ValueError naming the field.
    """

    messages: float
    planes: int = 1

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not self.messages >= 1 or not np.isfinite(self.messages):
            raise ValueError(f"messages: {self.messages!r} is not a finite number of at least 1")
        if self.planes < 1:
            raise ValueError(f"planes: {self.planes!r} is less than 1")

    def flows(self, model: QuantileModel) -> float:
        """Return how many flows carry them: one per message and plane, unless the transport spreads over all."""
        return self.messages if model.spreads else self.messages * self.planes

    def part(self, model: QuantileModel, crossing: Crossing) -> Crossing:
        """Return what one flow carries of a message's `crossing`, whose rate is that of all planes together."""
        if model.spreads:
            return crossing
        return replace(
            crossing,
            payload_bytes=np.asarray(crossing.payload_bytes) / self.planes,
            rate_bps=np.asarray(crossing.rate_bps) / self.planes,
        )


def slowest_s(
    model: QuantileModel,
    crossing: Crossing,
    fleet: Fleet,
    *,
    share: ArrayLike = 0.5,
    dependence: Dependence = "independent",
) -> Array:
    """Return the time by which, with probability `share`, the last of the fleet's messages is across, seconds.

    crossing: of a message; its rate is that of all planes together. dependence: "independent"; "correlated" (all lose
    the same packets: the least there can be); "any" (the most, by the union bound).
    """
    return model.quantile_s(fleet.part(model, crossing), log_share(model, fleet, share, dependence))


def log_share(model: QuantileModel, fleet: Fleet, share: ArrayLike, dependence: Dependence) -> Array:
    """Return the logarithm of the share of single flows that are complete when all are, with probability `share`.

    Raises ValueError for another dependence than those of `slowest_s`.
    """
    flows = fleet.flows(model)
    if dependence == "independent":
        return np.asarray(np.log(share) / flows)
    if dependence == "correlated":
        return np.asarray(np.log(share))
    if dependence == "any":
        return np.asarray(np.log1p(-(1 - np.asarray(share)) / flows))
    raise ValueError(f"dependence: {dependence!r} is not one of independent, correlated, any")


def slowest_mean_s(model: QuantileModel, crossing: Crossing, fleet: Fleet) -> Array:
    """Return the expected completion of the slowest, independent: the mean of its quantiles at `LEVELS` levels."""
    levels = (np.arange(LEVELS) + 0.5) / LEVELS
    part, flows = fleet.part(model, crossing), fleet.flows(model)
    fields = (part.payload_bytes, part.rate_bps, part.rtt_s, part.loss, part.tail_loss)
    dimensions = np.broadcast(*map(np.asarray, fields)).ndim
    shares = (np.log(levels) / flows).reshape(-1, *([1] * dimensions))
    return np.asarray(np.mean(model.quantile_s(part, shares), axis=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowest:
    """One transport's slowest message: seconds, at one point.

    typical_s: completion of a single message, median. p50_s, mean_s, p99_s: of the slowest of all, independent.

    Messages of several jobs or GPU pairs that share a path do not lose independently. Three figures hold them in
    between: correlated_p99_s, the least there can be, is where all lose the same packets at the same time, as one
    message would; p99_s is where none knows of the others; any_p99_s, the most, whatever the dependence (the union
    bound). The last two are almost the same for many messages, so that independence errs to the late side by as much as
    losses are shared: of k messages that always lose together, N / k count. None of them has what messages on one path
    take from one another besides: its rate, which `crossing` has to have divided already, and its queue.
    """

    transport: str
    messages: int
    typical_s: float
    p50_s: float
    mean_s: float
    p99_s: float
    correlated_p99_s: float
    any_p99_s: float


def slowest_of(model: QuantileModel, crossing: Crossing, fleet: Fleet) -> Slowest:
    """Return all figures of the slowest message at one point."""
    alone = Fleet(messages=1, planes=fleet.planes)

    def at(whom: Fleet, share: float, dependence: Dependence = "independent") -> float:
        return float(slowest_s(model, crossing, whom, share=share, dependence=dependence))

    return Slowest(
        transport=model.name,
        messages=round(fleet.messages),
        typical_s=at(alone, 0.5),
        p50_s=at(fleet, 0.5),
        mean_s=float(slowest_mean_s(model, crossing, fleet)),
        p99_s=at(fleet, 0.99),
        correlated_p99_s=at(fleet, 0.99, "correlated"),
        any_p99_s=at(fleet, 0.99, "any"),
    )
