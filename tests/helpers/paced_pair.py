"""Two paced endpoints, paths with nothing but a delay, and a clock in the hand; a controller where one is wanted."""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from bicoastal.transports.b4.registration import B4
from bicoastal.transports.base import Datagram, Endpoint, EndpointContext, FlowId, Machine, PathView, ServiceContext
from bicoastal.transports.events import Connected, Event, Failed, MessageReceived, Notice
from bicoastal.transports.paced.packets import Data, Frame, Report, decode
from bicoastal.transports.rdma.registration import RDMA_GBN, RDMA_SR
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

SPECS = {spec.name: spec for spec in (B4, RDMA_SR, RDMA_GBN)}
DELAY_S = 0.030
RTT_S = 2 * DELAY_S
MTU = 9000


@dataclass(frozen=True, slots=True)
class Sent:
    """A packet as it departed. number: of the client's, or the server's, packets on this path, counted from 0."""

    role: str
    path_id: int
    number: int
    at_s: float
    handed_out_s: float
    frame: Frame
    wire_bytes: int
    burst_left: int | None

    @property
    def has_data(self) -> bool:
        """Whether it carries octets of the stream."""
        return isinstance(self.frame, Data) and bool(self.frame.payload)


def topology(paths: int = 1, *, rate_bps: float = 1e9, delay_s: float = DELAY_S) -> Topology:
    """Return parallel links of one path each."""
    links = [
        LinkSpec(name=f"plane{index}", a="west", b="east", rate_bps=rate_bps, delay_s=delay_s, mtu_bytes=MTU)
        for index in range(paths)
    ]
    return Topology(
        sites=(Site(name="west"), Site(name="east")),
        links=links,
        paths=[Path(name=link.name, sites=("west", "east"), links=(link.name,)) for link in links],
    )


