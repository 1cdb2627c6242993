"""How the coordinator leads a job through its iterations, and background traffic through its messages.

Prepare, begin at an instant that lies ahead, wait until both coasts have everything, verify, and after the gap close
and prepare again. Pure: orders go out through `tell`, news come in through `take`, time through `on_time`.
"""

from collections.abc import Callable, Sequence
from enum import Enum

from emulation.base import BackgroundSpec, JobSpec
from emulation.coordination import (
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
from emulation.flows import Flow
from emulation.ledger import Delivery, Tally, close_iteration, iteration_bound_s, joined
from emulation.records import FlowRecord, IterationRecord
from wan.topology import Topology

LATEST_START_S = 1e-3  # beyond which an iteration's start makes it degraded
LARGEST_CPU_SHARE = 0.95
_LEAD_S = 0.02  # from the order to begin until the instant
_NEVER = float("inf")

Tell = Callable[[str, Order], None]


class _Phase(Enum):
    WAITING = "for the time to close the last iteration and prepare the next"
    CLOSING = "for the coasts to close"
    PREPARING = "for the coasts to prepare"
    RUNNING = "for the messages"
    VERIFYING = "for the verdicts"
    DONE = "for nothing"


class JobConduct:
    """One job. done: all its iterations are closed. failure: why the run has to end, "" while it has not."""

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
        self.due_s = _NEVER
        self._flows = flows
        self._time_limit_s = time_limit_s
        self._tell = tell
        self._on_begin = on_begin
        self._bound_s = iteration_bound_s(spec, topology)
        self._phase = _Phase.WAITING
        self._iteration = -1
        self._begins_s = 0.0
        self._earliest_s = 0.0
        self._awaited: set[str] = set()
        self._completed_s: float | None = None
        self._last_s = 0.0
        self._verified = False
        self._closed: dict[str, Closed] = {}

    @property
    def done(self) -> bool:
        """Whether every iteration is over."""
        return self._phase is _Phase.DONE

    @property
    def sites_to_close(self) -> tuple[str, ...]:
        """The coasts that have still to close an iteration that has begun."""
        if self._phase in (_Phase.RUNNING, _Phase.VERIFYING) or (
            self._phase is _Phase.WAITING and self._iteration >= 0
        ):
            return self.spec.allreduce.sites
        return ()

    @property
    def close_order(self) -> Close:
        """The order that closes the present iteration."""
        return Close(job=self.spec.name, iteration=self._iteration)

    def start(self, now: float) -> None:
        """All connections stand: begin the first iteration `start_s` from now."""
        self._earliest_s = now + self.spec.start_s
        self._advance()

    def _to_all(self, order: Order, phase: _Phase) -> None:
        self._phase = phase
        self._awaited = set(self.spec.allreduce.sites)
        self.due_s = _NEVER
        for site in self.spec.allreduce.sites:
            self._tell(site, order)

    def _advance(self) -> None:
        """Prepare the next iteration, if there is one."""
        self._iteration += 1
        if self._iteration == self.spec.iterations:
            self._phase, self.due_s = _Phase.DONE, _NEVER
            return
        self._to_all(Prepare(job=self.spec.name, iteration=self._iteration), _Phase.PREPARING)

    def on_time(self, now: float) -> None:
        """`due_s` has come."""
        self.due_s = _NEVER
        if self._phase is _Phase.WAITING:
            self._to_all(self.close_order, _Phase.CLOSING)
        elif self._phase is _Phase.RUNNING:
            self.failure = (
                f"iteration {self._iteration} of {self.spec.name} did not complete within {self._time_limit_s:g} s"
            )

    def take(self, site: str, news: Prepared | Complete | Verified | Closed, now: float) -> None:
        """Take what a coast tells."""
        if isinstance(news, Closed):
            self._closed[site] = news
            if self._phase is not _Phase.CLOSING:
                return  # the run is over
        elif isinstance(news, Complete):
            self._last_s = max(self._last_s, news.at_s)
        elif isinstance(news, Verified):
            self._verified = self._verified and news.verified
        self._awaited.discard(site)
        if self._awaited:
            return
        match self._phase:
            case _Phase.PREPARING:
                self._begin(now)
            case _Phase.RUNNING:
                self._completed_s = self._last_s
                self._verified = True
                self._to_all(Verify(job=self.spec.name, iteration=self._iteration), _Phase.VERIFYING)
            case _Phase.VERIFYING:
                self._phase = _Phase.WAITING
                self._earliest_s = self._last_s + self.spec.gap_s
                self.due_s = self._earliest_s - _LEAD_S
                if not self._verified:
                    self.failure = (
                        f"iteration {self._iteration} of {self.spec.name}: a rank's result is not the true sum"
                    )
            case _Phase.CLOSING:
                self._write_down("")
                self._advance()

    def _begin(self, now: float) -> None:
        self._begins_s = max(now + _LEAD_S, self._earliest_s)
        self._on_begin(self._iteration, self._begins_s)
        self._completed_s, self._last_s, self._verified = None, 0.0, False
        self._closed = {}
        order = Begin(job=self.spec.name, iteration=self._iteration, begins_s=self._begins_s)
        self._to_all(order, _Phase.RUNNING)
        self.due_s = self._begins_s + self._time_limit_s

    def conclude(self, reason: str) -> None:
        """The run is over: write down an iteration that is still open, as failed for `reason`."""
        if self._closed and len(self.iterations) <= self._iteration < self.spec.iterations:
            self._write_down(reason)

    def _write_down(self, reason: str) -> None:
        deliveries: dict[tuple[str, int], Delivery] = {}
        for closed in self._closed.values():
            for offered in closed.offered:
                deliveries[offered.flow, offered.trip] = Delivery(offered.at_s, offered.payload_bytes)
        for closed in self._closed.values():
            for arrived in closed.arrived:
                delivery = deliveries[arrived.flow, arrived.trip]
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
            verified=self._verified,
            reason=reason,
            deliveries=deliveries,
            tallies=tallies,
            doubt="; ".join(self._doubts()),
        )
        self.iterations.append(record)
        self.flows += rows

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
    """Other traffic: tells the source when to send the next message."""

    def __init__(self, spec: BackgroundSpec, flows: Sequence[Flow], *, tell: Tell) -> None:
        self.spec = spec
        self.due_s = _NEVER
        self._flows = [flow.name for flow in flows]
        self._tell = tell
        self._number = 0
        self._awaited: set[str] = set()

    def start(self, now: float) -> None:
        """All connections stand: send the first message `start_s` from now."""
        self._send(now + self.spec.start_s)

    def _send(self, begins_s: float) -> None:
        self._number += 1
        self._awaited = set(self._flows)
        self._tell(self.spec.source, SendBackground(name=self.spec.name, number=self._number, begins_s=begins_s))

    def take(self, news: BackgroundArrived) -> None:
        """A part has arrived."""
        self._awaited.discard(news.flow)
        if not self._awaited and (self.spec.messages is None or self._number < self.spec.messages):
            self._send(news.at_s + self.spec.gap_s)

    def on_time(self, now: float) -> None:
        """Nothing: messages follow each other."""
