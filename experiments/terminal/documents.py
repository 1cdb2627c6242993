"""Output for programs: one JSON document on stdout, and nothing else."""

import json

from bicoastal.experiments.terminal.console import say


def say_document(document: object) -> None:
    """Print a JSON document. Raises ValueError for nan or infinity, and the errors of `say`."""
    say(json.dumps(document, indent=2, allow_nan=False))
