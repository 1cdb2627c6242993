"""The redundancy that is chosen meets its target, no less of it would, and what cannot be had is said."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from bicoastal.transports.coding.raptor import RAPTORQ
from bicoastal.transports.coding.redundancy import ALL_CODES, MESSAGES_PER_STEP, RedundancyTarget, choose_redundancy
from bicoastal.transports.coding.reed_solomon import REED_SOLOMON
from bicoastal.transports.coding.second_trip import any_of, second_trip_probability, split
from bicoastal.transports.coding.xor import PARITY
from bicoastal.wan.loss import Bernoulli, GilbertElliott

EQUAL = (1.0,) * 4
SHARD = RedundancyTarget(message_bytes=57_130_000, symbol_bytes=8904)
BURSTS = GilbertElliott.from_means(mean_loss=1e-3, mean_burst_packets=10)


@settings(max_examples=40)
@given(
    st.integers(1, 3_000_000),
    st.sampled_from([1e-4, 1e-3, 1e-2]),
    st.sampled_from([1.0, 10.0]),
    st.sampled_from([1.0, 1000.0, MESSAGES_PER_STEP]),
)
def test_the_target_is_met_and_one_repair_symbol_fewer_misses_it(message_bytes, loss, burst, messages):
    wanted = RedundancyTarget(message_bytes=message_bytes, symbol_bytes=1400, messages=messages, max_overhead=20.0)
    channel = (
        Bernoulli(probability=loss)
        if burst == 1
        else GilbertElliott.from_means(mean_loss=loss, mean_burst_packets=burst)
    )
    chosen = choose_redundancy(wanted, (channel,) * 4, EQUAL)
    assert chosen.attained
    assert chosen.blocks * (chosen.k - 1) < wanted.symbols <= chosen.blocks * chosen.k

    def step(r: int) -> float:
        shares = split(chosen.k + r, EQUAL)
        block = second_trip_probability(chosen.code, chosen.k, r, [channel] * 4, shares, spacing=chosen.blocks)
        return any_of(block, chosen.blocks * messages)

    assert step(chosen.r) <= wanted.target
    assert chosen.r == 0 or step(chosen.r - 1) > wanted.target


@pytest.mark.parametrize(("loss", "most"), [(1e-4, 0.01), (1e-3, 0.015), (1e-2, 0.045)])
def test_a_whole_step_of_shards_needs_little_redundancy_when_blocks_are_long(loss, most):
    """The overhead that the issue allows is 5 % and twice the loss; acknowledgements and headers need some of it."""
    chosen = choose_redundancy(SHARD, (Bernoulli(probability=loss),) * 4, EQUAL)
    assert chosen.attained
    assert chosen.code is RAPTORQ
    assert 2 * loss < chosen.overhead < most or loss > 1e-3
    lower = any_of(binom.sf(chosen.r, chosen.k + chosen.r, loss), chosen.blocks * MESSAGES_PER_STEP)
    assert lower <= chosen.step_failure <= SHARD.target


def test_bursts_cost_little_when_blocks_take_turns():
    chosen = choose_redundancy(RedundancyTarget(message_bytes=57_130_000, symbol_bytes=1400), (BURSTS,) * 4, EQUAL)
    assert chosen.attained
    assert chosen.overhead < 0.02


def test_a_whole_path_of_four_is_covered_for_a_third_and_the_random_loss():
    chosen = choose_redundancy(
        RedundancyTarget(message_bytes=57_130_000, symbol_bytes=8904, cover_paths=1),
        (Bernoulli(probability=1e-3),) * 4,
        EQUAL,
    )
    assert chosen.attained
    assert 1 / 3 < chosen.overhead < 0.36


def test_short_messages_take_the_code_that_never_fails_with_k():
    chosen = choose_redundancy(
        RedundancyTarget(message_bytes=100_000, symbol_bytes=1400), (Bernoulli(probability=1e-3),) * 4, EQUAL
    )
    assert chosen.code is REED_SOLOMON
    assert chosen.attained


def test_what_cannot_be_had_is_said_with_its_probability():
    wanted = RedundancyTarget(message_bytes=1_000_000, symbol_bytes=1000, max_overhead=0.02)
    channels = (Bernoulli(probability=0.01),) * 4
    chosen = choose_redundancy(wanted, channels, EQUAL)
    assert not chosen.attained
    assert chosen.step_failure > wanted.target
    assert chosen.overhead <= 0.02
    parity = choose_redundancy(SHARD, (Bernoulli(probability=1e-3),) * 4, EQUAL, codes=(PARITY,))
    assert not parity.attained, "parity mends one loss of a block and no more"


def test_more_loss_or_a_stricter_target_never_asks_for_less():
    overheads = [
        choose_redundancy(SHARD, (Bernoulli(probability=loss),) * 4, EQUAL).overhead
        for loss in (1e-5, 1e-4, 1e-3, 1e-2)
    ]
    assert all(less < more for less, more in pairwise(overheads))
    targets = [
        choose_redundancy(
            RedundancyTarget(message_bytes=57_130_000, symbol_bytes=8904, target=target),
            (Bernoulli(probability=1e-3),) * 4,
            EQUAL,
        ).overhead
        for target in (1e-1, 1e-3, 1e-6)
    ]
    assert all(less < more for less, more in pairwise(targets))


@settings(max_examples=25)
@given(
    st.integers(1, 3_000_000),
    st.sampled_from([1e-5, 1e-3, 2e-2]),
    st.sampled_from([1.0, 5.0]),
    st.sampled_from([1e-6, 1e-2, 0.5]),
)
def test_nothing_that_could_be_chosen_is_cheaper(message_bytes, loss, burst, target):
    """Each code by itself, and so few blocks that others do not come into question, is one of the choices."""
    wanted = RedundancyTarget(message_bytes=message_bytes, symbol_bytes=1400, target=target)
    channel = (
        Bernoulli(probability=loss)
        if burst == 1
        else GilbertElliott.from_means(mean_loss=loss, mean_burst_packets=burst)
    )
    chosen = choose_redundancy(wanted, (channel,) * 4, EQUAL)
    for code in ALL_CODES:
        for max_blocks in (1, 2, 5, 12, 40, 200, None):
            try:
                other = choose_redundancy(wanted, (channel,) * 4, EQUAL, (code,), max_blocks)
            except ValueError:
                continue  # no block of this code is so long
            assert chosen.attained or not other.attained
            assert not other.attained or (chosen.overhead, chosen.blocks) <= (other.overhead, other.blocks)
            assert chosen.attained or chosen.blocks * chosen.block_failure <= other.blocks * other.block_failure


def test_what_is_chosen_meets_its_target_when_steps_are_drawn():
    """Steps of 20 messages, counted one by one: the share that needs a second trip is the predicted one or less."""
    wanted = RedundancyTarget(message_bytes=300_000, symbol_bytes=1000, messages=20, target=0.05)
    chosen = choose_redundancy(wanted, (Bernoulli(probability=0.02),) * 4, EQUAL, codes=(REED_SOLOMON,))
    rng = np.random.default_rng(3)
    steps = 20_000
    lost = rng.binomial(chosen.k + chosen.r, 0.02, size=(steps, 20 * chosen.blocks))
    late = float((lost > chosen.r).any(axis=1).mean())
    assert late <= wanted.target
    assert late == pytest.approx(chosen.step_failure, rel=0.15)


def test_bad_demands_are_refused():
    with pytest.raises(ValueError, match=r"target: 1\.5 is not a probability"):
        RedundancyTarget(message_bytes=1, symbol_bytes=1, target=1.5)
    with pytest.raises(ValueError, match="weights: 1 shares for 4 paths"):
        choose_redundancy(SHARD, (Bernoulli(probability=0.1),) * 4, (1.0,))
    with pytest.raises(ValueError, match="no code has blocks"):
        choose_redundancy(
            RedundancyTarget(message_bytes=80_001, symbol_bytes=80_001),
            (Bernoulli(probability=0.1),),
            (1.0,),
            codes=(RAPTORQ,),
        )
