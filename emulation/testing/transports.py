"""The suite's transports: a simple one that works, and others that fail in ways that a world must detect.

They are resolved by the names below, `module:attribute`, so that every process with this package finds them.
"""

import struct
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bicoastal.transports.base import Counters, Datagram, Encodable, Endpoint, EndpointContext
from bicoastal.transports.events import Buffer, Connected, Event, Failed, MessageReceived
from bicoastal.transports.registry import TransportSpec
from bicoastal.wan.checks import FieldError
from bicoastal.wan.units import INFINITY

PLAIN_NAME = f"{__name__}:PLAIN"
MUTE_NAME = f"{__name__}:MUTE"
FAILING_NAME = f"{__name__}:FAILING"
FLIPPING_NAME = f"{__name__}:FLIPPING"
STALLING_NAME = f"{__name__}:STALLING"
DEMANDING_NAME = f"{__name__}:DEMANDING"
PROGRAM_NAME = f"{__name__}:PROGRAM"
FAILURE = "the transport was told to give up"
NO_SUCH_FEATURE = "a-feature-that-no-world-has"

_HELLO, _WELCOME, _DATA, _ACK = range(4)
_HEADER = struct.Struct("!BQQQQ")
_IP_AND_UDP_BYTES = 28
_OVERHEAD_BYTES = _IP_AND_UDP_BYTES + 4 + _HEADER.size
_WINDOW = 32
_TIMEOUT_S = 0.2


class _Frame(NamedTuple):
    """The content of a datagram; its octets begin with their CRC-32."""

    kind: int
    sequence: int = 0
    message_id: int = 0
    total_bytes: int = 0
    offset: int = 0
    data: Buffer = b""

    def __bytes__(self) -> bytes:
        body = _HEADER.pack(self.kind, self.sequence, self.message_id, self.total_bytes, self.offset) + bytes(self.data)
        return zlib.crc32(body).to_bytes(4, "big") + body


def _decode(payload: bytes | Encodable) -> _Frame | None:
    if isinstance(payload, _Frame):
        return payload
    octets = bytes(payload)
    body = octets[4:]
    if len(body) < _HEADER.size or zlib.crc32(body) != int.from_bytes(octets[:4], "big"):
        return None
    kind, sequence, message_id, total_bytes, offset = _HEADER.unpack_from(body)
    return _Frame(kind, sequence, message_id, total_bytes, offset, body[_HEADER.size :])


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeParameters:
    """bit: which bit of every message FLIPPING delivers flipped, counted from the message's end when negative."""

    bit: int = 0


