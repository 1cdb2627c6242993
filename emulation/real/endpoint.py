"""A coast's process: runs all ends of flows at one site in real time, as the coordinator orders.

`python -m bicoastal.emulation.real.endpoint FD` is started inside the coast (a namespace, a Mininet host) with one end
of a socket pair. It ends when it is ordered to, with SIGTERM, and when the other end of the socket is closed.
"""

import gc
import sys

from bicoastal.emulation.base import JobSpec
from bicoastal.emulation.driver import APPLICATION, SAMPLING, Driver
from bicoastal.emulation.ends.flow_end import EndContext, FlowEnd
from bicoastal.emulation.ends.kinds import make_end, port_numbers
from bicoastal.emulation.processes.channel import Channel
from bicoastal.emulation.processes.coordination import (
    NEWS,
    ORDERS,
    Begin,
    Broken,
    Close,
    CoastPlan,
    Connect,
    Connected,
    Finish,
    Finished,
    News,
    Order,
    Prepare,
    Ready,
    SendBackground,
    Verify,
)
from bicoastal.emulation.processes.worker import work
from bicoastal.emulation.real.coast_jobs import CoastBackground, CoastContext, CoastJob
from bicoastal.emulation.realtime.real_clock import RealClock
from bicoastal.emulation.records import FlowSample, NoticeRecord
from bicoastal.emulation.service.link import ServiceLink
from bicoastal.emulation.service.placement import by_transport
from bicoastal.emulation.traffic.background import BackgroundOctets
from bicoastal.emulation.traffic.flows import Flow, plan_flows
from bicoastal.emulation.traffic.ledger import flow_sample
from bicoastal.transports.events import Buffer
from bicoastal.transports.registry import Registry

_LONGEST_WAIT_S = 0.5
_PRIORITY = 2  # of real time, below the relay's


