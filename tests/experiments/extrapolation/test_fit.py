from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crossings import trials
from emulation.registry import BackendRegistry
from experiments.compare import compare
from experiments.extrapolation.fit import Measured, TooFewError, fit, measure, read_off, slowest_interval_s
from experiments.extrapolation.tails import Crossing, TailModel
from experiments.extrapolation.tails_models import ADAPTIVE, B4, RDMA_GBN, RDMA_SR
from experiments.overrides import parse_override
from experiments.runner import World, plan, run_all
from experiments.scenario import load_scenario
from experiments.store import Store
from transports.registry import Registry

COAST = Crossing(payload_bytes=14.28e6, rate_bps=5e9, rtt_s=0.06, loss=1e-4)


def measured(model: TailModel, count: int, loss: float = 1e-4, seed: int = 1) -> Measured:
    return Measured(
        transport=model.name,
        crossing=replace(COAST, loss=0.0),
        planes=4,
        scale=1.0,
        iterations=20,
        connections=8,
        completions_s=trials(model, replace(COAST, loss=loss), count, seed),
    )


@pytest.mark.parametrize("model", [B4, RDMA_SR, RDMA_GBN, ADAPTIVE], ids=lambda model: model.name)
def test_the_loss_that_was_there_is_found_within_its_interval(model: TailModel) -> None:
    inside = 0
    for seed in range(10):
        found = fit(measured(model, 400, seed=seed), model)
        assert not found.reason
        assert found.loss == pytest.approx(1e-4, rel=0.5)
        inside += found.loss_low <= 1e-4 <= found.loss_high
    assert inside >= 8  # of 10, at 95 % each


def test_more_measurements_narrow_the_interval() -> None:
    few, many = (fit(measured(RDMA_SR, count), RDMA_SR) for count in (100, 10_000))
    assert many.loss_high / many.loss_low < 1.2 < few.loss_high / few.loss_low


def test_without_a_late_message_there_is_an_upper_end_alone() -> None:
    found = fit(replace(measured(B4, 100), completions_s=np.full(100, 0.0527)), B4)
    assert found.loss_low == 0.0
    # the rule of three: none of 100 messages was late
    late = 100 * 14.28e6 / 8938
    assert found.loss_high == pytest.approx(1.92 / late, rel=0.5)


def test_a_model_of_something_else_supports_nothing() -> None:
    found = fit(measured(RDMA_SR, 400, loss=1e-3), B4)
    assert "chance" in found.reason
    with pytest.raises(TooFewError, match="chance"):
        slowest_interval_s(found, 1e6)


def test_a_tail_of_millions_is_not_read_off_eighty_messages() -> None:
    with pytest.raises(TooFewError, match=r"^80 measured messages do not show the slowest of 1,677,600"):
        read_off([0.05] * 80, 1_677_600)
    assert read_off([0.05] * 29 + [0.1], 10) == 0.05
    assert read_off([0.05] * 29 + [0.1], 10, share=0.8) == 0.1


def test_the_slowest_message_has_an_interval_and_is_scaled_back() -> None:
    found = fit(measured(RDMA_SR, 300), RDMA_SR)
    middle, low, high = slowest_interval_s(found, 1_677_600)
    assert low <= middle <= high
    small = replace(
        found.measured, scale=100.0, crossing=replace(found.measured.crossing, payload_bytes=14.28e4, rate_bps=5e7)
    )
    again = slowest_interval_s(replace(found, measured=small), 1_677_600)
    assert again == pytest.approx((middle, low, high), rel=1e-9)


def test_path_and_loss_are_found_in_the_records_of_a_run(tmp_path: Path) -> None:
    world = World(backends=BackendRegistry.installed(), transports=Registry.installed())
    changes = ["links.loss=1e-3", "allreduce.shard='4 MB'", "scenario.iterations=30", "links.rate='1 Gbit/s'"]
    scenario = load_scenario("coast-to-coast", world.transports, [parse_override(text) for text in changes])
    tasks = plan(scenario, backend="sim", transports=["rdma-sr", "b4", "reno"], seeds=[0])
    with Store(tmp_path) as store:
        run_all(tasks, store, world, workers=0)
        results = {result.name: result for result in compare(store, [task.key for task in tasks]).transports}
        for name, model, planes in (("rdma-sr", RDMA_SR, 4), ("b4", B4, 1)):
            seen = measure(store, results[name])
            assert seen.planes == planes
            assert float(seen.crossing.rate_bps) * planes == pytest.approx(4e9, rel=1e-3)
            assert float(seen.crossing.rtt_s) == pytest.approx(0.06, rel=1e-3)
            assert seen.crossing.mtu_bytes == pytest.approx(9000, abs=100)
            assert seen.crossing.idle_s == pytest.approx(2.0, rel=0.01)
            found = fit(seen, model)
            assert not found.reason
            assert found.loss_low < 1e-3 < found.loss_high
        assert len(measure(store, results["reno"]).completions_s) == 29 * 8
        short = replace(results["reno"], flows=results["reno"].flows[:24])
        with pytest.raises(TooFewError, match="fewer than 20"):
            measure(store, short)
