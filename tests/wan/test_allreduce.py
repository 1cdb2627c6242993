from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicoastal.wan.allreduce import AllReduceSpec, Coast, Outgoing, gradient
from bicoastal.wan.collectives import LocalStage

PATTERNS = ["exchange", "reduce-scatter"]
SITES = ("west", "east")
SHARD_BYTES = 57_131_573


def spec(**values) -> AllReduceSpec:
    return AllReduceSpec(**({"sites": SITES, "shard_bytes": 4000, "seed": 7} | values))


Meddle = Callable[[str, int, bytearray], None]


def whole(message: Outgoing) -> memoryview:
    (view,) = message.payload.stripes([(0, message.payload.size)])
    return view


def carry(of: AllReduceSpec, *, iteration: int = 0, meddle: Meddle | None = None, newest_first: bool = False):
    """Run one iteration over a perfect network that copies every byte, unless `meddle` changes one."""
    coasts = {site: Coast(of, site) for site in of.sites}
    sent = []
    waiting = [(site, message) for site, coast in coasts.items() for message in coast.begin(iteration)]
    while waiting:
        source, message = waiting.pop(-1 if newest_first else 0)
        octets = bytearray(whole(message))
        sent.append((message.trip, source, len(octets)))
        if meddle is not None:
            meddle(source, message.trip, octets)
        (target,) = set(of.sites) - {source}
        waiting += [(target, following) for following in coasts[target].receive(message.trip, octets)]
    return coasts, sent


def true_sum(of: AllReduceSpec, iteration: int) -> np.ndarray:
    """The sum in Python's own integers, which do not overflow."""
    total = np.zeros(of.elements, dtype=object)
    for site in of.sites:
        for rank in range(of.ranks_per_site):
            total += gradient(of, site, rank, iteration).astype(object)
    return total


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 16])
def test_every_rank_ends_with_the_exact_sum_of_both_coasts(pattern: str, dtype: str, ranks: int) -> None:
    of = spec(pattern=pattern, dtype=dtype, ranks_per_site=ranks)
    coasts, _ = carry(of, iteration=3)
    expected = true_sum(of, 3)
    for coast in coasts.values():
        assert coast.finished
        assert coast.verify()
        for rank in range(ranks):
            assert np.array_equal(coast.result(rank).astype(object), expected)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_messages_on_the_wire_are_those_of_the_plan(pattern: str) -> None:
    of = spec(pattern=pattern, shard_bytes=4007)
    _, sent = carry(of)
    assert sorted(sent) == sorted((part.trip, part.source, part.payload_bytes) for part in of.messages)
    assert of.payload_bytes == 2 * 4007  # each coast sends as much as one shard, in one trip or in two halves
    assert all({part.source, part.destination} == set(SITES) for part in of.messages)


def test_an_exchange_takes_one_trip_and_a_reduce_scatter_two_of_half_the_size() -> None:
    assert [spec(pattern=pattern).trips for pattern in PATTERNS] == [1, 2]
    assert spec().trip_bytes(0) == 4000
    assert [spec(pattern="reduce-scatter").trip_bytes(trip) for trip in (0, 1)] == [2000, 2000]
    odd = spec(pattern="reduce-scatter", shard_bytes=4007)  # 1001 elements and 3 bytes: 501 and 500
    assert [(part.trip, part.source, part.payload_bytes) for part in odd.messages] == [
        (0, "west", 2003),
        (0, "east", 2004),
        (1, "west", 2004),
        (1, "east", 2003),
    ]
    assert odd.trip_bytes(0) == 2004
    with pytest.raises(ValueError, match=r"^trip: 1 is not one of the 1"):
        spec().trip_bytes(1)


