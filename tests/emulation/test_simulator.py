"""The simulator: a function of spec and seed alone, exact to the packet where a packet's way can be worked out by hand.

One packet of TCP that carries a message of n bytes is n + 16 (framing) + 52 (headers) long, and 38 more on the wire.
"""

import gc
from dataclasses import replace

import pytest

from emulation.base import TransportUse, UnsupportedError
from emulation.records import FlowRecord, LinkRecord, RunRecord
from emulation.simulator import SimulatorBackend
from emulation.testing.transports import FLIPPING_NAME, MUTE_NAME, STALLING_NAME
from runs import (
    DELAY_S,
    FRAMING_BYTES,
    PLAIN,
    RATE_BPS,
    TCP_ACK_BYTES,
    TCP_FRAME_BYTES,
    background,
    iterations,
    job,
    plane,
    planes,
    run_spec,
    simulate,
)
from transports.registry import Registry, UnknownTransportError
from wan.allreduce import Pattern
from wan.loss import Bernoulli
from wan.schedule import Outage, RateStep
from wan.topology import LinkSpec, Path, Site, Topology

DATA_BYTES = 1000 + TCP_FRAME_BYTES + TCP_ACK_BYTES  # the IP packet of a message of 1,000 bytes
DATA_WIRE_BYTES = DATA_BYTES + FRAMING_BYTES
ACK_WIRE_BYTES = TCP_ACK_BYTES + FRAMING_BYTES


def links(record: RunRecord) -> dict[tuple[str, str], LinkRecord]:
    return {(row.link, row.direction): row for row in record.links}


def flow(record: RunRecord, source: str, iteration: int = 0, *, job: str = "job", trip: int = 0) -> FlowRecord:
    (row,) = (
        row for row in record.flows if (row.job, row.source, row.iteration, row.trip) == (job, source, iteration, trip)
    )
    return row


# -- determinism ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["reno", "cubic", "adaptive", PLAIN])
def test_a_spec_run_twice_leaves_one_record_and_another_seed_other_losses(transport: str) -> None:
    spec = run_spec(
        planes(plane(loss=Bernoulli(probability=0.01), jitter_s=0.001)),
        job(transport, shard_bytes=600_000),
        sample_interval_s=0.005,
    )
    record = simulate(spec)
    assert record.status == "ok"
    assert simulate(spec) == record
    other = simulate(replace(spec, seed=1))
    assert other.status == "ok"
    assert [row.lost for row in other.links] != [row.lost for row in record.links]


@pytest.mark.parametrize("transport", ["reno", "cubic", "adaptive"])
def test_encoding_every_segment_changes_nothing(transport: str) -> None:
    hard = plane(
        loss=Bernoulli(probability=0.005),
        corrupt=0.005,
        duplicate=0.005,
        reorder=0.005,
        reorder_delay_s=0.004,
        jitter_s=0.0005,
        events=(Outage(at_s=0.02, duration_s=0.01, iteration=1),),
    )
    spec = run_spec(planes(hard, overhead_bytes=24), job(transport, shard_bytes=600_000))
    record = simulate(spec)
    assert record.status == "ok"
    for row in record.links:
        assert min(row.lost, row.corrupted, row.duplicated, row.reordered, row.dropped_outage) > 0
    assert simulate(replace(spec, eager_encoding=True)) == record


@pytest.mark.parametrize("transport", ["reno", "adaptive", PLAIN])
def test_links_jobs_and_flows_that_are_added_change_no_others_randomness(transport: str) -> None:
    lossy = plane(loss=Bernoulli(probability=0.01), jitter_s=0.001, corrupt=0.001)
    alone = simulate(run_spec(planes(lossy), job(transport, shard_bytes=300_000)))
    more = planes(plane("plane1", loss=Bernoulli(probability=0.02)), lossy, plane("plane2"))
    crowd = simulate(
        run_spec(
            more,
            job(transport, shard_bytes=300_000),
            job("cubic", name="other", paths=("plane1",), shard_bytes=500_000),
            background=(background("reno", paths=("plane2",)),),
        )
    )
    assert any(row.lost for row in alone.links)
    assert iterations(crowd) == iterations(alone)
    assert [row for row in crowd.flows if row.job == "job"] == list(alone.flows)
    assert [row for row in crowd.links if row.link == "plane0"] == list(alone.links)


