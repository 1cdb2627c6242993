"""The WAN rate that a deployment needs with a real transport, where each trip waits for the slowest of its messages.

The wide-area stage has `wan_trips` trips. Each waits for its slowest message. This is a barrier, and an upper bound
where GPU pairs go on by themselves. `share` is the part of the steps in which every trip keeps to its time. A transport
adds time to propagation and payload / rate: headers, repairs, and the growth of its window. This time changes little
with the rate. The least rate is therefore the fixed point of `exposure.least_wan_bps` with this added time. The search
comes from below, so that the first fixed point is the least.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bicoastal.experiments.extrapolation.assumptions import Assumptions
from bicoastal.experiments.extrapolation.exposure import (
    backward_pass,
    cover_s,
    exposed_gradient_s,
    exposed_share,
    forward_pass,
    least_wan_bps,
    step_s,
)
from bicoastal.experiments.extrapolation.stages import gradient_s, wide_area_s
from bicoastal.experiments.extrapolation.tails.model import Array, ArrayLike, Crossing, QuantileModel
from bicoastal.experiments.extrapolation.tails.slowest import Dependence, Fleet, Scope, messages_in, slowest_s
from bicoastal.wan.checks import FieldError
from bicoastal.wan.deployment import Deployment
from bicoastal.wan.units import format_time

UNLIMITED_BPS = 1e15  # of a GPU: the added time at this rate is there at any rate
MOST_ROUNDS = 40  # of the search for the fixed point
CLOSE = 1e-4  # relative difference up to which two rates count as equal


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The path between the sites: loss of each packet, tail_loss added for a message's last one, sizes of packets."""

    loss: ArrayLike = 1e-4
    tail_loss: ArrayLike = 0.0
    mtu_bytes: int = 9000
    framing_bytes: int = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be sized. share: the part of the steps that meet the target; dependence: see `slowest`.

    scope: whether a trip waits for one layer's group of GPUs or for the whole step. Raises FieldError.
    """

    deployment: Deployment
    assumptions: Assumptions
    path: Path
    scope: Scope = "step"
    share: float = 0.99
    dependence: Dependence = "independent"

    def __post_init__(self) -> None:
        """Check what `Deployment` does not check."""
        if self.deployment.sites == 1:
            raise FieldError("deployment", f"{self.deployment.name} is at one site, so that nothing crosses the WAN")
        if not 0 < self.share < 1:
            raise FieldError("share", f"{self.share!r} is not between 0 and 1")
        if not self.assumptions.wan_serialisation:
            raise FieldError("assumptions.wan_serialisation", "without it no rate plays a part")

    @property
    def fleet(self) -> Fleet:
        """All messages that a trip waits for."""
        return Fleet(
            messages=messages_in(self.deployment, self.scope),
            planes=self.deployment.planes,
            trips=self.assumptions.wan_trips,
        )

    def crossing(self, rate_bps: ArrayLike, rtt_s: ArrayLike | None = None) -> Crossing:
        """Return one trip's message of a GPU whose rate across the WAN is `rate_bps`."""
        trips = self.assumptions.wan_trips
        return Crossing(
            payload_bytes=self.deployment.wide_area_bytes(trips) / trips,
            rate_bps=rate_bps,
            rtt_s=self.deployment.wan_rtt_s if rtt_s is None else rtt_s,
            loss=self.path.loss,
            tail_loss=self.path.tail_loss,
            mtu_bytes=self.path.mtu_bytes,
            framing_bytes=self.path.framing_bytes,
            idle_s=float(step_s(self.deployment, self.assumptions)),
        )


def lost_s(question: Question, model: QuantileModel, rate_bps: ArrayLike, rtt_s: ArrayLike | None = None) -> Array:
    """Return the time that the slowest messages of all trips add to propagation and payload / rate, seconds."""
    crossing = question.crossing(rate_bps, rtt_s)
    slowest = slowest_s(model, crossing, question.fleet, share=question.share, dependence=question.dependence)
    return np.asarray(question.assumptions.wan_trips * (slowest - crossing.bound_s()))


def gradient_exposed_s(
    question: Question, model: QuantileModel, rate_bps: ArrayLike, rtt_s: ArrayLike | None = None
) -> Array:
    """Return what is exposed of the gradient all-reduce in a step at this rate of a GPU, seconds."""
    latency_s, busy_s = wide_area_s(question.deployment, question.assumptions, rate_bps, rtt_s)
    lost = lost_s(question, model, rate_bps, rtt_s)
    return np.asarray(exposed_gradient_s(question.deployment, question.assumptions, latency_s + lost, busy_s))


def step_share(question: Question, gradient_s: ArrayLike) -> Array:
    """Return the exposed share of a step that exposes `gradient_s` of its gradients; its bubble is left out."""
    deployment = question.deployment
    share = exposed_share(deployment, question.assumptions, gradient_s, micro_batches=deployment.micro_batches)
    return np.asarray(share)


