"""What corruption does to a packet's octets, in the simulator and in the relay."""


def flip_bit(octets: bytes, position: float) -> bytes:
    """Return `octets` with the bit at `position`, a fraction in [0, 1) of their length, flipped."""
    if not octets:
        return octets
    bit = min(int(position * 8 * len(octets)), 8 * len(octets) - 1)
    flipped = bytearray(octets)
    flipped[bit // 8] ^= 1 << (bit % 8)
    return bytes(flipped)
