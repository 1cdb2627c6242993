"""Which packets are lost on the wire: specifications, and the processes that they start.

A specification is hashable and can be pickled. `start(rng)` makes a process; each direction of each link has one, with
a separate random stream. A process is asked once for every transmitted packet, in order.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from bicoastal.wan.checks import FieldError, check_probability, check_whole
from bicoastal.wan.randomness import Rng, SplitMix64, geometric
from bicoastal.wan.units import INFINITY


class Packet(Protocol):
    """The properties of a packet that a link reads; `transports.base.Datagram` has them.

    wire_bytes: size of the IP packet. burst_left: for the first transmission of a data-bearing packet, how many more
    of the same burst follow on this path; None for everything else.
    """

    @property
    def wire_bytes(self) -> int:
        """Return the size of the IP packet, headers included."""

    @property
    def burst_left(self) -> int | None:
        """Return how many data-bearing packets of the burst are still to be sent for the first time."""


class LossProcess(Protocol):
    """A running loss process."""

    def lost(self, packet: Packet, now: float, /) -> bool:
        """Return whether this packet, submitted at `now`, is lost; to be called exactly once for every packet."""


class LossSpec(ABC):
    """A kind of loss and its parameters: a frozen dataclass, checked when it is made."""

    __slots__ = ()

    @abstractmethod
    def start(self, rng: Rng) -> LossProcess:
        """Return a process in its initial state, which draws only from `rng`."""

    @property
    def mean_loss(self) -> float | None:
        """The long-run share of packets lost; None where it depends on the traffic."""
        return None

    @property
    def reads_bursts(self) -> bool:
        """Whether what is lost depends on a packet's place in its burst (`Packet.burst_left`)."""
        return False


class _Never:
    __slots__ = ()

    def lost(self, packet: Packet, now: float, /) -> bool:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLoss(LossSpec):
    """Nothing is lost."""

    def start(self, rng: Rng) -> LossProcess:
        """Return the process that loses nothing; it draws nothing."""
        return _Never()

    @property
    def mean_loss(self) -> float:
        """Zero."""
        return 0.0


class _Skipping:
    __slots__ = ("_left", "_probability", "_rng")

    def __init__(self, probability: float, rng: Rng) -> None:
        self._probability = probability
        self._rng = rng
        self._left = geometric(rng, probability)

    def lost(self, packet: Packet, now: float, /) -> bool:
        if self._left:
            self._left -= 1
            return False
        self._left = geometric(self._rng, self._probability)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Bernoulli(LossSpec):
    """Each packet is lost with `probability`, independently; one draw is made for each loss, not for each packet.

    Raises FieldError when it is not a probability.
    """

    probability: float

    def __post_init__(self) -> None:
        """Check the probability."""
        check_probability("probability", self.probability)

    def start(self, rng: Rng) -> LossProcess:
        """Return a process that has already drawn the number of packets before the first loss."""
        return _Skipping(self.probability, rng) if self.probability else _Never()

    @property
    def mean_loss(self) -> float:
        """The probability itself."""
        return self.probability


class _Periodic:
    __slots__ = ("_every", "_left", "_min_wire_bytes")

    def __init__(self, every: int, first: int, min_wire_bytes: int) -> None:
        self._every = every
        self._left = first
        self._min_wire_bytes = min_wire_bytes

    def lost(self, packet: Packet, now: float, /) -> bool:
        if packet.wire_bytes < self._min_wire_bytes:
            return False
        if self._left:
            self._left -= 1
            return False
        self._left = self._every - 1
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Periodic(LossSpec):
    """Every `every`-th packet is lost: the deterministic loss of RFC 9438 §5.1.

    first: number of the first one lost, counted from 0; None means every - 1. min_wire_bytes: smaller packets are
    neither lost nor counted, so that acknowledgements can be left out. Raises FieldError.
    """

    every: int
    first: int | None = None
    min_wire_bytes: int = 0

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_whole("every", self.every, 1)
        if self.first is not None:
            check_whole("first", self.first, 0)
        check_whole("min_wire_bytes", self.min_wire_bytes, 0)

    def start(self, rng: Rng) -> LossProcess:
        """Return a process that has counted nothing; it draws nothing."""
        return _Periodic(self.every, self.every - 1 if self.first is None else self.first, self.min_wire_bytes)

    @property
    def mean_loss(self) -> float | None:
        """One in `every`; None when small packets are left out."""
        return None if self.min_wire_bytes else 1.0 / self.every


class _GilbertElliott:
    """Draws the duration of a state when it enters it; then it draws only in a state with partial loss."""

    __slots__ = ("_bad", "_leave", "_left", "_loss", "_rng")

    def __init__(self, leave: tuple[float, float], loss: tuple[float, float], rng: Rng) -> None:
        self._leave = leave  # indexed by state: False is good, True is bad
        self._loss = loss
        self._rng = rng
        self._bad = rng.random() * (leave[0] + leave[1]) < leave[0]  # the stationary distribution
        self._left = geometric(rng, leave[self._bad])

    def lost(self, packet: Packet, now: float, /) -> bool:
        loss = self._loss[self._bad]
        if self._left:
            self._left -= 1
        else:
            self._bad = not self._bad
            self._left = geometric(self._rng, self._leave[self._bad])
        if loss == 0.0:
            return False
        return loss == 1.0 or self._rng.random() < loss