def allowed_s(question: Question, target: float) -> float:
    """Return how long a step may expose its gradients for an exposed share of `target`; negative: no rate is enough.

    With e exposed and c of computation the share is e / (c + e), so e = c target / (1 - target).
    Raises FieldError when the target is not a share.
    """
    if not 0 <= target < 1:
        raise FieldError("target", f"{target!r} is not a share of at least 0 and below 1")
    count = question.deployment.micro_batches
    passes = [kind(question.deployment, question.assumptions) for kind in (forward_pass, backward_pass)]
    compute_s = count * sum(each.compute_s for each in passes)
    return compute_s * target / (1 - target) - count * sum(each.communication_s for each in passes)


def least_bps(
    question: Question, model: QuantileModel, *, rtt_s: ArrayLike | None = None, exposed_s: ArrayLike = 0.0
) -> Array:
    """Return the least bit/s of a GPU across the WAN that leaves at most `exposed_s` of the gradients exposed.

    Infinite where no rate does. `rtt_s` and the path's losses may be arrays; they are searched together.
    """
    arrays = (0.0 if rtt_s is None else rtt_s, exposed_s, question.path.loss, question.path.tail_loss)
    shape = np.broadcast_shapes(*(np.shape(np.asarray(each)) for each in arrays))

    def needed(lost: ArrayLike) -> Array:
        found = least_wan_bps(question.deployment, question.assumptions, rtt_s=rtt_s, lost_s=lost, exposed_s=exposed_s)
        return np.broadcast_to(np.asarray(found, dtype=float), shape).copy()

    hopeless = ~np.isfinite(needed(lost_s(question, model, UNLIMITED_BPS, rtt_s)))
    rate = needed(0.0)
    for _ in range(MOST_ROUNDS):
        tried = np.where(np.isfinite(rate) & ~hopeless & (rate > 0), rate, UNLIMITED_BPS)
        again = needed(lost_s(question, model, tried, rtt_s))
        again = np.where(hopeless, np.inf, np.where(np.isfinite(again), again, UNLIMITED_BPS))
        settled = hopeless | (np.abs(again - tried) <= CLOSE * tried)
        rate = np.where(hopeless, np.inf, np.maximum(again, tried * (again > tried)))
        if np.all(settled):
            break
    return rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one transport needs. least_bps of a GPU: None where no rate is enough, for `reason`.

    slowest_s: the slowest of a trip's messages at that rate (or at an unlimited one, where none is enough), with the
    question's dependence. slowest_correlated_s, slowest_any_s: the least and the most for any dependence. lost_s: the
    time that the transport adds in all trips. exposed_s, exposed_share: of a step at the deployment's own rate; None
    where it has none.
    """

    transport: str
    source: str
    least_bps: float | None
    per_flow_bps: float | None
    aggregate_bps: float | None
    reason: str
    slowest_s: float
    slowest_correlated_s: float
    slowest_any_s: float
    lost_s: float
    exposed_s: float | None
    exposed_share: float | None


def need(question: Question, model: QuantileModel, target: float | None = None) -> Need:
    """Return what a transport needs for the exposed share of a step to be at most `target`; None: all hidden."""
    deployment = question.deployment
    room_s = 0.0 if target is None else allowed_s(question, target)
    found = np.inf if room_s < 0 else float(least_bps(question, model, exposed_s=room_s))
    least = found if np.isfinite(found) else None
    at_bps = UNLIMITED_BPS if least is None else least
    crossing = question.crossing(at_bps)

    def slowest(dependence: Dependence) -> float:
        return float(slowest_s(model, crossing, question.fleet, share=question.share, dependence=dependence))

    exposed = None if deployment.wan_bps is None else float(gradient_exposed_s(question, model, deployment.wan_bps))
    return Need(
        transport=model.name,
        source=model.source,
        least_bps=least,
        per_flow_bps=None if least is None else least / deployment.planes,
        aggregate_bps=None if least is None else least * deployment.gpu_pairs,
        reason="" if least is not None else _reason(question, room_s, target),
        slowest_s=slowest(question.dependence),
        slowest_correlated_s=slowest("correlated"),
        slowest_any_s=slowest("any"),
        lost_s=float(lost_s(question, model, at_bps)),
        exposed_s=exposed,
        exposed_share=None if exposed is None else float(step_share(question, exposed)),
    )


def _reason(question: Question, room_s: float, target: float | None) -> str:
    if target is not None and room_s < 0:
        share = float(step_share(question, 0.0))
        return f"tensor, pipeline and expert communication alone expose {100 * share:.2f} %"
    deployment, assumptions = question.deployment, question.assumptions
    delay_s = float(wide_area_s(deployment, assumptions, UNLIMITED_BPS)[0])
    covered_s = cover_s(deployment, assumptions) + room_s
    spare_s = covered_s - float(gradient_s(deployment, assumptions, delay_s))
    if spare_s <= 0:
        return (
            f"the stages inside a site and the delay leave nothing of the {format_time(covered_s)} to hide behind, "
            "whatever the transport"
        )
    fleet = f"{round(question.fleet.messages):,} messages"
    return f"{format_time(spare_s)} are to spare, and the slowest of {fleet} loses more at any rate"


def at(question: Question, **changes: Any) -> Question:
    """Return the question with other values on its path."""
    return replace(question, path=replace(question.path, **changes))
