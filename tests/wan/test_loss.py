import pickle
from collections.abc import Sequence
from itertools import groupby
from math import sqrt
from random import Random

import numpy as np
import pytest
from scipy import stats

from bicoastal.transports.base import Datagram
from bicoastal.wan.loss import Bernoulli, Combined, GilbertElliott, LossSpec, NoLoss, Periodic, TailOfBurst
from bicoastal.wan.recorded_loss import Listed, Trace

PACKET = Datagram(0, b"", 1500, 0.0)
ACK = Datagram(0, b"", 52, 0.0)


class NoRandomness:
    def random(self) -> float:
        raise AssertionError("a deterministic process has drawn")

    def getrandbits(self, k: int) -> int:
        raise AssertionError("a deterministic process has drawn")


class Counting(Random):
    draws = 0

    def random(self) -> float:
        self.draws += 1
        return super().random()


def outcomes(spec: LossSpec, count: int, rng=None) -> list[bool]:
    process = spec.start(rng if rng is not None else Random(1))
    return [process.lost(PACKET, 0.0) for _ in range(count)]


def losses(spec: LossSpec, packets: Sequence[Datagram]) -> list[int]:
    process = spec.start(NoRandomness())
    return [index for index, packet in enumerate(packets) if process.lost(packet, 0.0)]


def test_nothing_is_lost_without_loss() -> None:
    assert losses(NoLoss(), [PACKET] * 1000) == []


@pytest.mark.parametrize("probability", [1e-3, 0.01, 0.3, 0.5, 0.9])
def test_bernoulli_losses_are_binomial(probability: float) -> None:
    count = 200_000
    lost = sum(outcomes(Bernoulli(probability=probability), count))
    assert stats.binomtest(lost, count, probability).pvalue > 1e-4


def test_bernoulli_gaps_are_geometric() -> None:
    probability = 0.2
    where = np.flatnonzero(outcomes(Bernoulli(probability=probability), 100_000))
    gaps = np.minimum(np.diff(where), 20)
    seen = np.bincount(gaps, minlength=21)[1:]
    expected = stats.geom.pmf(np.arange(1, 21), probability)
    expected[-1] = stats.geom.sf(19, probability)
    assert stats.chisquare(seen, expected * seen.sum()).pvalue > 1e-4


def test_bernoulli_draws_once_per_loss_rather_than_per_packet() -> None:
    rng = Counting(3)
    lost = sum(outcomes(Bernoulli(probability=1e-3), 50_000, rng))
    assert rng.draws == lost + 1


def test_bernoulli_with_probability_zero_and_one() -> None:
    assert not any(outcomes(Bernoulli(probability=0.0), 1000))
    assert all(outcomes(Bernoulli(probability=1.0), 1000))
    assert not any(outcomes(Bernoulli(probability=5e-324), 1000))
    assert Bernoulli(probability=0.25).mean_loss == 0.25


def test_one_packet_in_every_n_is_lost() -> None:
    assert losses(Periodic(every=100), [PACKET] * 400) == [99, 199, 299, 399]
    assert losses(Periodic(every=100, first=7), [PACKET] * 400) == [7, 107, 207, 307]
    assert losses(Periodic(every=1), [PACKET] * 3) == [0, 1, 2]
    assert Periodic(every=100).mean_loss == 0.01


def test_periodic_loss_can_leave_acknowledgements_out() -> None:
    assert losses(Periodic(every=3, min_wire_bytes=200), [PACKET, ACK] * 9) == [4, 10, 16]


def run_lengths(values: Sequence[bool]) -> list[int]:
    return [len(list(run)) for lost, run in groupby(values) if lost]


def test_gilbert_elliott_has_the_mean_loss_and_burst_it_was_made_from() -> None:
    loss, burst, count = 0.01, 10.0, 1_000_000
    spec = GilbertElliott.from_means(mean_loss=loss, mean_burst_packets=burst)
    assert spec.mean_loss == pytest.approx(loss, rel=1e-12)
    seen = outcomes(spec, count)
    runs = run_lengths(seen)
    # Burst lengths are geometric with mean B: standard deviation sqrt(B (B - 1)).
    assert np.mean(runs) == pytest.approx(burst, abs=4 * sqrt(burst * (burst - 1) / len(runs)))
    # Var of a sum over a two-state chain with eigenvalue r: n p (1-p) (1+r)/(1-r).
    r = 1 - spec.good_to_bad - spec.bad_to_good
    deviation = sqrt(loss * (1 - loss) * (1 + r) / (1 - r) / count)
    assert np.mean(seen) == pytest.approx(loss, abs=4 * deviation)


def test_gilbert_elliott_with_partial_loss_in_both_states_has_the_chains_correlation() -> None:
    spec = GilbertElliott(good_to_bad=0.02, bad_to_good=0.08, loss_good=0.05, loss_bad=0.6)
    assert spec.mean_loss == pytest.approx(0.8 * 0.05 + 0.2 * 0.6)
    seen = np.array(outcomes(spec, 400_000), dtype=float)
    assert seen.mean() == pytest.approx(0.16, abs=0.006)
    centred = seen - seen.mean()
    for lag in (1, 5, 20):
        # Covariance of a chain's outputs: pi_g pi_b (loss_bad - loss_good)^2 r^lag with r = 1 - g - b.
        covariance = 0.8 * 0.2 * 0.55**2 * 0.9**lag
        assert np.mean(centred[lag:] * centred[:-lag]) == pytest.approx(covariance, abs=0.003)


