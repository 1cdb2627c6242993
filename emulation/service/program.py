"""A process that runs the services of one transport in real time.

`python -m bicoastal.emulation.service.program FD` is started with one end of a socket pair. The coasts' processes
connect to it over mutually authenticated TLS on a Unix socket. A connection without a certificate of this run is
refused, counted and recorded. A coast may send messages only for the flows that begin at its site.
"""

import os
import socket
import ssl
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from bicoastal.emulation.driver import APPLICATION, ARRIVAL, Driver, Port
from bicoastal.emulation.processes.channel import Channel
from bicoastal.emulation.processes.coordination import (
    SERVICE_NEWS,
    SERVICE_ORDERS,
    Broken,
    Connect,
    Finish,
    Finished,
    Noticed,
    Ready,
    ServiceNews,
    ServiceOrder,
    ServicePlan,
)
from bicoastal.emulation.processes.credentials import identities, site_identity, tls_context
from bicoastal.emulation.processes.worker import work
from bicoastal.emulation.realtime.real_clock import RealClock
from bicoastal.emulation.records import NoticeRecord
from bicoastal.emulation.service.control import ControlMessage, MalformedControlError
from bicoastal.emulation.service.placement import by_transport, place_services
from bicoastal.emulation.service.tls_stream import TlsStream
from bicoastal.emulation.traffic.flows import plan_flows
from bicoastal.transports.base import Datagram
from bicoastal.transports.events import Event, Failed, Notice
from bicoastal.transports.registry import Registry

HANDSHAKE_S = 5.0  # that a peer has to show who it is
MOST_UNIDENTIFIED = 32  # connections at once that have not been identified yet
_BACKLOG = 16
_LONGEST_WAIT_S = 0.5
_PRIORITY = 1  # of real time, below the coasts'


