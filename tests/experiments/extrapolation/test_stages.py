import heapq
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from bicoastal.experiments.extrapolation.assumptions import PUBLISHED, Assumptions
from bicoastal.experiments.extrapolation.stages import (
    expert_stage,
    gradient_s,
    gradient_stages,
    local_stages,
    pipeline_stage,
    tensor_stage,
    wide_area_s,
)
from bicoastal.experiments.scenario.deployment import load_deployment
from bicoastal.wan.deployment import Deployment

PAPER = load_deployment("hundred-trillion", None)
EXPERTS = load_deployment("hundred-trillion-moe", None)


def test_the_published_stages_take_their_published_times() -> None:
    # arXiv 2407.12819, milliseconds, to the digits it prints
    assert tensor_stage(PAPER, PUBLISHED).time_s == pytest.approx(8.2e-3, abs=0.05e-3)
    assert pipeline_stage(PAPER, PUBLISHED).time_s == pytest.approx(2.17e-3, abs=0.005e-3)
    times_s = [stage.time_s for stage in gradient_stages(PAPER, PUBLISHED)]
    assert times_s == pytest.approx([16.57e-3, 98.27e-3, 60e-3, 49.14e-3, 8.3e-3], rel=2.5e-3)


def test_the_table_adds_up_to_the_whole() -> None:
    for deployment in (PAPER, EXPERTS):
        for assumptions in (PUBLISHED, Assumptions(wan_trips=1, local_reduction="reduce-scatter")):
            stages = gradient_stages(deployment, assumptions, deployment.wan_bps)
            whole_s = gradient_s(deployment, assumptions, *wide_area_s(deployment, assumptions, 20e9))
            assert sum(stage.time_s for stage in stages) == pytest.approx(whole_s)


def test_a_reduce_scatter_does_half_of_an_all_reduces_work_before_the_wide_area() -> None:
    halved = gradient_stages(PAPER, Assumptions(local_reduction="reduce-scatter"))
    assert [stage.time_s for stage in halved[:2]] == pytest.approx([8.28e-3, 49.13e-3], rel=1e-3)
    assert [stage.time_s for stage in halved[3:]] == pytest.approx([49.13e-3, 8.28e-3], rel=1e-3)


def test_switches_that_add_up_take_what_is_beyond_one_pass_off_their_stage_alone() -> None:
    plain = {stage.name: stage.time_s for stage in local_stages(PAPER, Assumptions())}
    summing = {stage.name: stage.time_s for stage in local_stages(PAPER, Assumptions(in_network=("rack",)))}
    assert summing["1 rack"] == pytest.approx(plain["1 rack"] / 1.5)  # V / B instead of 2 * 3/4 V / B
    assert {name for name in plain if plain[name] != summing[name]} == {"1 rack"}
    assert tensor_stage(PAPER, Assumptions(in_network=("tensor",))).time_s == pytest.approx(8.2e-3 * 9 / 17, rel=1e-3)


def test_two_trips_take_a_round_trip_and_one_takes_half_and_both_move_the_same_bytes() -> None:
    rates_bps = np.array([5e9, 20e9])
    for trips, latency_s in ((1, 0.03), (2, 0.06)):
        found_s, busy_s = wide_area_s(PAPER, Assumptions(wan_trips=trips), rates_bps)
        assert found_s == pytest.approx(latency_s)
        assert busy_s == pytest.approx([57.13e6 * 8 / 5e9, 57.13e6 * 8 / 20e9], rel=1e-4)
    assert wide_area_s(PAPER, PUBLISHED, 20e9) == (pytest.approx(0.06), 0)


def test_nothing_crosses_where_there_is_one_site() -> None:
    deployment = load_deployment("llama3-405b", None)
    assert wide_area_s(deployment, Assumptions(), 1e9) == (0, 0)
    assert [stage.name[0] for stage in gradient_stages(deployment, Assumptions())] == ["1", "2", "4", "5"]


# -- experts ----------------------------------------------------------------------------------------------------------


def test_tokens_reach_experts_in_the_rack_by_scale_up_and_others_by_scale_out() -> None:
    assert expert_stage(PAPER, Assumptions()) is None
    near = expert_stage(EXPERTS, Assumptions())
    # two copies of 32,000 * 85,248 / 18 elements in FP4, three quarters of them elsewhere, there and back
    sent_bytes = 2 * 0.75 * 2 * 32000 * 85248 / 18 * 0.5
    assert near is not None
    assert (near.network, near.sent_bytes) == ("scale-up", pytest.approx(sent_bytes))
    assert near.time_s == pytest.approx(sent_bytes / 1.8e12)
    far = expert_stage(replace(EXPERTS, expert=12), Assumptions())
    assert far is not None
    assert far.network == "scale-out"
    assert far.time_s == pytest.approx(2 * 8 / 12 * 2 * 32000 * 85248 / 18 * 0.5 / 100e9)


