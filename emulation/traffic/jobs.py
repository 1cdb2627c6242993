"""Jobs and background traffic in a process that has both coasts, and their records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bicoastal.emulation.base import BackgroundSpec, JobSpec
from bicoastal.emulation.driver import APPLICATION, Driver, Port
from bicoastal.emulation.records import FlowRecord, IterationRecord
from bicoastal.emulation.traffic.background import BackgroundOctets
from bicoastal.emulation.traffic.coast_session import CoastSession, Send
from bicoastal.emulation.traffic.flows import Flow, trip_of
from bicoastal.emulation.traffic.ledger import Delivery, Tally, close_iteration, iteration_bound_s, joined
from bicoastal.transports.base import Endpoint
from bicoastal.transports.events import MessageReceived
from bicoastal.wan.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPorts:
    """A flow and the ports of its two ends."""

    flow: Flow
    client: Port
    server: Port

    @property
    def client_endpoint(self) -> Endpoint:
        """The sending endpoint."""
        if not isinstance(self.client.machine, Endpoint):
            raise TypeError(f"{self.client.name} is not an endpoint")
        return self.client.machine

    @property
    def server_endpoint(self) -> Endpoint:
        """The receiving endpoint."""
        if not isinstance(self.server.machine, Endpoint):
            raise TypeError(f"{self.server.name} is not an endpoint")
        return self.server.machine

    def send(self, identifier: int, data: memoryview, now: float) -> None:
        """Offer a message to the sending endpoint."""
        self.client_endpoint.send_message(identifier, data, now)
        self.client.pump(now)


class JobRun:
    """Runs a job's iterations: begin on both coasts, carry the messages, verify, wait for `gap_s`, begin again.

    on_schedule(iteration, begins_s) is called as soon as the start of an iteration is known. on_begin(now) is called
    at the start, before the first byte is offered. on_end(reason) is called once, with "" when all went well.
    """

    def __init__(
        self,
        spec: JobSpec,
        topology: Topology,
        ports: Mapping[str, FlowPorts],
        driver: Driver,
        *,
        time_limit_s: float,
        on_schedule: Callable[[int, float], None],
        on_begin: Callable[[float], None],
        on_end: Callable[[str], None],
    ) -> None:
        self.spec = spec
        self.ports = ports
        self.iterations: list[IterationRecord] = []
        self.flows: list[FlowRecord] = []
        self.active = False
        self._driver = driver
        self._time_limit_s = time_limit_s
        self._on_schedule = on_schedule
        self._on_begin = on_begin
        self._on_end = on_end
        everything = [part.flow for part in ports.values()]
        self._coasts = {
            site: CoastSession(
                spec.allreduce,
                site,
                outgoing=[flow for flow in everything if flow.source == site],
                incoming=[flow for flow in everything if flow.destination == site],
            )
            for site in spec.allreduce.sites
        }
        self._bound_s = iteration_bound_s(spec, topology)
        self._iteration = -1
        self._start_s = 0.0
        self._completion_s: float | None = None
        self._verified = False
        self._deliveries: dict[tuple[str, int], Delivery] = {}
        self._marks: dict[str, Tally] = {}
        self._open = False

    def start(self, now: float) -> None:
        """All connections are established: begin the first iteration `start_s` from now."""
        self._schedule(0, now + self.spec.start_s)

    def _schedule(self, iteration: int, begins_s: float) -> None:
        if iteration < self.spec.iterations:
            self._on_schedule(iteration, begins_s)
        self._driver.at(begins_s, APPLICATION, self._begin, iteration)

    def _begin(self, iteration: int, now: float) -> None:
        if self._open:
            self._close_iteration("")
        if iteration == self.spec.iterations:
            self._on_end("")
            return
        self._iteration, self._start_s = iteration, now
        self._completion_s, self._verified = None, False
        self._deliveries.clear()
        self._marks = {name: self._mark(ports) for name, ports in self.ports.items()}
        self._open = self.active = True
        self._on_begin(now)
        self._driver.at(now + self._time_limit_s, APPLICATION, self._check_time, iteration)
        sends = [send for coast in self._coasts.values() for send in coast.begin(iteration)]
        self._offer(sends, now)

    def _offer(self, sends: list[Send], now: float) -> None:
        for send in sends:
            _, trip = trip_of(send.message_id)
            self._deliveries[send.flow.name, trip] = Delivery(now, len(send.data))
        for send in sends:
            self.ports[send.flow.name].send(send.message_id, send.data, now)

    def received(self, flow: str, message: MessageReceived, now: float) -> None:
        """Take a message that a flow delivered. Raises ValueError when it is not an expected one."""
        iteration, trip = trip_of(message.message_id)
        delivery = self._deliveries.get((flow, trip))
        if iteration != self._iteration or delivery is None:
            raise ValueError(f"{flow} delivered message {message.message_id}, which was not sent")
        coast = self._coasts[self.ports[flow].flow.destination]
        sends = coast.receive(flow, message.message_id, message.data)
        delivery.completion_s = now - delivery.start_s
        self._offer(sends, now)
        if all(coast.finished for coast in self._coasts.values()):
            self._completion_s = now - self._start_s
            self._verified = all(coast.verify() for coast in self._coasts.values())
            self.active = False
            self._schedule(self._iteration + 1, now + self.spec.gap_s)

    def _check_time(self, iteration: int, now: float) -> None:
        if iteration == self._iteration and self._completion_s is None:
            self._on_end(f"iteration {iteration} of {self.spec.name} did not complete within {self._time_limit_s:g} s")

    def close(self, reason: str) -> None:
        """End the run: record an iteration that is still open as failed, with `reason`."""
        if self._open:
            self._close_iteration(reason)
        self.active = False

    def _mark(self, ports: FlowPorts) -> Tally:
        return joined(
            Tally(wire_bytes=ports.client.wire_bytes, counters=ports.client_endpoint.counters()),
            Tally(wire_bytes=ports.server.wire_bytes, counters=ports.server_endpoint.counters()),
        )

    def _close_iteration(self, reason: str) -> None:
        self._open = False
        record, flows = close_iteration(
            self.spec,
            [ports.flow for ports in self.ports.values()],
            iteration=self._iteration,
            start_s=self._start_s,
            completion_s=self._completion_s,
            bound_s=self._bound_s,
            verified=self._verified,
            reason=reason,
            deliveries=self._deliveries,
            tallies={name: self._mark(ports) - self._marks[name] for name, ports in self.ports.items()},
        )
        self.iterations.append(record)
        self.flows += flows


class BackgroundRun:
    """Background traffic: one message after another between two sites. Each byte is checked; nothing is recorded."""

    def __init__(self, spec: BackgroundSpec, ports: Mapping[str, FlowPorts], driver: Driver) -> None:
        self.spec = spec
        self.ports = ports
        self._driver = driver
        self._octets = BackgroundOctets(spec, [part.flow for part in ports.values()])
        self._expected: dict[str, memoryview] = {}
        self._sent = 0

    def start(self, now: float) -> None:
        """All connections are established: send the first message `start_s` from now."""
        self._driver.at(now + self.spec.start_s, APPLICATION, self._begin, None)

    def _begin(self, _: object, now: float) -> None:
        self._sent += 1
        self._expected = {name: self._octets.part(self._sent, name) for name in self.ports}
        for name, data in list(self._expected.items()):
            self.ports[name].send(self._sent, data, now)

    def received(self, flow: str, message: MessageReceived, now: float) -> None:
        """Take a message that a flow delivered. Raises ValueError when it differs from what was sent."""
        if message.message_id != self._sent or self._expected.pop(flow, None) != message.data:
            raise ValueError(f"{flow} did not deliver what was sent")
        if not self._expected and (self.spec.messages is None or self._sent < self.spec.messages):
            self._driver.at(now + self.spec.gap_s, APPLICATION, self._begin, None)
