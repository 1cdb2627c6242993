"""The verification of a run, and failed runs: they have a reason and keep their complete iterations."""

import pytest

from bicoastal.emulation.testing.transports import FLIPPING_NAME, MUTE_NAME, STALLING_NAME
from bicoastal.wan.allreduce import Pattern
from bicoastal.wan.schedule import Outage
from helpers.small_runs import PLAIN, background, iterations, job, plane, planes, run_spec, simulate


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


@pytest.mark.parametrize(
    ("transport", "reason"),
    [
        (PLAIN, "job/west>east/plane0 did not connect within 300 s"),
        ("reno", "job/west>east/plane0:client: the peer does not answer"),
    ],
)
def test_a_handshake_across_a_dead_link_fails_the_run_with_a_reason(transport: str, reason: str) -> None:
    record = simulate(run_spec(planes(plane(events=(Outage(at_s=0.0, duration_s=1e6),))), job(transport)))
    assert record.status == "failed"
    assert record.reason == reason
    assert record.iterations == record.flows == ()
    assert [summary.handshake_s for summary in record.summaries] == [None, None]
    assert all(row.delivered == 0 for row in record.links)


def test_a_machine_that_says_nothing_fails_the_run_at_the_time_limit() -> None:
    record = simulate(run_spec(planes(plane()), job(MUTE_NAME), time_limit_s=3.0))
    assert record.reason == "job/west>east/plane0 did not connect within 3 s"
