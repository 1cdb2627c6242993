"""What the paced transports owe their users, in whole runs of the simulator."""

from dataclasses import replace
from statistics import median

import pytest

from bicoastal.emulation.base import JobSpec
from bicoastal.emulation.records import RunRecord
from bicoastal.emulation.simulator import SimulatorBackend
from bicoastal.experiments.scenario.overrides import parse_override
from bicoastal.experiments.scenario.scenario import load_scenario
from bicoastal.transports.b4.registration import B4
from bicoastal.transports.rdma.registration import RDMA_GBN, RDMA_SR
from bicoastal.transports.registry import Registry
from bicoastal.wan.loss import Bernoulli
from bicoastal.wan.schedule import Outage
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
from helpers.small_runs import iterations, job, plane, planes, run_spec, simulate

RTT_S = 0.060


def bundled(name: str, *overrides: str, transport: str = "b4", seed: int = 0) -> RunRecord:
    registry = Registry.installed().with_specs(B4, RDMA_GBN, RDMA_SR)
    scenario = load_scenario(name, registry, [parse_override(text) for text in overrides])
    record = SimulatorBackend(registry).run(scenario.run_spec(transport, seed=seed, sampled=False))
    assert record.status == "ok", record.reason
    return record


def efficiencies(record: RunRecord) -> list[float]:
    return [row.bound_s / row.completion_s for row in record.iterations if row.completion_s is not None]


def judge_coast_to_coast(record: RunRecord) -> None:
    for row in record.iterations:
        assert row.completion_s is not None
        assert row.completion_s <= 1.05 * row.bound_s + RTT_S
    wire, payload = (sum(getattr(row, name) for row in record.iterations) for name in ("wire_bytes", "payload_bytes"))
    assert wire / payload - 1 < 0.02 + 2 * 1e-4
    assert sum(row.timeouts for row in record.flows) == 0


def test_without_loss_next_to_nothing_is_lost() -> None:
    assert min(efficiencies(bundled("lossless", "scenario.iterations=3"))) >= 0.98


def test_coast_to_coast_a_loss_costs_a_round_trip_at_most() -> None:
    judge_coast_to_coast(bundled("coast-to-coast", "scenario.iterations=6"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 17))
def test_coast_to_coast_a_loss_costs_a_round_trip_at_most_in_hundreds_of_iterations(seed: int) -> None:
    judge_coast_to_coast(bundled("coast-to-coast", seed=seed))


@pytest.mark.parametrize("count", [1, 3, 10])
def test_losing_the_tail_costs_a_round_trip_at_most(count: int) -> None:
    record = bundled("tail-loss", "scenario.iterations=2", f"links.loss.packets={count}")
    assert all(link.lost for link in record.links)
    for row in record.iterations:
        assert row.completion_s is not None
        assert row.completion_s <= 1.05 * row.bound_s + RTT_S


def two_jobs(first_bytes: int, second_bytes: int, weights: str, rate_bps: float = 1e9) -> RunRecord:
    def one(name: str, shard_bytes: int) -> JobSpec:
        made = job("b4", name=name, shard_bytes=shard_bytes, iterations=1, parameters=(("weights", weights),))
        return replace(made, start_s=0.5)

    topology = planes(plane(rate_bps=rate_bps, delay_s=RTT_S / 2, mtu_bytes=9000))
    spec = run_spec(topology, one("first", first_bytes), one("second", second_bytes), sample_interval_s=0.02)
    record = simulate(spec, B4)
    assert record.status == "ok", record.reason
    return record


def test_two_jobs_share_a_link_by_their_weights_and_the_rest_when_one_is_done() -> None:
    record = two_jobs(100_000_000, 30_000_000, "first=10, second=1")
    (first,), (second,) = (iterations(record, name) for name in ("first", "second"))
    assert first.completion_s is not None
    assert second.completion_s is not None
    pace: dict[str, dict[float, float]] = {"first": {}, "second": {}}
    for sample in record.samples:
        name, _, direction = sample.flow.partition("/")
        if direction.startswith("west") and sample.pacing_rate_bps is not None:
            pace[name][sample.at_s] = sample.pacing_rate_bps
    end_s = first.start_s + first.completion_s
    together = [at for at in pace["first"] if first.start_s + 0.3 < at < end_s - 0.1]
    assert len(together) > 10
    for at in together:
        assert pace["first"][at] == pytest.approx(0.995e9 * 10 / 11, rel=0.02)
        assert pace["second"][at] == pytest.approx(0.995e9 / 11, rel=0.02)
    # By then the second had sent an eleventh; the rest goes at the whole rate, once the sender has heard of its
    # end, the controller of that, the first of its decrease, the controller of its acknowledgement, and the second
    # of its due.
    left_bytes = 30e6 - 0.995e9 / 8 / 11 * (end_s - first.start_s)
    control_loop_s = 5 * RTT_S / 2
    assert second.start_s + second.completion_s <= end_s + control_loop_s + left_bytes * 8 / 0.97e9 + RTT_S / 2


