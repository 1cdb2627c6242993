"""Leads a job through its iterations, and background traffic through its messages, by orders to the coasts.

An iteration is prepared, begun at an instant in the future, completed by both coasts, verified, and closed after the
gap. When the run ends early, an open iteration is closed. This module does no I/O: orders leave through `tell`, news
arrive through `take`, and time passes through `on_time`.
"""

from collections.abc import Callable, Sequence
from enum import Enum

from bicoastal.emulation.base import BackgroundSpec, JobSpec
from bicoastal.emulation.processes.coordination import (
    BackgroundArrived,
    Begin,
    Close,
    Closed,
    Complete,
    Order,
    Prepare,
    Prepared,
    SendBackground,
    Verified,
    Verify,
)
from bicoastal.emulation.records import FlowRecord, IterationRecord
from bicoastal.emulation.traffic.flows import Flow
from bicoastal.emulation.traffic.ledger import Delivery, Tally, close_iteration, iteration_bound_s, joined
from bicoastal.wan.topology import Topology
from bicoastal.wan.units import INFINITY

LATEST_START_S = 1e-3  # an iteration that starts later than this is degraded
LARGEST_CPU_SHARE = 0.95
PATIENCE_S = 60.0  # for a coast's computation, in addition to the time limit of an iteration
LEAD_S = 0.02  # from the order to begin until the instant

Tell = Callable[[str, Order], None]


class _Phase(Enum):
    """What a job waits for; the value completes a sentence."""

    CONNECTING = "its connections"
    PREPARING = "prepare"
    RUNNING = "complete"
    VERIFYING = "verify"
    RESTING = "the gap to be over"
    CLOSING = "close"
    ENDING = "end"
    DONE = "nothing"


_AWAITED: dict[_Phase, type[Prepared] | type[Complete] | type[Verified] | type[Closed]] = {
    _Phase.PREPARING: Prepared,
    _Phase.RUNNING: Complete,
    _Phase.VERIFYING: Verified,
    _Phase.CLOSING: Closed,
    _Phase.ENDING: Closed,
}


