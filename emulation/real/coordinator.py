"""Runs the coasts' processes in real time: sends their orders, and joins what the two coasts have recorded."""

import os
import secrets
import select
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from bicoastal.emulation.base import RunFailedError, RunSpec
from bicoastal.emulation.closing import Closing
from bicoastal.emulation.ends.kinds import FIRST_PORT
from bicoastal.emulation.processes.coordination import (
    NEWS,
    ORDERS,
    BackgroundArrived,
    Broken,
    Closed,
    CoastPlan,
    Complete,
    Connect,
    Connected,
    Finish,
    Finished,
    News,
    Order,
    PathEnd,
    Prepared,
    Verified,
    require_ready,
)
from bicoastal.emulation.processes.worker_handle import WorkerHandle
from bicoastal.emulation.real.conduct import BackgroundConduct, JobConduct
from bicoastal.emulation.real.service_hosts import ServiceGround, ServiceHosts
from bicoastal.emulation.records import FlowRecord, FlowSample, FlowSummary, IterationRecord, NoticeRecord
from bicoastal.emulation.traffic.flows import Flow
from bicoastal.emulation.traffic.ledger import summarise

TOKEN_BYTES, SECRET_BYTES = 8, 32


class Ground(ServiceGround, Protocol):
    """The namespaces of a run, or the hosts of Mininet, in which the coasts' processes are started."""

    def path_ends(self, site: str) -> Sequence[PathEnd]:
        """Return where the paths end at a coast."""


class CoastHandle(WorkerHandle[Order, News]):
    """A coast's process."""

    def __init__(self, ground: Ground, site: str) -> None:
        super().__init__(
            ground, site, "bicoastal.emulation.real.endpoint", name=f"the process of {site}", orders=ORDERS, news=NEWS
        )
        self.site = site


@dataclass(frozen=True, slots=True, kw_only=True)
class Conducted:
    """The result of a run. failure: why it ended early, or "". doubts: reasons to doubt its figures."""

    failure: str
    doubts: tuple[str, ...]
    iterations: tuple[IterationRecord, ...]
    flows: tuple[FlowRecord, ...]
    summaries: tuple[FlowSummary, ...]
    samples: tuple[FlowSample, ...]
    notices: tuple[NoticeRecord, ...]


