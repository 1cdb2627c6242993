"""The methods of every sans-IO machine, and what it is made from.

A machine has no socket, no clock and no randomness. A caller (the driver of `emulation`, or a test with its own clock)
calls it repeatedly, in this order::

    machine.receive_datagram(datagram, now)      a datagram has arrived
    machine.handle_timer(now)                    get_timer() has passed
    endpoint.send_message(message_id, data, now) the application has something to send

and after each of these calls `datagrams_to_send(now)`, `next_event()` until None, `get_timer()`.
Times are seconds on the caller's clock; they never go back.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple, Protocol, TypeVar

from bicoastal.transports.events import Buffer, Event
from bicoastal.wan.flow_id import FlowId as FlowId  # noqa: PLC0414 (a part of what contexts are made of)
from bicoastal.wan.randomness import Rng as Rng  # noqa: PLC0414 (what machines are given, under the name by which they know it)
from bicoastal.wan.topology import Topology

Parameters = TypeVar("Parameters")


class Encodable(Protocol):
    """A payload that is encoded only where bytes are needed (a socket, a corrupting link)."""

    def __bytes__(self) -> bytes:
        """Return the exact octets of this payload on the wire."""


class Datagram(NamedTuple):
    """One packet to or from a machine. It is a tuple, not a dataclass, because the simulator makes millions of them.

    `path_id`: the path it takes, counted from 0 in the order of the paths the machine was made with. Negative numbers
    address services: -1 is the first, -2 the second. A service sees the peers it talks to as path_id 0, 1, ….
    `payload`: the octets above IP, or an `Encodable` that yields them.
    `wire_bytes`: size of the IP packet, headers included; what the world adds below IP is the link's.
    `depart_at`: when the world is to release it (seconds); a time already past means at once.
    `ecn`: the two ECN bits of the IP header.
    `burst_left`: for the first transmission of a data-bearing packet, how many more such packets of the same burst
    follow on this path; None for everything else. It is not part of the packet: only loss models of a burst's tail
    read it.
    """

    path_id: int
    payload: "bytes | Encodable"
    wire_bytes: int
    depart_at: float
    ecn: int = 0
    burst_left: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathView:
    """What a machine is told about a path. It has to measure rate, delay and loss itself.

    `mtu_bytes` is the largest IP packet that fits, encapsulation already taken off.
    """

    path_id: int
    name: str
    mtu_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One point of an endpoint's time series; None where the transport has no such thing."""

    cwnd_bytes: float | None = None
    in_flight_bytes: float | None = None
    pacing_rate_bps: float | None = None
    srtt_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What an endpoint has counted since it was made; all monotone.

    `repairs` are packets that carry data sent before, for any reason (or redundancy, for codes); `probes`
    those sent to elicit an acknowledgement at the tail; `timeouts` the expiries of a retransmission timer;
    `spurious` the repairs later found needless; `rejected` the datagrams that were malformed or failed a check.
    """

    packets: int = 0
    repairs: int = 0
    probes: int = 0
    timeouts: int = 0
    spurious: int = 0
    rejected: int = 0

    def __add__(self, other: "Counters") -> "Counters":
        """Return what two ends, or two parts of one, have counted together."""
        return Counters(**{name: getattr(self, name) + getattr(other, name) for name in COUNTER_NAMES})

    def __sub__(self, before: "Counters") -> "Counters":
        """Return what has been counted since `before`."""
        return Counters(**{name: getattr(self, name) - getattr(before, name) for name in COUNTER_NAMES})

    def as_dict(self) -> dict[str, int]:
        """Return the counts by their names, in the order of `COUNTER_NAMES`."""
        return {name: getattr(self, name) for name in COUNTER_NAMES}


COUNTER_NAMES = tuple(each.name for each in fields(Counters))


def sum_counters(parts: Iterable[Counters]) -> Counters:
    """Return what all `parts` have counted together; all zero when there are none."""
    return sum(parts, start=Counters())


class Machine(ABC):
    """A sans-IO state machine: every endpoint and every service is one."""

    @abstractmethod
    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        """Take a datagram that arrived at `now`. A malformed one is dropped and counted, and raises nothing."""

    @abstractmethod
    def datagrams_to_send(self, now: float) -> Sequence[Datagram]:
        """Remove and return the datagrams to send; `depart_at` never decreases along one path."""

    @abstractmethod
    def get_timer(self) -> float | None:
        """Return when `handle_timer` is to be called, or None. It must be fast: it is called after every datagram."""

    @abstractmethod
    def handle_timer(self, now: float) -> None:
        """Handle the timer. Afterwards `get_timer()` is in the future, or the machine has something to send."""

    @abstractmethod
    def next_event(self) -> Event | None:
        """Remove and return the oldest event, or None."""


class Endpoint(Machine):
    """One end of a flow. A client begins its handshake with the first `datagrams_to_send`; both ends may send."""

    @abstractmethod
    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        """Queue a whole message. `data` must not change until it is delivered.

        `message_id` is an unsigned 64-bit integer that the far end's `MessageReceived` repeats.
        Raises ValueError when it is not.
        """

    def counters(self) -> Counters:
        """Return what has been counted so far."""
        return Counters()

    def sample(self, now: float) -> Sample:
        """Return the present point of the time series."""
        return Sample()


class Pacer(Machine):
    """Sets the rate of a native transport, whose program carries the data itself and keeps to `rate_bps`.

    It communicates with services only. The event `Connected` means that it has its first usable rate; every later
    change of the rate comes with an event.
    """

    @property
    @abstractmethod
    def rate_bps(self) -> float:
        """The rate at which the program may send, bit/s on the wire, headers and framing included."""

    @abstractmethod
    def announce(self, unsent_bytes: int, now: float) -> None:
        """Take the unsent bytes of a burst that begins or grows; 0 means that the burst is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointContext:
    """What an endpoint, or a pacer, is made from. `role` is "client" (offers the handshake) or "server".

    `flow`: which flow it is, the same at both ends. `parameters`: an instance of the transport's parameter class.
    `secret`: known only to the ends of the run, which use it to recognise each other; None where no other process can
    send packets, as in the simulator.
    """

    role: str
    flow: FlowId
    paths: Sequence[PathView]
    rng: Rng
    parameters: object = None
    secret: bytes | None = field(default=None, repr=False)

    def parameters_as(self, kind: type[Parameters], transport: str) -> Parameters:
        """Return the parameters, which `transport` takes as a `kind`. Raises TypeError for anything else."""
        if not isinstance(self.parameters, kind):
            raise TypeError(f"{transport} is made with {kind.__name__}")
        return self.parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlacement:
    """A machine that serves all flows of a transport, and the site where it runs."""

    name: str
    site: str
    machine: Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceContext:
    """What services are made from: flows are listed in peer order."""

    topology: Topology
    flows: Sequence[FlowId]
    rng: Rng
    parameters: object = None