def test_the_two_directions_of_a_link_lose_different_packets() -> None:
    record = simulate(run_spec(planes(plane(loss=Bernoulli(probability=0.02))), job(shard_bytes=200_000, iterations=4)))
    repaired = [[row.repairs for row in record.flows if row.source == source] for source in ("west", "east")]
    assert min(map(sum, repaired)) > 0
    assert repaired[0] != repaired[1]


def test_the_collector_is_as_it_was_before_the_run_however_it_ends() -> None:
    assert gc.isenabled()
    simulate(run_spec())
    assert gc.isenabled()
    gc.disable()
    try:
        simulate(run_spec())
        assert not gc.isenabled()
    finally:
        gc.enable()


# -- one packet, by hand ----------------------------------------------------------------------------------------------


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


# -- what is verified -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["reno", "cubic", "adaptive"])
def test_tcp_catches_every_flipped_bit_by_its_checksum_counts_it_and_repairs_it(transport: str) -> None:
    spec = run_spec(planes(plane(corrupt=0.02)), job(transport, shard_bytes=600_000))
    record = simulate(spec)
    assert record.status == "ok"
    assert all(row.verified for row in record.iterations)
    corrupted = sum(row.corrupted for row in record.links)
    assert corrupted > 20
    assert sum(row.rejected for row in record.flows) == corrupted
    assert sum(row.repairs for row in record.flows) > 0


@pytest.mark.parametrize("pattern", ["exchange", "reduce-scatter"])
def test_a_single_flipped_bit_anywhere_fails_the_run(pattern: Pattern) -> None:
    size = 8 if pattern == "exchange" else 16  # of a shard, so that each message has 64 bits
    for bit in range(64):
        spec = job(FLIPPING_NAME, shard_bytes=size, pattern=pattern, parameters=(("bit", bit),), iterations=1)
        record = simulate(run_spec(planes(plane()), spec))
        assert record.status == "failed"
        assert record.reason == "iteration 0 of job: a rank's result is not the true sum"
        (row,) = record.iterations
        assert (row.status, row.verified, row.reason) == ("failed", False, record.reason)
        assert row.completion_s is not None


def test_a_bit_flipped_in_a_repetition_of_a_small_array_fails_the_run_too() -> None:
    for bit in (0, 100, 8 * 4000 - 1):
        spec = job(FLIPPING_NAME, shard_bytes=4000, array_bytes=400, parameters=(("bit", bit),))
        record = simulate(run_spec(planes(plane()), spec))
        assert record.status == "failed"
        assert "400 B" in record.array_note
        assert not any(row.verified for row in record.iterations)


def test_a_bit_flipped_in_other_traffic_fails_the_run() -> None:
    others = background(FLIPPING_NAME)
    record = simulate(run_spec(planes(plane()), job("reno"), background=(others,)))
    assert record.status == "failed"
    assert record.reason == "others/west>east/plane0 did not deliver what was sent"


# -- other traffic ----------------------------------------------------------------------------------------------------


def test_other_traffic_has_its_own_transport_and_takes_its_share_of_the_link() -> None:
    alone = run_spec(planes(plane()), job("reno", shard_bytes=2_000_000))
    crowd = replace(alone, background=(background("cubic", message_bytes=8_000_000),))
    record = simulate(crowd)
    assert record.status == "ok"
    assert {summary.job: summary.transport for summary in record.summaries} == {"job": "reno", "others": "cubic"}
    assert {row.job for row in record.flows} == {"job"}
    before, after = (iterations(each)[-1].completion_s or 0.0 for each in (simulate(alone), record))
    assert after > 1.2 * before
    forth, back = links(record)["plane0", "west>east"], links(record)["plane0", "east>west"]
    assert forth.bytes > back.bytes + 2_000_000


# -- runs that fail ---------------------------------------------------------------------------------------------------


