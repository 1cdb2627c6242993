"""A job is led through its iterations without processes: its orders and its records."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bicoastal.emulation.base import RunSpec
from bicoastal.emulation.processes.coordination import (
    Arrived,
    BackgroundArrived,
    Begin,
    Close,
    Closed,
    Complete,
    Offered,
    Order,
    Prepare,
    Prepared,
    SendBackground,
    Verified,
    Verify,
)
from bicoastal.emulation.real.conduct import LEAD_S, PATIENCE_S, BackgroundConduct, JobConduct
from bicoastal.emulation.traffic.flows import Flow, plan_flows
from bicoastal.emulation.traffic.ledger import Tally
from bicoastal.transports.base import Counters
from bicoastal.transports.registry import Registry
from helpers.small_runs import background, job, plane, planes, run_spec

WEST, EAST = SITES = ("west", "east")
GAP_S = 2.0
TIME_LIMIT_S = 5.0


def flows_of(spec: RunSpec, owner: str) -> list[Flow]:
    return [flow for flow in plan_flows(spec, Registry.installed()) if flow.owner == owner]


class Stage:
    """A conduct and the coasts that answer it as the test says."""

    def __init__(self, **changes: object) -> None:
        self.spec = run_spec(planes(plane()), replace(job("reno", start_s=0.5, gap_s=GAP_S), **changes))
        self.flows = flows_of(self.spec, "job")
        self.told: list[tuple[str, Order]] = []
        self.begun: list[tuple[int, float]] = []
        self.conduct = JobConduct(
            self.spec.jobs[0],
            self.spec.topology,
            self.flows,
            time_limit_s=TIME_LIMIT_S,
            tell=lambda site, order: self.told.append((site, order)),
            on_begin=lambda iteration, begins_s: self.begun.append((iteration, begins_s)),
        )

    def orders(self) -> list[Order]:
        """Return what both coasts have been told since the last time; both are told the same, west first."""
        told, self.told = self.told, []
        assert [site for site, _ in told] == [WEST, EAST] * (len(told) // 2)
        assert [order for _, order in told[::2]] == [order for _, order in told[1::2]]
        return [order for _, order in told[::2]]

    def prepared(self, iteration: int, now: float) -> None:
        for site in SITES:
            self.conduct.take(site, Prepared(job="job", iteration=iteration), now)

    def complete(self, iteration: int, *ends_s: float) -> None:
        for site, end_s in zip(SITES, ends_s, strict=True):
            self.conduct.take(site, Complete(job="job", iteration=iteration, at_s=end_s), max(ends_s))

    def verified(self, iteration: int, *verdicts: bool) -> None:
        for site, verdict in zip(SITES, verdicts, strict=True):
            self.conduct.take(site, Verified(job="job", iteration=iteration, verified=verdict), 0.0)

    def closed(
        self,
        iteration: int,
        begins_s: float,
        *,
        sites: Sequence[str] = SITES,
        took_s: float | None = 0.25,
        **more: float,
    ) -> None:
        for site in sites:
            (sends,) = (flow.name for flow in self.flows if flow.source == site)
            (receives,) = (flow.name for flow in self.flows if flow.destination == site)
            arrived = () if took_s is None else (Arrived(flow=receives, trip=0, at_s=begins_s + took_s),)
            news = Closed(
                job="job",
                iteration=iteration,
                late_s=more.get(f"{site}_late_s", 0.0),
                cpu_share=more.get(f"{site}_cpu", 0.1),
                offered=(Offered(flow=sends, trip=0, at_s=begins_s, payload_bytes=1000),),
                arrived=arrived,
                tallies={
                    sends: Tally(wire_bytes=1100, counters=Counters(packets=5, repairs=2, rejected=1)),
                    receives: Tally(wire_bytes=100, counters=Counters(packets=3, rejected=4)),
                },
            )
            self.conduct.take(site, news, 0.0)

    def run_to(self, phase: str) -> None:
        """Lead the first iteration, which begins at 1.5 s, up to a phase."""
        for name, act in (
            ("preparing", lambda: self.conduct.start(1.0)),
            ("running", lambda: self.prepared(0, 1.1)),
            ("verifying", lambda: self.complete(0, 1.7, 1.75)),
            ("resting", lambda: self.verified(0, True, True)),
            ("closing", lambda: self.conduct.on_time(self.conduct.due_s)),
        ):
            act()
            if name == phase:
                return


def test_an_iteration_goes_from_preparing_to_closing_and_the_next_one_keeps_the_gap() -> None:
    stage = Stage()
    conduct = stage.conduct
    assert not conduct.done
    conduct.start(1.0)
    assert stage.orders() == [Prepare(job="job", iteration=0)]
    stage.prepared(0, 1.1)
    assert stage.orders() == [Begin(job="job", iteration=0, begins_s=1.5)]
    assert stage.begun == [(0, 1.5)]
    stage.complete(0, 1.7, 1.75)
    assert stage.orders() == [Verify(job="job", iteration=0)]
    stage.verified(0, True, True)
    assert stage.orders() == []
    assert conduct.due_s == pytest.approx(1.75 + GAP_S - LEAD_S)
    conduct.on_time(conduct.due_s)
    assert stage.orders() == [Close(job="job", iteration=0)]
    stage.closed(0, 1.5)
    assert stage.orders() == [Prepare(job="job", iteration=1)]
    stage.prepared(1, 3.74)
    (order,) = stage.orders()
    assert isinstance(order, Begin)
    assert order.begins_s == pytest.approx(3.76)  # 3.75 at the earliest, and coasts need a moment's notice
    stage.complete(1, 4.0, 4.0)
    stage.verified(1, True, True)
    conduct.on_time(conduct.due_s)
    assert not conduct.done
    stage.closed(1, order.begins_s)
    assert conduct.done
    assert [(row.iteration, row.status) for row in conduct.iterations] == [(0, "ok"), (1, "ok")]


def test_the_next_step_waits_for_both_coasts() -> None:
    stage = Stage()
    stage.run_to("preparing")
    stage.orders()
    stage.conduct.take(EAST, Prepared(job="job", iteration=0), 1.1)
    stage.conduct.take(EAST, Prepared(job="job", iteration=0), 1.1)
    assert stage.orders() == []
    stage.conduct.take(WEST, Prepared(job="job", iteration=0), 1.2)
    assert len(stage.orders()) == 1


def test_the_row_joins_both_coasts_records() -> None:
    stage = Stage()
    stage.run_to("closing")
    stage.closed(0, 1.5)
    (row,) = stage.conduct.iterations
    assert row.start_s == 1.5
    assert row.completion_s == pytest.approx(0.25)  # the slower coast's last arrival, 1.75
    assert row.verified
    assert row.wire_bytes == 2 * (1100 + 100)
    for flow in stage.conduct.flows:
        assert (flow.start_s, flow.completion_s) == (1.5, pytest.approx(0.25))
        assert (flow.wire_bytes, flow.packets, flow.repairs, flow.rejected) == (1200, 5, 2, 5)


@pytest.mark.parametrize(
    ("more", "doubt"),
    [
        ({"west_late_s": 0.0011}, "west began 1.10 ms late"),
        ({"west_late_s": 0.001}, ""),
        ({"west_cpu": 0.6, "east_cpu": 0.4}, "the coasts' processes took 100% of a core"),
        ({"west_cpu": 0.5, "east_cpu": 0.4}, ""),
        (
            {"west_late_s": 0.5, "east_late_s": 0.002, "west_cpu": 2.0},
            "west began 500.00 ms late; east began 2.00 ms late; the coasts' processes took 210% of a core",
        ),
    ],
)
def test_the_reason_for_doubt_is_recorded(more: dict[str, float], doubt: str) -> None:
    stage = Stage()
    stage.run_to("closing")
    stage.closed(0, 1.5, **more)
    (row,) = stage.conduct.iterations
    assert (row.status, row.reason) == ("degraded" if doubt else "ok", doubt)


def test_an_iteration_that_does_not_complete_in_time_ends_the_run_and_is_recorded_as_failed() -> None:
    stage = Stage()
    stage.run_to("running")
    assert stage.conduct.due_s == 1.5 + TIME_LIMIT_S
    stage.conduct.on_time(stage.conduct.due_s)
    reason = "iteration 0 of job did not complete within 5 s"
    assert stage.conduct.failure == reason
    stage.orders()
    stage.conduct.end(6.5)
    assert stage.orders() == [Close(job="job", iteration=0)]
    assert not stage.conduct.done
    stage.closed(0, 1.5, took_s=None)
    assert stage.conduct.done
    stage.conduct.conclude(reason)
    (row,) = stage.conduct.iterations
    assert (row.status, row.reason, row.completion_s, row.verified) == ("failed", reason, None, False)
    assert [flow.completion_s for flow in stage.conduct.flows] == [None, None]


@pytest.mark.parametrize(("phase", "verb"), [("preparing", "prepare"), ("verifying", "verify"), ("closing", "close")])
def test_a_coast_that_never_answers_is_named(phase: str, verb: str) -> None:
    stage = Stage()
    stage.run_to(phase)
    assert stage.conduct.due_s >= PATIENCE_S
    news: dict[str, Prepared | Verified] = {
        "preparing": Prepared(job="job", iteration=0),
        "verifying": Verified(job="job", iteration=0, verified=True),
    }
    if phase in news:
        stage.conduct.take(WEST, news[phase], 2.0)
    else:
        stage.closed(0, 1.5, sites=[WEST])
    stage.conduct.on_time(stage.conduct.due_s)
    assert stage.conduct.failure == f"east did not {verb} iteration 0 of job within 65 s"


def test_a_wrong_sum_on_either_coast_ends_the_run() -> None:
    for verdicts in ((True, False), (False, True)):
        stage = Stage()
        stage.run_to("verifying")
        stage.verified(0, *verdicts)
        reason = "iteration 0 of job: a rank's result is not the true sum"
        assert stage.conduct.failure == reason
        stage.conduct.end(1.8)
        stage.closed(0, 1.5)
        stage.conduct.conclude(reason)
        (row,) = stage.conduct.iterations
        assert (row.status, row.reason, row.verified) == ("failed", reason, False)


@pytest.mark.parametrize("phase", ["preparing", "running", "verifying", "resting", "closing"])
def test_a_job_that_ends_with_another_jobs_failure_keeps_its_complete_iterations(phase: str) -> None:
    stage = Stage()
    stage.run_to(phase)
    stage.orders()
    stage.conduct.end(2.0)
    closing = phase in ("running", "verifying", "resting")
    assert stage.orders() == [Close(job="job", iteration=0)] * closing
    if phase == "preparing":
        stage.prepared(0, 2.0)  # under way
    else:
        assert not stage.conduct.done
        if phase == "verifying":
            stage.verified(0, True, True)  # under way; the verdict counts
        stage.closed(0, 1.5, took_s=None if phase == "running" else 0.25)
    assert stage.orders() == []
    assert stage.conduct.done
    stage.conduct.conclude("the other job gave up")
    found = [(row.status, row.verified, row.reason) for row in stage.conduct.iterations]
    if phase == "preparing":
        assert found == []
    elif phase == "running":
        assert found == [("failed", False, "the other job gave up")]
    else:
        assert found == [("ok", True, "")]


def test_what_the_last_iteration_left_is_not_taken_for_the_next_one() -> None:
    stage = Stage()
    stage.run_to("closing")
    stage.closed(0, 1.5)
    stage.conduct.end(3.0)  # while the second one is being prepared
    assert stage.conduct.done
    stage.conduct.conclude("the other job gave up")
    assert [row.iteration for row in stage.conduct.iterations] == [0]


def test_a_delivery_that_nobody_has_sent_fails_the_iteration_in_a_sentence() -> None:
    stage = Stage()
    stage.run_to("closing")
    (west_sends,) = (flow.name for flow in stage.flows if flow.source == WEST)
    for site in SITES:
        arrived = Arrived(flow=west_sends, trip=0, at_s=1.7)
        stage.conduct.take(
            site,
            Closed(
                job="job",
                iteration=0,
                late_s=0.0,
                cpu_share=0.0,
                offered=(),
                arrived=(arrived,) if site == EAST else (),
                tallies={},
            ),
            0.0,
        )
    reason = f"{west_sends} delivered trip 0 of iteration 0, which was not sent"
    assert stage.conduct.failure == reason
    assert stage.conduct.done
    (row,) = stage.conduct.iterations
    assert (row.status, row.reason) == ("failed", reason)


def test_other_traffic_sends_the_next_message_when_all_of_the_last_has_arrived() -> None:
    part = background("reno", paths=("plane0", "plane1"), gap_s=0.25, start_s=0.5, messages=2)
    spec = run_spec(planes(plane(), plane("plane1")), background=(part,))
    told: list[tuple[str, Order]] = []
    flows = flows_of(spec, part.name)
    conduct = BackgroundConduct(part, flows, tell=lambda site, order: told.append((site, order)))
    conduct.start(1.0)
    first = ("west", SendBackground(name="others", number=1, begins_s=1.5))
    assert told == [first]
    one, other = (flow.name for flow in flows)
    conduct.take(BackgroundArrived(name="others", flow=one, number=1, at_s=1.6))
    assert told == [first]
    conduct.take(BackgroundArrived(name="others", flow=other, number=1, at_s=1.7))
    assert told == [first, ("west", SendBackground(name="others", number=2, begins_s=1.95))]
    for name in (one, other):
        conduct.take(BackgroundArrived(name="others", flow=name, number=2, at_s=2.5))
    assert len(told) == 2
