"""The kernel's own TCP as transports: sockets of a coast's process, one connection for each flow.

A message is a header (the run's token, the message's number, its length) and its octets. Every connection begins with a
greeting, which is a header alone. It identifies the connection before the first burst. Its acknowledgement announces
the receive window (`initrwnd`, which applies from the first acknowledgement on). A connection without the token is
closed.
"""

import os
import socket
import struct
from collections.abc import Sequence
from functools import partial

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.ends.flow_end import EndContext, FlowEnd
from bicoastal.emulation.ends.tcp_info import TcpInfo, read_tcp_info
from bicoastal.emulation.traffic.ledger import Tally
from bicoastal.transports.base import Counters, Sample
from bicoastal.transports.registry import TransportSpec
from bicoastal.wan.units import INFINITY

_HEADER = struct.Struct("!8sQQ")
HEADER_BYTES = _HEADER.size
TCP_HEADERS_BYTES = 52  # IPv4, TCP, timestamps (RFC 791, 9293, 7323); SACK blocks are not counted
_GREETING = (1 << 64) - 1  # in the place of a message's number
_LARGEST_MESSAGE_BYTES = 1 << 40
_CHUNK_BYTES = 1 << 18
_BACKLOG = 4


class KernelTcpEnd(FlowEnd):
    """One end of a connection of the kernel's TCP.

    congestion_control: its name in the kernel. protocol: of the sockets, 0 for TCP. header_bytes: on the wire for each
    segment, with framing and encapsulation. Raises UnsupportedError where the kernel lacks the congestion control.
    """

    def __init__(self, context: EndContext, *, congestion_control: str, protocol: int = 0) -> None:
        self._context = context
        self._congestion_control = congestion_control
        self._protocol = protocol
        self._clock = context.clock
        end = context.ends[0]
        self._local = (end.address, context.port)
        self._remote = (end.peer_address, context.port)
        self.header_bytes = TCP_HEADERS_BYTES + context.added_bytes(context.flow.paths[0])
        self._past = Tally()  # of closed connections
        self._rejected_connections = 0
        self._connection: socket.socket | None = None
        self._sender: _Sender | None = None
        self._listener: socket.socket | None = None
        self._waiting: list[memoryview] = []
        if context.role == "server":
            self._listener = self._make_socket()
            self.bind_listener(self._listener)
            self._listener.listen(_BACKLOG)
            self._clock.on_readable(self._listener.fileno(), self._accept)

    def bind_listener(self, listener: socket.socket) -> None:
        """Give the listening socket its address."""
        listener.bind(self._local)

    @property
    def name(self) -> str:
        """The name of the end in messages."""
        return f"{self._context.flow.name}:{self._context.role}"

    def _make_socket(self) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, self._protocol)
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion_control.encode("ascii"))
        except OSError as error:
            made.close()
            raise UnsupportedError(
                f"the kernel's {self._congestion_control} cannot be had here: {error.strerror}"
            ) from error
        return made

    # -- the sender ---------------------------------------------------------------------------------------------------

    def open(self, now: float) -> None:
        """Connect when this end is the client."""
        if self._context.role == "client":
            self.connect()

    def connect(self) -> None:
        """Begin a new connection; messages that are offered meanwhile wait for it."""
        connection = self._connection = self._make_socket()
        self.prepare(connection)
        connection.bind((self._local[0], 0))
        connection.connect_ex(self._remote)
        self._clock.on_writable(connection.fileno(), self._connected)

    def prepare(self, connection: socket.socket) -> None:
        """Set options of a new connection before its handshake."""

    def _connected(self, now: float) -> None:
        connection = self._connection
        assert connection is not None
        self._clock.on_writable(connection.fileno(), None)
        if number := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._context.listener.failed(f"{self.name}: {os.strerror(number)}")
            return
        self._sender = _Sender(self, connection)
        self._sender.offer([memoryview(_HEADER.pack(self._context.token, _GREETING, 0))], now)
        self.connected(now)
        self._sender.offer(self._waiting, now)
        self._waiting = []

    def connected(self, now: float) -> None:
        """The kernel's handshake is over."""
        self._context.listener.connected(self._context.flow.name, now)

    def send(self, message_id: int, data: memoryview, now: float) -> None:
        """Give a message to the kernel as fast as it accepts it.

        The header is sent together with the data: alone it would take a segment, and a packet's place in the window.
        """
        header = memoryview(_HEADER.pack(self._context.token, message_id, len(data)))
        if self._sender is None:
            self._waiting += (header, data)
        else:
            self._sender.offer((header, data), now)

    # -- the receiver -------------------------------------------------------------------------------------------------

    def _accept(self, now: float) -> None:
        assert self._listener is not None
        try:
            connection, peer = self._listener.accept()
        except BlockingIOError:
            return
        if peer[0] != self._remote[0]:
            self._rejected_connections += 1
            connection.close()
            return
        connection.setblocking(False)
        _Receiver(self, connection)

    def greeted(self, connection: socket.socket) -> None:
        """Use a connection that has presented the token as the flow's connection."""
        self.retire()
        self._connection = connection

    def rejected_connection(self) -> None:
        """Count a connection that did not present the token."""
        self._rejected_connections += 1

    def retire(self) -> None:
        """Close the present connection and keep its counts."""
        if self._connection is not None:
            self._past = self.tally()
            self._rejected_connections = 0
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._clock.on_readable(self._connection.fileno(), None)
            self._clock.on_writable(self._connection.fileno(), None)
            self._connection.close()
            self._connection = None
            self._sender = None

    # -- what the coast's process asks --------------------------------------------------------------------------------

    @property
    def context(self) -> EndContext:
        """What the end was made from."""
        return self._context

    def info(self) -> TcpInfo | None:
        """Return the kernel's figures of the connection, or None while there is no connection."""
        return None if self._connection is None else self.read_info(self._connection)

    def read_info(self, connection: socket.socket) -> TcpInfo:
        """Return the kernel's figures of a connection."""
        return read_tcp_info(connection)

    def tally(self) -> Tally:
        """Return the kernel's counts: packets are segments with payload, repairs are retransmissions."""
        info = self.info()
        if info is None:
            return self._past + Tally(counters=Counters(rejected=self._rejected_connections))
        counters = Counters(
            packets=info.data_segments_sent,
            repairs=info.retransmissions,
            timeouts=info.timeouts,
            spurious=info.spurious,
            rejected=self._rejected_connections,
        )
        wire_bytes = info.bytes_sent + info.segments_sent * self.header_bytes
        return self._past + Tally(wire_bytes=wire_bytes, counters=counters)

    def sample(self, now: float) -> Sample:
        """Return the present sample from the kernel's figures."""
        info = self.info()
        if info is None:
            return Sample()
        pacing_bps = info.pacing_rate_bps
        return Sample(
            cwnd_bytes=float(info.cwnd_segments * info.mss_bytes),
            in_flight_bytes=float(info.in_flight_segments * info.mss_bytes),
            pacing_rate_bps=None if pacing_bps == INFINITY else pacing_bps,
            srtt_s=info.rtt_s,
        )

    def close(self) -> None:
        """Close every socket."""
        self._drop()
        if self._listener is not None:
            self._clock.on_readable(self._listener.fileno(), None)
            self._listener.close()
            self._listener = None


