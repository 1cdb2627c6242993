"""Cauchy Reed-Solomon over GF(256): any k of the k + r symbols give the block back (MDS), for k + r up to 255.

Repair symbol i (counted from k on) is the sum over j of source_j / (i + j) in GF(2^8) modulo x^8+x^4+x^3+x^2+1: the
Cauchy matrix that ISA-L builds, so that a row depends on its index alone and more of them can be made later. Source of
the construction: Blömer et al., "An XOR-based erasure-resilient coding scheme", ICSI TR-95-048 (1995).

Sums over whole blocks, for repair symbols and for the syndromes of what is missing, run in ISA-L (BSD) by way of
pyeclib. Its own decoder inverts a k × k matrix; here only the e × e Cauchy matrix of the e missing symbols is
inverted, which has a closed form (Schechter, "On the inversion of certain matrices", 1959).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from pyeclib.ec_iface import ECDriver

from bicoastal.transports.coding.codes import Encoder, ErasureCode
from bicoastal.transports.events import Buffer
from bicoastal.wan.checks import FieldError, check_whole

POLYNOMIAL = 0x11D
MAX_SYMBOLS = 255
WORD_BYTES = 16  # what the library rounds a symbol up to

Bytes = NDArray[np.uint8]


def _logarithms() -> tuple[NDArray[np.int64], Bytes]:
    log = np.zeros(256, dtype=np.int64)
    power = np.zeros(255, dtype=np.uint8)
    x = 1
    for exponent in range(255):
        power[exponent] = x
        log[x] = exponent
        x <<= 1
        if x & 0x100:
            x ^= POLYNOMIAL
    return log, power


LOG, POWER = _logarithms()
_PRODUCT: Bytes = POWER[(LOG[:, None] + LOG[None, :]) % 255]
_PRODUCT[0, :] = _PRODUCT[:, 0] = 0
TIMES = [row.tobytes() for row in _PRODUCT]  # for bytes.translate: five times as fast as an index array


@lru_cache(maxsize=256)
def _driver(k: int, r: int) -> ECDriver:
    return ECDriver(k=k, m=r, ec_type="isa_l_rs_cauchy")


def _repairs(block: memoryview, symbol_bytes: int, r: int) -> list[bytes]:
    """Return repair symbols 0 … r - 1: the library's fragments without the header it puts before each."""
    k = len(block) // symbol_bytes
    padded = -(-symbol_bytes // WORD_BYTES) * WORD_BYTES
    if padded != symbol_bytes:
        rows = np.zeros((k, padded), dtype=np.uint8)
        rows[:, :symbol_bytes] = np.frombuffer(block, dtype=np.uint8).reshape(k, symbol_bytes)
        data = rows.tobytes()
    else:
        data = bytes(block)
    fragments = _driver(k, r).encode(data)
    header = len(fragments[0]) - padded
    return [fragment[header : header + symbol_bytes] for fragment in fragments[k:]]


def _cauchy_inverse(x: NDArray[np.int64], y: NDArray[np.int64]) -> Bytes:
    """Return the inverse of the matrix 1 / (x_i + y_j), as rows j and columns i; all of x and y differ."""
    cross = LOG[x[:, None] ^ y[None, :]]  # log of x_i + y_j
    between_x = LOG[x[:, None] ^ x[None, :]]  # 0 on the diagonal, where the factor is left out
    between_y = LOG[y[:, None] ^ y[None, :]]
    exponent = (
        (cross.sum(axis=1) - between_x.sum(axis=1))[None, :] + (cross.sum(axis=0) - between_y.sum(axis=1))[:, None]
    ) - cross.T
    inverse: Bytes = POWER[exponent % 255]
    return inverse


class _ReedSolomonEncoder(Encoder):
    def repair(self, first: int, count: int) -> list[bytes]:
        if first < 0 or count < 0 or self.k + first + count > MAX_SYMBOLS:
            raise FieldError("count", f"k = {self.k} leaves {MAX_SYMBOLS - self.k} repair symbols")
        return _repairs(self._block, self.symbol_bytes, first + count)[first:] if count else []


class ReedSolomon(ErasureCode):
    """The MDS code for short blocks."""

    name = "reed-solomon"

    def check_shape(self, k: int, symbol_bytes: int) -> None:
        """At least one repair symbol must fit into the field."""
        check_whole("k", k, 1)
        check_whole("symbol_bytes", symbol_bytes, 1)
        if k >= MAX_SYMBOLS:
            raise FieldError("k", f"{k} source symbols leave no repair symbol among {MAX_SYMBOLS}")

    def max_repair(self, k: int) -> int:
        """What k leaves of 255."""
        return MAX_SYMBOLS - k

    def failure(self, k: int, surplus: int) -> float:
        """Never, from k symbols on."""
        return 0.0 if surplus >= 0 else 1.0

    def make_encoder(self, block: Buffer, symbol_bytes: int) -> Encoder:
        """Return the encoder, which sums when it is asked."""
        return _ReedSolomonEncoder(block, symbol_bytes)

    def recover(self, block: memoryview, symbol_bytes: int, absent: list[int], repairs: dict[int, bytes]) -> bool:
        """Take the known symbols out of as many repair symbols as are absent, and solve for the rest."""
        k = len(block) // symbol_bytes
        rows = np.frombuffer(block, dtype=np.uint8).reshape(k, symbol_bytes)
        rows[absent] = 0
        used = sorted(repairs)[: len(absent)]
        known = _repairs(block, symbol_bytes, used[-1] + 1)
        syndromes = [
            (np.frombuffer(repairs[at], dtype=np.uint8) ^ np.frombuffer(known[at], dtype=np.uint8)).tobytes()
            for at in used
        ]
        inverse = _cauchy_inverse(k + np.array(used), np.array(absent))
        for row, at in zip(inverse, absent, strict=True):
            for factor, syndrome in zip(row, syndromes, strict=True):
                rows[at] ^= np.frombuffer(syndrome.translate(TIMES[factor]), dtype=np.uint8)
        return True


REED_SOLOMON = ReedSolomon()
