"""The messages between agents and the controller: one JSON document per datagram, checked field by field.

Each message holds the whole state of its sender. So a lost message only costs time, and a duplicate does no harm. An
agent numbers its messages; a grant names the message that it answers. `instance` and `epoch` are random numbers of a
process: a process that restarts draws a new one and counts from 1 again.

The simulator passes messages as objects. `bytes(message)` encodes one, `decode` parses one.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeVar

from bicoastal.transports.base import Encodable
from bicoastal.transports.events import Buffer
from bicoastal.wan.checks import FieldError

VERSION = 1
IP_TCP_TLS_BYTES = 20 + 32 + 22  # headers of a message over TLS 1.3: IP, TCP with timestamps, record and tag
MOST_BYTES = 65536
MOST_PATHS = 256
MAX_U64 = 2**64 - 1
MOST_BPS = 1e15


class MalformedMessageError(ValueError):
    """The octets are not a valid message. The text says why in one sentence, which begins with the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The rates on one path, bit/s: `forward_bps` for the agent's end, `back_bps` for the far end.

    safe_bps, safe_back_bps: the same after a grant has expired. overhead_bytes: counted on top of each IP packet, as
    the link carries it. Raises ValueError naming the field.
    """

    forward_bps: float
    back_bps: float
    safe_bps: float
    safe_back_bps: float
    overhead_bytes: int

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("forward_bps", "back_bps", "safe_bps", "safe_back_bps"):
            value = getattr(self, name)
            if not 0 <= value <= MOST_BPS:
                raise FieldError(name, f"{value!r} is not between 0 and {MOST_BPS:g}")
        if not 0 <= self.overhead_bytes <= 65535:
            raise FieldError("overhead_bytes", f"{self.overhead_bytes!r} is not between 0 and 65535")


@dataclass(frozen=True, slots=True, kw_only=True)
class PathReport:
    """The state of a path at the agent, and the rates that are in use on it, bit/s."""

    name: str
    up: bool
    forward_bps: float
    back_bps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """A message of an agent: what it needs, and which rates it has.

    reason: "announce" (the flow or a burst begins), "done" (a burst is over), "link" (a path has failed or works
    again), "refresh" (the grant must be renewed) or "ack" (a grant has arrived; it needs no answer). demand_bytes: of
    the burst, 0 for none. deadline_s: of the burst, counted from its announcement; None: as soon as possible.
    back: whether the far end is sending. epoch, granted: the grant in force, 0 for none. lease_left_s: how long it
    still holds.
    """

    flow: str
    instance: int
    sequence: int
    reason: str
    demand_bytes: int
    deadline_s: float | None
    back: bool
    epoch: int
    granted: int
    lease_left_s: float
    paths: tuple[PathReport, ...]

    def __bytes__(self) -> bytes:
        return _encode("agent", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A message of the controller: the rates of each path for `lease_s` from its arrival. It replaces earlier ones.

    heard: the `sequence` of the agent's message that it answers.
    """

    epoch: int
    sequence: int
    instance: int
    heard: int
    lease_s: float
    shares: tuple[Share, ...]

    def __bytes__(self) -> bytes:
        return _encode("grant", self)


REASONS = ("announce", "done", "link", "refresh", "ack")


def _members(part: object) -> dict[str, Any]:
    """Return a message, or a part of one, as a JSON object."""
    if isinstance(part, AgentState | Grant | Share | PathReport):
        return {name: getattr(part, name) for name in part.__slots__}
    raise TypeError(f"{part!r:.50} has no place in a message")


_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_members)


def _encode(kind: str, message: "AgentState | Grant") -> bytes:
    return _ENCODER.encode({"version": VERSION, "type": kind, **_members(message)}).encode()


def wire_bytes(message: AgentState | Grant) -> int:
    """Return the size of the IP packet that carries the message."""
    return IP_TCP_TLS_BYTES + len(bytes(message))


