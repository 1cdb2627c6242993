"""Rows from two ends' counts: sums, differences, and which row has them."""

from dataclasses import fields

import pytest

from bicoastal.emulation.records import FlowRecord
from bicoastal.emulation.traffic.flows import Flow, plan_flows
from bicoastal.emulation.traffic.ledger import Delivery, Tally, close_iteration, iteration_bound_s, joined, summarise
from bicoastal.transports.base import Counters
from bicoastal.transports.registry import Registry
from helpers.small_runs import job, plane, planes, run_spec

NAMES = ("wire_bytes", *(field.name for field in fields(Counters)))
PLANES = planes(plane(), plane("plane1", rate_bps=3e8))
SPEC = run_spec(PLANES, job("reno", paths=tuple(PLANES.paths), pattern="reduce-scatter", shard_bytes=1004))
FLOWS: tuple[Flow, ...] = plan_flows(SPEC, Registry.installed())


def numbered(first: int, step: int = 1) -> Tally:
    wire_bytes, *counts = (first + step * place for place in range(len(NAMES)))
    return Tally(wire_bytes=wire_bytes, counters=Counters(**dict(zip(NAMES[1:], counts, strict=True))))


def test_tallies_add_and_subtract_count_by_count() -> None:
    assert numbered(10, step=3) - numbered(4) == numbered(6, step=2)
    assert numbered(10, step=3) + numbered(4) == numbered(14, step=4)


def test_every_counter_of_a_transport_has_a_column_of_the_flows_rows() -> None:
    columns = [field.name for field in fields(FlowRecord)]
    assert tuple(columns[-len(NAMES) :]) == NAMES


def test_a_flow_is_its_senders_with_the_receivers_bytes_and_rejections() -> None:
    sender, receiver = numbered(100), numbered(1000)
    both = joined(sender, receiver)
    assert (both.wire_bytes, both.counters.rejected) == (1100, 106 + 1006)
    for name in ("packets", "repairs", "probes", "timeouts", "spurious"):
        assert getattr(both.counters, name) == getattr(sender.counters, name)


def test_the_bound_is_one_way_and_serialisation_for_each_trip() -> None:
    exchange = run_spec(planes(plane()), job("reno", shard_bytes=1_000_000)).jobs[0]
    # 10 ms and 8 Mbit at 100 Mbit/s
    assert iteration_bound_s(exchange, planes(plane())) == pytest.approx(0.010 + 0.080)
    # halves of 1004 bytes, 502 each but for whole elements: 504 bytes the larger, over 400 Mbit/s, twice
    assert iteration_bound_s(SPEC.jobs[0], PLANES) == pytest.approx(2 * (0.010 + 504 * 8 / 4e8))


def deliveries() -> dict[tuple[str, int], Delivery]:
    return {
        (flow.name, trip): Delivery(start_s=1.0 + trip, payload_bytes=100 + trip, completion_s=0.5)
        for flow in FLOWS
        for trip in (0, 1)
    }


def test_of_two_trips_the_last_ones_row_has_the_counts() -> None:
    record, rows = close_iteration(
        SPEC.jobs[0],
        FLOWS,
        iteration=3,
        start_s=1.0,
        completion_s=1.5,
        bound_s=0.02,
        verified=True,
        reason="",
        deliveries=deliveries(),
        tallies={flow.name: numbered(1) for flow in FLOWS},
    )
    assert len(rows) == 2 * len(FLOWS)
    for row in rows:
        counts = tuple(getattr(row, name) for name in NAMES)
        assert counts == ((1, 2, 3, 4, 5, 6, 7) if row.trip == 1 else (0,) * 7)
        assert (row.start_s, row.payload_bytes) == (1.0 + row.trip, 100 + row.trip)
    assert (record.iteration, record.wire_bytes, record.status, record.reason) == (3, len(FLOWS), "ok", "")
    assert record.payload_bytes == 2 * 1004


@pytest.mark.parametrize(
    ("completion_s", "verified", "reason", "doubt", "status", "said"),
    [
        (1.0, True, "", "", "ok", ""),
        (1.0, True, "", "late", "degraded", "late"),
        (1.0, True, "another job gave up", "", "ok", ""),  # what is complete does not care why the run ended
        (1.0, False, "", "late", "failed", "iteration 0 of job: a rank's result is not the true sum"),
        (None, False, "given up", "late", "failed", "given up"),
    ],
)
def test_a_row_has_the_status_of_the_iteration(
    *, completion_s: float | None, verified: bool, reason: str, doubt: str, status: str, said: str
) -> None:
    record, _ = close_iteration(
        SPEC.jobs[0],
        FLOWS,
        iteration=0,
        start_s=0.0,
        completion_s=completion_s,
        bound_s=0.02,
        verified=verified,
        reason=reason,
        deliveries={},
        tallies={},
        doubt=doubt,
    )
    assert (record.status, record.reason) == (status, said)


def test_a_flow_that_never_connected_has_no_handshake() -> None:
    assert summarise(FLOWS[0], None).handshake_s is None
    assert summarise(FLOWS[0], 0.06).path == "plane0"
