from dataclasses import replace

import numpy as np
import pytest

from bicoastal.experiments.extrapolation.tails.model import Crossing
from bicoastal.experiments.extrapolation.tails.models import B4, MODELS, RDMA_SR, RENO
from bicoastal.experiments.extrapolation.tails.slowest import Fleet, messages_in, slowest_s
from bicoastal.experiments.extrapolation.tails.trials import agrees, quantile
from bicoastal.experiments.scenario.deployment import load_deployment
from helpers.simulated_messages import trials

SHARD = Crossing(payload_bytes=57.13e6, rate_bps=20e9, rtt_s=0.06, loss=1e-5)
PAPER = load_deployment("hundred-trillion", None)


def test_a_step_waits_for_every_pair_in_both_directions_and_a_layer_for_its_own() -> None:
    assert messages_in(PAPER, "step") == 838_800 * 2  # arXiv 2407.12819: 23,300 racks of 72
    assert messages_in(PAPER, "layer") == 12_528
    with pytest.raises(ValueError, match="'pod'"):
        messages_in(PAPER, "pod")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["b4", "rdma-sr", "rdma-gbn", "adaptive"])
def test_the_slowest_of_ten_thousand_messages_is_as_slow_as_one_that_was_drawn(name: str) -> None:
    model, fleet = MODELS[name], Fleet(messages=1000, planes=4)
    part = fleet.part(model, SHARD)
    flows = int(fleet.flows(model))
    drawn = trials(model, part, 300 * flows).reshape(300, flows).max(axis=1)
    for share in (0.1, 0.5, 0.9):
        ours = float(slowest_s(model, SHARD, fleet, share=share))
        assert ours == pytest.approx(quantile(drawn, share), rel=0.05)


def test_tcps_far_tail_is_that_of_millions_of_draws() -> None:
    fresh = replace(RENO, settled=False)
    point = Crossing(payload_bytes=1e6, rate_bps=5e9, rtt_s=0.06, loss=1e-4)
    drawn = trials(fresh, point, 2_000_000)
    for share in (1 - 1e-3, 1 - 1e-4, 1 - 1e-5):
        assert agrees(fresh, point, drawn, share)


def test_independence_lies_between_its_bounds() -> None:
    fleet = Fleet(messages=messages_in(PAPER, "step"), planes=4)
    for model in MODELS.values():
        least_s = slowest_s(model, SHARD, fleet, share=0.99, dependence="correlated")
        most_s = slowest_s(model, SHARD, fleet, share=0.99, dependence="any")
        assert least_s <= slowest_s(model, SHARD, fleet, share=0.99) <= most_s * (1 + 1e-12)
        assert least_s == model.quantile_s(fleet.part(model, SHARD), np.log(0.99))


@pytest.mark.parametrize("name", ["b4", "rdma-sr"])
def test_of_two_trips_both_keep_to_the_time_in_the_share_of_steps_that_is_asked_for(name: str) -> None:
    model, fleet = MODELS[name], Fleet(messages=10, planes=4, trips=2)
    part, flows = fleet.part(model, SHARD), int(fleet.flows(model))
    drawn = trials(model, part, 4000 * 2 * flows).reshape(4000, 2 * flows).max(axis=1)
    for share in (0.5, 0.9):
        ours = float(slowest_s(model, SHARD, fleet, share=share))
        assert ours == pytest.approx(quantile(drawn, share), rel=0.05)
        assert np.mean(drawn <= 1.001 * ours) == pytest.approx(share, abs=0.03)


def test_a_message_that_spreads_is_one_flow_and_one_that_is_striped_four() -> None:
    fleet = Fleet(messages=10, planes=4)
    assert (fleet.flows(B4), fleet.flows(RDMA_SR)) == (10, 40)
    assert fleet.part(B4, SHARD).payload_bytes == SHARD.payload_bytes
    striped = fleet.part(RDMA_SR, SHARD)
    assert (striped.payload_bytes, striped.rate_bps) == (57.13e6 / 4, 5e9)
    clean = replace(SHARD, loss=0.0)
    assert float(slowest_s(RDMA_SR, clean, fleet)) == pytest.approx(float(slowest_s(B4, clean, fleet)), rel=0.01)


def test_an_empty_fleet_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^messages: "):
        Fleet(messages=0)
    with pytest.raises(ValueError, match=r"^trips: "):
        Fleet(messages=1, trips=0)
    with pytest.raises(ValueError, match=r"^dependence: "):
        slowest_s(B4, SHARD, Fleet(messages=1), dependence="some")  # type: ignore[arg-type]
    assert np.isfinite(slowest_s(B4, SHARD, Fleet(messages=1)))
