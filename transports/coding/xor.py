"""Parity: one repair symbol, the XOR of all source symbols. The baseline, and MDS for r = 1."""

import numpy as np

from bicoastal.transports.coding.codes import Encoder, ErasureCode
from bicoastal.transports.events import Buffer
from bicoastal.wan.checks import FieldError, check_whole


def _parity(block: memoryview, symbol_bytes: int) -> bytes:
    rows = np.frombuffer(block, dtype=np.uint8).reshape(-1, symbol_bytes)
    return bytes(np.bitwise_xor.reduce(rows, axis=0))


class _ParityEncoder(Encoder):
    def repair(self, first: int, count: int) -> list[bytes]:
        if first < 0 or first + count > 1:
            raise FieldError("count", "parity has one repair symbol, number 0")
        return [_parity(self._block, self.symbol_bytes)] * count


class Parity(ErasureCode):
    """One repair symbol for any k; repairs one loss."""

    name = "xor"

    def check_shape(self, k: int, symbol_bytes: int) -> None:
        """Any shape will do."""
        check_whole("k", k, 1)
        check_whole("symbol_bytes", symbol_bytes, 1)

    def max_repair(self, k: int) -> int:
        """One."""
        return 1

    def failure(self, k: int, surplus: int) -> float:
        """Never, from k symbols on."""
        return 0.0 if surplus >= 0 else 1.0

    def make_encoder(self, block: Buffer, symbol_bytes: int) -> Encoder:
        """Return the encoder, which sums when it is asked."""
        return _ParityEncoder(block, symbol_bytes)

    def recover(self, block: memoryview, symbol_bytes: int, absent: list[int], repairs: dict[int, bytes]) -> bool:
        """The absent symbol is the sum of all others, the repair symbol among them."""
        at = slice(absent[0] * symbol_bytes, (absent[0] + 1) * symbol_bytes)
        block[at] = repairs[0]
        block[at] = _parity(block, symbol_bytes)
        return True


PARITY = Parity()
