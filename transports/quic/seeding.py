"""Random numbers for aioquic that follow from a generator of ours."""

from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

from cryptography.hazmat.primitives.asymmetric import x25519

from bicoastal.transports.base import Rng


class SeededSources:
    """What stands for the modules `os` and `x25519` where aioquic draws from them; `rng` gives every octet."""

    def __init__(self, rng: Rng) -> None:
        def urandom(size: int) -> bytes:
            return rng.getrandbits(8 * size).to_bytes(size, "big") if size else b""

        def generate() -> x25519.X25519PrivateKey:
            return x25519.X25519PrivateKey.from_private_bytes(urandom(32))

        self.urandom = urandom
        self.os = SimpleNamespace(urandom=urandom)
        self.x25519 = SimpleNamespace(
            X25519PrivateKey=SimpleNamespace(generate=generate), X25519PublicKey=x25519.X25519PublicKey
        )


def with_globals(function: Callable[..., Any], **replacements: object) -> FunctionType:
    """Return a copy of `function` for which some names of its module have other values.

    aioquic draws its random numbers with `os.urandom` and `generate()` of its modules. Other values in the modules
    themselves would change every other user of aioquic in the process. Raises TypeError for a function with a closure.
    """
    if not isinstance(function, FunctionType) or function.__closure__:
        raise TypeError(f"{function!r} is no plain function")
    bound = FunctionType(function.__code__, {**function.__globals__, **replacements}, function.__name__)
    bound.__defaults__, bound.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return bound
