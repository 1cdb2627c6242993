from dataclasses import replace

import numpy as np
import pytest

from bicoastal.experiments.extrapolation.fitting.evidence import evidence
from bicoastal.experiments.extrapolation.fitting.link_counts import Counted
from bicoastal.experiments.extrapolation.fitting.loss_fit import fit, slowest_span
from bicoastal.experiments.extrapolation.fitting.messages import Measured, TooFewError
from bicoastal.experiments.extrapolation.tails.model import Crossing, TailModel
from bicoastal.experiments.extrapolation.tails.models import ADAPTIVE, B4, MPQUIC_FEC, RDMA_GBN, RDMA_SR
from helpers.simulated_messages import trials

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
    assert found.loss == found.loss_low == 0.0
    # the rule of three: none of 100 messages was late
    late = 100 * 14.28e6 / 8938
    assert found.loss_high == pytest.approx(1.92 / late, rel=0.5)


def test_a_model_of_something_else_supports_nothing() -> None:
    found = fit(measured(RDMA_SR, 400, loss=1e-3), B4)
    assert "chance" in found.reason
    with pytest.raises(TooFewError, match="chance"):
        slowest_span(found, 1e6)


def test_messages_that_all_take_what_few_take_in_the_model_are_far_from_it() -> None:
    # one time, at which the model has the last of its messages with a loss that makes nearly all late
    together = replace(measured(ADAPTIVE, 152), completions_s=np.full(152, 0.1167))
    found = fit(together, ADAPTIVE)
    share = float(np.exp(ADAPTIVE.log_cdf(replace(COAST, loss=found.loss), 0.1167 / 1.05)))
    assert found.gap == pytest.approx(max(share, 1 - float(np.exp(ADAPTIVE.log_cdf(COAST, 1.0)))), abs=1e-6)
    assert found.gap > 2 * found.allowed_gap
    assert "chance" in found.reason


@pytest.mark.parametrize("factor", [0.97, 1.03])
def test_times_a_little_off_are_no_gap(factor: float) -> None:
    seen = measured(RDMA_SR, 300)
    assert fit(replace(seen, completions_s=factor * np.asarray(seen.completions_s)), RDMA_SR).gap < 0.05


@pytest.mark.parametrize("counted", [None, Counted(packets=640_000, lost=640, dropped=0, unevenness=85.0)])
def test_a_message_later_than_the_model_allows_so_many_is_no_tail_of_it(counted: Counted | None) -> None:
    seen = replace(measured(ADAPTIVE, 400), counted=counted)
    assert not fit(seen, ADAPTIVE).reason
    late = np.array(seen.completions_s)
    late[0] = 0.1887  # two repairs of it lost, which is one message in a million at this loss
    found = fit(replace(seen, completions_s=late), ADAPTIVE)
    assert found.gap < found.allowed_gap
    assert found.reason.startswith("its slowest message took 188.7 ms, and of 400 the model allows none more than 11")
    with pytest.raises(TooFewError, match="its slowest message took"):
        slowest_span(found, 1e6)


def test_two_trips_take_more_of_each() -> None:
    found = fit(measured(RDMA_SR, 300), RDMA_SR)
    one, two = (slowest_span(found, 1000, trips=trips, share=0.99) for trips in (1, 2))
    assert two == pytest.approx(slowest_span(found, 1000, share=0.99**0.5), rel=1e-4)
    assert two.middle_s > one.middle_s


def test_the_slowest_message_has_an_interval_and_is_scaled_back() -> None:
    found = fit(measured(RDMA_SR, 300), RDMA_SR)
    span = slowest_span(found, 1_677_600)
    assert span.correlated_s < span.low_s <= span.middle_s <= span.high_s
    assert span.middle_s <= span.any_s
    small = replace(
        found.measured, scale=100.0, crossing=replace(found.measured.crossing, payload_bytes=14.28e4, rate_bps=5e7)
    )
    again = slowest_span(replace(found, measured=small), 1_677_600)
    assert again == pytest.approx(span, rel=1e-9)


def counting(packets: int, lost: int, unevenness: float = 1.0) -> Counted:
    return Counted(packets=packets, lost=lost, dropped=0, unevenness=unevenness)


def test_what_was_counted_of_independent_losses_goes_before_what_completions_show() -> None:
    seen = measured(RDMA_SR, 100)
    alone, beside = fit(seen, RDMA_SR), fit(replace(seen, counted=counting(1_000_000, 100)), RDMA_SR)
    assert (alone.source, beside.source) == ("completions", "counted")
    assert beside.loss == 1e-4
    assert (beside.loss_low, beside.loss_high) == pytest.approx((81.36e-6, 121.6e-6), rel=0.01)
    assert alone.loss_high - alone.loss_low > beside.loss_high - beside.loss_low
    few = fit(replace(seen, counted=counting(10_000, 1)), RDMA_SR)
    assert few.source == "completions"
    assert few.loss == pytest.approx(alone.loss, rel=0.1)


@pytest.mark.parametrize("model", [RDMA_SR, ADAPTIVE, RDMA_GBN], ids=lambda model: model.name)
def test_completions_that_are_slower_than_what_was_lost_support_nothing(model: TailModel) -> None:
    late = measured(model, 60, loss=3e-3)
    assert not fit(late, model).reason
    found = fit(replace(late, counted=counting(60 * 1600, 0)), model)
    assert found.reason.startswith(
        "its completions are slower than its 0 losses of 96,000 packets explain: those allow"
    )
    with pytest.raises(TooFewError, match="slower than its 0 losses"):
        slowest_span(found, 1e6)


def test_of_losses_in_bursts_the_independent_loss_is_taken_that_delays_as_many_messages() -> None:
    # 1e-4 is the share of messages' packets at which something is lost, ten packets each time
    found = fit(replace(measured(RDMA_SR, 400), counted=counting(400 * 1600, 640, unevenness=19.0)), RDMA_SR)
    assert not found.reason
    assert found.source == "completions"
    assert found.loss_low < 1e-4 < found.loss_high < 1e-3
    said = evidence(found)
    assert "640 losses of 640,000 packets, a share of 0.001, came in bursts (spread 19 times as unevenly" in said


def test_bursts_that_completions_do_not_show_support_nothing() -> None:
    seen = replace(measured(MPQUIC_FEC, 40, loss=1e-6), counted=counting(60_000, 30, unevenness=19.0))
    assert "do not show which independent loss would do the same" in fit(seen, MPQUIC_FEC).reason


def test_a_few_messages_are_said_to_be_a_weak_test() -> None:
    found = fit(measured(RDMA_SR, 36), RDMA_SR)
    # sqrt(ln(2 / 0.01) / (2 * 36)), and ln(2 / 0.01) / (2 * 0.1^2)
    assert found.allowed_gap == pytest.approx(0.271, abs=1e-3)
    assert "36 messages cannot tell less than 0.27 from chance (265 could tell 0.1)" in evidence(found)
    assert "nothing counted its losses" in evidence(found)
    assert "could tell" not in evidence(fit(measured(RDMA_SR, 300), RDMA_SR))


def test_what_was_lost_at_a_smaller_scale_is_said_to_be() -> None:
    seen = replace(measured(RDMA_SR, 100), scale=100.0, counted=counting(160_000, 16))
    assert "as lost at rates and payloads ÷100, taken to be the same at full rate" in evidence(fit(seen, RDMA_SR))
