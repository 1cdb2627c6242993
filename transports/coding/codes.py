"""Systematic erasure codes behind one interface: k source symbols, and as many repair symbols as the code can make.

A block is k symbols of `symbol_bytes` each, one after the other. Symbol `index` is the index-th source symbol below k,
and repair symbol `index - k` from there on; the same index always names the same octets, so more repair can be asked
for at any time. Nothing here detects a damaged symbol: that is the task of the transport (QUIC authenticates each
datagram). `Decoder.finish` detects other errors (a flipped bit in memory, a wrong k, a fault in a library) by a
checksum over the whole block, and misses one with a probability of 2^-32.
"""

from abc import ABC, abstractmethod
from zlib import crc32

from bicoastal.transports.events import Buffer
from bicoastal.wan.checks import FieldError


class CorruptBlockError(ValueError):
    """A decoded block differs from the one that was sent."""


def block_checksum(block: Buffer) -> int:
    """Return the CRC-32 (as in ISO 3309, RFC 1952 §8) of a whole block: 32 bits."""
    return crc32(block)


class Encoder(ABC):
    """Makes the symbols of one block. It keeps a reference to the block, which must not change."""

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
    """Decodes one block from symbols in any order.

    into: k * symbol_bytes octets of the caller, which are written in place; None for a buffer of its own.
    """

    def __init__(self, code: "ErasureCode", k: int, symbol_bytes: int, into: memoryview | None = None) -> None:
        self._code = code
        self.k = k
        self.symbol_bytes = symbol_bytes
        self._block = memoryview(bytearray(k * symbol_bytes)) if into is None else into
        if len(self._block) != k * symbol_bytes:
            raise FieldError("into", f"{len(self._block)} bytes are not {k} symbols of {symbol_bytes}")
        self._max_index = k + code.max_repair(k)
        self.reset()

    def reset(self) -> None:
        """Forget every symbol, to begin again after a CorruptBlockError."""
        self._present = bytearray(self.k)
        self._sources = 0
        self._repairs: dict[int, bytes] = {}
        self._needed = self.k
        self._done = False

    def has(self, index: int) -> bool:
        """Tell whether symbol `index` has arrived, or is no longer needed."""
        return self._done or (bool(self._present[index]) if index < self.k else index - self.k in self._repairs)

    def add(self, index: int, symbol: Buffer) -> bool:
        """Take a symbol and tell whether it was useful; decode as soon as there are enough.

        Raises ValueError for an index that the code does not have, or another size.
        """
        if not 0 <= index < self._max_index:
            raise FieldError("index", f"{index!r} is not a symbol of this code, which has {self._max_index}")
        if len(symbol) != self.symbol_bytes:
            raise FieldError("symbol", f"{len(symbol)} bytes, where {self.symbol_bytes} were expected")
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
        """How many more symbols are needed, of any index; 0 when the block is decoded.

        For a code that is not MDS it is the least number that may suffice, and grows by one when it did not.
        """
        return 0 if self._done else self._needed - self._sources - len(self._repairs)

    def finish(self, checksum: int) -> memoryview:
        """Return the whole block, which must have `checksum` (`block_checksum`).

        Raises CorruptBlockError for another checksum, and ValueError while symbols are missing.
        """
        if not self._done:
            raise FieldError("block", f"{self.missing} symbols are missing")
        if block_checksum(self._block) != checksum:
            raise CorruptBlockError("the block that was decoded has another checksum than the one that was sent")
        return self._block


class ErasureCode(ABC):
    """A way to make repair symbols. It keeps no block and no state."""

    name: str

    @abstractmethod
    def check_shape(self, k: int, symbol_bytes: int) -> None:
        """Raise ValueError, as FieldError, where the code has no such block."""

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
        """Return the encoder of a block.

        Raises FieldError where the block is no whole number of symbols, or the code has no such shape.
        """
        if symbol_bytes < 1 or len(block) < 1 or len(block) % symbol_bytes:
            raise FieldError("block", f"{len(block)} bytes are no whole number of symbols of {symbol_bytes}")
        self.check_shape(len(block) // symbol_bytes, symbol_bytes)
        return self.make_encoder(block, symbol_bytes)

    def decoder(self, k: int, symbol_bytes: int, into: memoryview | None = None) -> Decoder:
        """Return the decoder of a block (see `Decoder`). Raises FieldError where the code has no such shape."""
        self.check_shape(k, symbol_bytes)
        return Decoder(self, k, symbol_bytes, into)
