"""Two QUIC endpoints, paths with nothing but a delay, and a clock in the hand."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from bicoastal.transports.base import Datagram, Endpoint, EndpointContext, PathView
from bicoastal.transports.events import Connected, Event, Failed, MessageReceived
from bicoastal.transports.multipath.fec_registration import MPQUIC_FEC, QUIC_FEC
from bicoastal.transports.multipath.mpquic_registration import MPQUIC
from bicoastal.transports.quic.registration import QUIC
from bicoastal.wan.flow_id import FlowId

SPECS = {spec.name: spec for spec in (QUIC, MPQUIC, QUIC_FEC, MPQUIC_FEC)}
DELAY_S = 0.030
RTT_S = 2 * DELAY_S


@dataclass(frozen=True, slots=True)
class Departure:
    """A datagram as it departed. number: of the role's on this path, counted from 0."""

    role: str
    path_id: int
    number: int
    at_s: float
    payload: bytes
    burst_left: int | None


def bottleneck(rate_bps: float) -> Callable[[Departure], float]:
    """Return a `late` that lets each direction of each path carry `rate_bps`, behind a queue without end."""
    idle_s: dict[tuple[str, int], float] = {}

    def late(departure: Departure) -> float:
        key = departure.role, departure.path_id
        idle_s[key] = max(idle_s.get(key, 0.0), departure.at_s) + 8 * len(departure.payload) / rate_bps
        return idle_s[key] - departure.at_s

    return late


class QuicPair:
    """A client and a server. lose(departure) is asked once per datagram; late(departure) gives extra seconds.

    secrets: of each role; without one its credentials are those that anybody can compute.
    """

    def __init__(
        self,
        transport: str = "quic",
        *,
        paths: int = 1,
        mtu_bytes: int = 1500,
        delays_s: tuple[float, ...] | None = None,
        lose: Callable[[Departure], bool] = lambda departure: False,
        late: Callable[[Departure], float] = lambda departure: 0.0,
        seed: int = 1,
        connect: bool = True,
        secrets: Mapping[str, bytes] | None = None,
        **parameters: object,
    ) -> None:
        spec = SPECS[transport]
        made = spec.make_parameters(parameters)
        views = tuple(PathView(path_id=i, name=f"path{i}", mtu_bytes=mtu_bytes) for i in range(paths))
        self.ends: dict[str, Endpoint] = {}
        for role in ("client", "server"):
            assert spec.make_endpoint is not None
            rng = Random(f"{seed}/{role}")
            context = EndpointContext(
                role=role,
                flow=FlowId(owner="pair", source="west", destination="east", paths=tuple(view.name for view in views)),
                paths=views,
                rng=rng,
                parameters=made,
                secret=(secrets or {}).get(role),
            )
            self.ends[role] = spec.make_endpoint(context)
        self.client, self.server = self.ends["client"], self.ends["server"]
        self.lose, self.late = lose, late
        self.delays_s = delays_s or (DELAY_S,) * paths
        self.now = 0.0
        self.departures: list[Departure] = []
        self.received: dict[tuple[str, int], tuple[bytes, float]] = {}
        self.connected: dict[str, float] = {}
        self.failed: dict[str, str] = {}
        self.handled = 0
        self._numbers: dict[tuple[str, int], int] = {}
        self._heap: list[tuple[float, int, str, Any]] = []
        self._next = count().__next__
        self._armed: dict[str, float] = {}
        self.pump("client")
        if connect:
            self.run_until(lambda: len(self.connected) == 2)

    def send(self, role: str, message_id: int, data: bytes) -> None:
        """Offer a message now."""
        self.ends[role].send_message(message_id, data, self.now)
        self.pump(role)

    def carry(self, data: bytes, message_id: int = 1) -> float:
        """Carry a message from client to server; return the seconds it took."""
        begun_s = self.now
        self.send("client", message_id, data)
        self.run_until(lambda: ("server", message_id) in self.received)
        received, at_s = self.received["server", message_id]
        assert received == data
        return at_s - begun_s

    def sent(self, role: str, path_id: int = 0) -> list[Departure]:
        """Return what a role has sent on a path."""
        return [d for d in self.departures if d.role == role and d.path_id == path_id]

    def run_until(self, done: Callable[[], bool], limit_s: float = 300.0) -> None:
        """Let time pass until `done`."""
        limit_s += self.now
        while not done():
            assert self._heap, "nothing is left to happen"
            assert self._heap[0][0] <= limit_s, f"{limit_s} s have passed"
            self.step()

    def run_for(self, duration_s: float) -> None:
        """Let time pass."""
        until_s = self.now + duration_s
        while self._heap and self._heap[0][0] <= until_s:
            self.step()
        self.now = until_s

    def step(self) -> None:
        """Let the next thing happen."""
        at_s, _, role, datagram = heappop(self._heap)
        self.now = max(self.now, at_s)
        end = self.ends[role]
        if datagram is not None:
            end.receive_datagram(datagram, self.now)
        else:
            self._armed.pop(role, None)
            timer = end.get_timer()
            if timer is not None and timer <= self.now:
                self.handled += 1
                end.handle_timer(self.now)
        self.pump(role)

    def deliver(self, role: str, payload: bytes, path_id: int = 0) -> None:
        """Let a datagram of anybody's reach `role` now."""
        self.ends[role].receive_datagram(Datagram(path_id, payload, 28 + len(payload), self.now), self.now)
        self.pump(role)

    def pump(self, role: str) -> None:
        """Do what an endpoint asks for."""
        end, other = self.ends[role], "server" if role == "client" else "client"
        for datagram in end.datagrams_to_send(self.now):
            key = role, datagram.path_id
            number = self._numbers[key] = self._numbers.get(key, -1) + 1
            departs_s = max(self.now, datagram.depart_at)
            payload = bytes(datagram.payload)
            assert datagram.wire_bytes == 28 + len(payload)
            departure = Departure(role, datagram.path_id, number, departs_s, payload, datagram.burst_left)
            self.departures.append(departure)
            if not self.lose(departure):
                at_s = departs_s + self.delays_s[datagram.path_id] + self.late(departure)
                heappush(self._heap, (at_s, self._next(), other, datagram))
        while (event := end.next_event()) is not None:
            self._take(role, event)
        timer = end.get_timer()
        if timer is not None and timer < self._armed.get(role, float("inf")):
            self._armed[role] = timer
            heappush(self._heap, (max(timer, self.now), self._next(), role, None))

    def _take(self, role: str, event: Event) -> None:
        if isinstance(event, Connected):
            self.connected[role] = self.now
        elif isinstance(event, Failed):
            self.failed[role] = event.reason
        elif isinstance(event, MessageReceived):
            assert (role, event.message_id) not in self.received
            self.received[role, event.message_id] = bytes(event.data), self.now