def test_a_token_in_two_experts_is_added_up_in_both() -> None:
    volume_bytes = 32000 * 85248 * 0.5
    assert tensor_stage(EXPERTS, Assumptions()).sent_bytes == pytest.approx(3 * 2 * 17 / 18 * volume_bytes)


# -- chunks -----------------------------------------------------------------------------------------------------------


def makespan_s(stages: list[tuple[str, float, float]], chunks: int, *, latest_stage_first: bool) -> float:
    """Serve equal chunks through (network, busy, latency) stages, one chunk at a time on each network."""
    number, ended_s = count(), 0.0
    events: list[tuple[float, int, int, int, bool]] = [(0.0, next(number), chunk, 0, True) for chunk in range(chunks)]
    waiting: dict[str, list[tuple[int, int, int]]] = {network: [] for network, _, _ in stages}
    serving = dict.fromkeys(waiting, False)
    while events:
        now = events[0][0]
        while events and events[0][0] <= now + 1e-12:
            _, _, chunk, stage, arrived = heapq.heappop(events)
            if not arrived:
                serving[stages[stage][0]] = False
                heapq.heappush(events, (now + stages[stage][2], next(number), chunk, stage + 1, True))
            elif stage == len(stages):
                ended_s = now
            else:
                order = -stage if latest_stage_first else stage
                heapq.heappush(waiting[stages[stage][0]], (order, chunk, stage))
        for network, queue in waiting.items():
            if queue and not serving[network]:
                _, chunk, stage = heapq.heappop(queue)
                serving[network] = True
                heapq.heappush(events, (now + stages[stage][1] / chunks, next(number), chunk, stage, False))
    return ended_s


@pytest.mark.parametrize("chunks", [1, 2, 4, 16, 64])
@pytest.mark.parametrize("rate_bps", [2e9, 20e9])
def test_chunks_go_through_the_stages_as_a_simulation_serves_them(chunks: int, rate_bps: float) -> None:
    assumptions = Assumptions(chunks=chunks)
    rows = gradient_stages(PAPER, assumptions, rate_bps)
    stages = [(row.network, row.busy_s, row.time_s - row.busy_s) for row in rows]
    simulated_s = min(makespan_s(stages, chunks, latest_stage_first=first) for first in (True, False))
    found_s = gradient_s(PAPER, assumptions, *wide_area_s(PAPER, assumptions, rate_bps))
    assert found_s == pytest.approx(simulated_s, rel=1e-6)


def test_chunks_of_any_deployment_are_served_within_a_few_per_cent() -> None:
    generator = np.random.default_rng(7)
    ratios = []
    for _ in range(300):
        up, out, wan = 10 ** generator.uniform(10, 13), 10 ** generator.uniform(10, 13), 10 ** generator.uniform(9, 11)
        deployment: Deployment = replace(
            PAPER, scale_up_Bps=up, scale_out_bps=out, wan_rtt_s=generator.uniform(0.001, 0.2)
        )
        chunks = int(generator.choice([2, 3, 4, 8, 32]))
        assumptions = Assumptions(chunks=chunks)
        stages = [
            (row.network, row.busy_s, row.time_s - row.busy_s) for row in gradient_stages(deployment, assumptions, wan)
        ]
        simulated_s = min(makespan_s(stages, chunks, latest_stage_first=first) for first in (True, False))
        ratios.append(simulated_s / gradient_s(deployment, assumptions, *wide_area_s(deployment, assumptions, wan)))
    assert min(ratios) > 1 - 1e-6  # a bound
    assert np.quantile(ratios, 0.9) < 1.05
    assert max(ratios) < 1.25


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wan_trips": 3}, "wan_trips: 3 is neither 1 nor 2"),
        ({"wan_trips": True}, "wan_trips: True is neither"),
        ({"wan_serialisation": 1}, "wan_serialisation: 1 is not true or false"),
        ({"local_reduction": "reduce"}, "local_reduction: 'reduce' is not one of all-reduce, reduce-scatter"),
        ({"in_network": ("wan",)}, r"in_network: \('wan',\) is not a list of some of tensor, rack, datacenter"),
        ({"in_network": ([1],)}, r"in_network: \(\[1\],\) is not a list of some of"),
        ({"chunks": 10**400}, "chunks: is more than 1,000,000"),
        ({"cover_passes": 1e308}, "cover_passes: is more than 1,000,000"),
        ({"chunks": 0}, "chunks: 0 is not a whole number of at least 1"),
        ({"cover_passes": -1}, "cover_passes: -1 is not a finite number of at least zero"),
    ],
)
def test_an_assumption_that_makes_no_sense_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        Assumptions(**change)  # type: ignore[arg-type]
