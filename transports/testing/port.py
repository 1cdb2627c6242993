"""An endpoint or service under test: calls of its verbs, and checks and records of its datagrams."""

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from math import isfinite
from typing import Any

from bicoastal.transports.base import Counters, Datagram, Encodable, Endpoint, Machine, Sample
from bicoastal.transports.testing.schedules import MAX_MESSAGE_ID

IP_HEADER_BYTES = 20


class ContractError(Exception):
    """A promise of the verbs was broken; the message is one sentence."""


class Encoding(Enum):
    """What becomes of payloads on their way.

    LAZY: encoded only where a bit is flipped. RECORDED: encoded at departure and again at arrival, delivered as they
    are. OCTETS: encoded at departure, delivered as octets, without what no real packet carries.
    """

    LAZY = "lazy"
    RECORDED = "recorded"
    OCTETS = "octets"


class Remembered:
    """A payload with the octets that it stood for when it departed."""

    __slots__ = ("octets", "original")

    def __init__(self, original: bytes | Encodable, octets: bytes) -> None:
        self.original = original
        self.octets = octets

    def __bytes__(self) -> bytes:
        return self.octets


class Port:
    """An endpoint or service, the routes of its datagrams, and the values that must not decrease."""

    def __init__(self, name: str, machine: Machine, role: str) -> None:
        self.name = name
        self.machine = machine
        self.role = role
        self.routes: dict[int, Callable[[Datagram, float], None]] = {}
        self._departed: dict[int, float] = {}
        self.seen: deque[Datagram] = deque(maxlen=6)
        self.armed_at = float("inf")
        self.fires_at, self.fires = -1.0, 0
        self.sent_at = -1.0
        self.connected = False
        self._counters = Counters()

    def call(self, verb: str, *arguments: Any) -> Any:
        """Call a verb. Any exception that it raises is a breach of the contract."""
        try:
            return getattr(self.machine, verb)(*arguments)
        except Exception as error:
            raise ContractError(f"{self.name}: {verb} raised {type(error).__name__}: {error}") from error

    def timer(self) -> float | None:
        """Return when the machine wants to be woken."""
        timer: float | None = self.call("get_timer")
        if timer is not None and not isfinite(timer):
            raise ContractError(f"{self.name}: get_timer gave {timer}, which is no time")
        return timer

    def check_departure(self, datagram: Datagram, mtu_bytes: int | None) -> None:
        """Check what can be seen of a datagram without its octets. mtu_bytes: None on a control path."""
        path_id, _, wire_bytes, depart_at, ecn, burst_left = datagram
        if not isfinite(depart_at):
            raise ContractError(f"{self.name} wants a datagram released at {depart_at}, which is no time")
        if depart_at < self._departed.get(path_id, depart_at):
            raise ContractError(f"{self.name}: depart_at decreases along path {path_id}, to {depart_at}")
        self._departed[path_id] = depart_at
        if burst_left is not None and burst_left < 0:
            raise ContractError(f"{self.name}: burst_left is {burst_left}")
        if not 0 <= ecn <= 3:
            raise ContractError(f"{self.name}: ecn is {ecn}, which two bits cannot hold")
        if mtu_bytes is not None and wire_bytes > mtu_bytes:
            raise ContractError(f"{self.name} sent {wire_bytes} B on path {path_id}, whose MTU is {mtu_bytes} B")

    def check_observations(self, now: float) -> None:
        """Check that counters only grow and that a sample holds sizes and times."""
        counters: Counters = self.call("counters")
        for field in fields(Counters):
            before, after = getattr(self._counters, field.name), getattr(counters, field.name)
            if after < before:
                raise ContractError(f"{self.name}: the counter {field.name} went back from {before} to {after}")
        self._counters = counters
        sample: Sample = self.call("sample", now)
        for field in fields(Sample):
            value = getattr(sample, field.name)
            if value is not None and not 0 <= value < float("inf"):
                raise ContractError(f"{self.name}: the sample's {field.name} is {value}")

    def check_identifiers(self, now: float) -> None:
        """Check that an identifier which 64 bits cannot hold is refused."""
        endpoint = self.machine
        if not isinstance(endpoint, Endpoint):
            raise ContractError(f"{self.name} is no Endpoint")
        for message_id in (-1, MAX_MESSAGE_ID + 1):
            try:
                endpoint.send_message(message_id, b"", now)
            except ValueError:
                continue
            raise ContractError(f"{self.name}: send_message took {message_id} for a 64-bit identifier")


class Transcript:
    """Every datagram in its order, as two digests: one of header fields, one of octets (kept empty when LAZY)."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._headers, self._octets = hashlib.blake2b(), hashlib.blake2b()
        self.datagrams = 0

    def enter(self, sender: str, datagram: Datagram, now: float) -> Datagram:
        """Write a datagram down and return it as it is to travel. Raises ContractError when its size is untrue."""
        path_id, payload, wire_bytes, depart_at, ecn, burst_left = datagram
        self.datagrams += 1
        self._headers.update(f"{sender} {now} {path_id} {wire_bytes} {depart_at} {ecn} {burst_left}\n".encode())
        if self._encoding is Encoding.LAZY:
            return datagram
        octets = bytes(payload)
        self._octets.update(len(octets).to_bytes(4, "big") + octets)
        if wire_bytes < len(octets) + IP_HEADER_BYTES:
            raise ContractError(f"{sender} sent {len(octets)} B above IP and called it {wire_bytes} B with IP")
        return datagram._replace(payload=Remembered(payload, octets))

    def digests(self) -> tuple[bytes, bytes]:
        """Return both digests so far."""
        return self._headers.digest(), self._octets.digest()

    def arriving(self, sender: str, datagram: Datagram, now: float) -> Datagram:
        """Return an intact datagram as its receiver is to see it.

        Raises ContractError when its payload has changed on the way by its sender's doing.
        """
        payload = datagram.payload
        if not isinstance(payload, Remembered):
            return datagram
        if self._encoding is Encoding.OCTETS:
            return datagram._replace(payload=payload.octets, depart_at=now, burst_left=None)
        if bytes(payload.original) != payload.octets:
            raise ContractError(f"{sender} changed a payload after it had departed")
        return datagram._replace(payload=payload.original)


def flip(octets: bytes, position: float) -> bytes:
    """Return `octets` with the bit at `position` flipped, a fraction in [0, 1) of their length."""
    bit = min(int(position * 8 * len(octets)), 8 * len(octets) - 1)
    flipped = bytearray(octets)
    flipped[bit // 8] ^= 1 << (bit % 8)
    return bytes(flipped)
