"""Runs that are exact to the packet, with times that are calculated by hand.

One packet of TCP that carries a message of n bytes is n + 16 (framing) + 52 (headers) long, and 38 more on the wire.
"""

import pytest

from bicoastal.emulation.records import FlowRecord, RunRecord
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
from helpers.small_runs import (
    ACK_WIRE_BYTES,
    DATA_BYTES,
    DATA_WIRE_BYTES,
    DELAY_S,
    FRAMING_BYTES,
    RATE_BPS,
    TCP_ACK_BYTES,
    TCP_FRAME_BYTES,
    iterations,
    job,
    links,
    plane,
    planes,
    run_spec,
    simulate,
)


def flow(record: RunRecord, source: str, iteration: int = 0, *, job: str = "job", trip: int = 0) -> FlowRecord:
    (row,) = (
        row for row in record.flows if (row.job, row.source, row.iteration, row.trip) == (job, source, iteration, trip)
    )
    return row


def test_a_packet_takes_its_serialisation_and_the_propagation_in_both_directions_at_once() -> None:
    """Full duplex: that the other direction sends at the same time delays nothing."""
    record = simulate(run_spec(planes(plane()), job("reno")))
    expected_s = DATA_WIRE_BYTES * 8 / RATE_BPS + DELAY_S
    for iteration in (0, 1):
        for source in ("west", "east"):
            assert flow(record, source, iteration).completion_s == pytest.approx(expected_s, abs=1e-12)
        row = iterations(record)[iteration]
        assert row.completion_s == pytest.approx(expected_s, abs=1e-12)
        assert row.bound_s == pytest.approx(1000 * 8 / RATE_BPS + DELAY_S)


def test_overhead_is_everything_on_the_wire_both_directions_over_the_payload_less_one() -> None:
    record = simulate(run_spec(planes(plane()), job("reno")))
    for row in record.iterations:
        assert row.payload_bytes == 2 * 1000
        assert row.wire_bytes == 2 * (DATA_WIRE_BYTES + ACK_WIRE_BYTES)
        assert row.wire_bytes / row.payload_bytes - 1 == pytest.approx(0.196)


