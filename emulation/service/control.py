"""What travels between a coast's process and the services of a transport: datagrams, each held back on its way.

The sockets between them take no time, so whoever receives waits: a datagram arrives when the propagation delay has
passed since it was sent, by the clock that both share. What comes much later than that, because a process was stopped
or gone, is lost: nobody may act on words from the past. A service that counts on how long its words take (the grace
of b4's controller) counts with that much more than the delay.
"""

import struct
from typing import NamedTuple

from bicoastal.transports.base import Datagram

LATEST_S = 0.5  # beyond the propagation delay
_HEADER = struct.Struct("!IIId")


class MalformedControlError(ValueError):
    """These octets are no control message."""


class ControlMessage(NamedTuple):
    """A datagram between a service and a peer: numbers of both, counted from 0, and when it was sent (run's time)."""

    service: int
    peer: int
    wire_bytes: int
    sent_s: float
    payload: bytes

    @classmethod
    def of(cls, datagram: Datagram, *, service: int, peer: int, now: float) -> "ControlMessage":
        """Return what carries `datagram`."""
        return cls(service, peer, datagram.wire_bytes, now, bytes(datagram.payload))

    def __bytes__(self) -> bytes:
        return _HEADER.pack(*self[:4]) + self.payload

    @classmethod
    def decode(cls, octets: bytes) -> "ControlMessage":
        """Return the message that `bytes` made the octets of. Raises MalformedControlError."""
        if len(octets) < _HEADER.size:
            raise MalformedControlError(f"message: {len(octets)} octets are less than a header's {_HEADER.size}")
        service, peer, wire_bytes, sent_s = _HEADER.unpack_from(octets)
        return cls(service, peer, wire_bytes, sent_s, octets[_HEADER.size :])

    def arrives_s(self, delay_s: float, now: float) -> float | None:
        """Return when it arrives, or None when it is too old to be heard. One from the future is sent now."""
        due_s = min(self.sent_s, now) + delay_s
        if not due_s + LATEST_S >= now:  # so that a time which is no number is too old
            return None
        return max(due_s, now)
