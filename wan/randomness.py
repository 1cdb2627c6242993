"""The interface of random generators, geometric draws, and a small generator."""

from math import log, log1p
from typing import Protocol

NEVER = 1 << 62  # more packets than any run has


class Rng(Protocol):
    """A random generator; a seeded `random.Random` is one."""

    def random(self) -> float:
        """Return a float, uniform in [0, 1)."""

    def getrandbits(self, k: int, /) -> int:
        """Return an integer of `k` random bits."""


def geometric(rng: Rng, probability: float) -> int:
    """Return how many failures precede the first success, when each trial succeeds with `probability`.

    One draw, by inversion: P(N >= n) = (1 - p)^n (Devroye, "Non-Uniform Random Variate Generation", ch. X.2).
    """
    if probability <= 0.0:
        return NEVER
    if probability >= 1.0:
        return 0
    failures = log(1.0 - rng.random()) / log1p(-probability)
    return int(failures) if failures < NEVER else NEVER


class SplitMix64:
    """A small generator with its own stream, for a part of a combination.

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014, figure 17.
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & 0xFFFFFFFFFFFFFFFF

    def _next64(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return z ^ (z >> 31)

    def random(self) -> float:
        """Return a float, uniform in [0, 1), with 53 random bits."""
        return (self._next64() >> 11) * 2.0**-53

    def getrandbits(self, k: int, /) -> int:
        """Return an integer of `k` random bits."""
        value = 0
        for _ in range(-(-k // 64)):
            value = value << 64 | self._next64()
        return value >> (-k % 64)
