"""Scenarios and studies: loaded by name, from a file or a document, with changes; or built from typed objects."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bicoastal.emulation.base import BackgroundSpec
from bicoastal.emulation.registry import BackendRegistry, UnknownBackendError
from bicoastal.experiments.basics.digests import digest
from bicoastal.experiments.basics.value_text import value_text
from bicoastal.experiments.runs.specifications import encode_specification, without_comparison
from bicoastal.experiments.scenario.bundled import Kind, bundled_data, bundled_names
from bicoastal.experiments.scenario.deployment import load_deployment
from bicoastal.experiments.scenario.overrides import Override, option, setting
from bicoastal.experiments.scenario.scenario import DEFAULT_SCENARIO, Scenario, read_scenario
from bicoastal.experiments.scenario.scenario import load_scenario as load_with
from bicoastal.experiments.scenario.study import Study
from bicoastal.experiments.scenario.study import load_study as load_study_with
from bicoastal.experiments.scenario.tables import ScenarioError, parse_toml
from bicoastal.experiments.scenario.workload import JobPlan, Parameters, check_transport_name
from bicoastal.transports.registry import Registry, TransportSpec, UnknownTransportError
from bicoastal.wan.topology import Topology
from bicoastal.wan.units import format_size

Changes = Mapping[str, object] | Iterable[Override]
"""Changes of keys: {"links.loss": 1e-3}, or what `parse_override` has read."""

Source = str | os.PathLike[str]


def load_scenario(source: Source | Mapping[str, object] = DEFAULT_SCENARIO, *, changes: Changes = ()) -> Scenario:
    """Return a scenario, ready to run.

    source: the name of a bundled scenario (`list_scenarios`), the path of a TOML file, or a mapping that has the tables
    of such a file. `docs/scenarios.md` lists every key.
    changes: values by key, as in {"links.loss": 1e-3, "links[1].rtt": "70 ms", "adaptive.headroom": 0.05}.
    Raises ScenarioError, in one sentence that names the file or the change, the key, and what was expected.
    """
    overrides = overrides_of(changes)
    if isinstance(source, Mapping):
        return read_scenario(source, "scenario", Registry.installed(), overrides, directory=Path())
    return load_with(os.fspath(source), Registry.installed(), overrides)


def build_scenario(
    *,
    name: str,
    topology: Topology,
    jobs: Sequence[JobPlan],
    background: Sequence[BackgroundSpec] = (),
    transports: Sequence[str] = ("reno", "cubic", "adaptive"),
    parameters: Mapping[str, Parameters] | None = None,
    seed: int = 0,
    time_limit_s: float = 300.0,
    sample_interval_s: float | None = None,
    description: str = "",
) -> Scenario:
    """Return a scenario that is made of typed objects in place of a file.

    jobs: at least one of them has no transport of its own; the compared transports carry it. transports: those that
    are compared where a run names none. parameters: by transport, pairs of a name and a value. seed: of the first run.
    time_limit_s: for one iteration, seconds; then the run fails. sample_interval_s: spacing of the time series,
    seconds; None for no time series. Raises ScenarioError where the parts do not fit together.
    """
    if all(job.transport is not None for job in jobs):
        raise ScenarioError("jobs: each has a transport of its own, so there is none to compare; leave one without")
    scenario = Scenario(
        name=name,
        description=description,
        source="",
        topology=topology,
        jobs=tuple(jobs),
        background=tuple(background),
        seed=seed,
        time_limit_s=time_limit_s,
        sample_interval_s=sample_interval_s,
        transports=tuple(transports),
        parameters=dict(parameters or {}),
    )
    try:
        spec = scenario.run_spec("any", seed=seed)
    except ValueError as error:
        raise ScenarioError(str(error)) from error
    return replace(scenario, source=digest(encode_specification(without_comparison(spec, scenario.compared_jobs))))


def with_iterations(scenario: Scenario, iterations: int) -> Scenario:
    """Return the scenario with so many iterations of each job. Raises ScenarioError where there would be none."""
    if iterations < 1:
        raise ScenarioError(f"iterations: {iterations} is not at least 1")
    return replace(scenario, jobs=tuple(replace(job, iterations=iterations) for job in scenario.jobs))


def load_study(source: Source, *, changes: Changes = ()) -> Study:
    """Return a study: a scenario with some of its keys varied, every combination of their values a point.

    source: the name of a bundled study (`list_studies`) or the path of a TOML file. changes: as in `load_scenario`,
    made at every point. Raises ScenarioError in one sentence.
    """
    return load_study_with(os.fspath(source), Registry.installed(), overrides_of(changes))


def settings_of(changes: Changes) -> tuple[str, ...]:
    """Return changes as "key=value" texts, which a run keeps beside its results."""
    if isinstance(changes, Mapping):
        return tuple(f"{key}={value_text(value)}" for key, value in changes.items())
    return tuple(setting(f"{'.'.join(map(_step, each.steps))}={value_text(each.value)}") for each in changes)


def _step(step: tuple[str, int | None]) -> str:
    name, index = step
    return name if index is None else f"{name}[{index}]"


def overrides_of(changes: Changes) -> list[Override]:
    """Return changes in the form in which they are made in a document. Raises ScenarioError for what is no key."""
    if isinstance(changes, Mapping):
        return [
            option(f"changes[{key!r}]", key, list(value) if isinstance(value, tuple) else value)
            for key, value in changes.items()
        ]
    return list(changes)


def check_transports(names: Iterable[str | TransportSpec], *, label: str = "transports") -> list[str]:
    """Return the names, each once, if every one can be had; label begins the sentence of the error, "" for none.

    Raises ScenarioError, in one sentence that says which transports there are.
    """
    listed = list(names)
    registry = Registry.installed().with_specs(*(each for each in listed if isinstance(each, TransportSpec)))
    found = [each.name if isinstance(each, TransportSpec) else each for each in listed]
    for name in found:
        try:
            check_transport_name(name, registry)
            registry.resolve(name)
        except (ScenarioError, UnknownTransportError) as error:
            raise ScenarioError(f"{label}: {error}" if label else str(error)) from error
    return list(dict.fromkeys(found))


# -- what there is ----------------------------------------------------------------------------------------------------


def list_transports() -> dict[str, str]:
    """Return the installed transports by name, each with its description, or why it cannot be used."""
    registry = Registry.installed()
    found = {}
    for name in registry.names():
        try:
            found[name] = registry.resolve(name).description
        except UnknownTransportError as error:
            found[name] = f"unusable: {error}"
    return found


def list_backends() -> dict[str, str]:
    """Return the installed backends by name, each with the first line of its docstring, or why it cannot be used."""
    registry = BackendRegistry.installed()
    found = {}
    for name in registry.names():
        try:
            backend = registry.resolve(name)
        except UnknownBackendError as error:
            found[name] = f"unusable: {error}"
        else:
            found[name] = (backend.__doc__ or "").strip().splitlines()[0] if backend.__doc__ else ""
    return found


def list_scenarios() -> dict[str, str]:
    """Return the bundled scenarios by name, each with its description."""
    return _described("scenarios", "scenario")


def list_studies() -> dict[str, str]:
    """Return the bundled studies by name, each with its description."""
    return _described("studies", "study")


def list_deployments() -> dict[str, str]:
    """Return the bundled deployments by name, each with its size and its source."""
    found = {}
    for name in bundled_names("deployments"):
        deployment = load_deployment(name, None)
        shard = format_size(deployment.wide_area_shard_bytes)
        pairs = f"{deployment.gpu_pairs:,} GPU pairs, {shard} for each to send across"
        what = pairs if deployment.sites == 2 else f"{deployment.gpus:,} GPUs at one site"
        found[name] = f"{what}. {deployment.source}"
    return found


def _described(kind: Kind, table: str) -> dict[str, str]:
    """Return the name and the description of each bundled file of a kind; `table` is the one that has the latter."""
    found = {}
    for name in bundled_names(kind):
        header = parse_toml(bundled_data(kind, name), f"{name}.toml").get(table)
        found[name] = str(header.get("description", "")) if isinstance(header, dict) else ""
    return found
