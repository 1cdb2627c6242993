"""Encode and decode MB/s of every erasure code, absolute and relative to plain XOR of the same block in the same run.

    python benchmarks/erasure_codes.py [SECONDS_PER_FIGURE]

Encode: all r repair symbols of a block from its k source symbols. Decode: r source symbols are lost, and come back
from the k - r that are left and the r repair symbols, counted from the moment all of them are there. MB are of source
data (10^6 bytes); one core. "ratio" is the time that numpy takes to XOR the block into one symbol, over the code's.
"""

import random
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np

from bicoastal.transports.coding.codes import ErasureCode
from bicoastal.transports.coding.raptor import RAPTORQ
from bicoastal.transports.coding.reed_solomon import REED_SOLOMON
from bicoastal.transports.coding.xor import PARITY

SHAPES: list[tuple[ErasureCode, int, int]] = [
    (PARITY, 16, 1),
    (PARITY, 64, 1),
    (REED_SOLOMON, 16, 4),
    (REED_SOLOMON, 64, 8),
    (REED_SOLOMON, 220, 8),
    (RAPTORQ, 64, 8),
    (RAPTORQ, 220, 8),
    (RAPTORQ, 1000, 12),
    (RAPTORQ, 6000, 60),
]
SYMBOL_BYTES = (1200, 1432, 8904)


def seconds_each(work: Callable[[], object], at_least_s: float) -> float:
    work()
    rounds, spent = 0, 0.0
    begin = perf_counter()
    while spent < at_least_s:
        work()
        rounds += 1
        spent = perf_counter() - begin
    return spent / rounds


def measure(code: ErasureCode, k: int, r: int, symbol_bytes: int, at_least_s: float) -> tuple[float, float, float]:
    """Return seconds for: XOR of the block, encoding, decoding."""
    rng = random.Random(k)
    block = rng.randbytes(k * symbol_bytes)
    rows = np.frombuffer(block, dtype=np.uint8).reshape(k, symbol_bytes)
    baseline = seconds_each(lambda: np.bitwise_xor.reduce(rows, axis=0), at_least_s)
    encode = seconds_each(lambda: code.encoder(block, symbol_bytes).repair(0, r), at_least_s)
    spare = code.encoder(block, symbol_bytes).repair(0, min(r + 5, code.max_repair(k)))
    lost = sorted(rng.sample(range(k), r))
    body = memoryview(bytearray(block))

    def decode() -> None:
        for count in range(r, len(spare) + 1):  # RaptorQ needs one more now and then
            if code.recover(body, symbol_bytes, lost, dict(enumerate(spare[:count]))):
                return
        raise ValueError(f"{code.name} cannot decode k = {k}")

    took = seconds_each(decode, at_least_s)
    if bytes(body) != block:
        raise ValueError(f"{code.name} decoded another block than was encoded")
    return baseline, encode, took


def main() -> None:
    at_least_s = float(sys.argv[1]) if len(sys.argv) > 1 else 0.2
    print(f"{'code':14}{'k':>6}{'r':>4}{'symbol':>8}{'encode MB/s':>13}{'ratio':>8}{'decode MB/s':>13}{'ratio':>8}")
    for code, k, r in SHAPES:
        for symbol_bytes in SYMBOL_BYTES:
            try:
                code.check_shape(k, symbol_bytes)
            except ValueError:
                continue
            baseline, encode, decode = measure(code, k, r, symbol_bytes, at_least_s)
            size = k * symbol_bytes / 1e6
            print(
                f"{code.name:14}{k:6}{r:4}{symbol_bytes:8}{size / encode:13.0f}{baseline / encode:8.3f}"
                f"{size / decode:13.0f}{baseline / decode:8.3f}"
            )


if __name__ == "__main__":
    main()
