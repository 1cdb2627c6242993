from dataclasses import replace

import numpy as np
import pytest

from bicoastal.experiments.extrapolation.assumptions import PUBLISHED, Assumptions
from bicoastal.experiments.extrapolation.exposure import (
    backward_pass,
    cover_s,
    exposed_gradient_s,
    exposed_share,
    forward_pass,
    least_wan_bps,
    step_s,
)
from bicoastal.experiments.extrapolation.stages import wide_area_s
from bicoastal.experiments.scenario.deployment import load_deployment
from bicoastal.wan.deployment import Deployment

PAPER = load_deployment("hundred-trillion", None)
AS_PUBLISHED = replace(PUBLISHED, wan_serialisation=True)


def test_the_published_layer_exposes_five_per_cent_and_two_fifths_with_a_slow_scale_up() -> None:
    # arXiv 2407.12819: 5 % at 1.8 TB/s, about 40 % at 800 Gbit/s
    assert exposed_share(PAPER, PUBLISHED) == pytest.approx(0.05, rel=0.02)
    assert exposed_share(replace(PAPER, scale_up_Bps=100e9), PUBLISHED) == pytest.approx(0.40, rel=0.2)


def test_computation_of_a_layer_is_three_passes_over_18_gpus() -> None:
    both_s = forward_pass(PAPER, PUBLISHED).compute_s + backward_pass(PAPER, PUBLISHED).compute_s
    assert both_s == pytest.approx(0.39007, rel=1e-4)
    assert backward_pass(PAPER, PUBLISHED).compute_s == pytest.approx(2 * forward_pass(PAPER, PUBLISHED).compute_s)
    slower = replace(PAPER, gpu=replace(PAPER.gpu, efficiency=0.5))
    assert forward_pass(slower, PUBLISHED).compute_s == pytest.approx(2 * forward_pass(PAPER, PUBLISHED).compute_s)
    assert forward_pass(slower, PUBLISHED).communication_s == forward_pass(PAPER, PUBLISHED).communication_s


def test_the_least_rate_is_16_4_gbit_and_less_with_every_assumption_relaxed() -> None:
    # by hand: 260.0 ms of cover, 172.3 ms of local stages, 60 ms of delay leave 27.8 ms for 57.13 MB
    assert least_wan_bps(PAPER, AS_PUBLISHED) == pytest.approx(57.13e6 * 8 / (0.26004 - 0.17225 - 0.06), rel=2e-3)
    assert least_wan_bps(PAPER, AS_PUBLISHED) == pytest.approx(20e9, rel=0.2)  # the paper's finding
    # an exchange saves one trip of 30 ms
    exchange = replace(AS_PUBLISHED, wan_trips=1)
    assert least_wan_bps(PAPER, exchange) == pytest.approx(57.13e6 * 8 / (0.26004 - 0.17225 - 0.03), rel=2e-3)
    for change in (
        {"communication_covers": True},
        {"local_reduction": "reduce-scatter"},
        {"chunks": 4},
        {"in_network": ("datacenter",)},
        {"cover_passes": 2.0},
        {"count_recomputation": True},
    ):
        assert least_wan_bps(PAPER, replace(AS_PUBLISHED, **change)) < least_wan_bps(PAPER, AS_PUBLISHED)


def test_at_the_least_rate_nothing_is_exposed_and_a_little_below_something_is() -> None:
    for chunks in (1, 2, 16):
        assumptions = Assumptions(chunks=chunks)
        least_bps = least_wan_bps(PAPER, assumptions)
        for factor, exposed in ((1.0001, False), (0.99, True)):
            found_s = exposed_gradient_s(PAPER, assumptions, *wide_area_s(PAPER, assumptions, factor * least_bps))
            assert (found_s > 0) == exposed


def test_the_least_rate_of_any_deployment_and_assumption_is_the_one_that_a_search_would_find() -> None:
    generator = np.random.default_rng(3)
    deployments = [
        load_deployment(name, None) for name in ("hundred-trillion", "hundred-trillion-moe", "gpt3-two-sites")
    ]
    enough, never = 0, 0
    for _ in range(300):
        deployment = deployments[generator.integers(3)]
        assumptions = Assumptions(
            wan_trips=int(generator.integers(1, 3)),
            local_reduction=str(generator.choice(["all-reduce", "reduce-scatter"])),  # type: ignore[arg-type]
            in_network=tuple(name for name in ("rack", "datacenter") if generator.random() < 0.5),
            chunks=int(generator.choice([1, 2, 5, 64])),
            cover_passes=float(generator.uniform(0, 12)),
            communication_covers=bool(generator.random() < 0.5),
        )

        def exposed_s(
            rate_bps: float, deployment: Deployment = deployment, assumptions: Assumptions = assumptions
        ) -> float:
            found_s = exposed_gradient_s(deployment, assumptions, *wide_area_s(deployment, assumptions, rate_bps))
            return float(found_s)

        least_bps = least_wan_bps(deployment, assumptions)
        if np.isfinite(least_bps):
            enough += 1
            assert exposed_s(least_bps * (1 + 1e-9)) < 1e-9
            assert exposed_s(least_bps * 0.999) > 0
        else:
            never += 1
            assert exposed_s(1e30) > 0
    assert min(enough, never) > 50


def test_no_rate_is_enough_where_the_delays_alone_are_longer_than_the_cover() -> None:
    rates_bps = least_wan_bps(PAPER, Assumptions(), rtt_s=np.array([0.002, 0.06, 0.09, 0.2]))
    assert np.isfinite(rates_bps).tolist() == [True, True, True, False]
    assert np.all(np.diff(rates_bps[:3]) > 0)
    assert least_wan_bps(PAPER, Assumptions(cover_passes=0.0)) == np.inf
    assert least_wan_bps(PAPER, Assumptions(), lost_s=0.2) == np.inf
    assert np.isfinite(least_wan_bps(PAPER, Assumptions(), lost_s=0.2, exposed_s=0.2))


def test_one_site_needs_no_wan() -> None:
    assert least_wan_bps(load_deployment("gpt3-sakuraone", None), Assumptions(cover_passes=100.0)) == 0


def test_without_serialisation_there_is_no_least_rate() -> None:
    with pytest.raises(ValueError, match=r"^wan_serialisation: "):
        least_wan_bps(PAPER, PUBLISHED)


def test_more_micro_batches_dilute_what_a_step_exposes_of_its_gradients() -> None:
    one, many = (exposed_share(PAPER, Assumptions(), 1.0, micro_batches=count) for count in (1, 134))
    bare = exposed_share(PAPER, Assumptions())
    assert one > many > bare
    # 134 times 0.414 s, and one second of them
    assert many == pytest.approx((134 * bare * 0.41359 + 1) / (134 * 0.41359 + 1), rel=1e-3)
    assert step_s(PAPER, Assumptions(), 1.0) == pytest.approx(134 * 0.41359 + 1, rel=1e-4)


def test_communication_of_the_pass_counts_as_cover_only_on_request() -> None:
    more_s = cover_s(PAPER, Assumptions(communication_covers=True)) - cover_s(PAPER, Assumptions())
    assert more_s == pytest.approx(8.20e-3 + 2.17e-3, rel=1e-3)