class ServiceProcess:
    """Runs the services of a plan. Raises what the transport raises when it makes them."""

    def __init__(self, plan: ServicePlan, channel: Channel[ServiceNews, ServiceOrder], registry: Registry) -> None:
        self._channel = channel
        self._name = plan.address.transport
        self._clock = RealClock()
        self._driver = Driver(self._clock)
        flows = by_transport(plan_flows(plan.spec, registry))[self._name]
        self._sources = [flow.source for flow in flows]
        self._placed = place_services(
            plan.spec.topology,
            flows,
            seed=plan.spec.seed,
            generation=plan.generation,
            encapsulation_bytes=plan.encapsulation_bytes,
        )
        self._ports = [Port(self._driver, each.name, each.machine, self._on_event) for each in self._placed]
        for number, port in enumerate(self._ports):
            port.routes = {peer: partial(self._transmit, number, peer) for peer in range(len(flows))}
        self._context = tls_context(plan.address.credentials, server=True)
        self._unidentified: set[_PeerConnection] = set()
        self._coasts: dict[str, _PeerConnection] = {}
        self._refusals: dict[str, int] = {}  # by reason
        self._rejected = 0
        with suppress(FileNotFoundError):
            os.unlink(plan.address.socket)  # of the process before this one
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)
        self._listener.bind(plan.address.socket)
        self._listener.listen(_BACKLOG)
        self._clock.on_readable(self._listener.fileno(), self._accept)

    # -- orders -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Execute orders until `Finish`. Raises ChannelClosedError when the coordinator has ended."""
        self._channel.send(Ready())
        match self._channel.receive():
            case Connect(epoch_s=epoch_s):
                self._clock.epoch_s = epoch_s
            case other:
                raise ValueError(f"{type(other).__name__} before Connect")
        self._clock.on_readable(self._channel.fileno(), self._execute_order)
        self._driver.at(max(0.0, self._clock.now()), APPLICATION, self._begin, None)
        self._driver.at(self._clock.now(), APPLICATION, self._tick, None)
        self._driver.run()

    def _execute_order(self, now: float) -> None:
        match self._channel.receive():
            case Finish():
                self._summarise_refusals(now)
                self._channel.send(Finished(samples=(), notices=(), lateness=self._clock.lateness.summary()))
                self._driver.stop()
                self._driver.at(now, APPLICATION, _ignore, None)
            case ServicePlan() | Connect() as order:
                raise ValueError(f"a second {type(order).__name__}")

    def _begin(self, _: object, now: float) -> None:
        for port in self._ports:
            port.pump(now)

    def _tick(self, _: object, now: float) -> None:
        """Keep the driver's loop running while no event is due."""
        self._driver.at(now + _LONGEST_WAIT_S, APPLICATION, self._tick, None)

    def close(self) -> None:
        """Close every socket."""
        self._listener.close()
        for connection in (*self._unidentified, *self._coasts.values()):
            connection.close()

    # -- events of the services ----------------------------------------------------------------------------------------

    def _on_event(self, port: Port, event: Event, now: float) -> None:
        match event:
            case Failed():
                self._channel.send(Broken(reason=f"{port.name}: {event.reason}"))
            case Notice():
                self._notice(port.name, event.kind, event.detail, now)

    def _notice(self, source: str, kind: str, detail: str, now: float) -> None:
        self._channel.send(Noticed(notice=NoticeRecord(source=source, at_s=now, kind=kind, detail=detail)))

    def _transmit(self, number: int, peer: int, datagram: Datagram, now: float) -> None:
        """Send a datagram to the coast of the peer; without a connection to the coast it is lost."""
        coast = self._coasts.get(self._sources[peer])
        if coast is not None:
            coast.send(ControlMessage.of(datagram, service=number, peer=peer, now=now))

    # -- peers --------------------------------------------------------------------------------------------------------

    def _accept(self, now: float) -> None:
        try:
            end, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        if len(self._unidentified) >= MOST_UNIDENTIFIED:
            end.close()
            self._count_refusal("too many at once", now)
            return
        connection = _PeerConnection(self, end)
        self._unidentified.add(connection)
        connection.start()
        self._driver.at(now + HANDSHAKE_S, APPLICATION, self._time_out_identification, connection)

    def _time_out_identification(self, connection: "_PeerConnection", now: float) -> None:
        if connection in self._unidentified:
            connection.close()
            self.on_closed(connection, "it does not say who it is")

    @property
    def context(self) -> ssl.SSLContext:
        """The TLS settings for peers."""
        return self._context

    @property
    def clock(self) -> RealClock:
        """The clock, which watches sockets."""
        return self._clock

    def identified(self, connection: "_PeerConnection", names: frozenset[str]) -> None:
        """Accept a connection with a certificate of this run, which has these names."""
        site = next((site for site in dict.fromkeys(self._sources) if site_identity(site) in names), None)
        if site is None:
            connection.close()
            self.on_closed(connection, "its certificate speaks for no coast")
            return
        self._unidentified.discard(connection)
        connection.site = site
        before = self._coasts.pop(site, None)
        if before is not None:
            before.close()
        self._coasts[site] = connection

    def on_closed(self, connection: "_PeerConnection", why: str) -> None:
        """Forget a connection that has been closed; count it as refused when it was never identified."""
        if connection in self._unidentified:
            self._unidentified.discard(connection)
            self._count_refusal(why, self._clock.now())
        elif self._coasts.get(connection.site) is connection:
            del self._coasts[connection.site]

    def _count_refusal(self, why: str, now: float) -> None:
        self._refusals[why] = self._refusals.get(why, 0) + 1
        if self._refusals[why] == 1:
            self._notice(self._name, "service-turned-away", f"a peer: {why}", now)

    def _summarise_refusals(self, now: float) -> None:
        for why, count in self._refusals.items():
            self._notice(self._name, "service-turned-away", f"{count} in all: {why}", now)
        if self._rejected:
            self._notice(self._name, "service-rejected", f"{self._rejected} messages in all", now)

    def on_message(self, connection: "_PeerConnection", octets: bytes, now: float) -> None:
        """Take a message from a coast; deliver it to the service when its delay has passed."""
        try:
            message = ControlMessage.decode(octets)
            if message.service >= len(self._ports) or message.peer >= len(self._sources):
                raise MalformedControlError(f"message: there is no service {message.service} for peer {message.peer}")
            if self._sources[message.peer] != connection.site:
                raise MalformedControlError(f"message: {connection.site} does not speak for peer {message.peer}")
        except MalformedControlError as error:
            self._rejected += 1
            if self._rejected == 1:
                self._notice(self._name, "service-rejected", f"from {connection.site}: {error}", now)
            return
        arrives_s = message.arrives_s(self._placed[message.service].delays_s[message.peer], now)
        if arrives_s is not None:
            datagram = Datagram(message.peer, message.payload, message.wire_bytes, arrives_s)
            self._driver.at(arrives_s, ARRIVAL, self._ports[message.service].receive, datagram)


class _PeerConnection:
    """A connection from a peer. site: the coast that it belongs to, "" until it is identified."""

    def __init__(self, process: ServiceProcess, end: socket.socket) -> None:
        self.site = ""
        self._process = process
        self._stream = TlsStream(
            end,
            process.context,
            process.clock,
            server=True,
            on_open=self._on_open,
            on_message=partial(process.on_message, self),
            on_closed=partial(process.on_closed, self),
        )

    def start(self) -> None:
        self._stream.start()

    def _on_open(self, certificate: Mapping[str, Any] | None) -> None:
        self._process.identified(self, identities(certificate))

    def send(self, message: ControlMessage) -> None:
        if self._stream.is_open:
            self._stream.send(bytes(message))

    def close(self) -> None:
        self._stream.close()


def _ignore(_: object, now: float) -> None:
    """Do nothing: this event only wakes the driver's loop, which then stops."""


def main() -> int:
    """Serve the coordinator at the other end of the socket."""
    return work(
        SERVICE_NEWS,
        SERVICE_ORDERS,
        ServicePlan,
        lambda plan, channel: ServiceProcess(plan, channel, Registry.installed()),
        place=lambda plan: f"the services of {plan.address.transport}",
        priority=_PRIORITY,
    )


if __name__ == "__main__":
    sys.exit(main())