@pytest.mark.parametrize(("name", "west", "east"), [("job", "eu", "us/east"), ("a/b>c/plane1", "us", "eu")])
def test_a_name_may_hold_what_a_flow_label_is_made_of(name: str, west: str, east: str) -> None:
    links = [LinkSpec(name=f"plane{i}", a=west, b=east, rate_bps=1e9, delay_s=0.01, mtu_bytes=9000) for i in range(2)]
    topology = Topology(
        sites=(Site(name=west), Site(name=east)),
        links=links,
        paths=[Path(name=link.name, sites=(west, east), links=(link.name,)) for link in links],
    )
    first = job("b4", name=name, paths=("plane0",), shard_bytes=20_000_000, iterations=1)
    second = job("b4", name="second", paths=("plane1",), shard_bytes=20_000_000, iterations=1)
    jobs = [replace(each, allreduce=replace(each.allreduce, sites=(west, east))) for each in (first, second)]
    record = simulate(run_spec(topology, *jobs), B4)
    assert record.status == "ok", record.reason
    # Each direction of each link carries one flow, which gets it whole: the controller knows path and direction.
    assert min(efficiencies(record)) > 0.9
    assert not [notice for notice in record.notices if notice.kind in ("b4-rejected", "b4-fallback")]


def test_an_outage_moves_traffic_within_detection_and_the_control_loop() -> None:
    rate_bps, paths = 1e9, 3
    dark = plane("dark", rate_bps=rate_bps, delay_s=RTT_S / 2, mtu_bytes=9000,
                 events=(Outage(at_s=0.2, duration_s=1.0, iteration=0),))  # fmt: skip
    others = [plane(f"plane{i}", rate_bps=rate_bps, delay_s=RTT_S / 2, mtu_bytes=9000) for i in range(paths - 1)]
    names = ("plane0", "plane1", "dark")
    made = job("b4", paths=names, shard_bytes=150_000_000, iterations=1)
    record = simulate(run_spec(planes(*others, dark), made), B4)
    (row,) = iterations(record)
    assert record.status == "ok", record.reason
    assert row.verified
    dark_s = row.start_s + 0.2
    downs = [notice for notice in record.notices if notice.kind == "b4-path-down"]
    assert {notice.source.rpartition(":")[2] for notice in downs} == {"client"}
    assert len(downs) == 2  # one for each direction
    for notice in downs:
        detected_s = notice.at_s - dark_s
        assert 0 < detected_s <= 0.010
        # The agent tells the controller (at the first site, so up to one way), and that is on record.
        heard = [other for other in record.notices if other.kind == "b4-heard" and other.detail.startswith("link ")]
        assert 0 <= min(other.at_s for other in heard if other.at_s >= notice.at_s) - notice.at_s <= RTT_S / 2 + 1e-9
    # What the dark path had not answered for when it was noticed goes again over the others, which never pause.
    needed_s = 150e6 * 8 / (0.98 * rate_bps)  # of one path
    left_s = needed_s - paths * 0.2 + RTT_S + 0.010
    bound_s = 0.2 + left_s / (paths - 1) + RTT_S / 2
    assert row.completion_s is not None
    assert row.completion_s <= bound_s + RTT_S


def test_the_octets_are_what_the_objects_stand_for() -> None:
    links = plane(loss=Bernoulli(probability=0.02)), plane("plane1", corrupt=0.02)
    spec = run_spec(planes(*links), job("b4", paths=("plane0", "plane1"), shard_bytes=200_000))
    lazy, eager = simulate(spec, B4), simulate(replace(spec, eager_encoding=True), B4)
    assert lazy == eager


@pytest.mark.parametrize("transport", ["rdma-gbn", "rdma-sr"])
def test_rdma_wants_a_clean_wan(transport: str) -> None:
    clean = bundled("lossless", "scenario.iterations=2", transport=transport)
    assert min(efficiencies(clean)) >= 0.98
    lossy = bundled("coast-to-coast", "scenario.iterations=4", transport=transport, seed=1)
    ours = bundled("coast-to-coast", "scenario.iterations=4", seed=1)
    assert median(efficiencies(lossy)) <= median(efficiencies(ours))


def test_fixed_rates_need_no_controller() -> None:
    record = simulate(run_spec(planes(plane()), job("b4", shard_bytes=1_000_000, parameters=(("rate_bps", 50e6),))), B4)
    assert record.status == "ok"
    assert not record.notices
