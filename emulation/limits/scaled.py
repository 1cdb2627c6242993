"""Divides the rates and payloads of a run, so that it fits a machine and bursts keep their duration."""

from dataclasses import replace

from bicoastal.emulation.base import RunSpec
from bicoastal.wan.scaling import scaled_allreduce, scaled_topology


def scaled_run(spec: RunSpec, divisor: float) -> RunSpec:
    """Return `spec` with rates, queues and payloads divided by `divisor`; `RunSpec.scale` records it.

    Times, packet sizes and losses stay the same: see `wan.scaling`. Raises ValueError unless the divisor
    is a finite number above zero.
    """
    if divisor == 1:
        return spec
    return replace(
        spec,
        topology=scaled_topology(spec.topology, divisor),
        jobs=tuple(replace(job, allreduce=scaled_allreduce(job.allreduce, divisor)) for job in spec.jobs),
        background=tuple(
            replace(part, message_bytes=max(1, round(part.message_bytes / divisor))) for part in spec.background
        ),
        scale=spec.scale * divisor,
    )
