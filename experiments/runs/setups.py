"""What a run is made of besides its seed and the transport that is compared. Runs that share it belong together.

`setup_key` is for programs: any difference makes another one. `conditions` is for people, who want to see in what two
setups differ: keys and values in the words of a scenario, as far as it has them. Programs never read it: they read the
specification itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from bicoastal.emulation.base import BackgroundSpec, JobSpec, RunSpec
from bicoastal.experiments.basics.digests import digest
from bicoastal.experiments.basics.value_text import value_text
from bicoastal.experiments.runs.specifications import encode_specification, without_comparison
from bicoastal.wan.loss import Bernoulli, NoLoss
from bicoastal.wan.topology import LinkSpec
from bicoastal.wan.units import format_rate, format_size, format_time

_MOST_LETTERS, _MOST_CONDITIONS = 80, 200
_UNITS = {"_bps": format_rate, "_bytes": format_size, "_s": format_time}


def setup_key(spec: RunSpec, jobs: Sequence[str], world: str) -> str:
    """Return 16 hexadecimal digits over the world and all of `spec` but seeds, sampling and what carries `jobs`."""
    return digest([world, encode_specification(without_comparison(spec, jobs))])


def conditions(spec: RunSpec, jobs: Sequence[str], options: Mapping[str, str]) -> dict[str, str]:
    """Return what a setup consists of, values as texts by key. options: of the backend. jobs: those compared.

    A key of several links or jobs that is the same for all of them stands there once. What is too long is cut, and
    ends with a few letters of its digest.
    """
    bare = without_comparison(spec, jobs)
    found = dict(options)
    found |= _all_of("links", [_link(link) for link in bare.topology.links.values()])
    found |= _all_of("paths", [_fields(path) for path in bare.topology.paths.values()])
    works = [
        {
            **_fields(job, but=("allreduce", "transport")),
            **_fields(job.allreduce, but=("seed",)),
            **({} if job.name in jobs else _carrier(job)),
        }
        for job in bare.jobs
    ]
    found |= _all_of("allreduce" if len(works) == 1 else "jobs", works)
    found |= _all_of(
        "background", [{**_fields(flow, but=("transport",)), **_carrier(flow)} for flow in bare.background]
    )
    found["scenario.time_limit"] = format_time(spec.time_limit_s)
    if len(found) <= _MOST_CONDITIONS:
        return found
    listed = [f"{key}={value}" for key, value in found.items()]
    further = listed[_MOST_CONDITIONS:]
    return dict(list(found.items())[:_MOST_CONDITIONS]) | {"others": f"{len(further)}, {_mark(further)}"}


def _link(link: LinkSpec) -> dict[str, str]:
    queue = "1" if link.queue_bytes is None else f"{link.queue_bytes / link.bdp_bytes:.4g}" if link.bdp_bytes else ""
    return {
        "rtt": format_time(2 * link.delay_s),
        **_fields(link, but=("delay_s", "queue_bytes")),
        "queue": f"{queue} BDP" if queue else format_size(link.queue_bytes or 0),
    }


def _carrier(traffic: JobSpec | BackgroundSpec) -> dict[str, str]:
    use = traffic.transport
    return {"transport": use.name, **{f"parameters.{key}": str(value) for key, value in use.parameters}}


def _fields(spec: Any, *, but: Sequence[str] = ()) -> dict[str, str]:
    return dict(_named(f.name, getattr(spec, f.name)) for f in fields(spec) if f.name not in but)


def _named(name: str, value: object) -> tuple[str, str]:
    for suffix, formatted in _UNITS.items():
        if name.endswith(suffix) and isinstance(value, int | float):
            return name.removesuffix(suffix), formatted(value)
    return name, _text(value)


def _text(value: object) -> str:
    match value:
        case None:
            return "–"
        case NoLoss():
            return "0"
        case Bernoulli():
            return value_text(value.probability)
        case float():
            return value_text(value)
    text = repr(value) if is_dataclass(value) or not isinstance(value, tuple) else ", ".join(map(str, value))
    if len(text) <= _MOST_LETTERS:
        return text
    return f"{text[:_MOST_LETTERS]}… ({_mark(text)})"


def _mark(value: object) -> str:
    """Return a few letters that tell one value from others, where there is no room for all of it."""
    return digest(value)[:6]


def _all_of(section: str, tables: Sequence[Mapping[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key in dict.fromkeys(key for table in tables for key in table):
        values = [table.get(key) for table in tables]
        first = values[0]
        if first is not None and len(set(values)) == 1:
            found[f"{section}.{key}"] = first
        else:
            found |= {f"{section}[{n}].{key}": value for n, value in enumerate(values) if value is not None}
    return found
