"""Random streams keyed by (seed, name): what draws under one name is never moved by what draws under another."""

import hashlib
import random


def stream(seed: int, name: str) -> random.Random:
    """Return the generator that belongs to `name` in the run with `seed`; alike on every platform."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return random.Random(int.from_bytes(digest, "big"))
