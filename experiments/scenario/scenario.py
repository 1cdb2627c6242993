"""A scenario: one TOML file that says what is compared. It is read once, into frozen specifications.

docs/scenarios.md lists every key; `scenario_keys` says what they are.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

from bicoastal.emulation.base import BackgroundSpec, RunSpec, TransportUse
from bicoastal.experiments.basics.digests import digest
from bicoastal.experiments.scenario.bundled import find_document
from bicoastal.experiments.scenario.network import read_topology
from bicoastal.experiments.scenario.overrides import Override, apply_overrides
from bicoastal.experiments.scenario.scenario_keys import MAX_LINKS, MAX_SEED, LinkKeys, ScenarioKeys, TransportsKeys
from bicoastal.experiments.scenario.tables import ScenarioError, Table
from bicoastal.experiments.scenario.workload import (
    JobPlan,
    MemoryBudget,
    Parameters,
    Surroundings,
    check_transport_name,
    read_background,
    read_jobs,
    read_parameters,
)
from bicoastal.transports.registry import Registry
from bicoastal.wan.topology import Topology

DEFAULT_SCENARIO = "coast-to-coast"
MAX_SEEDS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is run, for any transport under comparison.

    jobs without a transport of their own get the compared one. transports: those compared by default. parameters: a
    transport's own, where they differ from its defaults. seed: of the first run. source: a digest of the document as
    it was before anything was changed in it, without what is compared or only told. gap_s and the rest as in `RunSpec`.
    """

    name: str
    description: str
    source: str
    topology: Topology
    jobs: tuple[JobPlan, ...]
    background: tuple[BackgroundSpec, ...]
    seed: int
    time_limit_s: float
    sample_interval_s: float | None
    transports: tuple[str, ...]
    parameters: Mapping[str, Parameters] = field(default_factory=dict)

    @property
    def compared_jobs(self) -> tuple[str, ...]:
        """The jobs that the compared transport carries."""
        return tuple(job.name for job in self.jobs if job.transport is None)

    def seeds(self, count: int) -> range:
        """Return the seeds of so many runs. Raises ScenarioError where the last one would be too large."""
        seeds = range(self.seed, self.seed + count)
        if seeds[-1] > MAX_SEED:
            raise ScenarioError(f"seeds: seed {seeds[-1]} would be more than {MAX_SEED}")
        return seeds

    def run_spec(self, transport: str, *, seed: int, sampled: bool = True) -> RunSpec:
        """Return the run of one transport and seed; without time series unless `sampled`."""
        compared = TransportUse(name=transport, parameters=self.parameters.get(transport, ()))
        return RunSpec(
            name=self.name,
            topology=self.topology,
            jobs=tuple(job.job(compared, seed) for job in self.jobs),
            background=self.background,
            seed=seed,
            time_limit_s=self.time_limit_s,
            sample_interval_s=self.sample_interval_s if sampled else None,
        )


def load_scenario(source: str, registry: Registry, overrides: Iterable[Override] = ()) -> Scenario:
    """Return the bundled scenario called `source`, or the one in the file `source`, with `overrides` made in it.

    Raises ScenarioError in one sentence that says where (file and key, or the option) and what is wrong.
    """
    document, label, directory = find_document("scenarios", source)
    return read_scenario(document, label, registry, overrides, directory=directory)


def read_scenario(
    document: Mapping[str, object],
    label: str,
    registry: Registry,
    overrides: Iterable[Override] = (),
    *,
    directory: Path | None = None,
) -> Scenario:
    """Return the scenario that a parsed TOML document describes; `label` stands for its file in sentences."""
    changed = deepcopy(dict(document))
    changes = list(overrides)
    # The number of links comes first: `links[1]` in other changes counts them one by one.
    apply_overrides(changed, [change for change in changes if change.key == "count"], registry.names())
    places = _expand_links(changed, label)
    apply_overrides(changed, [change for change in changes if change.key != "count"], registry.names())
    return _read(Table(changed, file=label), places, registry, directory, source=_source(document))


def _source(document: Mapping[str, object]) -> str:
    """Return a digest of a document without what a comparison may change, and what makes no difference to it."""
    what = {key: value for key, value in document.items() if key != "transports"}
    if isinstance(header := what.get("scenario"), Mapping):
        what["scenario"] = {key: value for key, value in header.items() if key not in ("description", "seed")}
    return digest(what)


def _expand_links(document: dict[str, object], label: str) -> list[str]:
    """Write out the links that a `count` makes; return the place in the file that each came from."""
    expanded: list[object] = []
    places: list[str] = []
    for index, table in enumerate(Table(document, file=label).tables("links", required=True)):
        data = table.data()
        copies = LinkKeys.count.read(table, 1)
        name = LinkKeys.name.read(table)
        for number in range(copies):
            copy = deepcopy({key: value for key, value in data.items() if key != "count"})
            if "count" in data:
                copy["name"] = f"{name}{number}"
            expanded.append(copy)
            places.append(f"links[{index}]")
        if len(expanded) > MAX_LINKS:
            raise ScenarioError(f"{label}: links: there are more than {MAX_LINKS}")
    document["links"] = expanded
    return places


def _read(document: Table, places: list[str], registry: Registry, directory: Path | None, *, source: str) -> Scenario:
    header = document.table("scenario", required=True)
    sites = ScenarioKeys.sites.read(header)
    if len(sites) < 2:
        header.fail("sites", "expected at least two")
    name = ScenarioKeys.name.read(header)
    description = ScenarioKeys.description.read(header)
    iterations = ScenarioKeys.iterations.read(header)
    gap_s = ScenarioKeys.gap.read(header)
    seed = ScenarioKeys.seed.read(header)
    time_limit_s = ScenarioKeys.time_limit.read(header)
    interval_s = ScenarioKeys.sample_interval.find(header)
    ScenarioKeys.finish(header)

    links = [table.at(place) for table, place in zip(document.tables("links"), places, strict=True)]
    topology = read_topology(document, sites, links, directory=directory)
    around = Surroundings(
        topology=topology,
        sites=sites,
        iterations=iterations,
        gap_s=gap_s,
        registry=registry,
        directory=directory,
        memory=MemoryBudget(),
    )
    jobs = read_jobs(document, around)
    background = read_background(document, around)
    transports, parameters = _read_transports(document.table("transports"), registry)
    document.finish()
    scenario = Scenario(
        name=name,
        description=description,
        source=source,
        topology=topology,
        jobs=jobs,
        background=background,
        seed=seed,
        time_limit_s=time_limit_s,
        sample_interval_s=interval_s,
        transports=transports,
        parameters=parameters,
    )
    document.adopt(lambda: scenario.run_spec("any", seed=seed), {"jobs": "jobs", "paths": "paths"})
    return scenario


def _read_transports(table: Table, registry: Registry) -> tuple[tuple[str, ...], dict[str, Parameters]]:
    names = TransportsKeys.compared.read(table)
    for index, name in enumerate(names):
        if table.has("default"):
            try:
                check_transport_name(name, registry)
            except ScenarioError as error:
                table.fail(f"default[{index}]", str(error))
    parameters = {}
    for name in [key for key in table.data() if key != "default"]:
        try:
            check_transport_name(name, registry)
        except ScenarioError as error:
            table.fail(name, str(error))
        parameters[name] = read_parameters(table.table(name), name, registry)
    return names, parameters
