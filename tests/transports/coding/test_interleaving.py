"""Symbols over time and paths: every one once, bursts spread, repair elsewhere, all of them landing together."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicoastal.transports.coding.interleaving import PathEstimate, block_sizes, interleave, land_together, landing_time
from bicoastal.transports.coding.second_trip import split

LANES = st.lists(
    st.builds(
        PathEstimate,
        rate_bps=st.sampled_from([1e9, 2e9, 5e9]),
        delay_s=st.floats(0.0, 0.08),
        free_at_s=st.floats(0.0, 0.01),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=100)
@given(LANES, st.integers(1, 400))
def test_symbols_land_when_a_greedy_carrier_would_land_them(paths, symbols):
    """Independent: give symbol after symbol to whichever path lands it first, which is optimal for equal symbols."""
    symbol_bytes = 9000
    each = [symbol_bytes * 8 / path.rate_bps for path in paths]
    begin = [path.free_at_s + path.delay_s for path in paths]
    taken = [0] * len(paths)
    for _ in range(symbols):
        best = min(range(len(paths)), key=lambda at: begin[at] + (taken[at] + 1) * each[at])
        taken[best] += 1
    greedy = max(begin[at] + taken[at] * each[at] for at in range(len(paths)) if taken[at])
    planned = land_together(paths, symbols, symbol_bytes)
    assert sum(planned) == symbols
    landed = max(begin[at] + count * each[at] for at, count in enumerate(planned) if count)
    assert landed <= greedy + max(each) + 1e-9
    assert landing_time(paths, symbols * symbol_bytes) <= greedy + 1e-9


def test_unequal_planes_share_in_proportion_to_rate_and_delay():
    paths = [
        PathEstimate(rate_bps=5e9, delay_s=0.029),
        PathEstimate(rate_bps=5e9, delay_s=0.030),
        PathEstimate(rate_bps=2e9, delay_s=0.0375),
    ]
    shares = land_together(paths, 12_000, 9000)
    # 864 Mbit over 12 Gbit/s, plus what the later starts cost: t = (864e6 + 5e9*.029 + 5e9*.030 + 2e9*.0375) / 12e9
    assert landing_time(paths, 12_000 * 9000) == pytest.approx((864e6 + 145e6 + 150e6 + 75e6) / 12e9)
    assert shares == [5127, 5058, 1815]  # rate * (t - delay) / 72,000 bits


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[int], int, list[int]]:
    symbols, blocks = draw(st.integers(1, 400)), draw(st.integers(1, 40))
    blocks = min(blocks, symbols)
    repair = draw(st.integers(0, 20))
    weights = draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0]), min_size=1, max_size=5).filter(any))
    return block_sizes(symbols, blocks), repair, split(symbols + blocks * repair, weights)


@settings(max_examples=200)
@given(layouts())
def test_every_symbol_has_one_slot_and_bursts_spread_evenly(layout):
    sizes, repair, path_symbols = layout
    blocks = len(sizes)
    slots = interleave(sizes, repair, path_symbols)
    assert [len(path) for path in slots] == path_symbols
    everything = sorted(slot for path in slots for slot in path)
    assert everything == [(block, index) for block, k in enumerate(sizes) for index in range(k + repair)]
    for path in slots:
        counts = Counter(slot.block for slot in path)
        assert len(path) < blocks or max(counts.values()) - min(counts.values()) <= 1
        for burst in (3, 10):
            for first in range(max(0, len(path) - burst)):
                hit = Counter(slot.block for slot in path[first : first + burst])
                assert max(hit.values()) <= -(-burst // blocks)


def test_repair_is_on_other_paths_than_the_data_it_protects():
    sizes = block_sizes(64 * 8, 8)
    slots = interleave(sizes, 6, split(70 * 8, [1.0] * 4))
    for block, k in enumerate(sizes):
        repair_paths = {
            path for path, taken in enumerate(slots) for slot in taken if slot.block == block and slot.symbol >= k
        }
        assert repair_paths == {block % 4}, "all in one place, another one for the next block"
        beside = sum(slot.block == block and slot.symbol < k for slot in slots[block % 4])
        assert beside <= 12, "16 would be its even share of the data"
    # Enough of it to cover a path: then its path has no data of the block at all.
    slots = interleave(block_sizes(60, 1), 20, [20] * 4)
    assert all(slot.symbol >= 60 for slot in slots[0])


def test_uneven_blocks_and_wrong_sums_are_refused():
    with pytest.raises(ValueError, match="sizes"):
        interleave([3, 4], 1, [9])
    with pytest.raises(ValueError, match="add up to 9"):
        interleave([4, 3], 1, [8])
    with pytest.raises(ValueError, match="rate_bps"):
        PathEstimate(rate_bps=0.0, delay_s=0.0)
