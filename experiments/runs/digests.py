"""Names for what specifications say: equal ones get the same, on every machine and in every process."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum


def canonical(value: object) -> object:
    """Return what JSON can hold of specs: dataclasses with their names, mappings in their order, exact floats."""
    if is_dataclass(value) and not isinstance(value, type):
        return {type(value).__name__: {f.name: canonical(getattr(value, f.name)) for f in fields(value) if f.init}}
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value.hex()
        case Enum():
            return canonical(value.value)
        case Mapping():
            return [[canonical(key), canonical(item)] for key, item in value.items()]
        case frozenset() | set():
            return sorted(json.dumps(canonical(item), sort_keys=True) for item in value)
        case list() | tuple():
            return [canonical(item) for item in value]
    raise TypeError(f"{type(value).__name__} has no canonical form")


def digest(value: object) -> str:
    """Return 16 hexadecimal digits of SHA-256 over a value's JSON; what JSON does not have counts by its text."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
