"""Floats in JSON documents: 12 significant digits, so that they are the same on every machine."""

from typing import Any


def rounded(value: Any) -> Any:
    """Return the value with every float in it at 12 significant digits; tuples become lists."""
    match value:
        case float():
            return float(f"{value:.12g}")
        case dict():
            return {key: rounded(inner) for key, inner in value.items()}
        case list() | tuple():
            return [rounded(inner) for inner in value]
    return value
