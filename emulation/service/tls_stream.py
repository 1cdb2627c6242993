"""Messages between two processes of a run over TLS, on a connected stream socket that a clock watches.

Both ends present certificates of the run's authority before any message. A message is its length, four octets in
network order, and that many octets. No call blocks.
"""

import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from typing import Any

from bicoastal.emulation.realtime.real_clock import RealClock
from bicoastal.wan.checks import FieldError

LARGEST_MESSAGE_BYTES = 1 << 17
_LENGTH = struct.Struct("!I")
_CHUNK_BYTES = 1 << 16
_MOST_WAITING_BYTES = 1 << 20  # more than this means that the other end has stopped reading


class TlsStream:
    """One end. It owns the socket, and closes it after an error.

    on_open(certificate): called when both certificates are verified, with the other end's certificate as
    `ssl.SSLObject.getpeercert` gives it. on_message(octets, now): a message has arrived. on_closed(why): the stream has
    ended, with the reason; it is not called after `close`. Call `start` once.
    """

    def __init__(
        self,
        end: socket.socket,
        context: ssl.SSLContext,
        clock: RealClock,
        *,
        server: bool,
        on_open: Callable[[Mapping[str, Any] | None], None],
        on_message: Callable[[bytes, float], None],
        on_closed: Callable[[str], None],
    ) -> None:
        end.setblocking(False)
        self._socket = end
        self._clock = clock
        self._on_open, self._on_message, self._on_closed = on_open, on_message, on_closed
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server)
        self._open = False
        self._ended = False
        self._arrived = bytearray()
        self._waiting = bytearray()  # to be written to the socket
        self._watching = False

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self._open and not self._ended

    def start(self) -> None:
        """Begin the handshake."""
        self._clock.on_readable(self._socket.fileno(), self._readable)
        self._advance(self._clock.now())

    def send(self, message: bytes) -> None:
        """Send a message. Raises ValueError when it is too long, or the stream is not open."""
        if not self.is_open or len(message) > LARGEST_MESSAGE_BYTES:
            raise FieldError(
                "message", f"{len(message)} octets for a stream that takes {LARGEST_MESSAGE_BYTES} when open"
            )
        self._tls.write(_LENGTH.pack(len(message)) + message)
        self._flush(self._clock.now())

    def close(self) -> None:
        """Close the stream; data that the kernel has not taken is dropped."""
        if not self._ended:
            self._ended = True
            self._clock.on_readable(self._socket.fileno(), None)
            self._clock.on_writable(self._socket.fileno(), None)
            self._socket.close()

    def _end(self, why: str) -> None:
        if not self._ended:
            self.close()
            self._on_closed(why)

    # -- the socket ---------------------------------------------------------------------------------------------------

    def _readable(self, now: float) -> None:
        try:
            octets = self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error.strerror or str(error))
            return
        if octets:
            self._incoming.write(octets)
        else:
            self._incoming.write_eof()
        self._advance(now)

    def _flush(self, now: float) -> None:
        self._waiting += self._outgoing.read()
        try:
            while self._waiting and not self._ended:
                del self._waiting[: self._socket.send(self._waiting)]
        except BlockingIOError:
            if len(self._waiting) > _MOST_WAITING_BYTES:
                self._end("the other end takes nothing")
                return
        except OSError as error:
            self._end(error.strerror or str(error))
            return
        if not self._ended and bool(self._waiting) != self._watching:
            self._watching = not self._watching
            self._clock.on_writable(self._socket.fileno(), self._flush if self._watching else None)

    # -- TLS ----------------------------------------------------------------------------------------------------------

    def _advance(self, now: float) -> None:
        """Continue the handshake or read messages, as far as the received octets allow."""
        try:
            if not self._open:
                self._tls.do_handshake()
                self._open = True
                self._on_open(self._tls.getpeercert())
            while not self._ended:
                octets = self._tls.read(_CHUNK_BYTES)
                if not octets:
                    self._end("the other end has closed it")
                    return
                self._arrived += octets
                self._deliver(now)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._flush(now)  # the alert, which tells the other end the reason
            self._end(error.reason or error.strerror or str(error))
            return
        if not self._ended:
            self._flush(now)

    def _deliver(self, now: float) -> None:
        while len(self._arrived) >= _LENGTH.size and not self._ended:
            (length,) = _LENGTH.unpack_from(self._arrived)
            if length > LARGEST_MESSAGE_BYTES:
                self._end(f"a message of {length} octets is longer than {LARGEST_MESSAGE_BYTES}")
                return
            if len(self._arrived) < _LENGTH.size + length:
                return
            message = bytes(self._arrived[_LENGTH.size : _LENGTH.size + length])
            del self._arrived[: _LENGTH.size + length]
            self._on_message(message, now)