def decode(payload: Buffer | Encodable) -> AgentState | Grant:
    """Return the message of a payload, which is an object or octets. Raises MalformedMessageError."""
    if isinstance(payload, AgentState | Grant):
        return payload
    octets = bytes(payload)
    if len(octets) > MOST_BYTES:
        raise MalformedMessageError(f"message: {len(octets)} octets are more than {MOST_BYTES}")
    try:
        document = json.loads(octets)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise MalformedMessageError("message: it is not JSON") from error
    fields = _Fields(document, "message")
    if fields.whole("version", most=MAX_U64) != VERSION:
        raise MalformedMessageError(f"version: only {VERSION} is spoken here")
    kind = fields.text("type")
    try:
        if kind == "agent":
            return fields.finish(_agent_state(fields))
        if kind == "grant":
            return fields.finish(_grant(fields))
    except MalformedMessageError:
        raise
    except ValueError as error:
        raise MalformedMessageError(str(error)) from error
    raise MalformedMessageError(f"type: {kind!r} is neither 'agent' nor 'grant'")


def _agent_state(fields: "_Fields") -> AgentState:
    reason = fields.text("reason")
    if reason not in REASONS:
        raise MalformedMessageError(f"reason: {reason!r} is not one of {', '.join(REASONS)}")
    return AgentState(
        flow=fields.text("flow"),
        instance=fields.whole("instance"),
        sequence=fields.whole("sequence"),
        reason=reason,
        demand_bytes=fields.whole("demand_bytes"),
        deadline_s=None if fields.missing("deadline_s") else fields.number("deadline_s"),
        back=fields.flag("back"),
        epoch=fields.whole("epoch"),
        granted=fields.whole("granted"),
        lease_left_s=fields.number("lease_left_s"),
        paths=fields.each(
            "paths",
            lambda path: PathReport(
                name=path.text("name"),
                up=path.flag("up"),
                forward_bps=path.number("forward_bps"),
                back_bps=path.number("back_bps"),
            ),
        ),
    )


def _grant(fields: "_Fields") -> Grant:
    return Grant(
        epoch=fields.whole("epoch"),
        sequence=fields.whole("sequence"),
        instance=fields.whole("instance"),
        heard=fields.whole("heard"),
        lease_s=fields.number("lease_s"),
        shares=fields.each(
            "shares",
            lambda share: Share(
                forward_bps=share.number("forward_bps"),
                back_bps=share.number("back_bps"),
                safe_bps=share.number("safe_bps"),
                safe_back_bps=share.number("safe_back_bps"),
                overhead_bytes=share.whole("overhead_bytes", most=65535),
            ),
        ),
    )


T = TypeVar("T")


class _Fields:
    """The members of a JSON object. Each is read once; `finish` raises an error if one is left."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise MalformedMessageError(f"{where}: it is not an object")
        self._left = dict(value)

    def _take(self, name: str) -> object:
        if name not in self._left:
            raise MalformedMessageError(f"{name}: it is missing")
        return self._left.pop(name)

    def finish(self, made: T) -> T:
        for name in self._left:
            raise MalformedMessageError(f"{name}: there is no such field")
        return made

    def missing(self, name: str) -> bool:
        """Return whether a member is null, and remove it if it is."""
        if self._left.get(name, 0) is None:
            del self._left[name]
            return True
        return False

    def text(self, name: str) -> str:
        value = self._take(name)
        if not isinstance(value, str) or not 0 < len(value) <= 1024:
            raise MalformedMessageError(f"{name}: {value!r:.50} is not a short text")
        return value

    def flag(self, name: str) -> bool:
        value = self._take(name)
        if not isinstance(value, bool):
            raise MalformedMessageError(f"{name}: {value!r:.50} is neither true nor false")
        return value

    def whole(self, name: str, most: int = MAX_U64) -> int:
        value = self._take(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise MalformedMessageError(f"{name}: {value!r:.50} is not a whole number from 0 to {most}")
        return value

    def number(self, name: str) -> float:
        value = self._take(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise MalformedMessageError(f"{name}: {value!r:.50} is not a number")
        if not 0 <= value <= MOST_BPS or not isfinite(value):
            raise MalformedMessageError(f"{name}: {value!r:.50} is not between 0 and {MOST_BPS:g}")
        return float(value)

    def each(self, name: str, make: Callable[["_Fields"], T]) -> tuple[T, ...]:
        values = self._take(name)
        if not isinstance(values, list) or len(values) > MOST_PATHS:
            raise MalformedMessageError(f"{name}: it is not a list of at most {MOST_PATHS}")
        made = []
        for value in values:
            fields = _Fields(value, name)
            made.append(fields.finish(make(fields)))
        return tuple(made)
