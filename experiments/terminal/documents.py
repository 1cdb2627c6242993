"""How commands print what programs read: one JSON document on stdout, and nothing else."""

import json
from typing import Any

from bicoastal.experiments.terminal.console import say


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


def say_document(document: object) -> None:
    """Print a JSON document. Raises ValueError for a float that JSON does not have, and as `say` does."""
    say(json.dumps(document, indent=2, allow_nan=False))
