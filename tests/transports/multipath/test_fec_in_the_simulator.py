"""What FEC-protected QUIC owes its users, in whole runs of the simulator; every path has been sounded before."""

import re
from collections.abc import Sequence

import pytest

from bicoastal.emulation.records import IterationRecord, RunRecord
from bicoastal.emulation.simulator import SimulatorBackend
from bicoastal.experiments.scenario.overrides import parse_override
from bicoastal.experiments.scenario.scenario import load_scenario
from bicoastal.transports.registry import Registry

RTT_S = 0.060


def bundled(name: str, *overrides: str, transport: str = "mpquic-fec", seed: int = 0) -> RunRecord:
    registry = Registry.installed()
    scenario = load_scenario(name, registry, [parse_override(text) for text in overrides])
    record = SimulatorBackend(registry).run(scenario.run_spec(transport, seed=seed, sampled=False))
    assert record.status == "ok", record.reason
    return record


def slowness(row: IterationRecord) -> float:
    assert row.completion_s is not None
    return row.completion_s / row.bound_s


def overhead(rows: Sequence[IterationRecord]) -> float:
    return sum(row.wire_bytes for row in rows) / sum(row.payload_bytes for row in rows) - 1


CROSSINGS = [("1e-4", 1.05, 0.05), ("1e-3", 1.05, 0.05), ("1e-2", 1.06, 0.10)]


def judge_coast_to_coast(loss: str, worst: float, most: float, iterations: int, seed: int) -> None:
    rows = bundled("coast-to-coast", f"links.loss={loss}", f"scenario.iterations={iterations}", seed=seed).iterations
    assert max(slowness(row) for row in rows) < worst
    assert overhead(rows) < most


def test_coast_to_coast_losses_cost_no_second_trip() -> None:
    judge_coast_to_coast(*CROSSINGS[2], iterations=3, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize(("loss", "worst", "most"), CROSSINGS)
def test_coast_to_coast_losses_cost_no_second_trip_at_any_rate(loss: str, worst: float, most: float, seed: int) -> None:
    judge_coast_to_coast(loss, worst, most, iterations=20, seed=seed)


@pytest.mark.slow
def test_bursts_of_losses_cost_no_second_trip() -> None:
    rows = bundled("isp-path", "scenario.iterations=6").iterations
    assert max(slowness(row) for row in rows) < 1.10
    assert overhead(rows) < 0.12


@pytest.mark.parametrize(
    "packets", [pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow), 10]
)
def test_a_lost_tail_costs_no_second_trip(packets: int) -> None:
    record = bundled("tail-loss", "scenario.iterations=3", f"links.loss.packets={packets}")
    assert all(link.lost >= 2 * packets for link in record.links)
    assert max(slowness(row) for row in record.iterations) < 1.02
    assert overhead(record.iterations) < 0.06


def outage(*overrides: str) -> IterationRecord:
    events = [f"links[3].events[0].{key}={value}" for key, value in (("iteration", 1), ("at", "10 ms"))]
    record = bundled("outage", "scenario.iterations=3", *events, *overrides)
    assert any(link.dropped_outage > 1000 for link in record.links)
    hit, after = record.iterations[1], record.iterations[2]
    assert slowness(after) < 1.02, "the path is back, and as fast as before"
    return hit


def test_an_outage_of_one_path_of_four_is_planned_around() -> None:
    hit = outage()
    remaining_s = 30e-3 + (hit.bound_s - 30e-3) * 4 / 3
    assert hit.completion_s is not None
    assert hit.completion_s < 1.1 * (remaining_s + RTT_S)


def test_with_redundancy_for_a_whole_path_an_outage_costs_no_second_trip() -> None:
    hit = outage("transports.mpquic-fec.cover_paths=1")
    assert hit.completion_s is not None
    assert hit.completion_s < 30e-3 + 1.4 * (hit.bound_s - 30e-3), "one trip of 36 % more octets, and headers"


@pytest.mark.slow
def test_repair_does_not_hide_congestion_from_others() -> None:
    """CUBIC, arriving second at a shared bottleneck, has at least its half: it is done by when both could be done."""
    record = bundled("shared", "jobs[1].transport=cubic", "scenario.iterations=4")
    rows = [row for row in record.iterations if row.job == "second" and row.iteration > 0]
    beside_cubic = bundled("shared", "scenario.iterations=4", transport="cubic")
    reference = [row for row in beside_cubic.iterations if row.job == "second" and row.iteration > 0]
    assert max(map(slowness, rows)) < max(map(slowness, reference))


def test_runs_are_the_same_octet_for_octet() -> None:
    first, second = (
        bundled("tail-loss", "scenario.iterations=2", 'allreduce.shard="2 MB"', "links.loss=1e-2") for _ in range(2)
    )
    assert first == second


PROMISE = re.compile(
    r"(?P<code>\S+): (?P<blocks>\d+) x \((?P<k>\d+) \+ (?P<r>\d+)\); probability of a second trip in a step of "
    r"(?P<messages>[\d,]+) messages: (?P<probability>\S+), (?P<judgement>within|which misses) the target of "
    r"(?P<target>\S+)"
)


@pytest.mark.parametrize(
    ("overrides", "messages", "judgement", "target"),
    [
        ((), "1,677,600", "within", 0.01),
        (("transports.mpquic-fec.messages_per_step=32", "transports.mpquic-fec.target=1e-6"), "32", "within", 1e-6),
        (
            ("transports.mpquic-fec.max_overhead=0", "transports.mpquic-fec.tail_losses=0"),
            "1,677,600",
            "which misses",
            0.01,
        ),
    ],
)
def test_the_plan_says_what_it_promises_of_how_many_messages(
    overrides: Sequence[str], messages: str, judgement: str, target: float
) -> None:
    record = bundled("lossless", "scenario.iterations=1", 'allreduce.shard="2 MB"', *overrides)
    plans = [PROMISE.fullmatch(notice.detail) for notice in record.notices if notice.kind == "fec-plan"]
    assert plans
    for plan in plans:
        assert plan is not None
        assert (plan["messages"], plan["judgement"], float(plan["target"])) == (messages, judgement, target)
        assert (float(plan["probability"]) <= target) is (judgement == "within")


def test_a_connection_that_carries_a_stripe_of_each_message_plans_for_all_stripes() -> None:
    record = bundled("lossless", "scenario.iterations=1", 'allreduce.shard="2 MB"', transport="quic-fec")
    plans = [PROMISE.fullmatch(notice.detail) for notice in record.notices if notice.kind == "fec-plan"]
    assert plans
    assert {plan and plan["messages"] for plan in plans} == {"6,710,400"}  # 4 x 1,677,600


@pytest.mark.slow
def test_one_path_is_protected_too() -> None:
    rows = bundled("tail-loss", "scenario.iterations=3", "links.loss.packets=3", transport="quic-fec").iterations
    assert max(slowness(row) for row in rows) < 1.05