class PacedPair:
    """A client and a server of `transport`, connected.

    lose(sent) is asked once for every packet as it departs; late(sent) gives extra seconds. With `rate_bps` there is no
    controller. control_delay_s: one way to the controller; lose_control(message, now) drops a message.
    """

    def __init__(
        self,
        transport: str = "b4",
        *,
        paths: int = 1,
        mtu_bytes: int = MTU,
        lose: Callable[[Sent], bool] = lambda sent: False,
        late: Callable[[Sent], float] = lambda sent: 0.0,
        lose_control: Callable[[Datagram, float], bool] = lambda datagram, now: False,
        control_delay_s: float = 0.010,
        network: Topology | None = None,
        seed: int = 1,
        **parameters: object,
    ) -> None:
        spec = SPECS[transport]
        made = spec.make_parameters(parameters)
        self.topology = network or topology(paths)
        names = list(self.topology.paths)
        first = self.topology.paths[names[0]]
        flow = FlowId(owner="job", source=first.sites[0], destination=first.sites[-1], paths=tuple(names))
        views = tuple(PathView(path_id=i, name=name, mtu_bytes=mtu_bytes) for i, name in enumerate(names))
        assert spec.make_endpoint is not None
        self.ends: dict[str, Endpoint] = {
            role: spec.make_endpoint(
                EndpointContext(role=role, flow=flow, paths=views, rng=Random(f"{seed}/{role}"), parameters=made)
            )
            for role in ("client", "server")
        }
        context = ServiceContext(topology=self.topology, flows=(flow,), rng=Random(seed), parameters=made)
        self.services: list[Machine] = [placement.machine for placement in spec.make_services(context)]
        self.lose, self.late, self.lose_control = lose, late, lose_control
        self.control_delay_s = control_delay_s
        self.sent: list[Sent] = []
        self.events: dict[str, list[tuple[float, Event]]] = {"client": [], "server": [], "service": []}
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._next = count().__next__
        self._numbers: dict[tuple[str, int], int] = {}
        self._timers: dict[str, float] = {}
        self._pump("server")
        self._pump("client")
        self.run(until=lambda: self.of(Connected, "client") and self.of(Connected, "server"))

    def of(self, kind: type[Event], role: str = "server") -> list[Any]:
        """Return (when, event) of that kind."""
        return [(at, event) for at, event in self.events[role] if isinstance(event, kind)]

    def notices(self, kind: str, role: str = "client") -> list[tuple[float, str]]:
        """Return (when, detail) of the notices of a kind."""
        return [(at, event.detail) for at, event in self.of(Notice, role) if event.kind == kind]

    def send(self, data: bytes, message_id: int = 1, role: str = "client") -> float:
        """Offer a message and return when."""
        self.ends[role].send_message(message_id, data, self.now)
        self._pump(role)
        return self.now

    def carry(self, data: bytes, message_id: int = 1) -> float:
        """Send from client to server; return how long it took until it had arrived. It must arrive as it was."""
        began = self.send(data, message_id)
        self.run(until=lambda: any(event.message_id == message_id for _, event in self.of(MessageReceived)))
        at, event = self.of(MessageReceived)[-1]
        assert bytes(event.data) == data
        return at - began

    def data(self, role: str = "client", since: float = 0.0) -> list[Sent]:
        """Return the packets with data that have departed."""
        return [sent for sent in self.sent if sent.role == role and sent.has_data and sent.at_s >= since]

    def run(self, until: Callable[[], object] | None = None, for_s: float = 100.0) -> None:
        """Let things happen for a while, or until a condition holds; it must hold in time."""
        limit = self.now + for_s
        while until is None or not until():
            assert not self.of(Failed, "client"), self.of(Failed, "client")
            if not self._heap or self._heap[0][0] > limit:
                assert until is None, "it never came to that"
                self.now = limit
                return
            self.now, _, action, argument = heappop(self._heap)
            action(argument)

    def at(self, at_s: float, action: Callable[[Any], None], argument: Any = None) -> None:
        """Let something happen."""
        heappush(self._heap, (at_s, self._next(), action, argument))

    def pump(self, role: str) -> None:
        """Ask a machine what follows from what was done to it."""
        self._pump(role)

    def _machine(self, role: str) -> Machine:
        return self.services[0] if role == "service" else self.ends[role]

    def _pump(self, role: str) -> None:
        machine = self._machine(role)
        for datagram in machine.datagrams_to_send(self.now):
            if role == "service" or datagram.path_id < 0:
                if not self.lose_control(datagram, self.now):
                    self.at(self.now + self.control_delay_s, self._controlled, (role, datagram))
            else:
                self.at(max(self.now, datagram.depart_at), self._depart, (role, datagram, self.now))
        while (event := machine.next_event()) is not None:
            self.events[role].append((self.now, event))
        timer = machine.get_timer()
        if timer is not None and timer < self._timers.get(role, float("inf")):
            self._timers[role] = timer
            self.at(max(timer, self.now), self._fire, (role, timer))

    def _fire(self, argument: tuple[str, float]) -> None:
        role, armed = argument
        if self._timers.get(role) != armed:
            return
        del self._timers[role]
        machine = self._machine(role)
        timer = machine.get_timer()
        if timer is not None and timer <= self.now:
            machine.handle_timer(self.now)
        self._pump(role)

    def _depart(self, argument: tuple[str, Datagram, float]) -> None:
        role, datagram, handed_out_s = argument
        path_id = datagram.path_id
        number = self._numbers[role, path_id] = self._numbers.get((role, path_id), -1) + 1
        sent = Sent(
            role, path_id, number, self.now, handed_out_s, decode(datagram.payload), datagram.wire_bytes,
            datagram.burst_left,
        )  # fmt: skip
        self.sent.append(sent)
        if not self.lose(sent):
            delay_s = next(iter(self.topology.links.values())).delay_s
            self.at(self.now + delay_s + self.late(sent), self._arrive, (role, datagram))

    def _arrive(self, argument: tuple[str, Datagram]) -> None:
        role, datagram = argument
        far = "server" if role == "client" else "client"
        self.ends[far].receive_datagram(datagram, self.now)
        self._pump(far)

    def _controlled(self, argument: tuple[str, Datagram]) -> None:
        role, datagram = argument
        far = "client" if role == "service" else "service"
        path_id = -1 if role == "service" else 0
        self._machine(far).receive_datagram(datagram._replace(path_id=path_id), self.now)
        self._pump(far)


def reports(pair: PacedPair, role: str = "server") -> list[Sent]:
    """Return the reports that a role has sent."""
    return [sent for sent in pair.sent if sent.role == role and isinstance(sent.frame, Report)]
