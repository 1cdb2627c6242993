"""The predicted probability of a second trip, against closed forms, against enumeration and against the loss itself."""

from itertools import pairwise, product
from math import comb, isclose

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from bicoastal.transports.base import Datagram
from bicoastal.transports.coding.codes import ErasureCode
from bicoastal.transports.coding.loss_counts import loss_counts, loss_counts_over_paths
from bicoastal.transports.coding.raptor import RAPTORQ
from bicoastal.transports.coding.reed_solomon import REED_SOLOMON
from bicoastal.transports.coding.second_trip import any_of, second_trip_probability, split
from bicoastal.transports.coding.xor import PARITY
from bicoastal.wan.loss import Bernoulli, GilbertElliott, LossSpec, NoLoss, Periodic
from bicoastal.wan.randomness import SplitMix64

PACKET = Datagram(path_id=0, payload=b"", wire_bytes=1228, depart_at=0.0)
PROBABILITY = st.floats(0.01, 0.99)


@pytest.mark.parametrize("loss", [1e-4, 1e-2, 0.3])
@pytest.mark.parametrize("symbols", [1, 13, 1100])
def test_independent_losses_are_binomial_down_to_the_farthest_tail(loss, symbols):
    up_to = min(symbols, 40)
    counts = loss_counts(Bernoulli(probability=loss), symbols, up_to=up_to, spacing=3)
    assert counts[:-1] == pytest.approx(binom.pmf(np.arange(up_to + 1), symbols, loss), rel=1e-10, abs=1e-300)
    assert counts[-1] == pytest.approx(binom.sf(up_to, symbols, loss), rel=1e-8, abs=1e-300)


@settings(max_examples=30)
@given(st.tuples(PROBABILITY, PROBABILITY, PROBABILITY, PROBABILITY), st.integers(1, 3), st.integers(0, 4))
def test_burst_losses_are_the_sum_over_every_history_of_the_chain(chain, spacing, up_to):
    into, out, good, bad = chain
    symbols = 4
    packets = (symbols - 1) * spacing + 1
    expected = np.zeros(up_to + 2)
    for states in product((0, 1), repeat=packets):
        likely = (into if states[0] else out) / (into + out)
        for before, after in pairwise(states):
            likely *= (1 - out if after else out) if before else (into if after else 1 - into)
        for lost in product((0, 1), repeat=symbols):
            here = likely
            for at, gone in enumerate(lost):
                loss = bad if states[at * spacing] else good
                here *= loss if gone else 1 - loss
            expected[min(sum(lost), up_to + 1)] += here
    channel = GilbertElliott(good_to_bad=into, bad_to_good=out, loss_good=good, loss_bad=bad)
    assert loss_counts(channel, symbols, up_to=up_to, spacing=spacing) == pytest.approx(expected, rel=1e-9)


def test_paths_add_up():
    channels = [Bernoulli(probability=0.1), Bernoulli(probability=0.1), NoLoss()]
    together = loss_counts_over_paths(channels, [5, 7, 100], up_to=6)
    assert together == pytest.approx(loss_counts(channels[0], 12, up_to=6), rel=1e-12)


def test_raptorq_pays_for_what_it_may_need_beyond_k():
    """The one repair symbol does not suffice once in 256; that matters only where a source symbol is gone."""
    loss, k = 0.01, 100
    lost_at_all = 1 - (1 - loss) ** (k + 1)
    lost_twice = lost_at_all - (k + 1) * loss * (1 - loss) ** k
    source_alone = k * loss * (1 - loss) ** k
    predicted = second_trip_probability(RAPTORQ, k, 1, [Bernoulli(probability=loss)], [k + 1])
    assert predicted == pytest.approx(lost_twice + source_alone / 256, rel=1e-9)


def test_a_dead_path_takes_its_symbols_with_it():
    channels = [Bernoulli(probability=0.01)] * 4
    alive = second_trip_probability(REED_SOLOMON, 72, 28, channels, [25] * 4, dead=frozenset({2}))
    assert alive == pytest.approx(binom.sf(3, 75, 0.01), rel=1e-9)
    assert second_trip_probability(REED_SOLOMON, 80, 20, channels, [25] * 4, dead=frozenset({0})) == 1.0


@given(st.integers(0, 500), st.lists(st.floats(0, 100), min_size=1, max_size=6).filter(lambda w: sum(w) > 0.01))
def test_shares_are_whole_and_none_is_off_by_one(total, weights):
    shares = split(total, weights)
    assert sum(shares) == total
    assert all(abs(share - total * weight / sum(weights)) < 1 for share, weight in zip(shares, weights, strict=True))


def test_many_rare_things_do_not_cancel():
    assert any_of(1e-18, 1.68e6) == pytest.approx(1.68e-12, rel=1e-9)
    assert any_of(0.5, 3) == pytest.approx(0.875)
    assert any_of(1.0, 5) == 1.0


