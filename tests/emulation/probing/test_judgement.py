"""What a path should be like, and what may be due to chance: against closed forms and scipy."""

from math import inf, sqrt

import numpy
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.emulation.probing.judgement import (
    Expected,
    Tolerances,
    binomial_tail,
    clustering,
    expect,
    expected_loss,
    judge_delay,
    judge_loss,
    judge_rate,
    loss_is_credible,
    wire_rate_factor,
)
from bicoastal.wan.loss import Bernoulli, Combined, GilbertElliott, LossSpec, NoLoss, Periodic, TailOfBurst
from bicoastal.wan.recorded_loss import Listed, Trace
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology


@given(st.integers(1, 5000), st.floats(1e-6, 1 - 1e-6), st.data())
def test_the_tail_is_the_binomial_one(trials: int, probability: float, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, trials))
    wanted = min(
        scipy.stats.binom.cdf(count, trials, probability), scipy.stats.binom.sf(count - 1, trials, probability)
    )
    found = binomial_tail(count, trials, probability)
    if count == pytest.approx(trials * probability, abs=1):
        assert found == pytest.approx(wanted, abs=0.75)  # at the mean either tail is large, and none is improbable
    else:
        assert found == pytest.approx(wanted, rel=1e-6, abs=1e-290)


@pytest.mark.parametrize(("count", "tail"), [(0, 1.0), (1, 0.0)])
def test_impossible_counts_have_probability_zero(count: int, tail: float) -> None:
    assert binomial_tail(count, 10, 0.0) == tail
    assert binomial_tail(10 - count, 10, 1.0) == tail


@pytest.mark.parametrize("burst", [2.0, 10.0, 50.0])
def test_losses_in_bursts_vary_as_the_burst_lengths_do(burst: float) -> None:
    # Few bursts, geometric lengths: variance over mean of a compound Poisson number is E[S^2]/E[S] = 2b - 1
    loss = GilbertElliott.from_means(mean_loss=1e-5, mean_burst_packets=burst)
    assert clustering(loss) == pytest.approx(2 * burst - 1, rel=1e-3)


def test_clustering_agrees_with_the_process_itself() -> None:
    loss = GilbertElliott(good_to_bad=0.02, bad_to_good=0.1, loss_good=0.01, loss_bad=0.5)
    packets, runs = 1000, 600
    rng = numpy.random.default_rng(5)
    counts = numpy.zeros(runs)
    bad = rng.random(runs) < 0.02 / 0.12
    for _ in range(packets):
        counts += rng.random(runs) < numpy.where(bad, 0.5, 0.01)
        bad ^= rng.random(runs) < numpy.where(bad, 0.1, 0.02)
    mean = loss.mean_loss
    found = counts.var() / (packets * mean * (1 - mean))
    assert found == pytest.approx(clustering(loss), rel=4 * sqrt(2 / runs))  # a variance's own relative error


def test_independent_losses_do_not_cluster() -> None:
    assert clustering(Bernoulli(probability=0.1)) == 1.0
    assert clustering(GilbertElliott(good_to_bad=0.3, bad_to_good=0.7)) == pytest.approx(1.0)
    assert clustering(GilbertElliott(good_to_bad=0.0, bad_to_good=1.0)) == 1.0


@pytest.mark.parametrize(
    ("loss", "share"),
    [
        (NoLoss(), 0.0),
        (Bernoulli(probability=0.1), 0.1),
        (Periodic(every=4), 0.25),
        (Periodic(every=4, min_wire_bytes=100), 0.25),
        (Periodic(every=4, min_wire_bytes=101), 0.0),
        (TailOfBurst(packets=3), 0.0),
        (Listed(indices=(1, 2)), None),
        (Trace(outcomes=(True, False)), 0.5),
        (Trace(outcomes=(True, False), repeat=False), None),
        (Combined(parts=(Bernoulli(probability=0.5), Periodic(every=2))), 0.75),
        (Combined(parts=(Bernoulli(probability=0.5), Listed(indices=(1,)))), None),
    ],
)
def test_expected_loss_of_a_packet_of_100_bytes(loss: LossSpec, share: float | None) -> None:
    assert expected_loss(loss, 100) == share