def test_what_the_flows_put_on_the_wire_is_what_the_links_carried() -> None:
    record = simulate(run_spec(planes(plane()), job("reno", shard_bytes=400_000, iterations=3)))
    # RFC 9293 §3.1, RFC 7323: a SYN has 20 bytes of options: MSS 4, timestamps with SACK permitted 12, window scale 4
    handshake_bytes = 2 * (20 + 20 + 20 + FRAMING_BYTES) + ACK_WIRE_BYTES
    assert sum(row.wire_bytes for row in record.flows) + 2 * handshake_bytes == sum(row.bytes for row in record.links)
    for iteration in record.iterations:
        own = [row for row in record.flows if row.iteration == iteration.iteration]
        assert sum(row.wire_bytes for row in own) == iteration.wire_bytes
    forth = links(record)["plane0", "west>east"]
    # data from west, acknowledgements of data from east; each flow's first packet or two are its handshake
    assert forth.packets == forth.delivered
    sent = sum(row.packets for row in record.flows if row.source == "west")
    data = 3 * -(-(400_000 + TCP_FRAME_BYTES) // (1500 - TCP_ACK_BYTES))
    assert sent == data


def test_encapsulation_is_on_the_wire_and_takes_time_but_the_endpoints_do_not_see_it() -> None:
    record = simulate(run_spec(planes(plane(), overhead_bytes=40), job("reno")))
    for source in ("west", "east"):
        row = flow(record, source)
        assert row.wire_bytes == DATA_WIRE_BYTES + ACK_WIRE_BYTES + 2 * 40
        assert row.completion_s == pytest.approx((DATA_WIRE_BYTES + 40) * 8 / RATE_BPS + DELAY_S, abs=1e-12)
    # 40 bytes fewer fit each segment: 57 instead of 56 segments for 80,000 bytes
    packets = [
        flow(simulate(run_spec(planes(plane(), overhead_bytes=extra), job("reno", shard_bytes=80_000))), "west").packets
        for extra in (0, 40)
    ]
    assert packets == [-(-80_016 // 1448), -(-80_016 // 1408)] == [56, 57]


def test_framing_is_the_links_own() -> None:
    record = simulate(run_spec(planes(plane(framing_bytes=0)), job("reno")))
    assert flow(record, "west").wire_bytes == DATA_BYTES + TCP_ACK_BYTES


def two_links(first_bps: float, second_bps: float) -> Topology:
    return Topology(
        sites=[Site(name=name) for name in ("west", "middle", "east")],
        links=[
            LinkSpec(name="near", a="west", b="middle", rate_bps=first_bps, delay_s=0.003, queue_bytes=10**7),
            LinkSpec(
                name="far",
                a="east",
                b="middle",
                rate_bps=second_bps,
                delay_s=0.007,
                queue_bytes=10**7,
                framing_bytes=18,
            ),
        ],
        paths=[Path(name="through", sites=("west", "middle", "east"), links=("near", "far"))],
    )


def test_over_two_links_delays_and_serialisations_add_up_and_framing_is_counted_where_a_packet_enters() -> None:
    record = simulate(run_spec(two_links(100e6, 50e6), job("reno", paths=("through",))))
    expected_s = (DATA_BYTES + 38) * 8 / 100e6 + 0.003 + (DATA_BYTES + 18) * 8 / 50e6 + 0.007
    for source, framing, ack_framing in (("west", 38, 18), ("east", 18, 38)):
        row = flow(record, source)
        assert row.completion_s == pytest.approx(expected_s, abs=1e-12)
        assert row.wire_bytes == DATA_BYTES + framing + TCP_ACK_BYTES + ack_framing
    assert {(row.link, row.direction) for row in record.links if row.packets} == {
        ("near", "west>middle"), ("near", "middle>west"), ("far", "east>middle"), ("far", "middle>east"),
    }  # fmt: skip
    assert len({row.packets for row in record.links}) == 1


@pytest.mark.parametrize("rates_bps", [(400e6, 40e6), (40e6, 400e6)])
def test_the_slower_of_two_links_is_the_bottleneck_wherever_it_is(rates_bps: tuple[float, float]) -> None:
    record = simulate(run_spec(two_links(*rates_bps), job("reno", paths=("through",), shard_bytes=1_000_000)))
    for row in record.iterations:
        assert row.bound_s == pytest.approx(0.010 + 1_000_000 * 8 / 40e6)
        assert row.completion_s is not None
        assert 1 < row.completion_s / row.bound_s < 1.5


def test_two_trips_take_two_crossings_and_an_exchange_one() -> None:
    def took_s(payload_bytes: int) -> float:
        return (payload_bytes + TCP_FRAME_BYTES + TCP_ACK_BYTES + FRAMING_BYTES) * 8 / RATE_BPS + DELAY_S

    once = simulate(run_spec(planes(plane()), job("reno", shard_bytes=1600)))
    # two segments (1448 bytes, and what is left), sent together
    wire_bytes = 1600 + TCP_FRAME_BYTES + 2 * (TCP_ACK_BYTES + FRAMING_BYTES)
    assert once.iterations[0].completion_s == pytest.approx(wire_bytes * 8 / RATE_BPS + DELAY_S, abs=1e-12)
    twice = simulate(run_spec(planes(plane()), job("reno", shard_bytes=1600, pattern="reduce-scatter")))
    row = twice.iterations[0]
    waits_s = ACK_WIRE_BYTES * 8 / RATE_BPS  # the acknowledgement of the first trip goes out before the second
    assert row.completion_s == pytest.approx(2 * took_s(800) + waits_s, abs=1e-12)
    assert row.bound_s == pytest.approx(2 * (DELAY_S + 800 * 8 / RATE_BPS))
    assert row.payload_bytes == 2 * 1600
    first, second = (flow(twice, "west", trip=trip) for trip in (0, 1))
    assert second.start_s == pytest.approx(first.start_s + took_s(800), abs=1e-12)
    assert {first.payload_bytes, second.payload_bytes} == {800}
