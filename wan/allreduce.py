"""The wide-area part of a hierarchical all-reduce, for one pair of GPUs, with its arithmetic on real arrays.

Each coast has `ranks_per_site` ranks. A reduce-scatter inside the coast gives every rank the coast's sum of its own
shard. The rank and its partner on the other coast then add their two sums across the WAN. An all-gather inside the
coast distributes the result to every rank. This module computes one such shard: each rank's gradients for it, the
messages that cross the WAN, and the result.

Gradients are integers so small that the sum over all ranks of both coasts fits their type. So the sum is exact in any
order. They are a function of (seed, site, rank, iteration), so a coast can compute the true result without any byte
that has crossed the WAN.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bicoastal.wan.checks import FieldError, check_name, check_positive, check_whole
from bicoastal.wan.collectives import LocalStage
from bicoastal.wan.octets import Buffer, Collected, Repeated
from bicoastal.wan.units import format_size

Array = npt.NDArray[np.signedinteger[Any]]
Pattern = Literal["exchange", "reduce-scatter"]

_DTYPES = {"int8": "<i1", "int16": "<i2", "int32": "<i4", "int64": "<i8"}  # the wire is little-endian everywhere
_BLOCK = 1 << 15  # elements processed at a time: a few blocks fit a second-level cache


@dataclass(frozen=True, slots=True, kw_only=True)
class WanMessage:
    """One message across the WAN. trip: counted from 0; a site begins a trip when it has received the one before."""

    trip: int
    source: str
    destination: str
    payload_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceSpec:
    """The specification of an all-reduce between two coasts.

    sites: the two coasts. shard_bytes: what one GPU has to send across, per direction.
    pattern: "exchange" sends the whole shard in one trip; "reduce-scatter" sends half of it in each of two (a
    reduce-scatter, then an all-gather, between the coasts).
    ranks_per_site: ranks whose gradients are summed inside each coast. dtype: int8, int16, int32 or int64.
    array_bytes: None for gradients as large as the shard; else a smaller size, and the array is repeated until it fills
    its message. local_stages: the stages inside each coast, in their order. When empty, they are a reduce-scatter and
    an all-gather over the ranks of the site at fabric_Bps. fabric_Bps: bytes/s of a GPU's network inside the coast, by
    default the 800 Gbit/s scale-out of arXiv 2407.12819. seed: of the gradients.

    Sizes need not be multiples of the element. The array has as many whole elements as fit, and the rest of a message
    repeats the array's beginning. An odd number of elements is halved with the larger half first.
    Raises FieldError.
    """

    sites: tuple[str, str]
    shard_bytes: int
    pattern: Pattern = "exchange"
    ranks_per_site: int = 2
    dtype: str = "int32"
    array_bytes: int | None = None
    local_stages: tuple[LocalStage, ...] = ()
    fabric_Bps: float = 100e9  # noqa: N815 (bytes per second are written B/s)
    seed: int = 0

    def __post_init__(self) -> None:
        """Check that the sum is exact and that no message is empty."""
        if len(self.sites) != 2 or self.sites[0] == self.sites[1]:
            raise FieldError("sites", f"{self.sites!r} are not two different sites")
        for site in self.sites:
            check_name("sites", site)
        if self.pattern not in ("exchange", "reduce-scatter"):
            raise FieldError("pattern", f"{self.pattern!r} is neither 'exchange' nor 'reduce-scatter'")
        if self.dtype not in _DTYPES:
            raise FieldError("dtype", f"{self.dtype!r} is not one of {', '.join(_DTYPES)}")
        check_whole("ranks_per_site", self.ranks_per_site, 1)
        if self.headroom_bits > 8 * self.itemsize - 2:  # at least a sign and one bit are left for the value
            raise FieldError(
                "ranks_per_site", f"the sum over {2 * self.ranks_per_site} ranks may overflow {self.dtype}"
            )
        least = self.itemsize * self.trips
        check_whole("shard_bytes", self.shard_bytes, least)
        if self.array_bytes is not None:
            check_whole("array_bytes", self.array_bytes, least)
            if self.array_bytes > self.shard_bytes:
                raise FieldError("array_bytes", f"{self.array_bytes!r} is more than the shard's {self.shard_bytes!r}")
        check_positive("fabric_Bps", self.fabric_Bps)
        if not isinstance(self.seed, int):
            raise FieldError("seed", f"{self.seed!r} is not a whole number")

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.dtype.removeprefix("int")) // 8

    @property
    def headroom_bits(self) -> int:
        """Bits that the sum over both coasts' ranks has more than a gradient."""
        return (2 * self.ranks_per_site - 1).bit_length()

    @property
    def elements(self) -> int:
        """Elements of the real array."""
        return (self.shard_bytes if self.array_bytes is None else self.array_bytes) // self.itemsize

    @property
    def array_note(self) -> str:
        """One sentence on how the array was scaled to save memory; empty when it was not scaled."""
        if self.array_bytes is None or self.array_bytes == self.shard_bytes:
            return ""
        array, shard = format_size(self.elements * self.itemsize), format_size(self.shard_bytes)
        return f"Each rank's gradients are an array of {array}, repeated to fill the {shard} that cross the WAN."

    @property
    def trips(self) -> int:
        """One-way trips, one after another, that an all-reduce takes."""
        return 1 if self.pattern == "exchange" else 2

    @property
    def messages(self) -> tuple[WanMessage, ...]:
        """Every message, both directions, trip by trip."""
        west, east = self.sites
        if self.pattern == "exchange":
            plan = [(0, west, self.shard_bytes), (0, east, self.shard_bytes)]
        else:
            # Each coast sends the half that the other is to sum, then the half that it has summed itself.
            first, second = _halve(self.shard_bytes // self.itemsize, self.itemsize, self.shard_bytes)
            plan = [(0, west, second), (0, east, first), (1, west, first), (1, east, second)]
        return tuple(
            WanMessage(trip=trip, source=source, destination=east if source == west else west, payload_bytes=size)
            for trip, source, size in plan
        )

    def trip_bytes(self, trip: int) -> int:
        """Return the size of the trip's larger message; the two differ only where a shard has no equal halves.

        Raises FieldError when there is no such trip.
        """
        sizes = [message.payload_bytes for message in self.messages if message.trip == trip]
        if not sizes:
            raise FieldError("trip", f"{trip!r} is not one of the {self.trips} of this all-reduce")
        return max(sizes)

    @property
    def payload_bytes(self) -> int:
        """All bytes that cross the WAN: all trips, both directions."""
        return sum(message.payload_bytes for message in self.messages)

    @property
    def local_s(self) -> float:
        """Time inside the coast before and after the WAN, in seconds: the sum of the local stages."""
        if self.local_stages:
            return sum(stage.time_s for stage in self.local_stages)
        whole = self.ranks_per_site * self.shard_bytes
        ring = LocalStage(
            name="coast",
            collective="all-reduce",  # its reduce-scatter before the WAN, its all-gather after it
            ranks=self.ranks_per_site,
            volume_bytes=whole,
            rate_Bps=self.fabric_Bps,
        )
        return ring.time_s


def _halve(elements: int, itemsize: int, total_bytes: int) -> tuple[int, int]:
    first = (elements + 1) // 2 * itemsize
    return first, total_bytes - first


class _Gradient:
    """One rank's gradients, block by block: element i is the top of (i * multiplier + offset) modulo a power of two.

    A multiplier near 2^bits / golden ratio scatters neighbours as far as possible (Knuth, TAOCP vol. 3, §6.4), so that
    data in a wrong place are detected. An element takes one addition and one shift.
    """

    __slots__ = ("_mask", "_multiplier", "_offset", "_scratch", "_shift", "_signed", "_table")

    def __init__(self, spec: AllReduceSpec, site: str, rank: int, iteration: int) -> None:
        if site not in spec.sites:
            raise FieldError("site", f"{site!r} is not one of {spec.sites!r}")
        if not 0 <= rank < spec.ranks_per_site:
            raise FieldError("rank", f"{rank!r} is not one of {spec.ranks_per_site}")
        bits = max(32, 8 * spec.itemsize)
        unsigned = np.dtype(f"u{bits // 8}")
        key = blake2b(repr((spec.seed, site, rank, iteration)).encode(), digest_size=16).digest()
        self._mask = (1 << bits) - 1
        golden = 0x9E3779B97F4A7C15 >> (64 - bits)
        self._multiplier = golden ^ (int.from_bytes(key[:8], "big") & self._mask >> 8) | 1
        self._offset = int.from_bytes(key[8:], "big") & self._mask
        self._shift = bits - 8 * spec.itemsize + spec.headroom_bits
        self._signed = np.dtype(f"i{bits // 8}")
        block = min(_BLOCK, spec.elements)
        self._table = np.arange(block, dtype=unsigned) * unsigned.type(self._multiplier)
        self._scratch = np.empty(block, dtype=unsigned)

    def add_to(self, block: Array, start: int) -> None:
        """Add the elements from `start` on to a block of at most `_BLOCK`."""
        scratch = self._scratch[: block.size]
        base = (start * self._multiplier + self._offset) & self._mask
        np.add(self._table[: block.size], scratch.dtype.type(base), out=scratch)
        values = scratch.view(self._signed)
        np.right_shift(values, self._shift, out=values)  # arithmetic: the sign stays
        np.add(block, values, out=block, casting="unsafe")  # int8 and int16 are narrower than the unsigned values


def _add_gradients(gradients: Sequence[_Gradient], block: Array, start: int) -> None:
    for gradient in gradients:
        gradient.add_to(block, start)


def _blocks(elements: int) -> Sequence[tuple[int, int]]:
    return [(start, min(start + _BLOCK, elements)) for start in range(0, elements, _BLOCK)]


def _sum_of(spec: AllReduceSpec, gradients: Sequence[_Gradient]) -> Array:
    total: Array = np.zeros(spec.elements, dtype=_DTYPES[spec.dtype])
    for start, stop in _blocks(spec.elements):
        _add_gradients(gradients, total[start:stop], start)
    return total


def gradient(spec: AllReduceSpec, site: str, rank: int, iteration: int) -> Array:
    """Return the gradients of one rank for the shard: `spec.elements` integers, different in each iteration.

    Raises FieldError for a site or rank that `spec` does not have.
    """
    return _sum_of(spec, [_Gradient(spec, site, rank, iteration)])


class Outgoing(NamedTuple):
    """A message that a coast has to send, in any stripes."""

    trip: int
    payload: Repeated


class Coast:
    """One coast's part of the all-reduce: the messages to send, the response to arrivals, and the check of the result.

    It does not use a network. `begin` starts an iteration and forgets the one before. Messages and their stripes may
    arrive in any order. Memory: one array each for the coast's sum and the result, and that of `wan.octets`.
    """

    def __init__(self, spec: AllReduceSpec, site: str) -> None:
        if site not in spec.sites:
            raise FieldError("site", f"{site!r} is not one of {spec.sites!r}")
        self.spec = spec
        self.site = site
        self._outgoing = {message.trip: message.payload_bytes for message in spec.messages if message.source == site}
        middle = spec.elements if spec.pattern == "exchange" else (spec.elements + 1) // 2
        first, second = slice(0, middle), slice(middle, spec.elements)
        self._own, self._other = (first, second) if site == spec.sites[0] else (second, first)
        if spec.pattern == "exchange":
            self._own = self._other = first
        self._incoming = {
            message.trip: Collected(message.payload_bytes, self._part_bytes(message.trip))
            for message in spec.messages
            if message.destination == site
        }
        self._iteration = -1
        self._sum: Array = np.empty(0, dtype=_DTYPES[spec.dtype])
        self._result = self._sum
        self._awaited: set[int] = set()

    def _part(self, trip: int) -> slice:
        """Return the part of the array that an incoming message of this trip carries."""
        return self._own if trip == 0 else self._other

    def _part_bytes(self, trip: int) -> int:
        part = self._part(trip)
        return int(part.stop - part.start) * self.spec.itemsize

    def begin(self, iteration: int) -> list[Outgoing]:
        """Reduce inside the coast and return the first trip's message."""
        spec = self.spec
        self._iteration = iteration
        # Always new arrays: the old ones may still be on their way.
        ranks = [_Gradient(spec, self.site, rank, iteration) for rank in range(spec.ranks_per_site)]
        self._sum = _sum_of(spec, ranks)
        self._result = np.empty_like(self._sum)
        self._awaited = set(self._incoming)
        for collected in self._incoming.values():
            collected.begin()
        return [self._message(0, self._sum[self._other])]

    def receive(self, trip: int, data: Buffer, start: int = 0) -> list[Outgoing]:
        """Take the stripe at `start` of a message from the other coast; return the messages that can be sent now.

        Raises FieldError for a trip that does not exist, and for a trip or octets that have already arrived.
        """
        if trip not in self._incoming:
            raise FieldError("trip", f"{trip!r} is not one of the {self.spec.trips} of this all-reduce")
        if trip not in self._awaited:
            raise FieldError("trip", f"a message for trip {trip} is not awaited")
        octets = self._incoming[trip].take(start, data)
        if octets is None:
            return []
        self._awaited.remove(trip)
        part = self._part(trip)
        target = self._result[part]
        received: Array = octets.view(self._result.dtype)
        if trip == 1:
            target[:] = received
            return []
        np.add(self._sum[part], received, out=target)
        return [self._message(1, target)] if self.spec.trips == 2 else []

    @property
    def finished(self) -> bool:
        """Whether everything has arrived and every rank has its result."""
        return self._iteration >= 0 and not self._awaited

    def result(self, rank: int) -> Array:
        """Return the read-only result of `rank` after the all-gather; the ranks of a coast share one array.

        Raises FieldError when there is no such rank, or no result yet.
        """
        if not 0 <= rank < self.spec.ranks_per_site:
            raise FieldError("rank", f"{rank!r} is not one of {self.spec.ranks_per_site}")
        if not self.finished:
            raise FieldError("rank", "the all-reduce is not finished")
        view = self._result.view()
        view.flags.writeable = False
        return view

    def verify(self) -> bool:
        """Compare the result, which is one array for all ranks of the coast, with the true sum, calculated again.

        False when a single bit of it or of a repeated copy differs, or when a message is missing.
        """
        if not self.finished or not all(collected.intact for collected in self._incoming.values()):
            return False
        spec = self.spec
        gradients = [
            _Gradient(spec, site, rank, self._iteration) for site in spec.sites for rank in range(spec.ranks_per_site)
        ]
        truth: Array = np.empty(min(_BLOCK, spec.elements), dtype=self._result.dtype)
        for start, stop in _blocks(spec.elements):
            block = truth[: stop - start]
            block.fill(0)
            _add_gradients(gradients, block, start)
            if not np.array_equal(block, self._result[start:stop]):
                return False
        return True

    def _message(self, trip: int, array: Array) -> Outgoing:
        return Outgoing(trip, Repeated(array.view(np.uint8), self._outgoing[trip]))
