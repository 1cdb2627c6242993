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
        self._parts: dict[int, dict[int, Buffer]] = {}
        self._iteration = -1

    def begin(self, iteration: int) -> list[Send]:
        """Reduce inside the coast and return what is to be sent first."""
        self._iteration = iteration
        self._parts.clear()
        return self._stripe(self._coast.begin(iteration))

    def receive(self, flow: str, identifier: int, data: Buffer) -> list[Send]:
        """Take what a flow delivered; return what is to be sent because of it.

        Raises ValueError for a message that does not belong to this iteration, or that has come before.
        """
        iteration, trip = trip_of(identifier)
        parts = self._parts.setdefault(trip, {})
        index = self._incoming[flow].index
        if iteration != self._iteration or index in parts:
            raise ValueError(f"{flow} delivered message {identifier} of iteration {iteration} out of turn")
        parts[index] = data
        if len(parts) < len(self._incoming):
            return []
        whole = parts[0] if len(parts) == 1 else b"".join(parts[i] for i in range(len(parts)))
        return self._stripe(self._coast.receive(trip, memoryview(whole)))

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
