"""Messages of declared types between two processes of a run, over a connected stream socket that they share.

Each message is its length, four octets in network order, and that many octets of `emulation.processes.wire_format`.
"""

import select
import socket
import struct
import time
from typing import Generic, TypeVar

from bicoastal.emulation.processes.wire_format import WireFormat, WireFormatError

LARGEST_MESSAGE_BYTES = 1 << 28  # enough for time series of hours; a longer message is an error
_LENGTH = struct.Struct("!I")
_CHUNK_BYTES = 1 << 20

Sent = TypeVar("Sent")
Received = TypeVar("Received")


class ChannelClosedError(Exception):
    """The other end is closed; the message is the kernel's reason, where there is one."""


class Channel(Generic[Sent, Received]):
    """One end. sends, receives: the formats of outgoing and of incoming messages.

    It owns the socket, and its calls block: `send` until there is room, `receive` until a message is complete.
    """

    def __init__(self, end: socket.socket, *, sends: WireFormat[Sent], receives: WireFormat[Received]) -> None:
        end.setblocking(True)
        self._socket = end
        self._sends = sends
        self._receives = receives
        self._readable = select.poll()
        self._readable.register(end, select.POLLIN)

    def fileno(self) -> int:
        """Return the socket's descriptor, which is readable when there is something to receive."""
        return self._socket.fileno()

    def send(self, message: Sent) -> None:
        """Send a message.

        Raises ChannelClosedError when the other end is closed, WireFormatError for a message that is not as declared or
        is too long.
        """
        octets = self._sends.encode(message)
        if len(octets) > LARGEST_MESSAGE_BYTES:
            raise WireFormatError(f"a message of {len(octets)} bytes is longer than {LARGEST_MESSAGE_BYTES}")
        try:
            self._socket.sendall(_LENGTH.pack(len(octets)) + octets)
        except OSError as error:
            raise ChannelClosedError(error.strerror or str(error)) from error

    def receive(self, time_limit_s: float | None = None) -> Received:
        """Return the next message; wait for it, at most `time_limit_s` where that is given.

        Raises TimeoutError (the channel cannot be used after it), ChannelClosedError when the other end is closed,
        WireFormatError when the octets are not a message.
        """
        until_s = None if time_limit_s is None else time.monotonic() + time_limit_s
        (length,) = _LENGTH.unpack(self._take(_LENGTH.size, until_s))
        if length > LARGEST_MESSAGE_BYTES:
            raise WireFormatError(f"a message of {length} bytes is longer than {LARGEST_MESSAGE_BYTES}")
        return self._receives.decode(self._take(length, until_s))

    def _take(self, size: int, until_s: float | None) -> bytes:
        taken = bytearray()
        while len(taken) < size:
            if until_s is not None:
                left_ms = max(0.0, until_s - time.monotonic()) * 1e3
                if not self._readable.poll(left_ms):
                    raise TimeoutError("there was no message in time")
            try:
                more = self._socket.recv(min(size - len(taken), _CHUNK_BYTES))
            except OSError as error:
                raise ChannelClosedError(error.strerror or str(error)) from error
            if not more:
                raise ChannelClosedError("the other end was closed")
            taken += more
        return bytes(taken)

    def close(self) -> None:
        """Close this end; the other end receives ChannelClosedError."""
        self._socket.close()
