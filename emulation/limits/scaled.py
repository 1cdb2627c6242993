"""A run that is divided until it fits a machine: rates and payloads together, so that bursts keep their length."""

from dataclasses import replace

from bicoastal.emulation.base import RunSpec
from bicoastal.wan.scaling import scaled_allreduce, scaled_topology


def scaled_run(spec: RunSpec, divisor: float) -> RunSpec:
    """Return `spec` with rates, queues and payloads divided by `divisor`; the record will say so.

    Times are kept, and so are the packets' size and their loss: see `wan.scaling`. Raises ValueError unless the divisor
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
