"""One coast's part of jobs and background traffic in real time: when it sends what, and how it takes arrivals."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bicoastal.emulation.base import BackgroundSpec, JobSpec
from bicoastal.emulation.driver import APPLICATION, Driver
from bicoastal.emulation.ends.flow_end import FlowEnd
from bicoastal.emulation.processes.coordination import (
    Arrived,
    BackgroundArrived,
    Begin,
    Closed,
    Complete,
    News,
    Offered,
    Prepared,
    Verified,
)
from bicoastal.emulation.traffic.background import BackgroundOctets
from bicoastal.emulation.traffic.coast_session import CoastSession, Send
from bicoastal.emulation.traffic.flows import Flow, trip_of
from bicoastal.emulation.traffic.ledger import Tally
from bicoastal.transports.events import Buffer


class CoastContext(NamedTuple):
    """What the jobs of a coast need: the event loop, and a function that sends news to the coordinator."""

    driver: Driver
    tell: Callable[[News], None]


class CoastJob:
    """One coast's part of a job. flows: all flows of the job. ends: the ends at this coast, by flow."""

    def __init__(
        self, spec: JobSpec, site: str, flows: Sequence[Flow], ends: Mapping[str, FlowEnd], context: CoastContext
    ) -> None:
        self.spec = spec
        self.active = False
        self._ends = ends
        self._driver, self._tell = context
        self._session = CoastSession(
            spec.allreduce,
            site,
            outgoing=[flow for flow in flows if flow.source == site],
            incoming=[flow for flow in flows if flow.destination == site],
        )
        self._iteration = -1
        self._begun = False
        self._prepared: list[Send] = []
        self._late_s = 0.0
        self._began_cpu = (0.0, 0.0)
        self._cpu_share = 0.0
        self._offered: list[Offered] = []
        self._arrived: list[Arrived] = []
        self._before: dict[str, Tally] = {}

    def prepare(self, iteration: int) -> None:
        """Make the gradients and the first messages of an iteration."""
        self._iteration, self._begun = iteration, False
        self._late_s = self._cpu_share = 0.0
        self._offered, self._arrived = [], []
        self._before = {name: end.tally() for name, end in self._ends.items()}
        self._prepared = self._session.begin(iteration)
        self._tell(Prepared(job=self.spec.name, iteration=iteration))

    def begin(self, order: Begin) -> None:
        """Offer the prepared messages at the instant of the order."""
        self._driver.at(order.begins_s, APPLICATION, self._begin, order.begins_s)

    def _begin(self, begins_s: float, now: float) -> None:
        self._late_s = now - begins_s
        self._begun = True
        self.active = not self._session.finished  # a coast that begins late may already have received everything
        self._began_cpu = (time.process_time(), now)
        self._offer(self._prepared, now)
        self._prepared = []

    def _offer(self, sends: list[Send], now: float) -> None:
        for send in sends:
            _, trip = trip_of(send.message_id)
            self._offered.append(Offered(flow=send.flow.name, trip=trip, at_s=now, payload_bytes=len(send.data)))
        for send in sends:
            self._ends[send.flow.name].send(send.message_id, send.data, self._driver.clock.now())

    def delivered(self, flow: str, message_id: int, data: Buffer, now: float) -> None:
        """Take a message. Raises ValueError when it is not an expected one."""
        _, trip = trip_of(message_id)
        sends = self._session.receive(flow, message_id, data)
        self._arrived.append(Arrived(flow=flow, trip=trip, at_s=now))
        self._offer(sends, now)
        if self._session.finished:
            if self._begun:
                self._stop_counting(now)
            self._tell(Complete(job=self.spec.name, iteration=self._iteration, at_s=now))

    def verify(self) -> None:
        """Compare the result with the true sum; then let the ends prepare for the next iteration."""
        self._tell(Verified(job=self.spec.name, iteration=self._iteration, verified=self._session.verify()))
        for end in self._ends.values():
            end.rest(self._driver.clock.now())

    def close(self) -> None:
        """Report what was counted; the iteration is over, complete or not."""
        if self.active:
            self._stop_counting(self._driver.clock.now())
        tallies = {name: end.tally() - self._before[name] for name, end in self._ends.items()}
        self._tell(
            Closed(
                job=self.spec.name,
                iteration=self._iteration,
                late_s=self._late_s,
                cpu_share=self._cpu_share,
                offered=tuple(self._offered),
                arrived=tuple(self._arrived),
                tallies=tallies,
            )
        )

    def _stop_counting(self, now: float) -> None:
        began_cpu_s, began_s = self._began_cpu
        self.active = False
        if now > began_s:
            self._cpu_share = (time.process_time() - began_cpu_s) / (now - began_s)


class CoastBackground:
    """One coast's part of background traffic: it sends, or it receives. ends: the ends at this coast, by flow."""

    def __init__(
        self, spec: BackgroundSpec, ends: Mapping[str, FlowEnd], octets: BackgroundOctets, context: CoastContext
    ) -> None:
        self.spec = spec
        self._ends = ends
        self._octets = octets
        self._driver, self._tell = context
        self._arrived = dict.fromkeys(ends, 0)

    def send(self, number: int, begins_s: float) -> None:
        """Send the message that has this number, counted from 1, at `begins_s`."""
        self._driver.at(begins_s, APPLICATION, self._send, number)

    def _send(self, number: int, now: float) -> None:
        for name, end in self._ends.items():
            end.send(number, self._octets.part(number, name), self._driver.clock.now())

    def delivered(self, flow: str, message_id: int, data: Buffer, now: float) -> None:
        """Take a message. Raises ValueError when it differs from what was sent."""
        self._arrived[flow] += 1
        if message_id != self._arrived[flow] or self._octets.part(message_id, flow) != data:
            raise ValueError(f"{flow} did not deliver what was sent")
        self._tell(BackgroundArrived(name=self.spec.name, flow=flow, number=message_id, at_s=now))
