"""How the simulator carries datagrams: over the links of a path, or over the control path to a service."""

from collections import deque
from collections.abc import Sequence

from bicoastal.emulation.driver import ARRIVAL, Driver, EventQueue, Port, Transmit
from bicoastal.emulation.links.corruption import flip_bit
from bicoastal.emulation.links.directed_link import DirectedLink
from bicoastal.transports.base import Datagram
from bicoastal.wan.link import Arrival


class Wire:
    """The model of one direction of a link, shared by every route across it.

    queue: the packets on their way, in the order in which they arrive.
    """

    __slots__ = ("directed", "has_outages", "link", "queue")

    def __init__(self, directed: DirectedLink, seed: int) -> None:
        self.directed = directed
        self.link = directed.model(seed)
        self.queue: EventQueue = deque()
        self.has_outages = directed.has_outages


class Route:
    """One direction of a path: a datagram crosses its links one after another and arrives at the target port.

    overhead_bytes: what encapsulation adds to each packet between the path's ends; neither endpoint sees it. The source
    port counts the packet, its encapsulation and the framing of the first link as bytes on the wire. It counts them
    once, for any number of links. eager: payloads travel as the octets they stand for.
    """

    __slots__ = ("_added_bytes", "_eager", "_first_hop", "_overhead_bytes", "_source", "_target")

    def __init__(
        self, driver: Driver, wires: Sequence[Wire], *, overhead_bytes: int, source: Port, target: Port, eager: bool
    ) -> None:
        self._overhead_bytes = overhead_bytes
        self._added_bytes = wires[0].link.spec.framing_bytes + overhead_bytes
        self._source = source
        self._target = target
        self._eager = eager
        onward: Transmit = self._decapsulate if overhead_bytes else target.receive
        for wire in reversed(wires):
            onward = _Hop(driver, wire, onward).transmit
        self._first_hop = onward

    def transmit(self, datagram: Datagram, now: float) -> None:
        """Put a datagram on the first link."""
        self._source.wire_bytes += datagram.wire_bytes + self._added_bytes
        if self._eager:
            datagram = datagram._replace(payload=bytes(datagram.payload))
        if self._overhead_bytes:
            datagram = datagram._replace(wire_bytes=datagram.wire_bytes + self._overhead_bytes)
        self._first_hop(datagram, now)

    def _decapsulate(self, datagram: Datagram, now: float) -> None:
        self._target.receive(datagram._replace(wire_bytes=datagram.wire_bytes - self._overhead_bytes), now)


class _Hop:
    """The part of a route that crosses one link. onward: the next hop, or the target."""

    __slots__ = ("_driver", "_onward", "_wire")

    def __init__(self, driver: Driver, wire: Wire, onward: Transmit) -> None:
        self._driver = driver
        self._wire = wire
        self._onward = onward

    def transmit(self, datagram: Datagram, now: float) -> None:
        """Submit a datagram to the link; schedule its arrivals, with a flipped bit where the link corrupts them."""
        wire = self._wire
        for arrival in wire.link.submit(datagram, now):
            if arrival.corrupt is None and not wire.has_outages:
                self._driver.at_in(wire.queue, arrival.at_s, ARRIVAL, self._onward, datagram)
            else:
                self._driver.at_in(wire.queue, arrival.at_s, ARRIVAL, self._arrive, (datagram, arrival, now))

    def _arrive(self, argument: tuple[Datagram, Arrival, float], now: float) -> None:
        datagram, arrival, submitted_s = argument
        wire = self._wire
        if wire.has_outages and not wire.link.survives(submitted_s, arrival.at_s):
            return
        if arrival.corrupt is not None:
            datagram = datagram._replace(payload=flip_bit(bytes(datagram.payload), arrival.corrupt))
        self._onward(datagram, now)


class ControlRoute:
    """The route between an endpoint and a service: reliable, in order, late by the propagation to the service's site.

    It is a separate network: the links' rates, losses and outages do not apply, and its bytes do not count as on the
    wire. path_id: the number under which the receiver knows the sender. eager: as for `Route`.
    """

    __slots__ = ("_delay_s", "_driver", "_eager", "_path_id", "_target")

    def __init__(self, driver: Driver, *, delay_s: float, target: Port, path_id: int, eager: bool) -> None:
        self._driver = driver
        self._delay_s = delay_s
        self._target = target
        self._path_id = path_id
        self._eager = eager

    def transmit(self, datagram: Datagram, now: float) -> None:
        """Deliver a control datagram, with the path_id under which its receiver knows the sender."""
        payload = bytes(datagram.payload) if self._eager else datagram.payload
        arriving = datagram._replace(path_id=self._path_id, payload=payload)
        self._driver.at(now + self._delay_s, ARRIVAL, self._target.receive, arriving)