class Coordinator(Closing):
    """The coasts' processes of one run, from their start to their end. A context manager.

    on_begin(iteration, begins_s) is called as soon as the start of an iteration of the first job is known. Raises
    UnsupportedError when a coast cannot execute its plan, RunFailedError when a process dies.
    """

    def __init__(
        self,
        spec: RunSpec,
        flows: Sequence[Flow],
        ground: Ground,
        *,
        processors: Sequence[int] = (),
        marks_bursts: bool = False,
        on_begin: Callable[[int, float], None],
    ) -> None:
        self._spec = spec
        self._flows = flows
        self._epoch_s = 0.0
        self._failure = ""
        self._handshakes: dict[str, float] = {}
        sites = dict.fromkeys(site for flow in flows for site in (flow.source, flow.destination))
        self._coasts: dict[str, CoastHandle] = {}
        token, secret = secrets.token_hex(TOKEN_BYTES), secrets.token_hex(SECRET_BYTES)
        self._services = ServiceHosts(spec, flows, ground, processors=processors)
        try:
            for site in sites:
                self._coasts[site] = CoastHandle(ground, site)
            for site, coast in self._coasts.items():
                coast.send(
                    CoastPlan(
                        spec=spec,
                        site=site,
                        ends=tuple(ground.path_ends(site)),
                        token=token,
                        secret=secret,
                        first_port=FIRST_PORT,
                        marks_bursts=marks_bursts,
                        processors=tuple(processors),
                        services=self._services.addresses[site],
                    )
                )
            for coast in self._coasts.values():
                require_ready(coast.name, coast.receive())
        except BaseException:
            self.close()
            raise
        self._jobs = [
            JobConduct(
                job,
                spec.topology,
                [flow for flow in flows if flow.owner == job.name],
                time_limit_s=spec.time_limit_s,
                tell=self._tell,
                on_begin=on_begin if job is spec.jobs[0] else _ignore,
            )
            for job in spec.jobs
        ]
        self._background = [
            BackgroundConduct(part, [flow for flow in flows if flow.owner == part.name], tell=self._tell)
            for part in spec.background
        ]

        self._conducts: tuple[JobConduct | BackgroundConduct, ...] = (*self._jobs, *self._background)

    def _tell(self, site: str, order: Order) -> None:
        self._coasts[site].send(order)

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that were started."""
        return (*(coast.pid for coast in self._coasts.values()), *self._services.pids)

    @property
    def services(self) -> ServiceHosts:
        """The processes of the run's services."""
        return self._services

    # -- the run ------------------------------------------------------------------------------------------------------

    def run(self, epoch_s: float, *, depends_on: Sequence[int] = ()) -> Conducted:
        """Connect at `epoch_s` (CLOCK_MONOTONIC), run every job to its end, and join the records of both coasts.

        depends_on: processes that the run needs (relays); RunFailedError is raised when one of them ends.
        """
        self._epoch_s = epoch_s
        self._services.connect(epoch_s)
        for coast in self._coasts.values():
            coast.send(Connect(epoch_s=epoch_s))
        with ExitStack() as stack:
            waiter = _NewsWaiter(self._coasts.values(), self._services, depends_on, stack)
            while not self._failure and not all(job.done for job in self._jobs):
                now = self.now
                for conduct in self._conducts:
                    if conduct.due_s <= now:
                        conduct.on_time(now)
                if not self._all_connected and now > self._spec.time_limit_s:
                    missing = next(flow.name for flow in self._flows if flow.name not in self._handshakes)
                    self._fail(f"{missing} did not connect within {self._spec.time_limit_s:g} s")
                    break
                self._failure = self._first_failure()
                if self._failure:
                    break
                for coast in waiter.wait(self._until_due(now), now):
                    self._take(coast.site, coast.receive())
            return self._conclude(waiter)

    @property
    def now(self) -> float:
        """The run's time."""
        return time.monotonic() - self._epoch_s

    def _until_due(self, now: float) -> float:
        due_s = min(conduct.due_s for conduct in self._conducts)
        if not self._all_connected:
            due_s = min(due_s, self._spec.time_limit_s + 1e-3)
        return due_s - now

    @property
    def _all_connected(self) -> bool:
        return len(self._handshakes) == len(self._flows)

    def _first_failure(self) -> str:
        others = (self._services.failure, *(job.failure for job in self._jobs))
        return self._failure or next((failure for failure in others if failure), "")

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason

    def _take(self, site: str, news: News) -> None:
        match news:
            case Connected(flow=flow, at_s=at_s):
                again = flow in self._handshakes
                self._handshakes.setdefault(flow, at_s)
                if self._all_connected and not again:
                    for conduct in self._conducts:
                        conduct.start(self.now)
            case Prepared() | Complete() | Verified() | Closed():
                self._job(news.job).take(site, news, self.now)
            case BackgroundArrived(name=name):
                next(part for part in self._background if part.spec.name == name).take(news)
            case Broken(reason=reason, transport=True):
                self._fail(reason)
            case Broken(reason=reason):
                raise RunFailedError(f"the process of {site} broke: {reason}")
            case _:
                raise RunFailedError(f"the process of {site} sent {type(news).__name__} at the wrong time")

    def _take_late(self, site: str, news: News) -> None:
        """Take news that was on its way when the run ended, and the answers to the orders to close."""
        match news:
            case Prepared() | Complete() | Verified() | Closed():
                self._job(news.job).take(site, news, self.now)
            case Broken(reason=reason, transport=False):
                raise RunFailedError(f"the process of {site} broke: {reason}")
            case Connected() | BackgroundArrived() | Broken():
                pass
            case _:
                raise RunFailedError(f"the process of {site} sent {type(news).__name__} at the wrong time")

    def _job(self, name: str) -> JobConduct:
        return next(job for job in self._jobs if job.spec.name == name)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _conclude(self, waiter: "_NewsWaiter") -> Conducted:
        """Close open iterations on all coasts before any process ends, then collect the remaining records."""
        self._failure = self._first_failure()
        for job in self._jobs:
            job.end(self.now)
        while not all(job.done for job in self._jobs):
            now = self.now
            for job in self._jobs:
                if job.due_s <= now:
                    job.on_time(now)
                    raise RunFailedError(job.failure)
            for coast in waiter.wait(min(job.due_s for job in self._jobs) - now, now):
                self._take_late(coast.site, coast.receive())
        finished: dict[str, Finished] = {}
        for coast in self._coasts.values():
            coast.send(Finish())
            while coast.site not in finished:
                news = coast.receive()
                if isinstance(news, Finished):
                    finished[coast.site] = news
                else:
                    self._take_late(coast.site, news)
        told = [*self._services.finish(), *(notice for each in finished.values() for notice in each.notices)]
        for job in self._jobs:
            job.conclude(self._failure)
        return Conducted(
            failure=self._failure,
            doubts=(
                *self._services.doubts,
                *(
                    f"the process of {site} was {each.lateness.p99_s * 1e3:.2f} ms late at the 99th percentile"
                    for site, each in finished.items()
                    if each.lateness.p99_s > 1e-3
                ),
            ),
            iterations=tuple(record for job in self._jobs for record in job.iterations),
            flows=tuple(record for job in self._jobs for record in job.flows),
            summaries=tuple(summarise(flow, self._handshakes.get(flow.name)) for flow in self._flows),
            samples=tuple(
                sorted((sample for each in finished.values() for sample in each.samples), key=lambda one: one.at_s)
            ),
            notices=tuple(sorted(told, key=lambda one: one.at_s)),
        )

    def close(self) -> None:
        """End every process."""
        for coast in self._coasts.values():
            coast.close()
        self._services.close()


class _NewsWaiter:
    """Waits for news from the coasts and handles news from services. depends_on: processes that the run needs."""

    def __init__(
        self,
        coasts: Iterable[CoastHandle],
        services: ServiceHosts,
        depends_on: Sequence[int],
        stack: ExitStack,
    ) -> None:
        self._coasts = {coast.channel.fileno(): coast for coast in coasts}
        self._services = services
        self._required: list[int] = []
        for pid in depends_on:
            self._required.append(os.pidfd_open(pid))
            stack.callback(os.close, self._required[-1])

    def wait(self, time_s: float, now: float) -> list[CoastHandle]:
        """Return the coasts that have sent news; wait at most `time_s`, and at most a second.

        Raises RunFailedError when a process that the run needs has ended.
        """
        services = self._services.descriptors  # they change when a service has been restarted
        readable = select.poll()
        for descriptor in (*self._coasts, *self._required, *services):
            readable.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in readable.poll(1e3 * min(max(time_s, 0.0), 1.0))]
        if any(descriptor in self._required for descriptor in ready):
            raise RunFailedError("the relay between the coasts has died")
        for descriptor in ready:
            if descriptor in services:
                self._services.receive(services[descriptor], now)
        return [self._coasts[descriptor] for descriptor in ready if descriptor in self._coasts]


def _ignore(iteration: int, begins_s: float) -> None:
    """Do nothing: only the iterations of the first job start link events."""
