"""The messages between a coast's process and the services of a transport: datagrams that arrive with a delay.

The sockets between the processes add no delay, so the receiver does: a datagram arrives when the propagation delay has
passed since it was sent, by the clock that both share. A datagram that comes more than `LATEST_S` after that, because a
process was stopped or restarted, is lost, so that no process acts on old information. A service that relies on the age
of its messages (the grace of b4's controller) has to add `LATEST_S` to the delay.
"""

import struct
from typing import NamedTuple

from bicoastal.transports.base import Datagram

LATEST_S = 0.5  # beyond the propagation delay
_HEADER = struct.Struct("!IIId")


class MalformedControlError(ValueError):
    """The octets are not a control message."""


class ControlMessage(NamedTuple):
    """A datagram between a service and a peer: the numbers of both, from 0, and when it was sent (run's time)."""

    service: int
    peer: int
    wire_bytes: int
    sent_s: float
    payload: bytes

    @classmethod
    def of(cls, datagram: Datagram, *, service: int, peer: int, now: float) -> "ControlMessage":
        """Return the message that carries `datagram`."""
        return cls(service, peer, datagram.wire_bytes, now, bytes(datagram.payload))

    def __bytes__(self) -> bytes:
        return _HEADER.pack(*self[:4]) + self.payload

    @classmethod
    def decode(cls, octets: bytes) -> "ControlMessage":
        """Return the message that `bytes(message)` encoded. Raises MalformedControlError."""
        if len(octets) < _HEADER.size:
            raise MalformedControlError(f"message: {len(octets)} octets are less than a header's {_HEADER.size}")
        service, peer, wire_bytes, sent_s = _HEADER.unpack_from(octets)
        return cls(service, peer, wire_bytes, sent_s, octets[_HEADER.size :])

    def arrives_s(self, delay_s: float, now: float) -> float | None:
        """Return when it arrives, or None when it is too old. A time in the future counts as the present."""
        due_s = min(self.sent_s, now) + delay_s
        if not due_s + LATEST_S >= now:  # written so that a time that is NaN is too old
            return None
        return max(due_s, now)
