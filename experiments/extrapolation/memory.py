"""Whether a deployment fits the memory of its GPUs. The first pipeline stage counts, because it holds most."""

from dataclasses import dataclass, replace

from bicoastal.wan.deployment import Deployment
from bicoastal.wan.transformer import Recomputation
from bicoastal.wan.units import format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes on one GPU of the first pipeline stage, and how many there are.

    in_flight: micro-batches whose activations are kept at once.
    """

    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    in_flight: int
    recomputation: Recomputation
    available_bytes: float

    @property
    def state_bytes(self) -> float:
        """Weights, gradients and optimizer."""
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def total_bytes(self) -> float:
        """State and activations."""
        return self.state_bytes + self.activations_bytes

    @property
    def fits(self) -> bool:
        """Whether the memory of the GPU is large enough."""
        return self.total_bytes <= self.available_bytes

    @property
    def state_fits(self) -> bool:
        """Whether there is room for the state at least."""
        return self.state_bytes <= self.available_bytes


def memory(deployment: Deployment) -> Memory:
    """Return the memory that a GPU of the first pipeline stage needs.

    State: bytes per parameter from the deployment's precision, on the parameters of `parameters_per_gpu`, divided over
    the replicas as `zero` says (Rajbhandari et al., "ZeRO", SC '20, §5): those of experts over as many fewer as share
    them. Activations: `Transformer.activation_bytes`, a share of 1/t for each layer of the stage and micro-batch in
    flight, of which one forward, one backward (1F1B) keeps as many as there are stages (arXiv 2104.04473 §2.2), unless
    a step has fewer. What communication, fragmentation and the runtime take comes on top and is not known.
    """
    d, precision = deployment, deployment.precision
    experts = d.expert_parameters_per_gpu
    shared = d.parameters_per_gpu - experts

    def divided(least_zero: int, bytes_per_parameter: float) -> float:
        replicas = (d.data, d.data // d.expert) if d.zero >= least_zero else (1, 1)
        return (shared / replicas[0] + experts / replicas[1]) * bytes_per_parameter

    in_flight = min(d.pipeline, d.micro_batches)
    kept = d.model.activation_bytes(d.recomputation, precision.activations) / d.tensor
    return Memory(
        weights_bytes=(shared + experts) * precision.weights,
        gradients_bytes=divided(2, precision.gradients),
        optimizer_bytes=divided(1, precision.optimizer),
        activations_bytes=d.layers_per_stage * d.micro_batch * in_flight * kept,
        in_flight=in_flight,
        recomputation=d.recomputation,
        available_bytes=d.gpu.memory_bytes,
    )


def verdict(deployment: Deployment) -> str:
    """Return one sentence on whether it fits and, where it does not, what is too large and what would help."""
    need = memory(deployment)
    room = format_size(need.available_bytes)
    if need.fits:
        return f"fits: {format_size(need.total_bytes)} of {room} on a GPU"
    if not need.state_fits:
        return (
            f"does not fit: weights, gradients and optimizer alone take {format_size(need.state_bytes)}, and a GPU has "
            f"{room}{_smaller_state(deployment)}"
        )
    full = memory(replace(deployment, recomputation="full"))
    return (
        f"does not fit: {format_size(need.state_bytes)} of state would, but {format_size(need.activations_bytes)} of "
        f"activations ({need.in_flight} micro-batches in flight) do not, of {room}; recomputing everything would keep "
        f"{format_size(full.activations_bytes)} of them, which {'fits' if full.fits else 'does not fit either'}"
    )


def _smaller_state(deployment: Deployment) -> str:
    for zero in range(deployment.zero + 1, 3):
        if memory(replace(deployment, zero=zero)).state_fits:
            what = "optimizer" if zero == 1 else "optimizer and gradients"
            return f"; with its {what} divided over the replicas (zero = {zero}) they would fit"
    return ""
