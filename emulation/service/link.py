"""A coast's connection to the services of one transport: an authenticated stream, opened again when it breaks.

Datagrams that are sent while there is no stream wait for the next one, and are lost when that takes too long.
"""

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bicoastal.emulation.driver import APPLICATION, ARRIVAL, Driver, Transmit
from bicoastal.emulation.processes.coordination import ServiceAddress
from bicoastal.emulation.processes.credentials import identities, service_identity, tls_context
from bicoastal.emulation.realtime.real_clock import RealClock
from bicoastal.emulation.service.control import LATEST_S, ControlMessage, MalformedControlError
from bicoastal.emulation.service.tls_stream import TlsStream
from bicoastal.emulation.traffic.flows import Flow
from bicoastal.transports.base import Datagram
from bicoastal.wan.topology import Topology

FIRST_RETRY_S, LONGEST_RETRY_S = 0.05, 0.4
_MOST_WAITING = 1024

Receive = Callable[[Datagram, float], None]
Noticed = Callable[[str, str, str, float], None]  # source, kind, detail, now


class ServiceLink:
    """One coast's connection. flows: all flows of the transport, in peer order. rejected: invalid messages received.

    noticed: called when the stream is lost and when it is back. Raises OSError for unusable credentials.
    """

    def __init__(
        self,
        address: ServiceAddress,
        site: str,
        flows: Sequence[Flow],
        topology: Topology,
        *,
        driver: Driver,
        clock: RealClock,
        noticed: Noticed,
    ) -> None:
        self._address = address
        self._site = site
        self._peers = {flow.name: peer for peer, flow in enumerate(flows)}
        self._delays_s = [topology.least_delay_s(site, service_site) for service_site in address.sites]
        self._context = tls_context(address.credentials, server=False)
        self._driver, self._clock, self._noticed = driver, clock, noticed
        self._receivers: dict[int, Receive] = {}
        self._stream: TlsStream | None = None
        self._waiting: deque[ControlMessage] = deque(maxlen=_MOST_WAITING)
        self._retries = 0
        self._lost = False
        self._closed = False
        self.rejected = 0

    def join(self, flow: str, receive: Receive) -> Mapping[int, Transmit]:
        """Connect a flow's machine; return its routes to the services, by path_id."""
        peer = self._peers[flow]
        self._receivers[peer] = receive
        return {-1 - number: partial(self._transmit, number, peer) for number in range(len(self._address.sites))}

    def _transmit(self, number: int, peer: int, datagram: Datagram, now: float) -> None:
        message = ControlMessage.of(datagram, service=number, peer=peer, now=now)
        if self._stream is not None and self._stream.is_open:
            self._stream.send(bytes(message))
        else:
            self._waiting.append(message)

    # -- the stream ---------------------------------------------------------------------------------------------------

    def open(self, now: float) -> None:
        """Open the stream now, and again whenever it breaks."""
        self._connect(None, now)

    def _connect(self, _: object, now: float) -> None:
        if self._closed:
            return
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        end.setblocking(False)
        if number := end.connect_ex(self._address.socket):
            end.close()
            self._broken("nobody listens" if number == errno.ECONNREFUSED else os.strerror(number))
            return
        self._stream = TlsStream(
            end,
            self._context,
            self._clock,
            server=False,
            on_open=self._on_open,
            on_message=self._on_message,
            on_closed=self._broken,
        )
        self._stream.start()

    def _on_open(self, certificate: Mapping[str, Any] | None) -> None:
        stream = self._stream
        assert stream is not None
        if service_identity(self._address.transport) not in identities(certificate):
            stream.close()
            self._broken("who listens is not the service")
            return
        oldest_s = self._clock.now() - LATEST_S
        while self._waiting and stream.is_open:
            message = self._waiting.popleft()
            if message.sent_s >= oldest_s:
                stream.send(bytes(message))

    def _broken(self, why: str) -> None:
        self._stream = None
        now = self._clock.now()
        if not self._lost:
            self._lost = True
            self._noticed(self._name, "service-lost", why, now)
        wait_s = min(FIRST_RETRY_S * 2.0 ** min(self._retries, 8), LONGEST_RETRY_S)
        self._retries += 1
        self._driver.at(now + wait_s, APPLICATION, self._connect, None)

    @property
    def _name(self) -> str:
        return f"{self._site}:{self._address.transport}"

    # -- messages from services
    # -------------------------------------------------------------------------------------------

    def _on_message(self, octets: bytes, now: float) -> None:
        self._retries = 0
        if self._lost:
            self._lost = False
            self._noticed(self._name, "service-back", "it answers", now)
        try:
            message = ControlMessage.decode(octets)
        except MalformedControlError:
            self.rejected += 1
            return
        receive = self._receivers.get(message.peer)
        if receive is None or message.service >= len(self._delays_s):
            self.rejected += 1
            return
        arrives_s = message.arrives_s(self._delays_s[message.service], now)
        if arrives_s is not None:
            datagram = Datagram(-1 - message.service, message.payload, message.wire_bytes, arrives_s)
            self._driver.at(arrives_s, ARRIVAL, receive, datagram)

    def close(self) -> None:
        """Close the stream for good."""
        self._closed = True
        if self._stream is not None:
            self._stream.close()
            self._stream = None
