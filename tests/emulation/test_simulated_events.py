"""Links with outages and capacity steps during a run, exact to the packet."""

from dataclasses import replace

import pytest

from bicoastal.wan.schedule import Outage, RateStep
from helpers.small_runs import (
    DATA_WIRE_BYTES,
    DELAY_S,
    PLAIN,
    RATE_BPS,
    background,
    iterations,
    job,
    plane,
    planes,
    run_spec,
    simulate,
)


def test_an_outage_takes_what_is_on_the_wire() -> None:
    """Dark from 5 to 6 ms after the iteration began: the packets are out by then, and 5 ms from where they go."""
    outage = Outage(at_s=0.005, duration_s=0.001, iteration=1)
    record = simulate(run_spec(planes(plane(events=(outage,))), job(PLAIN)))
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
    assert record.status == "ok"
    quick = [row.completion_s for row in iterations(record, "quick")]
    assert len({round(took_s or 0, 9) for took_s in quick[1:]}) == 1  # over before the first job's second iteration
    assert max(took_s or 0 for took_s in quick) < DELAY_S + 1.5 * DATA_WIRE_BYTES * 8 / RATE_BPS
    slow = [row.completion_s or 0 for row in iterations(record)]
    assert slow[1] - slow[0] == pytest.approx(DATA_WIRE_BYTES * 8 / RATE_BPS)