@settings(max_examples=150)
@given(
    pattern=st.sampled_from(PATTERNS),
    dtype=st.sampled_from(["int8", "int16", "int32", "int64"]),
    shard_bytes=st.integers(16, 3000),
    array=st.none() | st.floats(0, 1),
    newest_first=st.booleans(),
)
def test_any_size_of_shard_and_array_comes_out_right(
    pattern: str, dtype: str, shard_bytes: int, array: float | None, newest_first: bool
) -> None:
    array_bytes = None if array is None else 16 + round(array * (shard_bytes - 16))
    of = spec(pattern=pattern, dtype=dtype, shard_bytes=shard_bytes, array_bytes=array_bytes)
    coasts, sent = carry(of, newest_first=newest_first)
    assert sum(size for _, _, size in sent) == 2 * shard_bytes
    assert all(coast.verify() for coast in coasts.values())
    assert np.array_equal(coasts["west"].result(0), coasts["east"].result(1))


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("shard_bytes", "array_bytes"), [(400, None), (403, None), (403, 100), (403, 8)])
def test_one_flipped_bit_anywhere_fails_the_verification(
    pattern: str, shard_bytes: int, array_bytes: int | None
) -> None:
    of = spec(pattern=pattern, shard_bytes=shard_bytes, array_bytes=array_bytes)
    for message in of.messages:
        for octet in range(message.payload_bytes):

            def flip(source: str, trip: int, octets: bytearray, message=message, octet=octet) -> None:
                if (source, trip) == (message.source, message.trip):
                    octets[octet] ^= 1 << octet % 8

            coasts, _ = carry(of, meddle=flip)
            assert coasts[message.destination].finished
            assert not coasts[message.destination].verify()


def test_a_flipped_bit_is_found_beyond_the_first_block_of_a_large_array() -> None:
    of = spec(shard_bytes=1_000_003, array_bytes=300_000)
    for octet in (0, 140_000, 299_999, 300_000, 600_001, 999_999, 1_000_002):

        def flip(source: str, trip: int, octets: bytearray, octet=octet) -> None:
            if source == "west":
                octets[octet] ^= 0x80

        coasts, _ = carry(of, meddle=flip)
        assert not coasts["east"].verify()
        assert coasts["west"].verify()


def test_data_in_a_wrong_place_fail_the_verification() -> None:
    of = spec(shard_bytes=40_000)

    def swap(source: str, trip: int, octets: bytearray) -> None:
        octets[1460:2920], octets[14600:16060] = octets[14600:16060], octets[1460:2920]

    coasts, _ = carry(of, meddle=swap)
    assert not any(coast.verify() for coast in coasts.values())


def test_what_an_earlier_iteration_left_fails_the_verification() -> None:
    of = spec()
    coast, partner = Coast(of, "west"), Coast(of, "east")
    (stale,) = partner.begin(0)
    coast.begin(1)
    coast.receive(0, whole(stale))
    assert coast.finished
    assert not coast.verify()


def test_gradients_differ_by_site_rank_iteration_and_seed() -> None:
    of = spec()
    arrays = [
        gradient(part, site, rank, iteration)
        for part in (of, replace(of, seed=8))
        for site in SITES
        for rank in (0, 1)
        for iteration in (0, 1)
    ]
    for index, array in enumerate(arrays):
        for other in arrays[:index]:
            assert np.mean(array == other) < 0.01
    assert np.array_equal(arrays[0], gradient(of, "west", 0, 0))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_gradients_fill_their_range_and_leave_headroom_for_the_sum(dtype: str) -> None:
    of = spec(dtype=dtype, ranks_per_site=3, shard_bytes=800_000)
    values = gradient(of, "east", 2, 5)
    assert values.dtype == np.dtype(dtype)
    limit = 2 ** (8 * values.itemsize - 1) // 8  # 6 ranks need 3 bits
    assert -limit <= values.min() <= -limit * 0.99
    assert limit * 0.99 - 1 <= values.max() < limit
    assert abs(float(np.mean(values.astype(float))) + 0.5) < 0.01 * limit  # rounded down, so centred on -1/2


def test_gradients_do_not_depend_on_where_blocks_are_cut() -> None:
    small = gradient(spec(shard_bytes=4000), "west", 0, 0)
    large = gradient(spec(shard_bytes=4_000_000), "west", 0, 0)
    assert np.array_equal(large[:1000], small)
    steps = np.diff(large.astype(np.int64)) % 2**30  # a Weyl sequence: one step, give or take the cut-off
    assert len(set(steps.tolist())) == 2
    assert max(steps) - min(steps) == 1