def test_gilbert_elliott_starts_in_the_stationary_distribution() -> None:
    spec = GilbertElliott(good_to_bad=0.001, bad_to_good=0.003)
    first = sum(spec.start(Random(seed)).lost(PACKET, 0.0) for seed in range(4000))
    assert stats.binomtest(first, 4000, 0.25).pvalue > 1e-4


def test_gilbert_elliott_draws_once_per_stay_in_a_state() -> None:
    rng = Counting(3)
    seen = outcomes(GilbertElliott.from_means(mean_loss=1e-3, mean_burst_packets=10), 100_000, rng)
    assert rng.draws <= 2 * len(run_lengths(seen)) + 3


def test_tail_of_a_burst_is_lost_on_its_first_transmission_only() -> None:
    burst = [PACKET._replace(burst_left=left) for left in range(9, -1, -1)]
    retransmissions = [PACKET, PACKET, ACK]
    assert losses(TailOfBurst(packets=3), [*burst, *retransmissions, *burst]) == [7, 8, 9, 20, 21, 22]
    assert losses(TailOfBurst(packets=1), burst) == [9]


def test_listed_packets_are_lost_and_no_others() -> None:
    assert losses(Listed(indices=(5, 0, 2)), [PACKET] * 10) == [0, 2, 5]
    assert losses(Listed(indices=(0, 2), min_wire_bytes=1000), [ACK, PACKET] * 5) == [1, 5]


def test_a_recorded_trace_is_replayed() -> None:
    trace = Trace.from_text("# recorded\n0 1 0\n11, 0  # end\n")
    assert trace.outcomes == (False, True, False, True, True, False)
    assert losses(trace, [PACKET] * 12) == [1, 3, 4, 7, 9, 10]
    assert trace.mean_loss == 0.5
    once = Trace.from_text("01", repeat=False)
    assert losses(once, [PACKET] * 12) == [1]
    assert losses(Trace.from_text("01", min_wire_bytes=1000), [PACKET, ACK] * 2) == [2]


def test_a_combination_loses_what_any_part_loses() -> None:
    both = Combined(parts=(Periodic(every=10), Listed(indices=(3, 9))))
    seen = outcomes(both, 30)
    assert [index for index, lost in enumerate(seen) if lost] == [3, 9, 19, 29]
    assert Combined(parts=(Bernoulli(probability=0.5), Bernoulli(probability=0.2))).mean_loss == pytest.approx(0.6)
    assert Combined(parts=(Bernoulli(probability=0.5), TailOfBurst())).mean_loss is None


def test_a_part_added_to_a_combination_changes_nothing_in_the_others() -> None:
    one = outcomes(Combined(parts=(Bernoulli(probability=0.01),)), 20_000, Random(5))
    two = outcomes(Combined(parts=(Bernoulli(probability=0.01), Bernoulli(probability=0.05))), 20_000, Random(5))
    assert all(more for less, more in zip(one, two, strict=True) if less)
    assert sum(two) > sum(one)


def test_the_parts_of_a_combination_are_independent() -> None:
    seen = sum(outcomes(Combined(parts=(Bernoulli(probability=0.1),) * 2), 100_000))
    assert stats.binomtest(seen, 100_000, 0.19).pvalue > 1e-4


ALL = [
    NoLoss(),
    Bernoulli(probability=0.01),
    Periodic(every=10),
    GilbertElliott(good_to_bad=0.01, bad_to_good=0.2),
    TailOfBurst(packets=2),
    Listed(indices=(1, 2)),
    Trace(outcomes=(True, False)),
    Combined(parts=(NoLoss(), Bernoulli(probability=0.5))),
]


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: type(spec).__name__)
def test_a_specification_is_hashable_can_be_pickled_and_starts_alike_from_one_seed(spec: LossSpec) -> None:
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(spec) == hash(pickle.loads(pickle.dumps(spec)))
    assert outcomes(spec, 2000, Random(9)) == outcomes(spec, 2000, Random(9))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bernoulli(probability=1.5), "probability: 1.5 is not a probability"),
        (lambda: Bernoulli(probability=float("nan")), "probability: nan"),
        (lambda: Periodic(every=0), "every: 0"),
        (lambda: Periodic(every=2.5), "every: 2.5"),
        (lambda: Periodic(every=2, first=-1), "first: -1"),
        (lambda: Periodic(every=2, min_wire_bytes=-1), "min_wire_bytes: -1"),
        (lambda: GilbertElliott(good_to_bad=-0.1, bad_to_good=0.1), "good_to_bad: -0.1"),
        (lambda: GilbertElliott(good_to_bad=0.1, bad_to_good=0.1, loss_bad=2), "loss_bad: 2"),
        (lambda: GilbertElliott(good_to_bad=0, bad_to_good=0), "bad_to_good: both"),
        (lambda: GilbertElliott.from_means(mean_loss=0.6, mean_burst_packets=1), "mean_loss: 0.6"),
        (lambda: GilbertElliott.from_means(mean_loss=0.1, mean_burst_packets=0.5), "mean_burst_packets: 0.5"),
        (lambda: TailOfBurst(packets=0), "packets: 0"),
        (lambda: Listed(indices=(1, 1)), "indices: a packet is listed twice"),
        (lambda: Listed(indices=(-1,)), "indices: -1"),
        (lambda: Trace(outcomes=()), "outcomes: the trace is empty"),
        (lambda: Trace.from_text("01\n0x"), "outcomes: line 2 has 'x'"),
        (lambda: Combined(parts=()), "parts: "),
        (lambda: Combined(parts=("loss",)), "parts: 'loss'"),
    ],
)
def test_a_specification_that_makes_no_sense_is_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace("(", r"\(")):
        make()