def via_hub() -> Topology:
    return Topology(
        sites=[Site(name=name) for name in ("east", "hub", "west")],
        links=[
            LinkSpec(
                name="short",
                a="east",
                b="hub",
                rate_bps=8e6,
                delay_s=0.01,
                framing_bytes=38,
                loss=Bernoulli(probability=0.1),
            ),
            LinkSpec(
                name="long",
                a="west",
                b="hub",
                rate_bps=16e6,
                delay_s=0.02,
                framing_bytes=0,
                jitter_s=0.003,
                loss=Bernoulli(probability=0.2),
                loss_back=NoLoss(),
                corrupt=0.5,
            ),
        ],
        paths=[Path(name="via", sites=("east", "hub", "west"), links=("short", "long"), overhead_bytes=2)],
    )


def test_delays_add_up_and_losses_multiply_link_by_link() -> None:
    forth = expect(via_hub(), "via", back=False, delay_bytes=60, rate_bytes=1000, loss_bytes=60)
    # 60 + 2 + 38 bytes at 1 MB/s, 60 + 2 at 2 MB/s
    assert forth.delay_s == pytest.approx(0.01 + 100e-6 + 0.02 + 31e-6)
    assert forth.spread_s == 0.003
    assert forth.loss == pytest.approx(1 - 0.9 * 0.5)  # "long" is crossed from b to a
    assert forth.rate_bps == pytest.approx(8e6 * 0.9 * 0.5)
    back = expect(via_hub(), "via", back=True, delay_bytes=60, rate_bytes=1000, loss_bytes=60)
    assert back.loss == pytest.approx(1 - 0.9 * 0.8 * 0.5)


def test_the_rate_is_that_of_the_slowest_links_wire() -> None:
    assert wire_rate_factor(via_hub(), "via", 1000) == pytest.approx(8 * (1000 + 2 + 38) / 1000)


PLAIN = Expected(delay_s=0.03, spread_s=0.0, rate_bps=1e8, loss=0.01, clustering=1.0)


@pytest.mark.parametrize(
    ("lost", "credible"), [(0, False), (20, False), (80, True), (100, True), (120, True), (200, False)]
)
def test_a_count_of_losses_is_judged_by_its_improbability(lost: int, credible: bool) -> None:
    assert loss_is_credible(lost, 10_000, PLAIN, 1e-6) is credible  # 100 ± 10: 49 and 154 are the limits


def test_bursts_are_given_more_room() -> None:
    bursty = Expected(delay_s=0.03, spread_s=0.0, rate_bps=1e8, loss=0.01, clustering=19.0)
    assert loss_is_credible(200, 10_000, bursty, 1e-6)
    assert not loss_is_credible(500, 10_000, bursty, 1e-6)


def test_a_lossless_path_may_lose_nothing() -> None:
    lossless = Expected(delay_s=0.03, spread_s=0.0, rate_bps=1e8, loss=0.0, clustering=1.0)
    assert loss_is_credible(0, 100, lossless, 1e-6)
    assert judge_loss(lossless, 1, 100, Tolerances()) == "loss: 1 of 100 packets, wanted a share of 0"


def test_unpredictable_losses_are_not_judged() -> None:
    unknown = Expected(delay_s=0.03, spread_s=0.0, rate_bps=1e8, loss=None, clustering=1.0)
    assert judge_loss(unknown, 99, 100, Tolerances()) == ""


@pytest.mark.parametrize(
    ("measured_ms", "fine"), [(29.7, False), (29.9, True), (30.9, True), (31.1, False), (0.1, False)]
)
def test_a_delay_may_be_a_little_late_and_hardly_early(measured_ms: float, fine: bool) -> None:
    assert (judge_delay(PLAIN, measured_ms / 1e3, Tolerances()) == "") is fine


def test_problems_tell_the_measured_and_the_wanted_figure() -> None:
    assert judge_delay(PLAIN, 1e-4, Tolerances()) == "one-way delay: 0.10 ms, wanted 30.00 ms"
    assert judge_delay(PLAIN, inf, Tolerances()) == "one-way delay: nothing arrived, wanted 30.00 ms"
    assert judge_rate(PLAIN, 8e8, 9e8, Tolerances()) == "rate: 800 Mbit/s, wanted 100 Mbit/s"
    assert judge_rate(PLAIN, 5e7, 6e7, Tolerances()).endswith("(this machine sent no faster than 60 Mbit/s)")
    assert judge_rate(PLAIN, 1.04e8, 2e8, Tolerances()) == ""


@pytest.mark.parametrize("name", ["delay_s", "delay_share", "rate_share", "significance"])
def test_tolerances_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        Tolerances(**{name: -1.0})