def test_what_is_no_channel_is_refused():
    with pytest.raises(ValueError, match="Periodic is neither"):
        loss_counts(Periodic(every=7), 5, up_to=1)
    with pytest.raises(ValueError, match="do not add up to 12"):
        second_trip_probability(PARITY, 11, 1, [NoLoss()], [11])


def fails(code: ErasureCode, k: int, r: int, lost: np.ndarray, rng: np.random.Generator) -> bool:
    """Say whether a block fails: by counting, and where RaptorQ may fail all the same, by really decoding."""
    sources = np.flatnonzero(lost[:k])
    spare = r - int(lost.sum())
    if spare < 0 or code is not RAPTORQ or not len(sources) or spare > 1:
        return spare < 0
    block = rng.bytes(k * 8)
    repairs = RAPTORQ.encoder(block, 8).repair(0, r)
    kept = {at: repairs[at] for at in range(r) if not lost[k + at]}
    return not RAPTORQ.recover(memoryview(bytearray(block)), 8, [int(at) for at in sources], kept)


def simulated(
    code: ErasureCode, k: int, r: int, channel: LossSpec, *, depth: int, paths: int, blocks: int, seed: int
) -> float:
    """Return how often blocks fail whose symbols cross `paths` paths, `depth` blocks taking turns on each."""
    rounds, each = -(-blocks // depth), (k + r) // paths
    lost = np.empty((rounds, depth, paths, each), dtype=bool)
    for path in range(paths):
        process = channel.start(SplitMix64(seed + path))
        asked = np.fromiter((process.lost(PACKET, 0.0) for _ in range(rounds * each * depth)), dtype=bool)
        lost[:, :, path, :] = asked.reshape(rounds, each, depth).swapaxes(1, 2)
    rng = np.random.default_rng(seed)
    flat = lost.swapaxes(2, 3).reshape(rounds * depth, each * paths)  # in the order of time
    suspect = flat[flat.sum(axis=1) >= max(1, r - 1)]
    return sum(fails(code, k, r, block, rng) for block in suspect) / len(flat)


def bursts(mean_loss: float, packets: float) -> GilbertElliott:
    return GilbertElliott.from_means(mean_loss=mean_loss, mean_burst_packets=packets)


CASES = [
    (REED_SOLOMON, 20, 4, Bernoulli(probability=0.04), 1, 1),
    (REED_SOLOMON, 60, 4, bursts(2e-3, 10), 1, 1),
    (REED_SOLOMON, 60, 4, bursts(2e-3, 10), 4, 4),
    (REED_SOLOMON, 28, 4, bursts(1e-2, 3), 2, 1),
    (REED_SOLOMON, 40, 8, GilbertElliott(good_to_bad=0.005, bad_to_good=0.1, loss_good=0.002, loss_bad=0.4), 3, 2),
    (PARITY, 15, 1, Bernoulli(probability=0.01), 1, 4),
    (PARITY, 15, 1, bursts(1e-2, 10), 16, 1),
    (RAPTORQ, 100, 4, Bernoulli(probability=0.01), 1, 1),
    (RAPTORQ, 60, 4, bursts(8e-3, 5), 8, 2),
]


def check(case: tuple[ErasureCode, int, int, LossSpec, int, int], blocks: int, seed: int) -> None:
    code, k, r, channel, depth, paths = case
    predicted = second_trip_probability(code, k, r, [channel] * paths, [(k + r) // paths] * paths, spacing=depth)
    assert predicted > 1e-3, "nothing is claimed below"
    seen = simulated(code, k, r, channel, depth=depth, paths=paths, blocks=blocks, seed=seed)
    assert predicted / 2 < seen < predicted * 2, f"predicted {predicted:.3g}, seen {seen:.3g}"


@pytest.mark.parametrize("case", [CASES[1], CASES[4], CASES[7]], ids=lambda case: f"{case[0].name}-{case[1]}")
def test_the_prediction_agrees_with_the_loss_process(case):
    check(case, blocks=5_000, seed=11)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].name}-{case[1]}-{case[2]}-{case[4]}-{case[5]}")
def test_the_prediction_agrees_over_a_hundred_thousand_blocks(case):
    check(case, blocks=100_000, seed=12)


def test_interleaving_turns_bursts_into_independent_losses():
    """Far apart, the symbols of a block see the chain afresh: the count becomes binomial."""
    channel = bursts(1e-2, 10)
    far = loss_counts(channel, 50, up_to=10, spacing=500)
    assert far == pytest.approx(loss_counts(Bernoulli(probability=1e-2), 50, up_to=10), rel=1e-6)
    near = loss_counts(channel, 50, up_to=10)
    assert near[0] > far[0]
    assert near[-1] > 1000 * far[-1]
    assert isclose(far[1], comb(50, 1) * 0.01 * 0.99**49, rel_tol=1e-6)