class CoastProcess:
    """Executes the orders to one coast. Raises what the transports raise when they are made."""

    def __init__(self, plan: CoastPlan, channel: Channel[News, Order], registry: Registry) -> None:
        self._plan = plan
        self._channel = channel
        self._clock = RealClock()
        self._driver = Driver(self._clock)
        self._samples: list[FlowSample] = []
        self._notices: list[NoticeRecord] = []
        self._sampling_since: float | None = None
        self._broken = False
        self._ends: dict[str, FlowEnd] = {}
        self._clients: list[str] = []
        flows = plan_flows(plan.spec, registry)
        members = by_transport(flows)
        self._links = {
            address.transport: ServiceLink(
                address,
                plan.site,
                members[address.transport],
                plan.spec.topology,
                driver=self._driver,
                clock=self._clock,
                noticed=self.noticed,
            )
            for address in plan.services
        }
        numbers = port_numbers(flows, plan.first_port)
        for flow in flows:
            if plan.site in (flow.source, flow.destination):
                self._ends[flow.name] = self._make_end(flow, numbers[flow.name])
        self._owners: dict[str, CoastJob | CoastBackground] = {}
        self._jobs: dict[str, CoastJob] = {}
        self._background: dict[str, CoastBackground] = {}
        context = CoastContext(self._driver, self._tell)
        for part in plan.spec.traffic:
            own = [flow for flow in flows if flow.owner == part.name]
            ends = {flow.name: self._ends[flow.name] for flow in own if flow.name in self._ends}
            if not ends:
                continue
            run: CoastJob | CoastBackground
            if isinstance(part, JobSpec):
                run = self._jobs[part.name] = CoastJob(part, plan.site, own, ends, context)
            else:
                run = self._background[part.name] = CoastBackground(part, ends, BackgroundOctets(part, own), context)
            self._owners |= dict.fromkeys(ends, run)

    def _make_end(self, flow: Flow, port: int) -> FlowEnd:
        client = flow.source == self._plan.site
        if client:
            self._clients.append(flow.name)
        by_path = {end.path: end for end in self._plan.ends}
        return make_end(
            EndContext(
                flow=flow,
                role="client" if client else "server",
                topology=self._plan.spec.topology,
                ends=[by_path[path] for path in flow.paths],
                port=port,
                token=bytes.fromhex(self._plan.token),
                secret=bytes.fromhex(self._plan.secret),
                seed=self._plan.spec.seed,
                marks_bursts=self._plan.marks_bursts,
                driver=self._driver,
                clock=self._clock,
                listener=self,
                services=self._links.get(flow.transport.name),
            )
        )

    # -- events of the ends -------------------------------------------------------------------------------------------

    def connected(self, flow: str, now: float) -> None:
        """See `Listener`."""
        self._tell(Connected(flow=flow, at_s=now))

    def delivered(self, flow: str, message_id: int, data: Buffer, now: float) -> None:
        """See `Listener`."""
        try:
            self._owners[flow].delivered(flow, message_id, data, now)
        except ValueError as error:
            self.failed(str(error))

    def failed(self, reason: str) -> None:
        """See `Listener`. Only the first failure is reported; the coordinator then ends the run."""
        if not self._broken:
            self._broken = True
            self._tell(Broken(reason=reason))

    def noticed(self, source: str, kind: str, detail: str, now: float) -> None:
        """See `Listener`."""
        self._notices.append(NoticeRecord(source=source, at_s=now, kind=kind, detail=detail))

    # -- orders -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Execute orders until `Finish`. Raises ChannelClosedError when the coordinator has ended.

        Time begins with the order that sets its zero, so that it never decreases.
        """
        gc.collect()
        gc.freeze()
        gc.disable()  # a collection would take longer than a burst; there is one between iterations
        self._tell(Ready())
        match self._channel.receive():
            case Connect(epoch_s=epoch_s):
                self._clock.epoch_s = epoch_s
            case other:
                raise ValueError(f"{type(other).__name__} before there is a connection")
        self._clock.on_readable(self._channel.fileno(), self._execute_order)
        for link in self._links.values():
            link.open(self._clock.now())
        self._driver.at(0.0, APPLICATION, self._connect, None)
        self._driver.at(self._clock.now(), APPLICATION, self._tick, None)
        self._driver.run()

    def _tick(self, _: object, now: float) -> None:
        """Keep the driver's loop running while no event is due."""
        self._driver.at(now + _LONGEST_WAIT_S, APPLICATION, self._tick, None)

    def _tell(self, news: News) -> None:
        self._channel.send(news)

    def _execute_order(self, now: float) -> None:
        match self._channel.receive():
            case Prepare(job=job, iteration=iteration):
                gc.collect(0)
                self._jobs[job].prepare(iteration)
            case Begin() as order:
                self._jobs[order.job].begin(order)
                self._start_sampling(order.begins_s)
            case Verify(job=job):
                self._jobs[job].verify()
            case Close(job=job):
                self._jobs[job].close()
            case SendBackground(name=name, number=number, begins_s=begins_s):
                self._background[name].send(number, begins_s)
            case Finish():
                self._tell(
                    Finished(
                        samples=tuple(self._samples),
                        notices=tuple(self._notices),
                        lateness=self._clock.lateness.summary(),
                    )
                )
                self._driver.stop()
                self._driver.at(now, APPLICATION, _ignore, None)
            case CoastPlan() | Connect() as order:
                raise ValueError(f"a second {type(order).__name__}")

    def _connect(self, _: object, now: float) -> None:
        for end in self._ends.values():
            end.open(self._clock.now())

    # -- time series --------------------------------------------------------------------------------------------------

    def _start_sampling(self, begins_s: float) -> None:
        if self._plan.spec.sample_interval_s is not None and self._sampling_since is None:
            self._sampling_since = begins_s
            self._driver.at(begins_s, SAMPLING, self._sample, 0)

    def _sample(self, number: int, now: float) -> None:
        interval_s, since_s = self._plan.spec.sample_interval_s, self._sampling_since
        if interval_s is None or since_s is None or not any(job.active for job in self._jobs.values()):
            self._sampling_since = None
            return
        for name in self._clients:
            self._samples.append(flow_sample(name, now, self._ends[name].sample(now)))
        number = max(number + 1, int((now - since_s) / interval_s) + 1)
        self._driver.at(since_s + number * interval_s, SAMPLING, self._sample, number)

    def close(self) -> None:
        """Close every socket."""
        for end in self._ends.values():
            end.close()
        for link in self._links.values():
            link.close()


def _ignore(_: object, now: float) -> None:
    """Do nothing: this event only wakes the driver's loop, which then stops."""


def main() -> int:
    """Serve the coordinator at the other end of the socket."""
    return work(
        NEWS,
        ORDERS,
        CoastPlan,
        lambda plan, channel: CoastProcess(plan, channel, Registry.installed()),
        place=lambda plan: plan.site,
        priority=_PRIORITY,
    )


if __name__ == "__main__":
    sys.exit(main())
