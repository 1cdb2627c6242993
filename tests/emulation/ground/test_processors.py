"""Relays and coasts never share a processor, unless there is only one."""

from hypothesis import given
from hypothesis import strategies as st

from bicoastal.emulation.ground.processors import Processors, share_out


@given(st.sets(st.integers(0, 200), min_size=2, max_size=40), st.integers(1, 20), st.integers(0, 1 << 24))
def test_every_processor_has_exactly_one_kind_of_work(available: set[int], most: int, turn: int) -> None:
    shared = share_out(available, most_relays=most, turn=turn)
    assert sorted((*shared.relays, *shared.coasts)) == sorted(available)
    assert 1 <= len(shared.relays) <= most
    assert len(shared.relays) <= len(shared.coasts)


def test_a_single_processor_is_left_to_the_scheduler() -> None:
    assert share_out([3], most_relays=2, turn=0) == Processors()


def test_without_relays_nothing_is_set_aside() -> None:
    assert share_out([0, 1, 2, 3], most_relays=0, turn=0) == Processors()


def test_turns_choose_different_processors() -> None:
    assert {share_out([0, 1], most_relays=1, turn=turn).relays for turn in range(4)} == {(0,), (1,)}


def test_the_mask_is_written_as_the_kernel_reads_it() -> None:
    # Documentation/core-api/printk-formats: bitmaps in 32-bit groups, the highest first
    assert Processors(coasts=(1,)).coast_mask == "00000002"
    assert Processors(coasts=(0, 1, 35)).coast_mask == "00000008,00000003"
