"""Sans-IO transports over real UDP: a machine, its sockets, and the token that identifies the run's packets.

The octets of a datagram follow the run's token in a UDP datagram. The MTU that the machine is told is smaller by the
bytes that it does not count itself, so that a full packet of the machine is a full packet on the wire.

A machine draws keys, tokens and first sequence numbers. Other processes may send packets here, so these values come
from the system's generator and not from the scenario's seed.
"""

import errno
import socket
from collections.abc import Callable
from functools import partial
from random import SystemRandom

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.driver import Port
from bicoastal.emulation.ends.flow_end import EndContext, FlowEnd
from bicoastal.emulation.relay.frames import burst_to_tos
from bicoastal.emulation.traffic.flows import path_views
from bicoastal.emulation.traffic.ledger import Tally
from bicoastal.transports.base import Counters, Datagram, Endpoint, EndpointContext, Sample
from bicoastal.transports.events import Connected, Event, Failed, MessageReceived, Notice
from bicoastal.transports.registry import TransportSpec

TOKEN_BYTES = 8
IP_BYTES, UDP_BYTES = 20, 8  # their headers: RFC 791, RFC 768
HEADERS_BYTES = IP_BYTES + UDP_BYTES
_CLIENT_OFFSET = 20_000  # of clients' ports, since the server of the other direction uses the same port and address
AT_ONCE = 32  # datagrams taken from one socket before the next one is served
_BUFFER_BYTES = 64 << 20
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # past net.core.{w,r}mem_max: socket(7)


def enlarge_buffers(sock: socket.socket) -> None:
    """Enlarge the buffers for datagrams that arrive while the process is busy; the machine limits ordinary users."""
    for force, option in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, _BUFFER_BYTES)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)


def counted_bytes(transport: TransportSpec) -> int:
    """Return the size of the headers that `transport` counts in `wire_bytes`: IP, or IP and UDP."""
    return HEADERS_BYTES if transport.over == "udp" else IP_BYTES


def encapsulation_bytes(transport: TransportSpec) -> int:
    """Return the bytes that are added to each packet of `transport` and that its machines do not count."""
    return HEADERS_BYTES + TOKEN_BYTES - counted_bytes(transport)


