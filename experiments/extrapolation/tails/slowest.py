"""When the last of all messages is across: a training step waits for the slowest of them.

With N independent flows, each complete by t with probability F(t), all are with F(t)^N. Independence is an assumption,
so two bounds stand beside it. Whatever the dependence, P(some flow is late) is at most N (1 - F(t)) (the union bound)
and at least 1 - F(t), which is reached where all flows lose the same packets at the same time.

Messages of several jobs or GPU pairs that share a path do not lose independently, and these bounds hold them between.
Independence and the union bound are almost the same for many messages, so that independence errs to the late side by as
much as losses are shared: of k messages that always lose together, N / k count. None of the three has what messages on
one path take from one another besides: its rate, which `crossing` has to have divided already, and its queue.

Of several trips one after another each waits for its slowest. That all are across by a time is asked of every trip;
the sum of the trips' times is then bounded by as many times that.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bicoastal.experiments.extrapolation.tails.model import Array, ArrayLike, Crossing, QuantileModel
from bicoastal.wan.checks import FieldError
from bicoastal.wan.deployment import Deployment

Scope = Literal["layer", "step"]
SCOPES: tuple[Scope, ...] = ("layer", "step")
Dependence = Literal["independent", "correlated", "any"]


def messages_in(deployment: Deployment, scope: Scope) -> int:
    """Return how many messages a wait is for: one layer's group of GPUs, or all of the step, both directions.

    Raises ValueError for another scope.
    """
    if scope == "layer":
        return deployment.messages_per_layer
    if scope == "step":
        return deployment.messages_per_step
    raise FieldError("scope", f"{scope!r} is not one of {', '.join(SCOPES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Messages that are all waited for: how many in a trip, over how many planes each goes, and how many trips follow.

    Raises ValueError naming the field.
    """

    messages: float
    planes: int = 1
    trips: int = 1

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not self.messages >= 1 or not np.isfinite(self.messages):
            raise FieldError("messages", f"{self.messages!r} is not a finite number of at least 1")
        for field in ("planes", "trips"):
            if getattr(self, field) < 1:
                raise FieldError(field, f"{getattr(self, field)!r} is less than 1")

    def flows(self, model: QuantileModel) -> float:
        """Return how many flows carry a trip's messages: one per message and plane, or where it spreads, message."""
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
    """Return the time by which, with probability `share`, the fleet's last message is across in every trip, seconds.

    crossing: of a message; its rate is that of all planes together. dependence: "independent"; "correlated" (all lose
    the same packets: the least there can be); "any" (the most, by the union bound).
    """
    return model.quantile_s(fleet.part(model, crossing), log_share(model, fleet, share, dependence))


def log_share(model: QuantileModel, fleet: Fleet, share: ArrayLike, dependence: Dependence) -> Array:
    """Return the logarithm of the share of single flows that are complete when all are, with probability `share`.

    Trips are independent of one another, but for `any` dependence. Raises ValueError for another dependence than those
    of `slowest_s`.
    """
    flows = fleet.flows(model)
    if dependence == "independent":
        return np.asarray(np.log(share) / (flows * fleet.trips))
    if dependence == "correlated":
        return np.asarray(np.log(share) / fleet.trips)
    if dependence == "any":
        return np.asarray(np.log1p(-(1 - np.asarray(share)) / (flows * fleet.trips)))
    raise FieldError("dependence", f"{dependence!r} is not one of independent, correlated, any")
