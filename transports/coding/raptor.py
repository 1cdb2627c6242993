"""RaptorQ (RFC 6330): as many repair symbols as are wanted for blocks of thousands of symbols, at linear cost.

By way of the `raptorq` package (Apache-2.0). A packet of the library is the FEC payload ID of RFC 6330 §3.2 (source
block number, 8 bits; encoding symbol ID, 24 bits) and the symbol; repair symbols have IDs from k on (§5.3.1).
"""

import raptorq

from bicoastal.transports.coding.codes import Encoder, ErasureCode
from bicoastal.transports.events import Buffer
from bicoastal.wan.checks import FieldError, check_whole

MAX_SOURCE_SYMBOLS = 56_403  # K'_max, RFC 6330 §5.1.2
MAX_SYMBOL_BYTES = 65_528
MAX_INDEX = 1 << 24  # encoding symbol IDs have 24 bits, RFC 6330 §3.2
ALIGNMENT_BYTES = 8  # of symbols that have at least 64 bytes; what the library takes for Al of §4.3
# The library plans for decoders of 10 MiB and cuts larger blocks into sub-blocks (§4.4.1.2), whose symbols are no
# longer slices of the data. Its K' are up to a few percent apart: this leaves them room.
MAX_BLOCK_BYTES = 9_900_000
ID_BYTES = 4
SHORT = 20  # below this k the library fails more often than the rule for long blocks says


class _RaptorEncoder(Encoder):
    def __init__(self, block: Buffer, symbol_bytes: int) -> None:
        super().__init__(block, symbol_bytes)
        self._native: raptorq.Encoder | None = None
        self._made: list[bytes] = []

    def repair(self, first: int, count: int) -> list[bytes]:
        if first < 0 or count < 0 or self.k + first + count > MAX_INDEX:
            raise FieldError("count", f"k = {self.k} leaves {MAX_INDEX - self.k} repair symbols")
        if first + count > len(self._made):
            if self._native is None:
                self._native = raptorq.Encoder.with_defaults(bytes(self._block), self.symbol_bytes)
            packets = self._native.get_encoded_packets(first + count)
            if len(packets) != self.k + first + count or any(
                packets[at][ID_BYTES:] != self.source(at) for at in (0, self.k - 1)
            ):
                raise FieldError("block", f"k = {self.k}, {self.symbol_bytes} bytes each, was cut into sub-blocks")
            self._made = [packet[ID_BYTES:] for packet in packets[self.k :]]
        return self._made[first : first + count]


class RaptorQ(ErasureCode):
    """The rateless code for long blocks."""

    name = "raptorq"

    def check_shape(self, k: int, symbol_bytes: int) -> None:
        """The block must be one source block of one sub-block."""
        check_whole("k", k, 1)
        check_whole("symbol_bytes", symbol_bytes, 1)
        if k > MAX_SOURCE_SYMBOLS:
            raise FieldError("k", f"{k} source symbols are more than {MAX_SOURCE_SYMBOLS}")
        if symbol_bytes > MAX_SYMBOL_BYTES or (symbol_bytes >= 8 * ALIGNMENT_BYTES and symbol_bytes % ALIGNMENT_BYTES):
            raise FieldError("symbol_bytes", f"{symbol_bytes} is no multiple of 8 of at most {MAX_SYMBOL_BYTES}")
        if k * symbol_bytes > MAX_BLOCK_BYTES:
            raise FieldError("k", f"{k} symbols of {symbol_bytes} bytes are more than {MAX_BLOCK_BYTES} bytes")

    def max_repair(self, k: int) -> int:
        """What k leaves of 24 bits."""
        return MAX_INDEX - k

    def failure(self, k: int, surplus: int) -> float:
        """As if the dense part of the code matrix decided: random rows over GF(256), 256^-(surplus + 1).

        Source: Shokrollahi and Luby, "Raptor codes", Found. Trends Commun. Inf. Theory 6 (2011), ch. 3; for short
        blocks, where the library fails more often, RFC 6330 §5.8 allows 1 in 100, 10^4, 10^6.
        """
        if surplus < 0:
            return 1.0
        return (100.0 if k < SHORT else 256.0) ** -(surplus + 1)

    def make_encoder(self, block: Buffer, symbol_bytes: int) -> Encoder:
        """Return the encoder, which solves for the intermediate symbols when it is first asked for repair."""
        return _RaptorEncoder(block, symbol_bytes)

    def recover(self, block: memoryview, symbol_bytes: int, absent: list[int], repairs: dict[int, bytes]) -> bool:
        """Hand the library everything that is there; it decodes once, when the last symbol completes the count."""
        k = len(block) // symbol_bytes
        native = raptorq.Decoder.with_defaults(len(block), symbol_bytes)
        gone = set(absent)
        whole = None
        for index in range(k):
            if index not in gone:
                at = index * symbol_bytes
                whole = native.decode(index.to_bytes(ID_BYTES, "big") + block[at : at + symbol_bytes])
        for number, symbol in repairs.items():
            if whole is None:
                whole = native.decode((k + number).to_bytes(ID_BYTES, "big") + symbol)
        if whole is None:
            return False
        for index in absent:
            place = slice(index * symbol_bytes, (index + 1) * symbol_bytes)
            block[place] = whole[place]
        return True


RAPTORQ = RaptorQ()