class _Plain(Endpoint):
    """Selective repeat with a fixed window and a fixed timer: slow and correct."""

    def __init__(self, context: EndpointContext) -> None:
        parameters = context.parameters
        self.parameters = parameters if isinstance(parameters, ProbeParameters) else ProbeParameters()
        self.events: deque[Event] = deque()
        self._client = context.role == "client"
        self._path_id = context.paths[0].path_id
        self._room_bytes = context.paths[0].mtu_bytes - _OVERHEAD_BYTES
        self._connected = False
        self._hello_at = 0.0 if self._client else INFINITY
        self._waiting: deque[_Frame] = deque()
        self._flying: dict[
            int, tuple[_Frame, float]
        ] = {}  # with the deadline; all timeouts are equal, so the first entry is due first
        self._replies: list[_Frame] = []
        self._next_sequence = 0
        self._seen: set[int] = set()
        self._arriving: dict[int, tuple[bytearray, int]] = {}
        self._packets = self._repairs = self._timeouts = self._rejected = 0

    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        if not 0 <= message_id < 1 << 64:
            raise FieldError("message_id", f"{message_id} is not an unsigned 64-bit integer")
        view = memoryview(data)
        for offset in range(0, max(len(view), 1), self._room_bytes):
            piece = view[offset : offset + self._room_bytes]
            self._waiting.append(_Frame(_DATA, self._next_sequence, message_id, len(view), offset, piece))
            self._next_sequence += 1

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        frame = _decode(datagram.payload)
        if frame is None:
            self._rejected += 1
        elif frame.kind == _DATA:
            self._replies.append(_Frame(_ACK, frame.sequence))
            self._on_data(frame)
        elif frame.kind == _ACK:
            self._flying.pop(frame.sequence, None)
        elif frame.kind == (_WELCOME if self._client else _HELLO):
            if not self._client:
                self._replies.append(_Frame(_WELCOME))
            if not self._connected:
                self._connected = True
                self._hello_at = INFINITY
                self.events.append(Connected())
        else:
            self._rejected += 1

    def _on_data(self, frame: _Frame) -> None:
        if frame.sequence in self._seen:
            return
        self._seen.add(frame.sequence)
        data, missing = self._arriving.get(frame.message_id) or (bytearray(frame.total_bytes), frame.total_bytes)
        data[frame.offset : frame.offset + len(frame.data)] = frame.data
        self._arriving[frame.message_id] = (data, missing - len(frame.data))
        if missing == len(frame.data):
            del self._arriving[frame.message_id]
            self.deliver(frame.message_id, data)

    def deliver(self, message_id: int, data: bytearray) -> None:
        """Report a whole message to the application."""
        self.events.append(MessageReceived(message_id=message_id, data=data))

    def datagrams_to_send(self, now: float) -> Sequence[Datagram]:
        frames, self._replies = self._replies, []
        if now >= self._hello_at:
            self._hello_at = now + _TIMEOUT_S
            frames.append(_Frame(_HELLO))
        while self._connected and self._waiting and len(self._flying) < _WINDOW:
            frame = self._waiting.popleft()
            self._flying[frame.sequence] = (frame, now + _TIMEOUT_S)
            frames.append(frame)
        self._packets += len(frames)
        return [Datagram(self._path_id, frame, _OVERHEAD_BYTES + len(frame.data), now) for frame in frames]

    def get_timer(self) -> float | None:
        at_s = self._hello_at
        for _, deadline_s in self._flying.values():
            at_s = min(at_s, deadline_s)
            break
        return None if at_s == INFINITY else at_s

    def handle_timer(self, now: float) -> None:
        late = [frame for frame, deadline_s in self._flying.values() if deadline_s <= now]
        for frame in late:
            del self._flying[frame.sequence]
        self._waiting.extendleft(reversed(late))
        self._repairs += len(late)
        self._timeouts += bool(late)

    def next_event(self) -> Event | None:
        return self.events.popleft() if self.events else None

    def counters(self) -> Counters:
        return Counters(packets=self._packets, repairs=self._repairs, timeouts=self._timeouts, rejected=self._rejected)


class _Mute(_Plain):
    """A transport whose server ignores all datagrams, so that no handshake ends."""

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        pass


class _Failing(_Plain):
    """A transport that connects, and fails when there is something to send."""

    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        self.events.append(Failed(reason=FAILURE))


class _Flipping(_Plain):
    """A transport that delivers every message with one flipped bit."""

    def deliver(self, message_id: int, data: bytearray) -> None:
        bit = self.parameters.bit % (8 * len(data))
        data[bit // 8] ^= 1 << (bit % 8)
        super().deliver(message_id, data)


class _Stalling(_Plain):
    """A transport that delivers its first message and no other."""

    def deliver(self, message_id: int, data: bytearray) -> None:
        if message_id == 0:
            super().deliver(message_id, data)


def _spec(
    name: str, endpoint: type[_Plain], description: str, *, requires: frozenset[str] = frozenset()
) -> TransportSpec:
    return TransportSpec(
        name=name,
        kind="sans-io",
        paths="one",
        description=description,
        requires=requires,
        parameters=ProbeParameters,
        make_endpoint=endpoint,
    )


PLAIN = _spec("check-plain", _Plain, "selective repeat with a fixed window")
MUTE = _spec("check-mute", _Mute, "never connects")
FAILING = _spec("check-failing", _Failing, "gives up")
FLIPPING = _spec("check-flipping", _Flipping, "flips a bit of every message")
STALLING = _spec("check-stalling", _Stalling, "delivers nothing after the first iteration")
DEMANDING = _spec("check-demanding", _Plain, "needs what there is not", requires=frozenset({NO_SUCH_FEATURE}))
PROGRAM = TransportSpec(
    name="check-program",
    kind="native",
    paths="one",
    description="a program that no world can run",
    requires=frozenset({NO_SUCH_FEATURE}),
    program="check-program",
)
