"""A run's specification as text and back: what the store keeps, and what keys and digests of setups are made from.

The text is JSON in one form: fields in the order of their classes, no blanks, floats with as many digits as they need.
It is written and read by the declared types of `RunSpec` (`emulation.processes.wire_format`): the text names no module
and runs no code, and of several classes that a field may hold it gives the name of one.
"""

from collections.abc import Sequence
from dataclasses import replace

from bicoastal.emulation.base import JobSpec, RunSpec, TransportUse
from bicoastal.emulation.processes.wire_format import WireFormat
from bicoastal.wan.checks import FieldError

_FORMAT = WireFormat[RunSpec](RunSpec)
_NO_TRANSPORT = TransportUse(name="")


def encode_specification(spec: RunSpec) -> str:
    """Return the specification as text. Raises WireFormatError, a ValueError, for a value that has no JSON."""
    return _FORMAT.encode(spec).decode("ascii")


def decode_specification(text: str) -> RunSpec:
    """Return the specification that the text holds. Raises WireFormatError, in one sentence, where it holds none."""
    return _FORMAT.decode(text.encode("ascii", errors="backslashreplace"))


def without_comparison(spec: RunSpec, jobs: Sequence[str]) -> RunSpec:
    """Return the specification without its seeds, its sampling, and the transport that carries `jobs`."""
    return replace(
        spec,
        seed=0,
        sample_interval_s=None,
        jobs=tuple(
            replace(
                job,
                transport=_NO_TRANSPORT if job.name in jobs else job.transport,
                allreduce=replace(job.allreduce, seed=0),
            )
            for job in spec.jobs
        ),
    )


def compared_job(spec: RunSpec, jobs: Sequence[str]) -> JobSpec:
    """Return the first of `jobs`, those that the compared transport carries. Raises ValueError where there is none."""
    for job in spec.jobs:
        if job.name in jobs:
            return job
    raise FieldError("jobs", f"none of {', '.join(jobs)} is in the run {spec.name}")
