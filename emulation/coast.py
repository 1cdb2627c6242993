"""One coast's part in a job, whatever the world: what it hands to which flow, and what it makes of what arrives."""

from collections.abc import Sequence
from typing import NamedTuple

from emulation.flows import Flow, message_id, stripe, trip_of
from transports.events import Buffer
from wan.allreduce import AllReduceSpec, Coast, Outgoing


class Send(NamedTuple):
    """A message part to be offered to a flow now."""

    flow: Flow
    message_id: int
    data: memoryview


class CoastSession:
    """The all-reduce of one coast over its flows: stripes messages over `outgoing`, joins what `incoming` deliver."""

    def __init__(self, spec: AllReduceSpec, site: str, *, outgoing: Sequence[Flow], incoming: Sequence[Flow]) -> None:
        self._coast = Coast(spec, site)
        self._outgoing = outgoing
        self._incoming = {flow.name: flow for flow in incoming}
        self._trips = {
            message.trip: _Trip(stripe(message.payload_bytes, incoming[0].weights))
            for message in spec.messages
            if message.destination == site
        }
        self._iteration = -1

    def begin(self, iteration: int) -> list[Send]:
        """Reduce inside the coast and return what is to be sent first."""
        self._iteration = iteration
        for trip in self._trips.values():
            trip.begin()
        return self._stripe(self._coast.begin(iteration))

    def receive(self, flow: str, identifier: int, data: Buffer) -> list[Send]:
        """Take what a flow delivered; return what is to be sent because of it.

        Raises ValueError for a message that does not belong to this iteration, has come before, or has another size.
        """
        iteration, number = trip_of(identifier)
        index = self._incoming[flow].index
        trip = self._trips.get(number)
        if iteration != self._iteration or trip is None or index not in trip.awaited:
            raise ValueError(f"{flow} delivered message {identifier} in iteration {self._iteration}, out of turn")
        if len(data) != trip.size(index):
            raise ValueError(
                f"{flow} delivered {len(data)} bytes as message {identifier} instead of {trip.size(index)}"
            )
        whole = trip.take(index, data)
        return [] if whole is None else self._stripe(self._coast.receive(number, whole))

    @property
    def finished(self) -> bool:
        """Whether this coast has everything it waits for."""
        return self._coast.finished

    def verify(self) -> bool:
        """Gather inside the coast and compare every rank's result with the true sum."""
        return self._coast.verify()

    def _stripe(self, messages: Sequence[Outgoing]) -> list[Send]:
        sends = []
        for trip, data in messages:
            edges = stripe(len(data), self._outgoing[0].weights)
            for flow in self._outgoing:
                start, stop = edges[flow.index]
                sends.append(Send(flow, message_id(self._iteration, trip), data[start:stop]))
        return sends


class _Trip:
    """A message on its way to this coast: which stripes are still awaited, and the room where they come together.

    The room is used again in every iteration (fresh pages would cost more than the copy), and there is none where one
    flow brings the whole message.
    """

    __slots__ = ("_edges", "_room", "awaited")

    def __init__(self, edges: Sequence[tuple[int, int]]) -> None:
        self._edges = edges
        self._room = memoryview(bytearray(edges[-1][1] if len(edges) > 1 else 0))
        self.awaited: set[int] = set()

    def begin(self) -> None:
        self.awaited = set(range(len(self._edges)))

    def size(self, index: int) -> int:
        start, stop = self._edges[index]
        return stop - start

    def take(self, index: int, data: Buffer) -> memoryview | None:
        """Put a stripe in its place; return the message when this was the last of it."""
        self.awaited.remove(index)
        if len(self._edges) == 1:
            return memoryview(data)
        start, stop = self._edges[index]
        self._room[start:stop] = data
        return None if self.awaited else self._room
