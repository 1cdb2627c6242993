"""The sum behind the Internet checksum (RFC 1071), fast enough to be computed for every packet."""

import numpy as np

from bicoastal.transports.events import Buffer

_VECTOR_FROM_BYTES = 1024  # below it the fixed cost of an array is the larger one
_WORD = np.dtype("<u4")


def ones_complement_sum(data: Buffer) -> int:
    """Return a number congruent, modulo 0xffff, to the sum of `data` as big-endian 16-bit words.

    An odd last octet is padded with a zero on its right (RFC 1071 §1). `data` holds single octets, contiguous.
    """
    size = len(data)
    if size < _VECTOR_FROM_BYTES:
        # 2^16 is 1 modulo 0xffff, so a number is congruent to the sum of its 16-bit words.
        return int.from_bytes(data, "big") << 8 * (size & 1)
    words = np.frombuffer(data, _WORD, size >> 2)
    total = int(np.add.reduce(words, dtype=np.uint64))
    # Summed in the other byte order, the result has its octets swapped (RFC 1071 §2 B): times 2^8 puts them back.
    return (total + int.from_bytes(data[size & ~3 :], "little")) << 8
