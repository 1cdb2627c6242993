"""The traffic of a scenario's tables: the jobs with their all-reduce, and the background flows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bicoastal.emulation.base import BackgroundSpec, JobSpec, ParameterValue, TransportUse
from bicoastal.emulation.limits.memory import background_memory_bytes, job_memory_bytes, machine_memory_bytes
from bicoastal.experiments.scenario.deployment import load_deployment
from bicoastal.experiments.scenario.scenario_keys import BackgroundKeys, JobKeys
from bicoastal.experiments.scenario.tables import ScenarioError, Table, alternatives, close_matches, shown
from bicoastal.transports.registry import Registry, UnknownTransportError
from bicoastal.wan.allreduce import AllReduceSpec
from bicoastal.wan.deployment import Deployment
from bicoastal.wan.topology import Topology
from bicoastal.wan.units import format_size

MAX_ARRAY_BYTES = 2**30  # both coasts hold several arrays of a shard at once
_ALLREDUCE_KEYS = {
    "sites": "sites",
    "pattern": "pattern",
    "ranks_per_site": "ranks_per_site",
    "dtype": "dtype",
    "array_bytes": "array",
    "fabric_Bps": "fabric",
}

Parameters = tuple[tuple[str, ParameterValue], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """A job whose transport may still be open: `transport` None means the one under comparison.

    deployment: the one that its shard comes from, None where the file gives the size.
    """

    name: str
    transport: TransportUse | None
    paths: tuple[str, ...]
    allreduce: AllReduceSpec
    iterations: int
    gap_s: float
    start_s: float
    deployment: Deployment | None = None

    def job(self, compared: TransportUse, seed: int) -> JobSpec:
        """Return the job of one run; the seed is its gradients' too."""
        return JobSpec(
            name=self.name,
            transport=self.transport or compared,
            paths=self.paths,
            allreduce=replace(self.allreduce, seed=seed),
            iterations=self.iterations,
            gap_s=self.gap_s,
            start_s=self.start_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the readers of jobs and background flows need to know of the rest of the scenario."""

    topology: Topology
    sites: tuple[str, ...]
    iterations: int
    gap_s: float
    registry: Registry
    directory: Path | None
    memory: "MemoryBudget"

    def mtu_bytes(self, paths: Sequence[str]) -> int:
        """Return the smallest packet that any of `paths` takes whole."""
        return min(self.topology.path_mtu_bytes(path) for path in paths)


class MemoryBudget:
    """The memory for the messages of one run. Octets that cross the WAN are real, and this machine has to hold them."""

    def __init__(self) -> None:
        self._machine_bytes = machine_memory_bytes()
        self._claimed_bytes = 0

    def claim(self, table: Table, key: str, needed_bytes: int, remedy: str) -> None:
        """Take `needed_bytes`. Raises ScenarioError about `key`, with the remedy, where too few are left."""
        self._claimed_bytes += needed_bytes
        if self._claimed_bytes > self._machine_bytes:
            together = self._claimed_bytes > needed_bytes
            others = f", {format_size(self._claimed_bytes)} with what stands before it" if together else ""
            table.fail(
                key,
                f"takes up to {format_size(needed_bytes)} of memory{others}, and this machine has "
                f"{format_size(self._machine_bytes)}; {remedy}",
            )


def check_transport_name(name: str, registry: Registry) -> None:
    """Raise ScenarioError, in one sentence, when no transport has this name and it is no "module:ATTRIBUTE"."""
    names = registry.names()
    if name not in names and not re.fullmatch(r"[\w.]+:\w+", name):
        raise ScenarioError(f"there is no transport {shown(name)}{alternatives(name, names)}")


def read_parameters(table: Table, transport: str, registry: Registry) -> Parameters:
    """Return a transport's parameters, checked by the transport itself."""
    values = table.rest()
    for key, value in values.items():
        if not isinstance(value, str | int | float | bool):
            table.fail(key, f"{shown(value)} is not a number, a truth value or text")
        if type(value) is int and value.bit_length() > 63:
            table.fail(key, f"{shown(value)} is too large")
    try:
        spec = registry.resolve(transport)
    except UnknownTransportError as error:
        table.fail("", str(error))
    table.adopt(lambda: spec.make_parameters(values), {key: key for key in _parameter_names(spec.parameters, values)})
    return tuple(sorted(values.items()))  # type: ignore[arg-type]


def _parameter_names(parameters: type[Any] | None, values: Mapping[str, object]) -> set[str]:
    return {*values, *getattr(parameters, "__dataclass_fields__", ())}


def read_jobs(document: Table, around: Surroundings) -> tuple[JobPlan, ...]:
    """Return the jobs: those of [[jobs]], or the single one of [allreduce]."""
    key = document.only_one_of("allreduce", "jobs", expected="a table [allreduce], or [[jobs]]")
    if key == "allreduce":
        return (_read_job(document.table("allreduce"), "job", around),)
    jobs = [
        _read_job(table, f"job{index}", around) for index, table in enumerate(document.tables("jobs", required=True))
    ]
    if all(job.transport is not None for job in jobs):
        document.fail("jobs", "each has a transport of its own, so there is none to compare; leave one without")
    return tuple(jobs)


def _read_job(table: Table, name: str, around: Surroundings) -> JobPlan:
    name = JobKeys.name.read(table, name)
    ends = JobKeys.sites.read(table, (around.sites[0], around.sites[-1]))
    if len(ends) != 2 or not set(ends) <= set(around.sites):
        table.fail("sites", f"expected two of the sites {', '.join(around.sites)}")
    deployment = _read_deployment(table, around) if table.has("deployment") else None
    job = JobPlan(
        name=name,
        deployment=deployment,
        transport=_read_transport(table, around.registry) if JobKeys.transport.find(table) is not None else None,
        paths=_read_paths(table, ends, around.topology),
        allreduce=_read_allreduce(table, (ends[0], ends[1]), deployment),
        iterations=JobKeys.iterations.read(table, around.iterations),
        gap_s=JobKeys.gap.read(table, around.gap_s),
        start_s=JobKeys.start.read(table),
    )
    JobKeys.finish(table)
    around.memory.claim(
        table,
        "deployment" if table.has("deployment") else "shard",
        job_memory_bytes(job.allreduce, around.mtu_bytes(job.paths)),
        "take a smaller shard" + ("" if table.has("array") else ", or set array"),
    )
    return job


def _read_deployment(table: Table, around: Surroundings) -> Deployment:
    try:
        deployment = load_deployment(JobKeys.deployment.read(table), around.directory)
    except ScenarioError as error:
        table.fail("deployment", str(error))
    if deployment.sites == 1:
        table.fail("deployment", f"{deployment.name} is at one site, so that nothing crosses the WAN")
    return deployment


def _read_allreduce(table: Table, ends: tuple[str, str], deployment: Deployment | None) -> AllReduceSpec:
    source = table.only_one_of("shard", "deployment", expected='a size such as "57.13 MB", or a deployment')
    pattern = JobKeys.pattern.read(table)
    local: dict[str, Any] = {}
    if deployment is not None:
        sent, returned = deployment.precision.gradient_messages, deployment.precision.weight_messages
        if pattern == "reduce-scatter" and sent != returned:
            table.fail(
                "pattern",
                f"the first trip of {deployment.name} carries {sent:g} bytes for a parameter and the second "
                f"{returned:g}; both carry the same here, so that it takes a shard in the deployment's place",
            )
        shard_bytes = deployment.wide_area_shard_bytes
        local["local_stages"] = deployment.local_stages
        if table.has("fabric"):
            table.fail("fabric", "cannot stand beside deployment, which has the rates of its own stages")
    else:
        shard_bytes = JobKeys.shard.read(table)
        if (fabric_bps := JobKeys.fabric.find(table)) is not None:
            local["fabric_Bps"] = fabric_bps / 8
    array_bytes = JobKeys.array.find(table)
    if (array_bytes or shard_bytes) > MAX_ARRAY_BYTES:
        table.fail("array", "expected a size of at most 1 GiB, since arrays of a whole shard would not fit in memory")
    values: dict[str, Any] = {
        "pattern": pattern,
        "ranks_per_site": JobKeys.ranks_per_site.read(table),
        "dtype": JobKeys.dtype.read(table),
        **local,
    }
    return table.adopt(
        lambda: AllReduceSpec(sites=ends, shard_bytes=shard_bytes, array_bytes=array_bytes, **values),
        {**_ALLREDUCE_KEYS, "shard_bytes": source},
    )


def _read_transport(table: Table, registry: Registry) -> TransportUse:
    name = JobKeys.transport.read(table)
    try:
        check_transport_name(name, registry)
    except ScenarioError as error:
        table.fail("transport", str(error))
    return TransportUse(name=name, parameters=read_parameters(table.table("parameters"), name, registry))


def _read_paths(table: Table, ends: Sequence[str], topology: Topology) -> tuple[str, ...]:
    joining = tuple(name for name, path in topology.paths.items() if {path.sites[0], path.sites[-1]} == set(ends))
    names = JobKeys.paths.read(table, joining)
    for index, name in enumerate(names):
        if name not in topology.paths:
            table.fail(f"paths[{index}]", f"there is no path {shown(name)}{close_matches(name, topology.paths)}")
        if name not in joining:
            table.fail(f"paths[{index}]", f"{shown(name)} does not join {ends[0]} and {ends[1]}")
    if not names:
        table.fail("paths", f"no path joins {ends[0]} and {ends[1]}")
    return names


def read_background(document: Table, around: Surroundings) -> tuple[BackgroundSpec, ...]:
    """Return the flows of [[background]]."""
    return tuple(
        _read_flow(table, f"background{index}", around) for index, table in enumerate(document.tables("background"))
    )


def _read_flow(table: Table, name: str, around: Surroundings) -> BackgroundSpec:
    ends = [
        table.one_of(key, around.sites, default)
        for key, default in (("from", around.sites[0]), ("to", around.sites[-1]))
    ]
    if ends[0] == ends[1]:
        table.fail("to", f"{shown(ends[1])} is where the flow comes from")
    table.raw("transport", "the name of a transport")
    flow = BackgroundSpec(
        name=BackgroundKeys.name.read(table, name),
        transport=_read_transport(table, around.registry),
        paths=_read_paths(table, ends, around.topology),
        source=ends[0],
        destination=ends[1],
        message_bytes=BackgroundKeys.message.read(table),
        gap_s=BackgroundKeys.gap.read(table),
        start_s=BackgroundKeys.start.read(table),
        messages=BackgroundKeys.messages.find(table),
    )
    BackgroundKeys.finish(table)
    around.memory.claim(
        table,
        "message",
        background_memory_bytes(flow.message_bytes, around.mtu_bytes(flow.paths)),
        "take a smaller message",
    )
    return flow
