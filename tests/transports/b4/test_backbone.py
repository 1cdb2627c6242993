"""B4 across a WAN of a dozen sites, end to end: the bundled scenario against a linear program, and what its keys do."""

from functools import cache

import numpy as np
import pytest

from bicoastal.emulation.simulator import SimulatorBackend
from bicoastal.emulation.traffic.flows import plan_flows
from bicoastal.experiments.scenario.overrides import parse_override
from bicoastal.experiments.scenario.scenario import Scenario, load_scenario
from bicoastal.transports.b4.registration import B4
from bicoastal.transports.registry import Registry
from helpers.reference_allocator import Appetite, max_min, routing_on_paths

REGISTRY = Registry().with_specs(B4)
WEIGHTS = {"training": 4.0, "tuning": 2.0, "backup": 1.0, "serving": 1.0}
HEADROOM = 0.005


def backbone(*overrides: str) -> Scenario:
    texts = ("scenario.iterations=1", "jobs.shard=30 MB", "transports.default=['b4']", *overrides)
    return load_scenario("backbone", REGISTRY, [parse_override(text) for text in texts])


@cache
def granted_bps(*overrides: str) -> dict[tuple[str, str], float]:
    """Return the rate of each flow, by job and source, while the bursts of all of them are under way."""
    spec = backbone(*overrides).run_spec("b4", seed=1)
    record = SimulatorBackend(REGISTRY).run(spec)
    assert record.status == "ok", record.reason
    begun_s = max(row.start_s for row in record.iterations)
    over_s = min(row.start_s + (row.completion_s or 0.0) for row in record.iterations)
    flows = {flow.name: flow for flow in plan_flows(spec, REGISTRY)}
    last: dict[tuple[str, str], float] = {}
    for sample in record.samples:
        if begun_s + 0.1 < sample.at_s < over_s - 0.05 and sample.pacing_rate_bps is not None:
            last[flows[sample.flow].owner, flows[sample.flow].source] = sample.pacing_rate_bps
    assert len(last) == 2 * len(WEIGHTS)
    return last


def fair_bps() -> dict[str, float]:
    """Return the max-min fair rate of each job on its own paths, by a linear program that knows no tunnels."""
    scenario = backbone()
    topology = scenario.topology
    edges = [(name, site) for name, link in topology.links.items() for site in (link.a, link.b)]
    capacities = [topology.links[name].rate_bps * (1 - HEADROOM) for name, _ in edges]
    paths = [
        [[edges.index(step) for step in zip(path.links, path.sites[:-1], strict=True)] for path in ways]
        for ways in ([topology.paths[name] for name in job.paths] for job in scenario.jobs)
    ]
    appetites = [
        Appetite(commodity=number, weight=WEIGHTS[job.name], demand=1e12) for number, job in enumerate(scenario.jobs)
    ]
    rates = max_min(routing_on_paths(capacities, paths), appetites)
    return dict(zip(WEIGHTS, np.asarray(rates, dtype=float).tolist(), strict=True))


def test_eight_rounds_are_max_min_fair_by_weights() -> None:
    fair = fair_bps()
    assert fair["training"] == pytest.approx(4 * fair["serving"])
    for (job, source), rate_bps in granted_bps("b4.rounds=8", "b4.quantum=none").items():
        # A flow keeps a safe share, 0.6 % of a link, on every path that it does not use.
        assert rate_bps == pytest.approx(fair[job], rel=0.03), (job, source)


def test_eight_rounds_in_quarters_are_fair_within_a_quantum() -> None:
    for (job, source), rate_bps in granted_bps("b4.rounds=8").items():
        assert abs(rate_bps - fair_bps()[job]) <= 0.25 * fair_bps()[job], (job, source)


@pytest.mark.parametrize("override", ["b4.quantum=none", "b4.quantum=1", "b4.rounds=8", "b4.tunnels=1"])
def test_each_key_changes_the_outcome(override: str) -> None:
    before, after = granted_bps(), granted_bps(override)
    assert max(abs(after[flow] / before[flow] - 1) for flow in before) > 0.05


def test_the_search_around_bottlenecks_finds_other_paths() -> None:
    cheapest, around = backbone(), backbone("tunnels.search=bottlenecks", "tunnels.rounds=8")
    ways = [{path.links for path in scenario.topology.paths.values()} for scenario in (cheapest, around)]
    assert ways[0] != ways[1]


def test_jobs_get_four_paths_that_join_their_sites() -> None:
    scenario = backbone()
    for job in scenario.jobs:
        assert len(job.paths) == 4
        for name in job.paths:
            assert {scenario.topology.paths[name].sites[index] for index in (0, -1)} == set(job.allreduce.sites)