class UdpEnd(FlowEnd):
    """A machine with one socket for each path. Raises UnsupportedError where a path is too narrow for it."""

    def __init__(self, context: EndContext) -> None:
        flow = context.flow
        if flow.transport.make_endpoint is None:
            raise UnsupportedError(f"{flow.transport.name} makes no endpoints")
        self._context = context
        self._token = context.token
        self._without_token = 0
        self._counted_bytes = counted_bytes(flow.transport)
        around_bytes = encapsulation_bytes(flow.transport)
        views = path_views(context.topology, flow.paths, encapsulation_bytes=around_bytes)
        least_bytes = flow.transport.min_mtu_bytes + around_bytes
        for name in flow.paths:
            if (mtu_bytes := context.topology.path_mtu_bytes(name)) < least_bytes:
                raise UnsupportedError(
                    f"{flow.transport.name} over UDP needs packets of {least_bytes} bytes; {name} takes {mtu_bytes}"
                )
        machine = flow.transport.make_endpoint(
            EndpointContext(
                role=context.role,
                flow=flow.id,
                paths=views,
                rng=SystemRandom(),
                parameters=flow.parameters,
                secret=context.secret,
            )
        )
        self._machine: Endpoint = machine
        self._port = Port(context.driver, f"{flow.name}:{context.role}", machine, self._on_event)
        self._sockets: list[socket.socket] = []
        routes: dict[int, Callable[[Datagram, float], None]] = {}
        for view, name, end in zip(views, flow.paths, context.ends, strict=True):
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._sockets.append(sock)
            enlarge_buffers(sock)
            sock.setblocking(False)
            ports = (context.port, context.port + _CLIENT_OFFSET)
            ours, theirs = ports if context.role == "server" else ports[::-1]
            sock.bind((end.address, ours))
            sock.connect((end.peer_address, theirs))
            added_bytes = HEADERS_BYTES + TOKEN_BYTES + context.added_bytes(name)
            send = self._send_marked if context.marks_bursts else self._send
            routes[view.path_id] = partial(send, sock, added_bytes)
            context.clock.on_readable(sock.fileno(), partial(self._receive, sock, view.path_id, view.mtu_bytes))
        if context.services is not None and context.role == "client":
            routes |= context.services.join(flow.name, self._port.receive)
        self._port.routes = routes

    # -- datagrams ----------------------------------------------------------------------------------------------------

    def _send(self, sock: socket.socket, added_bytes: int, datagram: Datagram, now: float) -> None:
        octets = self._token + bytes(datagram.payload)
        self._port.wire_bytes += added_bytes + len(octets) - TOKEN_BYTES
        try:
            sock.send(octets)
        except OSError as error:
            self._refused(error)

    def _send_marked(self, sock: socket.socket, added_bytes: int, datagram: Datagram, now: float) -> None:
        octets = self._token + bytes(datagram.payload)
        self._port.wire_bytes += added_bytes + len(octets) - TOKEN_BYTES
        tos = burst_to_tos(datagram.burst_left, datagram.ecn)
        try:
            sock.sendmsg([octets], [(socket.IPPROTO_IP, socket.IP_TOS, bytes([tos]))])
        except OSError as error:
            self._refused(error)

    def _refused(self, error: OSError) -> None:
        """Treat a datagram for which the kernel has no room as lost; report any other error as a failure."""
        if not isinstance(error, BlockingIOError | ConnectionRefusedError) and error.errno != errno.ENOBUFS:
            self._context.listener.failed(f"{self._port.name}: a datagram cannot be sent: {error.strerror}")

    def _receive(self, sock: socket.socket, path_id: int, mtu_bytes: int, now: float) -> None:
        port, token, clock = self._port, self._token, self._context.clock
        for _ in range(AT_ONCE):
            try:
                octets = sock.recv(mtu_bytes)
            except BlockingIOError:
                return
            except ConnectionRefusedError:  # the far end was not listening; the machine will repeat its datagram
                continue
            if octets[:TOKEN_BYTES] != token:
                self._without_token += 1
                continue
            payload = octets[TOKEN_BYTES:]
            port.receive(Datagram(path_id, payload, len(payload) + self._counted_bytes, now), now)
            now = clock.now()

    # -- events -------------------------------------------------------------------------------------------------------

    def _on_event(self, port: Port, event: Event, now: float) -> None:
        listener, flow, client = self._context.listener, self._context.flow.name, self._context.role == "client"
        match event:
            case MessageReceived() if client:
                listener.failed(f"{port.name} delivered message {event.message_id} to its own sender")
            case MessageReceived():
                listener.delivered(flow, event.message_id, event.data, now)
            case Connected() if client:
                listener.connected(flow, now)
            case Failed():
                listener.failed(f"{port.name}: {event.reason}")
            case Notice():
                listener.noticed(port.name, event.kind, event.detail, now)

    # -- what the coast's process asks --------------------------------------------------------------------------------

    def open(self, now: float) -> None:
        """Begin the handshake."""
        self._port.pump(now)

    def send(self, message_id: int, data: memoryview, now: float) -> None:
        """Offer a message to the machine."""
        self._machine.send_message(message_id, data, now)
        self._port.pump(now)

    def tally(self) -> Tally:
        """Return what the machine has counted. Datagrams without the token count as rejected."""
        counters = self._machine.counters() + Counters(rejected=self._without_token)
        return Tally(wire_bytes=self._port.wire_bytes, counters=counters)

    def sample(self, now: float) -> Sample:
        """Return the machine's present sample."""
        return self._machine.sample(now)

    def close(self) -> None:
        """Close the sockets."""
        while self._sockets:
            sock = self._sockets.pop()
            self._context.clock.on_readable(sock.fileno(), None)
            sock.close()
