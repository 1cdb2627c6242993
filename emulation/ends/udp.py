"""Our transports over real UDP: a sans-IO machine, its sockets, and the token that keeps strangers out.

A datagram's octets travel behind the run's token in a UDP datagram. What of this the machine does not count itself is
taken off the MTU that it is told, so that what it calls a full packet is a full packet on the wire.

What a machine draws are keys, tokens and first sequence numbers. Here, where strangers may send, none of them follows
from the scenario's seed: the system's generator gives them.
"""

import errno
import socket
from collections.abc import Callable
from functools import partial
from random import SystemRandom

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.driver import Port
from bicoastal.emulation.ends.flow_end import EndContext, FlowEnd
from bicoastal.emulation.flows import path_views
from bicoastal.emulation.ledger import Tally
from bicoastal.emulation.relay.frames import burst_to_tos
from bicoastal.transports.base import Datagram, Endpoint, EndpointContext, Sample
from bicoastal.transports.events import Connected, Event, Failed, MessageReceived, Notice
from bicoastal.transports.registry import TransportSpec

TOKEN_BYTES = 8
IP_BYTES, UDP_BYTES = 20, 8  # their headers: RFC 791, RFC 768
HEADERS_BYTES = IP_BYTES + UDP_BYTES
_CLIENT_OFFSET = 20_000  # of clients' ports: the other direction's server has the same port on the same address
AT_ONCE = 32  # datagrams that are taken from one socket before the others' turn
_BUFFER_BYTES = 64 << 20
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # past net.core.{w,r}mem_max: socket(7)


def enlarge_buffers(sock: socket.socket) -> None:
    """Give a socket room for what arrives while its process is busy; an ordinary user gets what the machine allows."""
    for force, option in ((_SO_RCVBUFFORCE, socket.SO_RCVBUF), (_SO_SNDBUFFORCE, socket.SO_SNDBUF)):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force, _BUFFER_BYTES)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)


def counted_bytes(transport: TransportSpec) -> int:
    """Return which headers a machine of `transport` counts besides its datagrams' payloads: IP's, or UDP's too."""
    return HEADERS_BYTES if transport.over == "udp" else IP_BYTES


def encapsulation_bytes(transport: TransportSpec) -> int:
    """Return what is added to each packet of `transport` that its machines do not count."""
    return HEADERS_BYTES + TOKEN_BYTES - counted_bytes(transport)


class UdpEnd(FlowEnd):
    """A machine with one socket for each path. Raises UnsupportedError where a path is too narrow for it."""

    def __init__(self, context: EndContext) -> None:
        flow = context.flow
        if flow.transport.make_endpoint is None:
            raise UnsupportedError(f"{flow.transport.name} makes no endpoints")
        self._context = context
        self._token = context.token
        self._strangers = 0
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
        """Take what the kernel has no room for as lost, which it is; anything else is the end."""
        if not isinstance(error, BlockingIOError | ConnectionRefusedError) and error.errno != errno.ENOBUFS:
            self._context.listener.failed(f"{self._port.name}: a datagram cannot be sent: {error.strerror}")

    def _receive(self, sock: socket.socket, path_id: int, mtu_bytes: int, now: float) -> None:
        port, token, clock = self._port, self._token, self._context.clock
        for _ in range(AT_ONCE):
            try:
                octets = sock.recv(mtu_bytes)
            except BlockingIOError:
                return
            except ConnectionRefusedError:  # nobody listened to what was sent; the machine will notice
                continue
            if octets[:TOKEN_BYTES] != token:
                self._strangers += 1
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
        """Let the machine begin."""
        self._port.pump(now)

    def send(self, message_id: int, data: memoryview, now: float) -> None:
        """Offer a message to the machine."""
        self._machine.send_message(message_id, data, now)
        self._port.pump(now)

    def tally(self) -> Tally:
        """Return what the machine has counted; datagrams without the token are rejected ones."""
        counted = Tally.of(self._port.wire_bytes, self._machine.counters())
        return counted.plus_rejected(self._strangers)

    def sample(self, now: float) -> Sample:
        """Return the machine's."""
        return self._machine.sample(now)

    def close(self) -> None:
        """Close the sockets."""
        while self._sockets:
            sock = self._sockets.pop()
            self._context.clock.on_readable(sock.fileno(), None)
            sock.close()