@dataclass(frozen=True, slots=True, kw_only=True)
class GilbertElliott(LossSpec):
    """Losses in bursts: a good and a bad state, each with its own loss; the state may change after each packet.

    good_to_bad, bad_to_good: probability of the change, per packet. loss_good, loss_bad: of a loss in the state.
    Starts in the stationary distribution. Source: E. N. Gilbert, BSTJ 39 (1960); E. O. Elliott, BSTJ 42 (1963).
    Raises FieldError.
    """

    good_to_bad: float
    bad_to_good: float
    loss_good: float = 0.0
    loss_bad: float = 1.0

    def __post_init__(self) -> None:
        """Check the probabilities."""
        for name in ("good_to_bad", "bad_to_good", "loss_good", "loss_bad"):
            check_probability(name, getattr(self, name))
        if self.good_to_bad == 0 and self.bad_to_good == 0:
            raise FieldError("bad_to_good", "both changes are impossible, so there is no state to start in")

    @classmethod
    def from_means(cls, *, mean_loss: float, mean_burst_packets: float) -> Self:
        """Return the process that loses whole bursts, with the given share of losses and mean length of a burst.

        bad_to_good = 1 / burst; good_to_bad = bad_to_good * loss / (1 - loss), from the balance of the two states.
        Raises FieldError when no such process exists.
        """
        check_probability("mean_loss", mean_loss)
        if not 1 <= mean_burst_packets < INFINITY:
            raise FieldError("mean_burst_packets", f"{mean_burst_packets!r} is not a number of at least 1")
        if mean_loss >= mean_burst_packets / (mean_burst_packets + 1):  # a gap between bursts is one packet or more
            raise FieldError(
                "mean_loss", f"{mean_loss!r} cannot be reached by bursts of {mean_burst_packets!r} packets"
            )
        bad_to_good = 1.0 / mean_burst_packets
        return cls(good_to_bad=bad_to_good * mean_loss / (1.0 - mean_loss), bad_to_good=bad_to_good)

    def start(self, rng: Rng) -> LossProcess:
        """Return a process whose first state is drawn from the stationary distribution."""
        return _GilbertElliott((self.good_to_bad, self.bad_to_good), (self.loss_good, self.loss_bad), rng)

    @property
    def mean_loss(self) -> float:
        """The losses of the two states, weighted by the time spent in each."""
        bad = self.good_to_bad / (self.good_to_bad + self.bad_to_good)
        return (1.0 - bad) * self.loss_good + bad * self.loss_bad


class _TailOfBurst:
    __slots__ = ("_packets",)

    def __init__(self, packets: int) -> None:
        self._packets = packets

    def lost(self, packet: Packet, now: float, /) -> bool:
        left = packet.burst_left
        return left is not None and left < self._packets


@dataclass(frozen=True, slots=True, kw_only=True)
class TailOfBurst(LossSpec):
    """Only the first transmission of the last `packets` data-bearing packets of each burst is lost.

    Raises FieldError when `packets` is not a whole number of at least 1.
    """

    packets: int = 1

    def __post_init__(self) -> None:
        """Check the number."""
        check_whole("packets", self.packets, 1)

    def start(self, rng: Rng) -> LossProcess:
        """Return the process; it has no state and draws nothing."""
        return _TailOfBurst(self.packets)

    @property
    def reads_bursts(self) -> bool:
        """Yes."""
        return True


class _Combined:
    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[LossProcess]) -> None:
        self._parts = parts

    def lost(self, packet: Packet, now: float, /) -> bool:
        lost = False
        for part in self._parts:  # every part is asked about every packet, also when another part loses it
            if part.lost(packet, now):
                lost = True
        return lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined(LossSpec):
    """A packet is lost when any of the parts loses it; each part has a separate stream.

    A part that is added after the others does not change their losses. Raises FieldError when there is no part.
    """

    parts: tuple[LossSpec, ...]

    def __post_init__(self) -> None:
        """Check the parts."""
        if not self.parts:
            raise FieldError("parts", "a combination needs at least one part")
        for part in self.parts:
            if not isinstance(part, LossSpec):
                raise FieldError("parts", f"{part!r} is not a kind of loss")

    def start(self, rng: Rng) -> LossProcess:
        """Return a process that combines those of the parts, each seeded from `rng` in their order."""
        return _Combined([part.start(SplitMix64(rng.getrandbits(64))) for part in self.parts])

    @property
    def mean_loss(self) -> float | None:
        """1 - product(1 - loss of the part): the parts are independent. None when that of a part is None."""
        passed = 1.0
        for part in self.parts:
            if part.mean_loss is None:
                return None
            passed *= 1.0 - part.mean_loss
        return 1.0 - passed

    @property
    def reads_bursts(self) -> bool:
        """Whether the loss of any part does."""
        return any(part.reads_bursts for part in self.parts)
