"""The kernel's TCP at a rate that a pacer sets, which communicates with the transport's services.

Only the pacing rate limits a connection. Its window begins as large as the kernel allows, and idle time does not reduce
it. So after a loss, which the kernel takes for congestion, the window is still larger than what the path holds.
"""

import socket
from functools import partial

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.driver import APPLICATION, Port
from bicoastal.emulation.ends.flow_end import EndContext
from bicoastal.emulation.ends.kernel_options import LARGEST_INITIAL_WINDOW, set_initial_windows, set_pacing_rate
from bicoastal.emulation.ends.kernel_tcp import HEADER_BYTES, KernelTcpEnd
from bicoastal.emulation.streams import stream
from bicoastal.emulation.traffic.flows import path_views
from bicoastal.transports.base import EndpointContext, Pacer
from bicoastal.transports.events import Connected, Event, Failed, Notice

_POLL_S = 0.005
_LEAST_MSS_BYTES = 536  # RFC 9293 §3.7.1, until the connection's own is known


class SteeredTcpEnd(KernelTcpEnd):
    """See the module's text. Raises UnsupportedError where the transport has no pacer, or routes cannot be changed."""

    def __init__(self, context: EndContext, *, congestion_control: str) -> None:
        super().__init__(context, congestion_control=congestion_control)
        flow = context.flow
        if flow.transport.make_pacer is None:
            raise UnsupportedError(f"{flow.transport.name} makes no pacers")
        set_initial_windows(context.ends[0], LARGEST_INITIAL_WINDOW)
        self._pacer: Pacer | None = None
        self._port: Port | None = None
        self._kernel_connected = self._pacer_connected = False
        self._offered_bytes = 0  # headers included, since the connection was made
        self._polling = False
        if context.role == "server":
            return
        self._pacer = flow.transport.make_pacer(
            EndpointContext(
                role=context.role,
                flow=flow.id,
                paths=path_views(context.topology, flow.paths),
                rng=stream(context.seed, f"flow/{flow.name}/{context.role}"),
                parameters=flow.parameters,
            )
        )
        self._port = Port(context.driver, self.name, self._pacer, self._on_event)
        if context.services is not None:
            self._port.routes = context.services.join(flow.name, self._port.receive)

    # -- the pace -----------------------------------------------------------------------------------------------------

    def _on_event(self, port: Port, event: Event, now: float) -> None:
        match event:
            case Connected():
                self._pacer_connected = True
                self._tell_connected(now)
            case Failed():
                self.context.listener.failed(f"{self.name}: {event.reason}")
            case Notice():
                self.context.listener.noticed(self.name, event.kind, event.detail, now)
        if self._connection is not None:
            self._pace(self._connection)

    def prepare(self, connection: socket.socket) -> None:
        """Set the pacing rate of a new connection."""
        self._pace(connection)

    def _pace(self, connection: socket.socket) -> None:
        """Set the rate without headers, framing and encapsulation, since the kernel counts payload."""
        if self._pacer is not None:
            info = self.read_info(connection)
            mss_bytes = max(info.mss_bytes, _LEAST_MSS_BYTES)
            set_pacing_rate(connection, self._pacer.rate_bps * mss_bytes / (mss_bytes + self.header_bytes))

    # -- the connection -----------------------------------------------------------------------------------------------

    def open(self, now: float) -> None:
        """Connect, and start the pacer."""
        super().open(now)
        if self._port is not None:
            self._port.pump(now)

    def connected(self, now: float) -> None:
        """The kernel's handshake is complete, so the MSS is known."""
        self._kernel_connected = True
        if self._connection is not None:
            self._pace(self._connection)
        self._tell_connected(now)

    def _tell_connected(self, now: float) -> None:
        if self._kernel_connected and self._pacer_connected:
            super().connected(now)

    # -- a burst ------------------------------------------------------------------------------------------------------

    def send(self, message_id: int, data: memoryview, now: float) -> None:
        """Announce a burst to the pacer, and give it to the kernel."""
        info = self.info()
        if self._pacer is not None and self._port is not None and info is not None:
            self._offered_bytes = max(self._offered_bytes, info.bytes_acked) + HEADER_BYTES + len(data)
            self._pacer.announce(self._offered_bytes - info.bytes_acked, now)
            self._port.pump(now)
            if not self._polling:
                self._polling = True
                self.context.driver.at(now + _POLL_S, APPLICATION, self._poll, None)
        super().send(message_id, data, now)

    def _poll(self, _: object, now: float) -> None:
        """Tell the pacer that the burst is over when everything is acknowledged; other flows can then use its rate."""
        info = self.info()
        if info is None or self._pacer is None or self._port is None:
            self._polling = False
            return
        if info.bytes_acked < self._offered_bytes:
            self.context.driver.at(now + _POLL_S, APPLICATION, self._poll, None)
            return
        self._polling = False
        self._pacer.announce(0, now)
        self._port.pump(now)


cubic_end = partial(SteeredTcpEnd, congestion_control="cubic")
