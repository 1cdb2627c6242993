from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bicoastal.emulation.registry import BackendRegistry
from bicoastal.experiments.analysis.comparison import TransportResult, compare
from bicoastal.experiments.extrapolation.fitting.loss_fit import fit
from bicoastal.experiments.extrapolation.fitting.messages import TooFewError, measure
from bicoastal.experiments.extrapolation.tails.models import B4, RDMA_SR
from bicoastal.experiments.runs.runner import Registries, plan, run_all
from bicoastal.experiments.runs.store import Store
from bicoastal.experiments.scenario.overrides import parse_override
from bicoastal.experiments.scenario.scenario import load_scenario
from bicoastal.transports.registry import Registry

SMALL = ["links.loss=1e-3", "allreduce.shard='4 MB'", "links.rate='1 Gbit/s'", "allreduce.array='64 KiB'"]


def run(
    store: Store,
    transports: Sequence[str],
    changes: Sequence[str],
    *,
    seeds: Sequence[int] = (0,),
    iterations: int = 30,
) -> Mapping[str, TransportResult]:
    """Run coast-to-coast with these changes, and return what all runs of the store say of each transport."""
    world = Registries(backends=BackendRegistry.installed(), transports=Registry.installed())
    texts = [*SMALL, f"scenario.iterations={iterations}", *changes]
    scenario = load_scenario("coast-to-coast", world.transports, [parse_override(text) for text in texts])
    run_all(plan(scenario, backend="sim", transports=transports, seeds=seeds), store, world, workers=0)
    found = compare(store, [row.key for row in store.runs()])
    return {result.name: result for result in found.transports}


def test_path_and_loss_are_found_in_the_records_of_a_run(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        results = run(store, ["rdma-sr", "b4", "reno"], [])
        for name, model, planes in (("rdma-sr", RDMA_SR, 4), ("b4", B4, 1)):
            seen = measure(store, results[name])
            assert seen.planes == planes
            assert float(seen.crossing.rate_bps) * planes == pytest.approx(4e9, rel=1e-3)
            assert float(seen.crossing.rtt_s) == pytest.approx(0.06, rel=1e-3)
            assert seen.crossing.mtu_bytes == pytest.approx(9000, abs=100)
            assert seen.crossing.idle_s == pytest.approx(2.0, rel=0.01)
            assert seen.counted is not None
            links = store.links(results[name].keys[0])
            assert seen.counted.lost == sum(row.lost for row in links) > 0
            assert seen.counted.packets == sum(row.packets for row in links)
            assert not seen.counted.in_bursts
            found = fit(seen, model)
            assert not found.reason
            assert found.loss_low < 1e-3 < found.loss_high
        assert len(measure(store, results["reno"]).completions_s) == 29 * 8
        short = replace(results["reno"], flows=results["reno"].flows[:24])
        with pytest.raises(TooFewError, match="fewer than 20"):
            measure(store, short)


def test_several_seeds_do_not_make_a_path_faster_and_two_trips_no_packet_smaller(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        two_trips = ["allreduce.pattern='reduce-scatter'"]
        results = run(store, ["cubic", "mpquic-fec"], two_trips, seeds=[0, 1, 2], iterations=6)
        for name, planes in (("cubic", 4), ("mpquic-fec", 1)):
            seen = measure(store, results[name])
            assert float(seen.crossing.rate_bps) * planes == pytest.approx(4e9, rel=0.15)
            assert float(seen.crossing.payload_bytes) * planes == pytest.approx(2e6, rel=0.01)
            assert seen.crossing.idle_s == pytest.approx(2.0, rel=0.01)
            assert 7500 < seen.crossing.mtu_bytes <= 9000


def test_bursts_are_known_by_the_links_loss_process(tmp_path: Path) -> None:
    bursts = ["links.loss={ model = 'gilbert-elliott', mean_loss = 1e-3, mean_burst = 10 }"]
    with Store(tmp_path) as store:
        seen = measure(store, run(store, ["rdma-sr"], bursts)["rdma-sr"])
        assert seen.counted is not None
        assert seen.counted.processes == ("GilbertElliott",)
        assert seen.counted.unevenness > 5
        assert fit(seen, RDMA_SR).loss_high < seen.counted.loss


def test_bursts_are_known_on_more_links_than_a_report_lists(tmp_path: Path) -> None:
    bursts = "{ model = 'gilbert-elliott', mean_loss = 1e-3, mean_burst = 10 }"
    changes = ["links.count=250", "links.loss=0", f"links[249].loss={bursts}", "allreduce.shard='250 kB'"]
    with Store(tmp_path) as store:
        seen = measure(store, run(store, ["rdma-sr"], changes, iterations=3)["rdma-sr"])
        (row,) = store.runs()
    assert any(each.startswith("others=") for each in row.conditions)
    assert seen.counted is not None
    assert seen.counted.processes == ("GilbertElliott",)
    assert seen.counted.in_bursts


def test_runs_of_two_versions_of_a_scenario_are_not_taken_together(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        run(store, ["rdma-sr"], [], iterations=5)
        results = run(store, ["rdma-sr"], ["links.rtt='20 ms'"], iterations=5)
        with pytest.raises(TooFewError, match=r"several set-ups \(links.rtt 60 ms or 20 ms|links.rtt 20 ms or 60 ms"):
            measure(store, results["rdma-sr"])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rdma-sr", "links[0].rate='2 Gbit/s'"),
        ("rdma-sr", "links[0].rtt='66 ms'"),
        ("mpquic-fec", "links[0].rate='2 Gbit/s'"),
        ("mpquic-fec", "links[0].rtt='80 ms'"),
    ],
)
def test_paths_that_differ_are_no_single_one(name: str, change: str, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        results = run(store, [name], [change, "links.loss=0"], iterations=12)
        with pytest.raises(TooFewError, match=r"^its paths differ \(.*; its links counted 0 losses of "):
            measure(store, results[name])


def test_degraded_runs_are_not_the_paths_alone(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        (result,) = run(store, ["rdma-sr"], [], iterations=6).values()
        late = replace(result, status="degraded", reason="the relay was 13.91 ms late at the 99th percentile; more")
        with pytest.raises(TooFewError, match=r"degraded \(the relay was 13.91 ms late at the 99th percentile\), so"):
            measure(store, late)
        with pytest.raises(TooFewError, match=r"^it did not run: sim has none"):
            measure(store, replace(result, status="unsupported", reason="sim has none"))
