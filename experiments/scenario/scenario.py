"""A scenario: one TOML file that says what is to be compared, read once into frozen specifications.

Every key there is; those with a value that is called a default may be left out, and so may whole tables but `scenario`,
`links` and one of `allreduce` and `jobs`::

    [scenario]
    name = "everything"
    description = ""                    # default
    sites = ["west", "east"]            # default; the first and the last are the coasts
    iterations = 20                     # default
    gap = "1 s"                         # default: computation between two iterations
    seed = 0                            # default: of the first run
    time_limit = "300 s"                # default: for one iteration, then the run fails
    sample_interval = "5 ms"            # default: no time series

    [[links]]
    name = "plane"
    count = 4                           # default: one; makes plane0, plane1, …
    between = ["west", "east"]          # default: the coasts
    rate = "5 Gbit/s"
    rtt = "60 ms"                       # or delay = "30 ms", one way
    mtu = 9000                          # default: 1500; bytes of the largest IP packet
    queue = "0.5 BDP"                   # or a size, "2 MB"; default: one BDP
    framing = 38                        # default: Ethernet's bytes on the wire besides those of IP
    loss = 1e-4                         # default: none; both directions, each on its own
    loss_back = { model = "none" }      # default: as loss; of the direction from the second site to the first
    jitter = "0 s"                      # default
    reorder = 0.01                      # default: 0
    reorder_delay = "1 ms"              # needed with reorder
    duplicate = 0                       # default
    corrupt = 0                         # default
    # capacity_trace = "lte.up"         # default: none; the rate over time from a file beside the scenario, in
                                        # mahimahi's format, or with lines "250 ms, 2 Gbit/s"; `rate`, by default its
                                        # mean, then stands for the link where one figure is needed, as in BDP

    [[links.events]]
    at = "10 ms"
    iteration = 3                       # default: counted from the beginning of the run
    outage = "500 ms"                   # or rate = "2 Gbit/s", from then on

    [[paths]]                           # default: each link is a path, unless there are [tunnels]
    name = "northern"
    links = ["plane0"]                  # one after another
    overhead = 50                       # default: 0; bytes of encapsulation

    [tunnels]                           # default: none; finds paths for every job that lists none
    count = 4                           # default: so many between two sites
    search = "bottlenecks"              # as B4 takes them, around full links; default: "cheapest", of least delay
    rounds = 1                          # default; with "bottlenecks": the most max-min fair of so many searches

    [[jobs]]                            # or one [allreduce] with the same keys
    name = "training"
    shard = "57.13 MB"                  # or deployment = "hundred-trillion", bundled or a file
    pattern = "exchange"                # default; or "reduce-scatter"
    ranks_per_site = 2                  # default
    dtype = "int32"                     # default; int8, int16, int64
    array = "1 MB"                      # default: as large as the shard; smaller ones are repeated, to save memory
    fabric = "100 GB/s"                 # default: of a GPU inside its coast; a deployment has its own stages instead
    sites = ["west", "east"]            # default
    paths = ["northern"]                # default: all between the sites
    iterations = 20                     # default: the scenario's; so is gap
    start = "0 s"                       # default

    [[jobs]]
    name = "neighbour"
    shard = "1 MB"
    transport = "cubic"                 # default: the transport under comparison
    parameters = { hystart = false }

    [[background]]
    transport = "reno"
    message = "1 GB"
    from = "east"                       # default: the first site
    to = "west"                         # default: the last site
    gap = "0 s"                         # default: between two messages
    start = "0 s"                       # default
    messages = 5                        # default: until the jobs are done

    [transports]
    default = ["reno", "cubic", "adaptive"]     # default

    [transports.adaptive]
    headroom = 0.02                     # any parameter of the transport's own

The models of loss: `bernoulli` (probability), `periodic` (every, first, min_wire_bytes), `gilbert-elliott` (mean_loss
and mean_burst, or good_to_bad, bad_to_good, loss_good, loss_bad), `tail-of-burst` (packets), `listed` (packets,
min_wire_bytes), `trace` (outcomes or file, repeat, min_wire_bytes) and `combined` (parts).
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

from bicoastal.emulation.base import BackgroundSpec, RunSpec, TransportUse
from bicoastal.experiments.runs.digests import digest
from bicoastal.experiments.scenario.bundled import find_document
from bicoastal.experiments.scenario.network import MAX_LINKS, read_topology
from bicoastal.experiments.scenario.overrides import Override, apply_overrides
from bicoastal.experiments.scenario.tables import ScenarioError, Table
from bicoastal.experiments.scenario.workload import (
    MAX_ITERATIONS,
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
MAX_SEED, MAX_SEEDS = 2**62, 100_000
_DEFAULT_TRANSPORTS = ("reno", "cubic", "adaptive")
_DEFAULT_SITES = ("west", "east")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is to be run, whichever transport is under comparison.

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
            raise ScenarioError(f"--seeds: seed {seeds[-1]} would be more than {MAX_SEED}")
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
    # How many links there are is settled first: `links[1]` of other changes counts them one by one.
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
        copies = table.integer("count", 1, least=1, most=MAX_LINKS)
        name = table.name("name", "link")
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
    sites = header.names("sites", _DEFAULT_SITES)
    if len(sites) < 2:
        header.fail("sites", "expected at least two")
    name = header.name("name")
    description = header.text("description", "")
    iterations = header.integer("iterations", 20, least=1, most=MAX_ITERATIONS)
    gap_s = header.time_s("gap", 1.0)
    seed = header.integer("seed", 0, least=0, most=MAX_SEED)
    time_limit_s = header.time_s("time_limit", 300.0, positive=True)
    interval_s = header.time_s("sample_interval", positive=True) if header.has("sample_interval") else None
    header.finish()

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
    names = table.names("default", _DEFAULT_TRANSPORTS)
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
