"""The octets of background traffic. Both ends can make any part of any message and compare what arrives."""

from collections.abc import Sequence
from hashlib import shake_256

from bicoastal.emulation.base import BackgroundSpec
from bicoastal.emulation.traffic.flows import Flow, stripe

_PERIOD_BYTES = 65_537  # a prime: no segment size divides it, so that exchanged segments are detected


class BackgroundOctets:
    """The content of the messages of a `BackgroundSpec`, flow by flow.

    The octets repeat with a period. So all stripes of all messages are views of one buffer, about as long as the
    longest stripe.
    """

    def __init__(self, spec: BackgroundSpec, flows: Sequence[Flow]) -> None:
        pattern = shake_256(spec.name.encode()).digest(_PERIOD_BYTES)
        self._edges = {flow.name: stripe(spec.message_bytes, flow.capacities)[flow.index] for flow in flows}
        longest = max(stop - start for start, stop in self._edges.values())
        self._octets = memoryview(pattern * (longest // _PERIOD_BYTES + 2))

    def part(self, number: int, flow: str) -> memoryview:
        """Return the part of the message with this number that `flow` carries. Raises KeyError."""
        start, stop = self._edges[flow]
        first = (number + start) % _PERIOD_BYTES  # each message differs from the next one
        return self._octets[first : first + stop - start]