class JobConduct:
    """One job. failure: why the run has to end, or "". due_s: when `on_time` is to be called."""

    def __init__(
        self,
        spec: JobSpec,
        topology: Topology,
        flows: Sequence[Flow],
        *,
        time_limit_s: float,
        tell: Tell,
        on_begin: Callable[[int, float], None],
    ) -> None:
        self.spec = spec
        self.iterations: list[IterationRecord] = []
        self.flows: list[FlowRecord] = []
        self.failure = ""
        self.due_s = INFINITY
        self._flows = flows
        self._time_limit_s = time_limit_s
        self._tell = tell
        self._on_begin = on_begin
        self._bound_s = iteration_bound_s(spec, topology)
        self._phase = _Phase.CONNECTING
        self._iteration = -1
        self._begins_s = 0.0
        self._earliest_s = 0.0
        self._awaited: set[str] = set()
        self._completed_s: float | None = None
        self._last_s = 0.0
        self._verdicts: dict[str, bool] = {}
        self._closed: dict[str, Closed] = {}

    @property
    def done(self) -> bool:
        """Whether the job is over: every iteration is closed, or the run has ended early."""
        return self._phase is _Phase.DONE

    def start(self, now: float) -> None:
        """All connections are established: begin the first iteration `start_s` from now."""
        self._earliest_s = now + self.spec.start_s
        self._advance(now)

    def _to_all(self, order: Order, phase: _Phase, until_s: float) -> None:
        """Send an order to all coasts; their answers must arrive by `until_s`."""
        self._phase, self.due_s = phase, until_s
        self._awaited = set(self.spec.allreduce.sites)
        for site in self.spec.allreduce.sites:
            self._tell(site, order)

    def _advance(self, now: float) -> None:
        """Prepare the next iteration, if there is one."""
        self._iteration += 1
        if self._iteration == self.spec.iterations:
            self._phase, self.due_s = _Phase.DONE, INFINITY
            return
        order = Prepare(job=self.spec.name, iteration=self._iteration)
        self._to_all(order, _Phase.PREPARING, now + self._patience_s)

    def _close(self, phase: _Phase, now: float) -> None:
        order = Close(job=self.spec.name, iteration=self._iteration)
        self._to_all(order, phase, now + self._patience_s)

    @property
    def _patience_s(self) -> float:
        return PATIENCE_S + self._time_limit_s

    def on_time(self, now: float) -> None:
        """Handle the deadline `due_s`, which has come."""
        self.due_s = INFINITY
        iteration = f"iteration {self._iteration} of {self.spec.name}"
        match self._phase:
            case _Phase.RESTING:
                self._close(_Phase.CLOSING, now)
            case _Phase.RUNNING:
                self.failure = f"{iteration} did not complete within {self._time_limit_s:g} s"
            case _:
                missing = " and ".join(sorted(self._awaited))
                self.failure = f"{missing} did not {self._phase.value} {iteration} within {self._patience_s:g} s"

    def end(self, now: float) -> None:
        """End the run: order the coasts to close an open iteration. The job is `done` when they have."""
        if self._phase in (_Phase.RUNNING, _Phase.VERIFYING, _Phase.RESTING):
            self._close(_Phase.ENDING, now)
        elif self._phase is _Phase.CLOSING:
            self._phase = _Phase.ENDING
        elif self._phase is not _Phase.ENDING:
            self._phase, self.due_s = _Phase.DONE, INFINITY

    def take(self, site: str, news: Prepared | Complete | Verified | Closed, now: float) -> None:
        """Take news from a coast. Verdicts that arrive after the end of the run still count."""
        if isinstance(news, Verified):
            self._verdicts[site] = news.verified
        if not isinstance(news, _AWAITED.get(self._phase, ())):
            return  # it was on its way when the run ended
        if isinstance(news, Complete):
            self._last_s = max(self._last_s, news.at_s)
        elif isinstance(news, Closed):
            self._closed[site] = news
        self._awaited.discard(site)
        if self._awaited:
            return
        match self._phase:
            case _Phase.PREPARING:
                self._begin(now)
            case _Phase.RUNNING:
                self._completed_s = self._last_s
                order = Verify(job=self.spec.name, iteration=self._iteration)
                self._to_all(order, _Phase.VERIFYING, now + self._patience_s)
            case _Phase.VERIFYING:
                self._phase = _Phase.RESTING
                self._earliest_s = self._last_s + self.spec.gap_s
                self.due_s = self._earliest_s - LEAD_S
                if not self._verified:
                    self.failure = (
                        f"iteration {self._iteration} of {self.spec.name}: a rank's result is not the true sum"
                    )
            case _Phase.CLOSING:
                self._record("")
                if self.failure:
                    self._phase, self.due_s = _Phase.DONE, INFINITY
                else:
                    self._advance(now)
            case _Phase.ENDING:
                self._phase, self.due_s = _Phase.DONE, INFINITY

    @property
    def _verified(self) -> bool:
        """Whether all coasts have verified the iteration."""
        return all(self._verdicts.get(site, False) for site in self.spec.allreduce.sites)

    def _begin(self, now: float) -> None:
        self._begins_s = max(now + LEAD_S, self._earliest_s)
        self._on_begin(self._iteration, self._begins_s)
        self._completed_s, self._last_s = None, 0.0
        self._verdicts, self._closed = {}, {}
        order = Begin(job=self.spec.name, iteration=self._iteration, begins_s=self._begins_s)
        self._to_all(order, _Phase.RUNNING, self._begins_s + self._time_limit_s)

    def conclude(self, reason: str) -> None:
        """Record an iteration that was still open when every job was `done`; an incomplete one failed for `reason`."""
        if self._closed:
            self._record(reason)

    def _record(self, reason: str) -> None:
        deliveries: dict[tuple[str, int], Delivery] = {}
        for closed in self._closed.values():
            for offered in closed.offered:
                deliveries[offered.flow, offered.trip] = Delivery(offered.at_s, offered.payload_bytes)
        for closed in self._closed.values():
            for arrived in closed.arrived:
                delivery = deliveries.get((arrived.flow, arrived.trip))
                if delivery is None:
                    place = f"trip {arrived.trip} of iteration {self._iteration}"
                    reason = self.failure = f"{arrived.flow} delivered {place}, which was not sent"
                    self._completed_s = None
                else:
                    delivery.completion_s = arrived.at_s - delivery.start_s
        nothing = Tally()
        tallies = {
            flow.name: joined(
                self._closed[flow.source].tallies.get(flow.name, nothing) if flow.source in self._closed else nothing,
                self._closed[flow.destination].tallies.get(flow.name, nothing)
                if flow.destination in self._closed
                else nothing,
            )
            for flow in self._flows
        }
        record, rows = close_iteration(
            self.spec,
            self._flows,
            iteration=self._iteration,
            start_s=self._begins_s,
            completion_s=None if self._completed_s is None else self._completed_s - self._begins_s,
            bound_s=self._bound_s,
            verified=self._verified and self._completed_s is not None,
            reason=reason,
            deliveries=deliveries,
            tallies=tallies,
            doubt="; ".join(self._doubts()),
        )
        self.iterations.append(record)
        self.flows += rows
        self._closed = {}

    def _doubts(self) -> list[str]:
        doubts = [
            f"{site} began {closed.late_s * 1e3:.2f} ms late"
            for site, closed in self._closed.items()
            if closed.late_s > LATEST_START_S
        ]
        busy = sum(closed.cpu_share for closed in self._closed.values())
        if busy > LARGEST_CPU_SHARE:
            doubts.append(f"the coasts' processes took {busy:.0%} of a core")
        return doubts


class BackgroundConduct:
    """Background traffic: tells the source when to send the next message."""

    def __init__(self, spec: BackgroundSpec, flows: Sequence[Flow], *, tell: Tell) -> None:
        self.spec = spec
        self.due_s = INFINITY
        self._flows = [flow.name for flow in flows]
        self._tell = tell
        self._number = 0
        self._awaited: set[str] = set()

    def start(self, now: float) -> None:
        """All connections are established: send the first message `start_s` from now."""
        self._send(now + self.spec.start_s)

    def _send(self, begins_s: float) -> None:
        self._number += 1
        self._awaited = set(self._flows)
        self._tell(self.spec.source, SendBackground(name=self.spec.name, number=self._number, begins_s=begins_s))

    def take(self, news: BackgroundArrived) -> None:
        """Take the news that a flow's part of the message has arrived."""
        self._awaited.discard(news.flow)
        if not self._awaited and (self.spec.messages is None or self._number < self.spec.messages):
            self._send(news.at_s + self.spec.gap_s)

    def on_time(self, now: float) -> None:
        """Do nothing: the next message follows the arrival of the last one."""
