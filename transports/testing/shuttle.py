"""Runs two endpoints, their services and their paths in virtual time, and checks every rule of the endpoint contract.

It shares no code with the driver that runs experiments, so a mistake in one does not hide a mistake in the other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bicoastal.transports.base import Datagram, EndpointContext, FlowId, PathView, Rng, ServiceContext
from bicoastal.transports.events import Buffer, Connected, Event, Failed, MessageReceived
from bicoastal.transports.registry import TransportSpec
from bicoastal.transports.testing.agenda import Agenda
from bicoastal.transports.testing.deliveries import Deliveries
from bicoastal.transports.testing.port import IP_HEADER_BYTES, ContractError, Encoding, Port, Transcript, flip
from bicoastal.transports.testing.schedules import (
    CLIENT_SITE,
    SERVER_SITE,
    Draw,
    Garbage,
    Offer,
    RngFactory,
    Schedule,
    stream,
)
from bicoastal.wan.checks import FieldError
from bicoastal.wan.link import Arrival, Link
from bicoastal.wan.topology import Path, Site, Topology

SAME_INSTANT_LIMIT = 1000
SILENCE_AFTER_S, SILENCE_FOR_S = 900.0, 300.0


class _GaveUp(Exception):  # noqa: N818  it is an outcome, not an error
    """An endpoint reported `Failed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a schedule ended. Digests cover every datagram in its order: its header fields, and (unless LAZY) octets."""

    messages: int
    payload_bytes: int
    datagrams: int
    garbage: int
    gave_up: str
    header_digest: bytes
    octet_digest: bytes
    impairments: dict[str, int]


class Shuttle:
    """One schedule, run once."""

    def __init__(
        self,
        spec: TransportSpec,
        schedule: Schedule,
        rng_factory: RngFactory,
        *,
        parameters: object,
        encoding: Encoding,
        time_limit_s: float,
    ) -> None:
        self._agenda = Agenda(schedule.start_s, time_limit_s)
        self._schedule = schedule
        self._encoding = encoding
        self._transcript = Transcript(encoding)
        self._garbage = 0
        self._deliveries = Deliveries()
        size = sum(offer.size_bytes for offer in schedule.offers)
        self._datagram_limit = 20_000 + 20 * (size // 500 + 100 * schedule.iterations)

        def rng(name: str) -> Rng:
            return stream(rng_factory, schedule.seed, schedule.number, name)

        self._lateness, self._noise, self._content = Draw(rng("lateness")), Draw(rng("garbage")), Draw(rng("content"))
        self._links = [
            {
                role: Link(link, back=role == "server", stream=partial(_prefixed, rng, f"link/{index}/{role}"))
                for role in ("client", "server")
            }
            for index, link in enumerate(schedule.links)
        ]
        self._build(spec, parameters, rng)

    @property
    def now(self) -> float:
        """The time on the clock, seconds, for the report of a failure."""
        return self._agenda.now

    # -- building -----------------------------------------------------------------------------------------------------

    def _build(self, spec: TransportSpec, parameters: object, rng: Callable[[str], Rng]) -> None:
        make_endpoint = spec.make_endpoint
        if make_endpoint is None:
            raise FieldError("kind", f"{spec.name} makes no endpoints")
        schedule = self._schedule
        topology = Topology(
            sites=(Site(name=CLIENT_SITE), Site(name=SERVER_SITE)),
            links=schedule.links,
            paths=[
                Path(name=f"path{index}", sites=(CLIENT_SITE, SERVER_SITE), links=(link.name,))
                for index, link in enumerate(schedule.links)
            ],
        )
        views = tuple(
            PathView(path_id=index, name=f"path{index}", mtu_bytes=link.mtu_bytes)
            for index, link in enumerate(schedule.links)
        )
        flow = FlowId(
            owner="check", source=CLIENT_SITE, destination=SERVER_SITE, paths=tuple(view.name for view in views)
        )
        placements = spec.make_services(
            ServiceContext(topology=topology, flows=(flow,), rng=rng("services"), parameters=parameters)
        )

        def make(role: str) -> Port:
            context = EndpointContext(
                role=role,
                flow=flow,
                paths=views,
                rng=rng(role),
                parameters=parameters,
            )
            return Port(role, make_endpoint(context), role)

        self._client, self._server = make("client"), make("server")
        for source, target in ((self._client, self._server), (self._server, self._client)):
            for view in views:
                source.routes[view.path_id] = self._path_route(self._links[view.path_id][source.role], target)
        self._services = []
        for number, placement in enumerate(placements, start=1):
            service = Port(f"service {placement.name}", placement.machine, "service")
            service.routes[0] = self._control_route(service, self._client, -number)
            self._client.routes[-number] = self._control_route(self._client, service, 0)
            self._services.append(service)

    def _path_route(self, link: Link, target: Port) -> Callable[[Datagram, float], None]:
        def carry(datagram: Datagram, now: float) -> None:
            target.seen.append(datagram)
            for arrival in link.submit(datagram, now):
                self._agenda.at(arrival.at_s, self._arrive, (target, link, datagram, arrival, now))

        return carry

    def _control_route(self, source: Port, target: Port, path_id: int) -> Callable[[Datagram, float], None]:
        def carry(datagram: Datagram, now: float) -> None:
            arriving = datagram._replace(path_id=path_id)
            self._agenda.at(now + self._schedule.control_delay_s, self._arrive_controlled, (source, target, arriving))

        return carry

    # -- the loop -----------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Hold the conversation to its end.

        Raises ContractError for a broken promise. An honest `Failed` ends it too, and is for the caller to judge.
        """
        gave_up = ""
        try:
            self._converse()
        except _GaveUp as failure:
            gave_up = str(failure)
        header_digest, octet_digest = self._transcript.digests()
        names = ("lost", "dropped_queue", "dropped_outage", "reordered", "duplicated", "corrupted")
        links = [link for pair in self._links for link in pair.values()]
        return Outcome(
            messages=self._deliveries.messages,
            payload_bytes=self._deliveries.payload_bytes,
            datagrams=self._transcript.datagrams,
            garbage=self._garbage,
            gave_up=gave_up,
            header_digest=header_digest,
            octet_digest=octet_digest,
            impairments={name: sum(getattr(link, name) for link in links) for name in names},
        )

    def _converse(self) -> None:
        schedule = self._schedule
        ends = (self._client, self._server)
        self._begin(0)
        for port in (*self._services, self._server, self._client):
            self._pump(port, self.now)
        self._agenda.advance(lambda: self._client.connected and self._server.connected, "both ends were connected")
        for iteration, gap_s in enumerate(schedule.gaps_s, start=1):
            self._begin(iteration)
            for offer in schedule.offers:
                if offer.iteration == iteration:
                    content = self._content.octets(offer.size_bytes)
                    self._deliveries.expect(_far(offer.role), offer.message_id, content)
                    self._agenda.at(self.now + offer.offset_s, self._offer, offer)
            self._agenda.advance(self._deliveries.complete, "every message had been delivered")
            self._agenda.rest(gap_s)
            for port in ends:
                port.check_observations(self.now)
        self._agenda.rest(SILENCE_AFTER_S)
        silent_since = self.now
        self._agenda.rest(SILENCE_FOR_S)
        for port in ends:
            if port.sent_at > silent_since:
                raise ContractError(f"{port.name} still sends {SILENCE_AFTER_S:g} s after all was delivered")
            port.check_identifiers(self.now)

    def _begin(self, iteration: int) -> None:
        for pair in self._links:
            for link in pair.values():
                link.begin_iteration(iteration, self.now)
        for garbage in self._schedule.garbage:
            if garbage.iteration == iteration:
                self._agenda.at(self.now + garbage.offset_s, self._throw_garbage, garbage)
        for service in self._services:
            self._agenda.at(self.now, self._throw_at_service, service)

    # -- what happens -------------------------------------------------------------------------------------------------

    def _offer(self, offer: Offer, now: float) -> None:
        port = self._client if offer.role == "client" else self._server
        content = self._deliveries.expected(_far(offer.role), offer.message_id)
        data: Buffer = (content, bytearray(content), memoryview(content))[offer.message_id % 3]
        port.call("send_message", offer.message_id, data, now)
        self._pump(port, now)

    def _arrive(self, argument: tuple[Port, Link, Datagram, Arrival, float], now: float) -> None:
        port, link, datagram, arrival, submitted_s = argument
        if not link.survives(submitted_s, arrival.at_s):
            return
        if arrival.corrupt is not None and (octets := bytes(datagram.payload)):
            self._receive_bad(port, datagram._replace(payload=flip(octets, arrival.corrupt)), now)
            return
        self._receive(port, self._transcript.arriving(_far(port.role), datagram, now), now)

    def _arrive_controlled(self, argument: tuple[Port, Port, Datagram], now: float) -> None:
        source, port, datagram = argument
        self._receive(port, self._transcript.arriving(source.name, datagram, now), now)

    def _receive(self, port: Port, datagram: Datagram, now: float) -> None:
        port.call("receive_datagram", datagram, now)
        self._pump(port, now)

    def _receive_bad(self, port: Port, datagram: Datagram, now: float) -> None:
        """Deliver what must be rejected."""
        before = port.call("counters").rejected
        self._receive(port, datagram, now)
        if port.call("counters").rejected <= before:
            raise ContractError(f"{port.name} did not count a malformed datagram of {len(bytes(datagram.payload))} B")

    def _throw_garbage(self, garbage: Garbage, now: float) -> None:
        port = self._client if garbage.role == "client" else self._server
        noise = self._noise
        if garbage.kind == "random":
            path_id = noise.below(len(self._links))
            size = noise.below(self._schedule.links[path_id].mtu_bytes - IP_HEADER_BYTES + 1)
            self._garbage += 1
            self._receive_bad(port, _datagram(path_id, noise.octets(size), now), now)
            return
        if not port.seen:
            return
        genuine = noise.choice(port.seen)
        octets = bytes(genuine.payload)
        if not octets:
            return
        self._garbage += 1
        if garbage.kind == "flipped":
            self._receive_bad(port, _datagram(genuine.path_id, flip(octets, noise.random()), now), now)
        elif garbage.kind == "truncated":
            # May be taken for whole once in 65,536 times (RFC 1071), so it need not count.
            self._receive(port, _datagram(genuine.path_id, octets[: noise.below(len(octets))], now), now)
        else:
            self._receive(port, _datagram(genuine.path_id, octets, now), now)

    def _throw_at_service(self, service: Port, now: float) -> None:
        self._garbage += 1
        self._receive(service, _datagram(0, self._noise.octets(self._noise.below(200)), now), now)

    def _pump(self, port: Port, now: float) -> int:
        """Ask a machine what it wants, and return how many datagrams it sent."""
        datagrams = port.call("datagrams_to_send", now)
        for datagram in datagrams:
            self._depart(port, datagram, now)
        if self._encoding is Encoding.RECORDED and port.call("datagrams_to_send", now):
            raise ContractError(f"{port.name}: datagrams_to_send kept something back, which would wait for no reason")
        for _ in range(SAME_INSTANT_LIMIT):
            event = port.call("next_event")
            if event is None:
                break
            self._event(port, event)
        else:
            raise ContractError(f"{port.name}: next_event gave {SAME_INSTANT_LIMIT} events at one instant")
        timer = port.timer()
        if timer is not None and timer < port.armed_at:
            self._arm(port, timer, now)
        return len(datagrams)

    def _arm(self, port: Port, timer: float, now: float) -> None:
        port.armed_at = timer
        late_s = self._schedule.timer_lateness_s
        at_s = max(timer, now) + (late_s * self._lateness.random() if late_s else 0.0)
        self._agenda.at(at_s, self._fire, (port, timer))

    def _fire(self, argument: tuple[Port, float], now: float) -> None:
        port, armed_at = argument
        if armed_at != port.armed_at:
            return  # an earlier timer has taken its place
        port.armed_at = float("inf")
        timer = port.timer()
        if timer is None:
            return
        if timer > now:
            self._arm(port, timer, now)
            return
        if now > port.fires_at:
            port.fires_at, port.fires = now, 0
        port.fires += 1
        port.call("handle_timer", now)
        sent = self._pump(port, now)
        timer = port.timer()
        if timer is not None and timer <= now and (not sent or port.fires > SAME_INSTANT_LIMIT):
            raise ContractError(f"{port.name} spins: after handle_timer its timer still lies in the past")

    def _event(self, port: Port, event: Event) -> None:
        match event:
            case Connected():
                if port.connected:
                    raise ContractError(f"{port.name} was connected twice")
                port.connected = True
            case MessageReceived():
                self._deliveries.check(port, event)
            case Failed():
                if not event.reason:
                    raise ContractError(f"{port.name} failed without a reason")
                raise _GaveUp(f"{port.name} gave up: {event.reason}")

    def _depart(self, port: Port, datagram: Datagram, now: float) -> None:
        path_id = datagram.path_id
        route = port.routes.get(path_id)
        if route is None:
            raise ContractError(f"{port.name} sent a datagram on path {path_id}, which it does not have")
        on_path = path_id >= 0 and port.role != "service"
        if on_path:
            port.sent_at = now
        port.check_departure(datagram, self._schedule.links[path_id].mtu_bytes if on_path else None)
        datagram = self._transcript.enter(port.name, datagram, now)
        if self._transcript.datagrams > self._datagram_limit:
            raise ContractError(
                f"{port.name} floods: datagram {self._transcript.datagrams} when "
                f"{self._deliveries.payload_bytes} B were delivered"
            )
        if datagram.depart_at > now:
            self._agenda.at(datagram.depart_at, self._release, (route, datagram))
        else:
            route(datagram, now)

    def _release(self, argument: tuple[Callable[[Datagram, float], None], Datagram], now: float) -> None:
        route, datagram = argument
        route(datagram, now)


def _prefixed(rng: Callable[[str], Rng], prefix: str, name: str) -> Rng:
    return rng(f"{prefix}/{name}")


def _datagram(path_id: int, octets: bytes, now: float) -> Datagram:
    return Datagram(path_id=path_id, payload=octets, wire_bytes=len(octets) + IP_HEADER_BYTES, depart_at=now)


def _far(role: str) -> str:
    return "server" if role == "client" else "client"
