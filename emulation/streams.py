"""Random streams keyed by (seed, name): draws under one name never change the draws under another name."""

import hashlib
import random


def stream(seed: int, name: str) -> random.Random:
    """Return the generator of `name` in the run with `seed`; it is the same on every platform."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return random.Random(int.from_bytes(digest, "big"))
