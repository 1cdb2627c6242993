"""The octets of background traffic: both ends can make any part of any message, so what arrives can be compared."""

from collections.abc import Sequence
from hashlib import shake_256

from bicoastal.emulation.base import BackgroundSpec
from bicoastal.emulation.traffic.flows import Flow, stripe

_PERIOD_BYTES = 65_537  # a prime: no segment size divides it, so segments that change places are noticed


class BackgroundOctets:
    """What the messages of a `BackgroundSpec` consist of, flow by flow.

    Octets repeat with a period, so that all stripes of all messages are views of one buffer, as long as the longest.
    """

    def __init__(self, spec: BackgroundSpec, flows: Sequence[Flow]) -> None:
        pattern = shake_256(spec.name.encode()).digest(_PERIOD_BYTES)
        self._edges = {flow.name: stripe(spec.message_bytes, flow.capacities)[flow.index] for flow in flows}
        longest = max(stop - start for start, stop in self._edges.values())
        self._octets = memoryview(pattern * (longest // _PERIOD_BYTES + 2))

    def part(self, number: int, flow: str) -> memoryview:
        """Return what `flow` carries of the message that has this number. Raises KeyError."""
        start, stop = self._edges[flow]
        first = (number + start) % _PERIOD_BYTES  # one message is not like the next
        return self._octets[first : first + stop - start]
