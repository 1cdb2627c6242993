"""Losses that are known in advance: packets listed by number, and recorded traces. See `wan.loss`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from bicoastal.wan.checks import FieldError, check_whole
from bicoastal.wan.loss import LossProcess, LossSpec, Packet
from bicoastal.wan.randomness import Rng


class _Listed:
    __slots__ = ("_count", "_indices", "_min_wire_bytes")

    def __init__(self, indices: frozenset[int], min_wire_bytes: int) -> None:
        self._indices = indices
        self._min_wire_bytes = min_wire_bytes
        self._count = -1

    def lost(self, packet: Packet, now: float, /) -> bool:
        if packet.wire_bytes < self._min_wire_bytes:
            return False
        self._count += 1
        return self._count in self._indices


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(LossSpec):
    """Exactly the packets with these numbers are lost, counted from 0 among those of at least `min_wire_bytes`.

    Raises FieldError for negative or repeated numbers.
    """

    indices: tuple[int, ...]
    min_wire_bytes: int = 0

    def __post_init__(self) -> None:
        """Check the numbers."""
        for index in self.indices:
            check_whole("indices", index, 0)
        if len(set(self.indices)) < len(self.indices):
            raise FieldError("indices", "a packet is listed twice")
        check_whole("min_wire_bytes", self.min_wire_bytes, 0)

    def start(self, rng: Rng) -> LossProcess:
        """Return a process that has counted nothing; it draws nothing."""
        return _Listed(frozenset(self.indices), self.min_wire_bytes)


class _Trace:
    __slots__ = ("_at", "_min_wire_bytes", "_outcomes", "_repeat")

    def __init__(self, outcomes: Sequence[bool], repeat: bool, min_wire_bytes: int) -> None:
        self._outcomes = outcomes
        self._repeat = repeat
        self._min_wire_bytes = min_wire_bytes
        self._at = 0

    def lost(self, packet: Packet, now: float, /) -> bool:
        if packet.wire_bytes < self._min_wire_bytes:
            return False
        if self._at == len(self._outcomes):
            if not self._repeat:
                return False
            self._at = 0
        self._at += 1
        return self._outcomes[self._at - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(LossSpec):
    """A recording decides packet by packet; True means lost. At its end it repeats, or loss ends (repeat=False).

    min_wire_bytes: smaller packets are neither lost nor counted. Raises FieldError.
    """

    outcomes: tuple[bool, ...]
    repeat: bool = True
    min_wire_bytes: int = 0

    def __post_init__(self) -> None:
        """Check that the trace is not empty."""
        if not self.outcomes:
            raise FieldError("outcomes", "the trace is empty")
        check_whole("min_wire_bytes", self.min_wire_bytes, 0)

    @classmethod
    def from_text(cls, text: str, *, repeat: bool = True, min_wire_bytes: int = 0) -> Self:
        """Read a trace written as 0 (arrived) and 1 (lost); white space, commas and `#` comments are skipped.

        Raises FieldError, with the line, for any other character.
        """
        outcomes: list[bool] = []
        for number, line in enumerate(text.splitlines(), start=1):
            for character in line.partition("#")[0]:
                if character in "01":
                    outcomes.append(character == "1")
                elif not character.isspace() and character != ",":
                    raise FieldError("outcomes", f"line {number} has {character!r}, which is neither 0 nor 1")
        return cls(outcomes=tuple(outcomes), repeat=repeat, min_wire_bytes=min_wire_bytes)

    def start(self, rng: Rng) -> LossProcess:
        """Return a process at the beginning of the recording; it draws nothing."""
        return _Trace(self.outcomes, self.repeat, self.min_wire_bytes)

    @property
    def mean_loss(self) -> float | None:
        """The share of losses in the recording; None when it does not repeat or small packets do not count."""
        if self.min_wire_bytes or not self.repeat:
            return None
        return sum(self.outcomes) / len(self.outcomes)
