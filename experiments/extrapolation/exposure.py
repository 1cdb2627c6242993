"""The part of training's communication that computation does not hide, and the least WAN rate that hides all of it.

Tensor, expert and pipeline communication is on the critical path of every pass and is never hidden. The all-reduce of
a stage's gradients runs behind backward passes (`Assumptions.cover_passes`), and what is left over is exposed
(arXiv 2407.12819).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bicoastal.experiments.extrapolation.assumptions import Assumptions
from bicoastal.experiments.extrapolation.stages import (
    Values,
    expert_stage,
    gradient_lines,
    gradient_s,
    pipeline_stage,
    tensor_stage,
    wide_area_s,
)
from bicoastal.wan.checks import FieldError
from bicoastal.wan.deployment import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One micro-batch's forward or backward pass through one pipeline stage: computation and communication, seconds."""

    compute_s: float
    communication_s: float

    @property
    def time_s(self) -> float:
        """The sum: one comes after the other."""
        return self.compute_s + self.communication_s


def forward_pass(deployment: Deployment, assumptions: Assumptions) -> Pass:
    """Return the forward pass: 2 P s + 4 s^2 h operations for each layer, over t GPUs at their efficiency."""
    return _pass(deployment, assumptions, deployment.model.forward_flops)


def backward_pass(deployment: Deployment, assumptions: Assumptions) -> Pass:
    """Return the backward pass: twice the forward pass's operations, and those that are computed again."""
    recomputation = deployment.recomputation if assumptions.count_recomputation else "none"
    return _pass(deployment, assumptions, deployment.model.backward_flops(recomputation))


def _pass(deployment: Deployment, assumptions: Assumptions, layer_flops: float) -> Pass:
    layers, gpu = deployment.layers_per_stage, deployment.gpu
    flops = layers * deployment.micro_batch * layer_flops
    of_layer = [tensor_stage(deployment, assumptions), expert_stage(deployment, assumptions)]
    return Pass(
        compute_s=flops / (deployment.tensor * gpu.flops * gpu.efficiency),
        communication_s=layers * sum(stage.time_s for stage in of_layer if stage is not None)
        + pipeline_stage(deployment, assumptions).time_s,
    )


def cover_s(deployment: Deployment, assumptions: Assumptions) -> float:
    """Return the time of the backward passes that can hide a stage's gradient all-reduce."""
    behind = backward_pass(deployment, assumptions)
    one_s = behind.time_s if assumptions.communication_covers else behind.compute_s
    return assumptions.cover_passes * one_s


def exposed_gradient_s(
    deployment: Deployment, assumptions: Assumptions, wide_area_latency_s: Values, wide_area_busy_s: Values = 0.0
) -> Values:
    """Return the part of the gradient all-reduce that is not hidden; the wide-area stage as in `gradient_s`."""
    whole_s = gradient_s(deployment, assumptions, wide_area_latency_s, wide_area_busy_s)
    return np.maximum(0.0, whole_s - cover_s(deployment, assumptions))


def exposed_share(
    deployment: Deployment, assumptions: Assumptions, gradient_exposed_s: Values = 0.0, *, micro_batches: int = 1
) -> Values:
    """Return exposed communication over all busy time of a step with so many micro-batches.

    With one micro-batch and no exposed gradients this is the share that is published for a layer. The pipeline's bubble
    counts neither as exposed nor as busy.
    """
    forward, backward = forward_pass(deployment, assumptions), backward_pass(deployment, assumptions)
    exposed_s = micro_batches * (forward.communication_s + backward.communication_s) + gradient_exposed_s
    return exposed_s / (micro_batches * (forward.compute_s + backward.compute_s) + exposed_s)


def step_s(deployment: Deployment, assumptions: Assumptions, gradient_exposed_s: Values = 0.0) -> Values:
    """Return the time of a training step without the bubble of its pipeline, seconds.

    It has the passes of all micro-batches and the exposed part of the gradients. `computation.bubble_share` gives the
    bubble.
    """
    both_s = forward_pass(deployment, assumptions).time_s + backward_pass(deployment, assumptions).time_s
    return deployment.micro_batches * both_s + gradient_exposed_s


def least_wan_bps(
    deployment: Deployment,
    assumptions: Assumptions,
    *,
    rtt_s: Values | None = None,
    lost_s: Values = 0.0,
    exposed_s: Values = 0.0,
) -> Any:
    """Return the least bit/s of a GPU across the WAN that leaves at most `exposed_s` of the gradients uncovered.

    rtt_s: by default the deployment's. lost_s: the time that the transport adds to delay and serialisation. The result
    is infinite where no rate is enough, and 0 where there is one site. Each of `gradient_lines` limits the time in
    which the WAN is busy, and the smallest limit counts. Raises FieldError where the assumptions leave serialisation
    out.
    """
    if not assumptions.wan_serialisation:
        raise FieldError("wan_serialisation", "without it no rate plays a part")
    latency_s, bits = wide_area_s(deployment, assumptions, 1.0, rtt_s)
    allowed_s = cover_s(deployment, assumptions) + exposed_s
    busy_s: Values = np.inf
    for line in gradient_lines(deployment, assumptions):
        room_s = allowed_s - line.constant_s - line.latency * (latency_s + lost_s)
        busy_s = np.minimum(busy_s, room_s / line.busy if line.busy else np.where(room_s < 0, -np.inf, np.inf))
    needed_bits, busy_s = np.broadcast_arrays(np.asarray(bits, dtype=float), busy_s)
    rate_bps = np.full(busy_s.shape, np.inf)
    np.divide(needed_bits, busy_s, out=rate_bps, where=busy_s > 0)
    rate_bps[needed_bits == 0] = 0.0
    return float(rate_bps) if rate_bps.ndim == 0 else rate_bps