class _Sender:
    """Writes to a connection as fast as the kernel accepts data."""

    def __init__(self, end: KernelTcpEnd, connection: socket.socket) -> None:
        self._end = end
        self._connection = connection
        self._parts: list[memoryview] = []
        self._watching = False

    def offer(self, parts: Sequence[memoryview], now: float) -> None:
        self._parts += parts
        if not self._watching:
            self._write(now)

    def _write(self, now: float) -> None:
        try:
            while self._parts:
                sent = self._connection.sendmsg(self._parts)
                while self._parts and sent >= len(self._parts[0]):
                    sent -= len(self._parts.pop(0))
                if sent:
                    self._parts[0] = self._parts[0][sent:]
        except BlockingIOError:
            pass
        except OSError as error:
            self._parts.clear()
            self._end.context.listener.failed(f"{self._end.name}: {error.strerror}")
        if bool(self._parts) != self._watching:
            self._watching = not self._watching
            self._end.context.clock.on_writable(self._connection.fileno(), self._write if self._watching else None)


class _Receiver:
    """Reads messages from a connection. Its headers must contain the token."""

    def __init__(self, end: KernelTcpEnd, connection: socket.socket) -> None:
        self._end = end
        self._connection = connection
        self._header = bytearray(HEADER_BYTES)
        self._greeted = False
        self._message_id = 0
        self._data: bytearray | None = None
        self._room = memoryview(self._header)
        end.context.clock.on_readable(connection.fileno(), self._receive)

    def _receive(self, now: float) -> None:
        try:
            got = self._connection.recv_into(self._room[:_CHUNK_BYTES])
        except BlockingIOError:
            return
        except OSError:
            got = 0
        if not got:  # the far end has closed it: the run is over, or a new connection follows
            self._stop_reading(keep=self._greeted)
            return
        self._room = self._room[got:]
        if not self._room:
            self._on_complete(now)

    def _on_complete(self, now: float) -> None:
        """Handle a complete header or message."""
        if self._data is not None:
            self._deliver(self._data, now)
            return
        token, self._message_id, length = _HEADER.unpack(self._header)
        if token != self._end.context.token or length > _LARGEST_MESSAGE_BYTES:
            self._end.rejected_connection()
            self._stop_reading(keep=False)
            return
        if not self._greeted:
            self._greeted = True
            self._end.greeted(self._connection)
            self._end.context.clock.on_readable(self._connection.fileno(), self._receive)
        if self._message_id == _GREETING:
            self._room = memoryview(self._header)
        elif length == 0:
            self._deliver(bytearray(), now)
        else:
            self._data = bytearray(length)
            self._room = memoryview(self._data)

    def _deliver(self, data: bytearray, now: float) -> None:
        self._data, self._room = None, memoryview(self._header)
        self._end.context.listener.delivered(self._end.context.flow.name, self._message_id, data, now)

    def _stop_reading(self, *, keep: bool) -> None:
        """Stop reading the connection; keep it open for its figures when it was the flow's connection."""
        self._end.context.clock.on_readable(self._connection.fileno(), None)
        if not keep:
            self._connection.close()


def _kernel(name: str, congestion_control: str, *, colour: str, marker: str) -> TransportSpec:
    return TransportSpec(
        name=name,
        kind="native",
        paths="one",
        description=f"The kernel's own TCP with {congestion_control}, one connection for each plane",
        requires=frozenset({f"kernel {congestion_control}"}),
        program=f"bicoastal.emulation.ends.kernel_tcp:{congestion_control}_end",
        colour=colour,
        marker=marker,
    )


reno_end = partial(KernelTcpEnd, congestion_control="reno")
cubic_end = partial(KernelTcpEnd, congestion_control="cubic")
bbr_end = partial(KernelTcpEnd, congestion_control="bbr")

KERNEL_RENO = _kernel("kernel-reno", "reno", colour="#9ecae1", marker="v")
KERNEL_CUBIC = _kernel("kernel-cubic", "cubic", colour="#fdae6b", marker="^")
KERNEL_BBR = _kernel("kernel-bbr", "bbr", colour="#bcbddc", marker="s")
