"""One coast's part in a job, for every world: what it sends on which flow, and what it does with arrivals."""

from collections.abc import Sequence
from typing import NamedTuple

from bicoastal.emulation.traffic.flows import Flow, message_id, stripe, trip_of
from bicoastal.transports.events import Buffer
from bicoastal.wan.allreduce import AllReduceSpec, Coast, Outgoing


class Send(NamedTuple):
    """A part of a message that is to be offered to a flow now."""

    flow: Flow
    message_id: int
    data: memoryview


class CoastSession:
    """The all-reduce of one coast over its flows: it stripes messages over `outgoing` and receives from `incoming`."""

    def __init__(self, spec: AllReduceSpec, site: str, *, outgoing: Sequence[Flow], incoming: Sequence[Flow]) -> None:
        self._coast = Coast(spec, site)
        self._outgoing = outgoing
        self._incoming = {flow.name: flow for flow in incoming}
        self._edges = {
            message.trip: stripe(message.payload_bytes, incoming[0].capacities)
            for message in spec.messages
            if message.destination == site
        }
        self._awaited: set[tuple[int, int]] = set()  # (trip, index of the flow)
        self._iteration = -1

    def begin(self, iteration: int) -> list[Send]:
        """Reduce inside the coast and return the first messages to send."""
        self._iteration = iteration
        self._awaited = {
            (trip, index)
            for trip, edges in self._edges.items()
            for index, (start, stop) in enumerate(edges)
            if start < stop  # a path whose first bit would land too late carries nothing
        }
        return self._stripe(self._coast.begin(iteration))

    def receive(self, flow: str, identifier: int, data: Buffer) -> list[Send]:
        """Take a message that a flow delivered; return the messages that can be sent now.

        Raises ValueError for a message of another iteration, of another size, or that has already been delivered.
        """
        iteration, trip = trip_of(identifier)
        index = self._incoming[flow].index
        if iteration != self._iteration or (trip, index) not in self._awaited:
            unexpected = f"message {identifier} in iteration {self._iteration}, which is not expected"
            raise ValueError(f"{flow} delivered {unexpected}")
        start, stop = self._edges[trip][index]
        if len(data) != stop - start:
            raise ValueError(f"{flow} delivered {len(data)} bytes as message {identifier} instead of {stop - start}")
        self._awaited.remove((trip, index))
        return self._stripe(self._coast.receive(trip, data, start))

    @property
    def finished(self) -> bool:
        """Whether this coast has received every message of the iteration."""
        return self._coast.finished and not self._awaited

    def verify(self) -> bool:
        """Gather inside the coast and compare every rank's result with the true sum."""
        return self._coast.verify()

    def _stripe(self, messages: Sequence[Outgoing]) -> list[Send]:
        sends = []
        for trip, payload in messages:
            parts = payload.stripes(stripe(payload.size, self._outgoing[0].capacities))
            sends += [
                Send(flow, message_id(self._iteration, trip), part)
                for flow in self._outgoing
                if len(part := parts[flow.index])
            ]
        return sends
