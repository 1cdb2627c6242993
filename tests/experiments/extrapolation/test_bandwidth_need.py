from dataclasses import replace

import numpy as np
import pytest

from bicoastal.experiments.extrapolation.assumptions import Assumptions
from bicoastal.experiments.extrapolation.bandwidth_need import (
    Path,
    Question,
    allowed_s,
    at,
    gradient_exposed_s,
    least_bps,
    lost_s,
    need,
    step_share,
)
from bicoastal.experiments.extrapolation.exposure import least_wan_bps
from bicoastal.experiments.extrapolation.tails.model import TailModel
from bicoastal.experiments.extrapolation.tails.models import ADAPTIVE, B4, FEC, RDMA_GBN, RDMA_SR, RENO
from bicoastal.experiments.scenario.deployment import load_deployment

PAPER = load_deployment("hundred-trillion", None)
TWO_TRIPS = Question(deployment=PAPER, assumptions=Assumptions(), path=Path(loss=0.0))
EXCHANGE = replace(TWO_TRIPS, assumptions=Assumptions(wan_trips=1))
PIPELINED = replace(
    TWO_TRIPS, assumptions=Assumptions(wan_trips=1, chunks=8, local_reduction="reduce-scatter"), path=Path(loss=1e-4)
)


def test_without_loss_a_paced_transport_needs_the_ideal_rate_and_its_headers() -> None:
    ideal_bps = float(least_wan_bps(PAPER, TWO_TRIPS.assumptions))
    for model in (B4, RDMA_SR, ADAPTIVE):
        assert float(least_bps(TWO_TRIPS, model)) == pytest.approx(ideal_bps, rel=0.025)
        assert float(least_bps(TWO_TRIPS, model)) > ideal_bps
    redundancy = (FEC.source_packets + FEC.repair_packets) / FEC.source_packets
    assert float(least_bps(TWO_TRIPS, FEC)) == pytest.approx(ideal_bps * redundancy, rel=0.025)


def test_the_papers_twenty_gigabits_leave_no_room_for_a_single_repair() -> None:
    # arXiv 2407.12819: 20 Gbit/s per GPU mask everything. So they do, as long as no message of 1.68 million loses a
    # packet near its end; at a loss of 1e-8 one does in every step, and a round trip is more than there is to spare.
    assert all(float(least_bps(TWO_TRIPS, model)) < 20e9 for model in (ADAPTIVE, B4, RDMA_SR, RDMA_GBN, FEC))
    lossy = at(TWO_TRIPS, loss=1e-8)
    for model in (ADAPTIVE, B4, RDMA_SR, RDMA_GBN, RENO):
        answer = need(lossy, model)
        assert answer.least_bps is None
        assert answer.reason == "30.57 ms are to spare, and the slowest of 1,677,600 messages loses more at any rate"
        assert answer.lost_s > 0.03057
        assert answer.exposed_s is not None
        assert answer.exposed_s > 0.06
    assert float(least_bps(lossy, FEC)) < 20e9


@pytest.mark.parametrize("model", [ADAPTIVE, B4, FEC, RDMA_SR, RDMA_GBN], ids=lambda model: model.name)
@pytest.mark.parametrize("loss", [0.0, 1e-6, 1e-4, 1e-3])
def test_the_least_rate_is_enough_and_a_little_less_is_not(model: TailModel, loss: float) -> None:
    for question in (TWO_TRIPS, EXCHANGE, PIPELINED):
        asked = at(question, loss=loss)
        least = float(least_bps(asked, model))
        if np.isinf(least):
            assert float(gradient_exposed_s(asked, model, 1e14)) > 0
            continue
        assert float(gradient_exposed_s(asked, model, least * 1.001)) < 1e-4
        assert float(gradient_exposed_s(asked, model, least * 0.98)) > 0


def test_arrays_are_searched_together() -> None:
    rtts_s, losses = np.array([0.01, 0.03, 0.06]), np.array([[0.0], [1e-5]])
    together = least_bps(at(PIPELINED, loss=losses), B4, rtt_s=rtts_s)
    assert together.shape == (2, 3)
    for row, loss in enumerate(losses[:, 0]):
        for column, rtt_s in enumerate(rtts_s):
            alone = float(least_bps(at(PIPELINED, loss=float(loss)), B4, rtt_s=float(rtt_s)))
            assert together[row, column] == pytest.approx(alone, rel=1e-3)


def test_a_target_share_allows_what_it_says() -> None:
    hidden = float(step_share(TWO_TRIPS, 0.0))
    assert allowed_s(TWO_TRIPS, hidden) == pytest.approx(0.0, abs=1e-9)
    room_s = allowed_s(TWO_TRIPS, 0.06)
    assert float(step_share(TWO_TRIPS, room_s)) == pytest.approx(0.06)
    lossy = at(TWO_TRIPS, loss=1e-4)
    answer = need(lossy, B4, 0.06)
    assert answer.least_bps is not None
    exposed = gradient_exposed_s(lossy, B4, answer.least_bps)
    assert float(step_share(lossy, exposed)) == pytest.approx(0.06, rel=1e-3)
    hopeless = need(lossy, B4, 0.04)
    assert hopeless.least_bps is None
    assert "communication alone" in hopeless.reason


def test_one_layers_group_waits_for_less() -> None:
    layer = replace(at(EXCHANGE, loss=1e-7), scope="layer")
    assert float(lost_s(layer, RDMA_SR, 20e9)) <= float(lost_s(replace(layer, scope="step"), RDMA_SR, 20e9))
    assert round(layer.fleet.messages) == 12_528


def test_nothing_is_sized_where_nothing_crosses() -> None:
    with pytest.raises(ValueError, match="one site"):
        replace(TWO_TRIPS, deployment=load_deployment("llama3-405b", None))
    with pytest.raises(ValueError, match=r"^share: "):
        replace(TWO_TRIPS, share=1.0)
    with pytest.raises(ValueError, match=r"^target: "):
        allowed_s(TWO_TRIPS, 1.0)
