"""Systematic erasure codes behind one interface: k source symbols, and as many repair symbols as the code can make.

A block is k symbols of `symbol_bytes` each, one after the other. Symbol `index` is the index-th source symbol below k,
and repair symbol `index - k` from there on; the same index always names the same octets, so more repair can be asked
for at any time. Nothing here tells a damaged symbol from a sound one: that is left to whoever carries them (QUIC
authenticates each datagram). What remains, memory that flips a bit, a wrong k, a fault in a library, `Decoder.finish`
catches by a checksum over the whole block, with a chance of 2^-32 to miss it.
"""

from abc import ABC, abstractmethod
from zlib import crc32

from bicoastal.transports.events import Buffer


class CorruptBlockError(ValueError):
    """A block has been put together, and is not the one that was sent."""


def block_checksum(block: Buffer) -> int:
    """Return the CRC-32 (as in ISO 3309, RFC 1952 §8) of a whole block: 32 bits."""
    return crc32(block)


class Encoder(ABC):
    """One block to be protected: it keeps a reference to it, which must not change."""

    def __init__(self, block: Buffer, symbol_bytes: int) -> None:
        self._block = memoryview(block).cast("B")
        self.symbol_bytes = symbol_bytes
        self.k = len(self._block) // symbol_bytes

    def source(self, index: int) -> memoryview:
        """Return source symbol `index`, without a copy."""
        return self._block[index * self.symbol_bytes : (index + 1) * self.symbol_bytes]

    @abstractmethod
    def repair(self, first: int, count: int) -> list[bytes]:
        """Return `count` repair symbols from number `first` on. Raises ValueError past the code's `max_repair`."""


class Decoder:
    """One block being put together from symbols in any order.

    `into`: k * symbol_bytes octets of the caller's, written in place; None for octets of its own.
    """

    def __init__(self, code: "ErasureCode", k: int, symbol_bytes: int, into: memoryview | None = None) -> None:
        self._code = code
        self.k = k
        self.symbol_bytes = symbol_bytes
        self._block = memoryview(bytearray(k * symbol_bytes)) if into is None else into
        if len(self._block) != k * symbol_bytes:
            raise ValueError(f"into: {len(self._block)} bytes are not {k} symbols of {symbol_bytes}")
        self._max_index = k + code.max_repair(k)
        self.reset()

    def reset(self) -> None:
        """Forget every symbol: the way on after a CorruptBlockError."""
        self._present = bytearray(self.k)
        self._sources = 0
        self._repairs: dict[int, bytes] = {}
        self._needed = self.k
        self._done = False

    def has(self, index: int) -> bool:
        """Say whether symbol `index` is here (or no longer needed)."""
        return self._done or (bool(self._present[index]) if index < self.k else index - self.k in self._repairs)

    def add(self, index: int, symbol: Buffer) -> bool:
        """Take a symbol and say whether it was of any use; decodes as soon as there is enough.

        Raises ValueError for an index that the code does not have, or another size.
        """
        if not 0 <= index < self._max_index:
            raise ValueError(f"index: {index!r} is not a symbol of this code, which has {self._max_index}")
        if len(symbol) != self.symbol_bytes:
            raise ValueError(f"symbol: {len(symbol)} bytes, where {self.symbol_bytes} were expected")
        if self.has(index):
            return False
        if index < self.k:
            self._block[index * self.symbol_bytes : (index + 1) * self.symbol_bytes] = symbol
            self._present[index] = 1
            self._sources += 1
        else:
            self._repairs[index - self.k] = bytes(symbol)
        if self._sources == self.k:
            self._done = True
        elif self._sources + len(self._repairs) >= self._needed:
            absent = [at for at in range(self.k) if not self._present[at]]
            self._done = self._code.recover(self._block, self.symbol_bytes, absent, self._repairs)
            self._needed += not self._done
        if self._done:
            self._repairs = {}
        return True

    @property
    def missing(self) -> int:
        """How many more symbols it takes, of whatever index; 0 when the block is whole.

        For a code that is not MDS it is the least that may do, and grows by one when it did not.
        """
        return 0 if self._done else self._needed - self._sources - len(self._repairs)

    def finish(self, checksum: int) -> memoryview:
        """Return the whole block, which must have `checksum` (`block_checksum`).

        Raises CorruptBlockError when it has not, and ValueError while symbols are missing.
        """
        if not self._done:
            raise ValueError(f"block: {self.missing} symbols are missing")
        if block_checksum(self._block) != checksum:
            raise CorruptBlockError("the block that was decoded has another checksum than the one that was sent")
        return self._block


class ErasureCode(ABC):
    """A way to make repair symbols; it holds no block and no state."""

    name: str

    @abstractmethod
    def check_shape(self, k: int, symbol_bytes: int) -> None:
        """Raise ValueError, in one sentence that begins with the argument's name, where the code has no such block."""

    @abstractmethod
    def max_repair(self, k: int) -> int:
        """Return how many repair symbols there are at most for k source symbols."""

    @abstractmethod
    def failure(self, k: int, surplus: int) -> float:
        """Return the probability that k + surplus different symbols, some source symbols missing, do not suffice."""

    @abstractmethod
    def make_encoder(self, block: Buffer, symbol_bytes: int) -> Encoder:
        """Return the encoder of a block of a shape that has been checked."""

    @abstractmethod
    def recover(self, block: memoryview, symbol_bytes: int, absent: list[int], repairs: dict[int, bytes]) -> bool:
        """Fill the `absent` source symbols (ascending) of a block in, from the rest and `repairs`; False if impossible.

        At least as many repairs, by their number from 0, as there are absent symbols.
        """

    def encoder(self, block: Buffer, symbol_bytes: int) -> Encoder:
        """Return the encoder of a block. Raises ValueError for no whole number of symbols, or a shape it has not."""
        if symbol_bytes < 1 or len(block) < 1 or len(block) % symbol_bytes:
            raise ValueError(f"block: {len(block)} bytes are no whole number of symbols of {symbol_bytes}")
        self.check_shape(len(block) // symbol_bytes, symbol_bytes)
        return self.make_encoder(block, symbol_bytes)

    def decoder(self, k: int, symbol_bytes: int, into: memoryview | None = None) -> Decoder:
        """Return the decoder of a block (see `Decoder`). Raises ValueError for a shape that the code has not."""
        self.check_shape(k, symbol_bytes)
        return Decoder(self, k, symbol_bytes, into)
