"""Digests: equal values get the same short name, on every machine and in every process."""

import hashlib
import json


def digest(value: object) -> str:
    """Return 16 hexadecimal digits of SHA-256 over a value's JSON; what JSON does not have counts by its text."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
