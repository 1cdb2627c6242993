"""How commands print what programs read: one JSON document on stdout, and nothing else."""

import json

from bicoastal.experiments.terminal.console import say


def say_document(document: object) -> None:
    """Print a JSON document. Raises ValueError for a float that JSON does not have, and as `say` does."""
    say(json.dumps(document, indent=2, allow_nan=False))
