"""One end of a flow in real time: a sans-IO transport over UDP, or a program such as the kernel's TCP.

A coast's process makes the ends, opens them, offers messages to them, and is told of what arrives.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from bicoastal.emulation.driver import Driver
from bicoastal.emulation.processes.coordination import PathEnd
from bicoastal.emulation.realtime.real_clock import RealClock
from bicoastal.emulation.service.link import ServiceLink
from bicoastal.emulation.traffic.flows import Flow
from bicoastal.emulation.traffic.ledger import Tally
from bicoastal.transports.base import Sample
from bicoastal.transports.events import Buffer
from bicoastal.wan.topology import Topology


class Listener(Protocol):
    """Receives the events of an end."""

    def connected(self, flow: str, now: float) -> None:
        """The sending end is connected."""

    def delivered(self, flow: str, message_id: int, data: Buffer, now: float) -> None:
        """A whole message has arrived at the receiving end."""

    def failed(self, reason: str) -> None:
        """The end has given up; the reason is one sentence that names it."""

    def noticed(self, source: str, kind: str, detail: str, now: float) -> None:
        """Something happened that is to be recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndContext:
    """What an end is made from.

    role: "client", which sends, or "server". ends: of the flow's paths, in their order. port: the same at both ends;
    other flows may use it on other addresses. token: eight octets, known only to those who see the run's packets.
    secret: known only to the run's processes, and never sent over a path. seed: of the run. services: the client's
    connection to the transport's services, where there are any.
    """

    flow: Flow
    role: Literal["client", "server"]
    topology: Topology
    ends: Sequence[PathEnd]
    port: int
    token: bytes
    secret: bytes = field(repr=False)
    seed: int
    marks_bursts: bool
    driver: Driver
    clock: RealClock
    listener: Listener
    services: ServiceLink | None = None

    @property
    def site(self) -> str:
        """Where the end is."""
        return self.flow.source if self.role == "client" else self.flow.destination

    def added_bytes(self, path: str) -> int:
        """Return the bytes that framing and encapsulation add to each IP packet on the first link of a path."""
        way = self.topology.paths[path]
        link = self.topology.links[way.links[0] if way.sites[0] == self.site else way.links[-1]]
        return link.framing_bytes + way.overhead_bytes


class FlowEnd(ABC):
    """One end of a flow. It binds its sockets when it is made, and sends nothing before `open`."""

    @abstractmethod
    def open(self, now: float) -> None:
        """Begin the handshake."""

    @abstractmethod
    def send(self, message_id: int, data: memoryview, now: float) -> None:
        """Offer a message; only the client sends."""

    @abstractmethod
    def tally(self) -> Tally:
        """Return what this end has counted since it was made."""

    @abstractmethod
    def sample(self, now: float) -> Sample:
        """Return the present point of the time series."""

    def rest(self, now: float) -> None:  # noqa: B027 (most ends have nothing to do)
        """All messages of an iteration have arrived: prepare for the next one."""

    @abstractmethod
    def close(self) -> None:
        """Release every resource."""