def test_an_iteration_beyond_the_time_limit_is_there_as_failed_and_open() -> None:
    record = simulate(run_spec(planes(plane()), job(STALLING_NAME, iterations=3), time_limit_s=5.0))
    assert (record.status, record.reason) == ("failed", "iteration 1 of job did not complete within 5 s")
    first, second = record.iterations
    assert (first.status, first.verified, first.reason) == ("ok", True, "")
    assert (second.status, second.completion_s, second.reason) == ("failed", None, record.reason)
    assert [row.completion_s for row in record.flows if row.iteration == 1] == [None, None]
    assert all(row.completion_s is not None for row in record.flows if row.iteration == 0)


def test_jobs_that_were_complete_stay_so_when_another_fails() -> None:
    topology = planes(plane(), plane("plane1"))
    record = simulate(
        run_spec(topology, job(iterations=1), job(STALLING_NAME, name="bad", paths=("plane1",)), time_limit_s=5.0)
    )
    assert record.status == "failed"
    assert [row.status for row in iterations(record)] == ["ok"]
    assert [row.status for row in iterations(record, "bad")] == ["ok", "failed"]


def dark(at_s: float, duration_s: float, iteration: int | None = None) -> Topology:
    return planes(plane(events=(Outage(at_s=at_s, duration_s=duration_s, iteration=iteration),)))


@pytest.mark.parametrize(
    ("transport", "reason"),
    [
        (PLAIN, "job/west>east/plane0 did not connect within 300 s"),
        ("reno", "job/west>east/plane0:client: the peer does not answer"),
    ],
)
def test_a_handshake_across_a_dead_link_fails_the_run_with_a_reason(transport: str, reason: str) -> None:
    record = simulate(run_spec(dark(0.0, 1e6), job(transport)))
    assert record.status == "failed"
    assert record.reason == reason
    assert record.iterations == record.flows == ()
    assert [summary.handshake_s for summary in record.summaries] == [None, None]
    assert all(row.delivered == 0 for row in record.links)


def test_a_machine_that_says_nothing_fails_the_run_at_the_time_limit() -> None:
    record = simulate(run_spec(planes(plane()), job(MUTE_NAME), time_limit_s=3.0))
    assert record.reason == "job/west>east/plane0 did not connect within 3 s"


# -- links that change ------------------------------------------------------------------------------------------------


def test_an_outage_takes_what_is_on_the_wire() -> None:
    """Dark from 5 to 6 ms after the iteration began: the packets are out by then, and 5 ms from where they go."""
    record = simulate(run_spec(dark(0.005, 0.001, iteration=1), job(PLAIN)))
    assert record.status == "ok"
    for row in record.links:
        assert (row.dropped_outage, row.lost, row.dropped_queue) == (1, 0, 0)
    first, second = (row.completion_s or 0.0 for row in record.iterations)
    assert second == pytest.approx(first + 0.2)  # the plain transport's timer
    assert [(row.iteration, row.timeouts) for row in record.flows] == [(0, 0), (0, 0), (1, 1), (1, 1)]


def test_a_capacity_step_takes_effect_when_its_iteration_begins() -> None:
    step = RateStep(at_s=0.0, rate_bps=RATE_BPS / 4, iteration=1)
    record = simulate(run_spec(planes(plane(events=(step,))), job("reno", iterations=3)))
    serialisation_s = DATA_WIRE_BYTES * 8 / RATE_BPS
    assert [row.completion_s for row in record.iterations] == [
        pytest.approx(DELAY_S + factor * serialisation_s, abs=1e-12) for factor in (1, 4, 4)
    ]


def test_a_capacity_step_is_exact_even_where_the_queue_is_full_when_its_iteration_begins() -> None:
    """Other traffic fills the queue; the step comes when the iteration begins, and not behind that queue."""
    step = RateStep(at_s=0.0, rate_bps=RATE_BPS / 10, iteration=1)
    others = background("reno", message_bytes=30_000_000, parameters=(("max_receive_window_bytes", 500_000),))
    spec = run_spec(planes(plane(queue_bytes=10**6, events=(step,))), job("reno"), background=(others,))
    record = simulate(replace(spec, sample_interval_s=0.001))
    begins_s = record.iterations[1].start_s
    first, *_, last = (
        row.backlog_bytes
        for row in record.queues
        if row.direction == "west>east" and begins_s <= row.at_s < begins_s + 0.0105
    )
    # acknowledgements of what was sent at 100 Mbit/s still let 12,500 bytes per ms in, and 1,250 get out
    assert first > 50_000
    assert last - first == pytest.approx(10 * (12_500 - 1250), rel=0.05)


