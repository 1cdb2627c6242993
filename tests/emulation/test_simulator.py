"""The simulator: a function of spec and seed alone, its other traffic, its time series, and what it refuses."""

import gc
from dataclasses import replace

import pytest

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.simulator import SimulatorBackend
from bicoastal.transports.registry import Registry, UnknownTransportError
from bicoastal.wan.loss import Bernoulli
from bicoastal.wan.schedule import Outage
from helpers.small_runs import PLAIN, background, iterations, job, links, plane, planes, run_spec, simulate


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


def test_names_and_parameters_that_do_not_exist_are_refused_in_a_sentence() -> None:
    with pytest.raises(UnknownTransportError, match=r"^there is no transport 'mars'; there are "):
        simulate(run_spec(planes(plane()), job("mars")))
    with pytest.raises(ValueError, match=r"^gain: reno has no such parameter; it has "):
        simulate(run_spec(planes(plane()), job("reno", parameters=(("gain", 2),))))
    with pytest.raises(UnknownTransportError, match="mars"):
        simulate(run_spec(planes(plane()), background=(background("mars"),)))


def test_what_the_simulator_lacks_is_unsupported_and_says_why() -> None:
    with pytest.raises(UnsupportedError, match=r"^check-demanding needs a-feature-that-no-world-has, which sim lacks$"):
        simulate(run_spec(planes(plane()), job("bicoastal.emulation.testing.transports:DEMANDING")))
    with pytest.raises(UnsupportedError, match=r"^check-program is a program for real packets; sim has none$"):
        simulate(run_spec(planes(plane()), job("bicoastal.emulation.testing.transports:PROGRAM")))


def test_the_simulator_resolves_names_in_the_registry_it_is_given() -> None:
    spec = run_spec(planes(plane()), job("reno"))
    with pytest.raises(UnknownTransportError, match="reno"):
        SimulatorBackend(Registry()).run(spec)
