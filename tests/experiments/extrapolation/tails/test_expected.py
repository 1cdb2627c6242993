"""The median that a model says of a run, beside the simulator's, and the runs that no model is for."""

from dataclasses import replace
from math import log
from statistics import median

import pytest

from bicoastal.emulation.base import RunSpec
from bicoastal.experiments.extrapolation.tails.expected import NotModelledError, expected_median_s
from bicoastal.experiments.extrapolation.tails.model import Crossing
from bicoastal.experiments.extrapolation.tails.models import RDMA_SR, NoModelError
from bicoastal.wan.loss import Bernoulli, GilbertElliott, LossSpec, NoLoss, TailOfBurst
from helpers.small_runs import background, job, plane, planes, run_spec, simulate

RATE_BPS, DELAY_S = 250e6, 0.03


def run(transport: str, loss: LossSpec, *, count: int = 1, iterations: int = 8, seed: int = 0) -> RunSpec:
    links = [
        plane(f"plane{index}", rate_bps=RATE_BPS, delay_s=DELAY_S, mtu_bytes=9000, loss=loss) for index in range(count)
    ]
    one = job(
        transport,
        paths=tuple(link.name for link in links),
        shard_bytes=2_857_000 * count,
        iterations=iterations,
        gap_s=0.7,
        array_bytes=4096,
        start_s=0.5,
    )
    return run_spec(planes(*links), one, seed=seed, time_limit_s=100.0)


def with_link(spec: RunSpec, **changes: object) -> RunSpec:
    (link,) = spec.topology.links.values()
    return replace(spec, topology=planes(replace(link, **changes)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("transport", "loss", "count"),
    [
        ("reno", NoLoss(), 1),
        ("cubic", NoLoss(), 2),
        ("reno", TailOfBurst(), 1),
        ("adaptive", TailOfBurst(), 1),
        ("b4", NoLoss(), 2),
    ],
)
def test_where_nothing_is_left_to_chance_the_model_is_within_a_few_percent_of_the_simulator(
    transport: str, loss: LossSpec, count: int
) -> None:
    spec = run(transport, loss, count=count)
    seen = [row.completion_s for row in simulate(spec).iterations if row.completion_s is not None]
    assert len(seen) == 8
    assert expected_median_s(spec) == pytest.approx(median(seen), rel=0.04)


def test_where_packets_are_lost_by_chance_it_is_within_a_tenth() -> None:
    runs = [simulate(run("reno", Bernoulli(probability=1e-3), iterations=20, seed=seed)) for seed in range(8)]
    seen = [row.completion_s for each in runs for row in each.iterations if row.completion_s is not None]
    expected_s = expected_median_s(run("reno", Bernoulli(probability=1e-3), iterations=20))
    assert expected_s == pytest.approx(median(seen), rel=0.1)


def test_an_iteration_waits_for_each_flow_in_both_directions() -> None:
    loss = Bernoulli(probability=2e-3)
    flow = Crossing(payload_bytes=2_857_000, rate_bps=RATE_BPS, rtt_s=2 * DELAY_S, loss=2e-3)
    for count in (1, 3):
        expected_s = expected_median_s(run("rdma-sr", loss, count=count))
        assert 2 * count * float(RDMA_SR.log_cdf(flow, expected_s + 1e-9)) >= log(0.5)
        assert 2 * count * float(RDMA_SR.log_cdf(flow, expected_s - 1e-6)) < log(0.5)


def test_the_first_message_counts_like_any_other() -> None:
    once, often = (expected_median_s(run("reno", NoLoss(), iterations=each)) for each in (1, 9))
    assert once == pytest.approx(0.371, abs=0.001)
    assert often < 0.6 * once


def test_what_no_model_is_for_is_refused_in_one_sentence() -> None:
    plain = run("reno", NoLoss())
    bursty = GilbertElliott(good_to_bad=0.001, bad_to_good=0.1)
    for spec, words in (
        (replace(plain, background=(background(),)), "one job without other traffic"),
        (replace(plain, jobs=(replace(plain.jobs[0], name="a"), replace(plain.jobs[0], name="b"))), "one job"),
        (with_link(plain, queue_bytes=100_000), "queues of at least a BDP, not of 0.053"),
        (with_link(plain, jitter_s=0.001), "no jitter"),
        (with_link(plain, loss=bursty), "lost independently"),
        (with_link(plain, loss=TailOfBurst(packets=3)), "lost independently"),
        (with_link(plain, loss_back=Bernoulli(probability=0.1)), "same loss in both directions"),
        (run_spec(plain.topology, job("reno", pattern="reduce-scatter", shard_bytes=100_000)), "one trip"),
        (run_spec(plain.topology, job("reno", parameters=(("ack_every", 1),))), "without parameters"),
        (
            run_spec(planes(plane("a"), plane("b", rate_bps=1e6)), job("reno", paths=("a", "b"))),
            "all alike",
        ),
    ):
        with pytest.raises(NotModelledError, match=words):
            expected_median_s(spec)
    with pytest.raises(NoModelError, match="QUIC's"):
        expected_median_s(run("quic", NoLoss()))