def test_a_sent_message_keeps_its_bytes_while_both_coasts_go_on() -> None:
    of = spec(pattern="reduce-scatter")
    west, east = Coast(of, "west"), Coast(of, "east")
    messages = [*west.begin(0), *east.begin(0)]
    views = [whole(message) for message in messages]
    copies = [bytes(view) for view in views]
    messages += west.receive(0, views[1])
    messages += east.receive(0, views[0])
    views += [whole(message) for message in messages[2:]]
    copies += [bytes(view) for view in views[2:]]
    west.receive(1, views[3])
    east.receive(1, views[2])
    west.begin(1)
    east.begin(1)
    assert [bytes(view) for view in views] == copies
    assert all(view.readonly for view in views)


def test_messages_that_do_not_belong_are_refused() -> None:
    coast = Coast(spec(), "west")
    with pytest.raises(ValueError, match=r"^trip: a message for trip 0 is not awaited"):
        coast.receive(0, bytes(4000))
    coast.begin(0)
    with pytest.raises(ValueError, match=r"^trip: 1 is not one of the 1"):
        coast.receive(1, bytes(4000))
    with pytest.raises(ValueError, match=r"^data: 4001 bytes at 0 of 4000 are not awaited"):
        coast.receive(0, bytes(4001))
    coast.receive(0, bytes(3000))
    with pytest.raises(ValueError, match=r"^data: 1001 bytes at 2999 of 4000 are not awaited"):
        coast.receive(0, bytes(1001), 2999)
    assert not coast.finished
    assert not coast.verify()
    with pytest.raises(ValueError, match="not finished"):
        coast.result(0)
    coast.receive(0, bytes(1000), 3000)
    with pytest.raises(ValueError, match=r"^trip: a message for trip 0 is not awaited"):
        coast.receive(0, bytes(4000))


def test_time_inside_the_coast_is_that_of_two_ring_collectives() -> None:
    # 4 ranks, each with 4 shards of 57.13 MB: 2 * 3/4 * 228.5 MB / 100 GB/s
    of = spec(shard_bytes=SHARD_BYTES, ranks_per_site=4, fabric_Bps=100e9)
    assert of.local_s == pytest.approx(2 * 0.75 * 4 * SHARD_BYTES / 100e9)
    assert spec(ranks_per_site=1).local_s == 0


def test_local_stages_take_the_place_of_the_plain_fabric() -> None:
    ring = {"ranks": 4, "rate_Bps": 1e9, "latency_s": 1e-3}
    stages = (
        LocalStage(name="down", collective="reduce-scatter", volume_bytes=8e6, **ring),
        LocalStage(name="up", collective="all-gather", volume_bytes=4e6, **ring),
    )
    assert spec(local_stages=stages, fabric_Bps=1.0).local_s == pytest.approx(3e-3 + 6e-3 + 3e-3 + 3e-3)


def test_a_scaled_array_says_so() -> None:
    assert spec().array_note == ""
    assert spec(array_bytes=4000).array_note == ""
    note = spec(shard_bytes=SHARD_BYTES, array_bytes=1_000_000).array_note
    assert note == "Each rank's gradients are an array of 1 MB, repeated to fill the 57.13 MB that cross the WAN."


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sites": ("west", "west")}, "sites: "),
        ({"sites": ("west", "")}, "sites: ''"),
        ({"shard_bytes": 3}, "shard_bytes: 3"),
        ({"shard_bytes": 7, "pattern": "reduce-scatter"}, "shard_bytes: 7"),
        ({"pattern": "broadcast"}, "pattern: 'broadcast'"),
        ({"dtype": "float32"}, "dtype: 'float32'"),
        ({"ranks_per_site": 0}, "ranks_per_site: 0"),
        ({"ranks_per_site": 33, "dtype": "int8"}, "ranks_per_site: the sum over 66 ranks may overflow int8"),
        ({"array_bytes": 3}, "array_bytes: 3"),
        ({"array_bytes": 4001}, "array_bytes: 4001 is more than the shard's 4000"),
        ({"fabric_Bps": 0}, "fabric_Bps: 0"),
        ({"seed": "x"}, "seed: 'x'"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        spec(**values)


def test_an_unknown_site_or_rank_is_refused() -> None:
    for make in (lambda: Coast(spec(), "north"), lambda: gradient(spec(), "north", 0, 0)):
        with pytest.raises(ValueError, match=r"^site: 'north'"):
            make()
    with pytest.raises(ValueError, match=r"^rank: 2 is not one of 2"):
        gradient(spec(), "west", 2, 0)