def test_events_are_anchored_to_the_iterations_of_the_first_job() -> None:
    step = RateStep(at_s=0.0, rate_bps=RATE_BPS / 2, iteration=1)
    topology = planes(plane(events=(step,)), plane("plane1", events=(step,)))
    others = job("reno", name="quick", paths=("plane1",), iterations=4, gap_s=0.1, start_s=0.0)
    record = simulate(run_spec(topology, job("reno", gap_s=1.0), others))
    quick = [row.completion_s for row in iterations(record, "quick")]
    assert len({round(took_s or 0, 9) for took_s in quick[1:]}) == 1  # over before the first job's second iteration
    assert max(took_s or 0 for took_s in quick) < DELAY_S + 1.5 * DATA_WIRE_BYTES * 8 / RATE_BPS
    slow = [row.completion_s or 0 for row in iterations(record)]
    assert slow[1] - slow[0] == pytest.approx(DATA_WIRE_BYTES * 8 / RATE_BPS)


# -- time series ------------------------------------------------------------------------------------------------------


def test_samples_are_taken_at_equal_distances_from_the_beginning_and_only_while_a_job_is_active() -> None:
    interval_s = 0.003
    spec = run_spec(
        planes(plane()),
        job("reno", shard_bytes=1_000_000),
        background=(background("cubic"),),
        sample_interval_s=interval_s,
    )
    record = simulate(spec)
    expected: list[float] = []
    for row in record.iterations:
        assert row.completion_s is not None
        expected += [row.start_s + n * interval_s for n in range(int(row.completion_s / interval_s) + 1)]
    names = {summary.flow for summary in record.summaries}
    assert len(names) == 3
    for name in names:
        assert [row.at_s for row in record.samples if row.flow == name] == pytest.approx(expected, abs=1e-12)
    for direction in ("west>east", "east>west"):
        assert [row.at_s for row in record.queues if row.direction == direction] == pytest.approx(expected, abs=1e-12)
    windows = [row.cwnd_bytes or 0 for row in record.samples if row.flow == "job/west>east/plane0"]
    assert max(windows) > windows[0]
    assert max(row.backlog_bytes for row in record.queues) > 0


def test_sampling_changes_nothing_else_and_is_off_by_default() -> None:
    spec = run_spec(planes(plane(loss=Bernoulli(probability=0.01))), job("adaptive", shard_bytes=500_000))
    record = simulate(spec)
    sampled = simulate(replace(spec, sample_interval_s=0.001))
    assert record.samples == record.queues == ()
    assert sampled.samples
    assert replace(sampled, samples=(), queues=()) == record


# -- what is refused --------------------------------------------------------------------------------------------------


def test_names_and_parameters_that_do_not_exist_are_refused_in_a_sentence() -> None:
    with pytest.raises(UnknownTransportError, match=r"^there is no transport 'mars'; there are "):
        simulate(run_spec(planes(plane()), job("mars")))
    with pytest.raises(ValueError, match=r"^gain: reno has no such parameter; it has "):
        simulate(run_spec(planes(plane()), job("reno", parameters=(("gain", 2),))))
    with pytest.raises(UnknownTransportError, match="mars"):
        simulate(run_spec(planes(plane()), background=(background("mars"),)))


def test_what_the_simulator_lacks_is_unsupported_and_says_why() -> None:
    with pytest.raises(UnsupportedError, match=r"^check-demanding needs a-feature-that-no-world-has, which sim lacks$"):
        simulate(run_spec(planes(plane()), job("emulation.testing.transports:DEMANDING")))
    with pytest.raises(UnsupportedError, match=r"^check-program is a program for real packets; sim has none$"):
        simulate(run_spec(planes(plane()), job("emulation.testing.transports:PROGRAM")))


def test_the_simulator_resolves_names_in_the_registry_it_is_given() -> None:
    spec = run_spec(planes(plane()), job("reno"))
    with pytest.raises(UnknownTransportError, match="reno"):
        SimulatorBackend(Registry()).run(spec)
    assert TransportUse(name="reno") == spec.jobs[0].transport
