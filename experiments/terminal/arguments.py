"""How every command reads its arguments."""

import argparse
import re
from pathlib import Path
from typing import Any, NoReturn

from bicoastal.experiments.scenario.tables import ScenarioError
from bicoastal.wan.checks import cut


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, and takes no shortened options: later ones would change their meaning."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raise it as what `experiments.cli` makes one sentence of."""
        raise ScenarioError(re.sub(r"\S+", lambda word: cut(word[0]), message))


def directory(text: str) -> Path:
    """Return the directory that an argument names; it need not exist. Raises argparse.ArgumentTypeError for none."""
    if not text:
        raise argparse.ArgumentTypeError("'' names no directory")
    return Path(text)
