"""How every command reads its arguments."""

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from bicoastal import ScenarioError, cut


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


@contextmanager
def as_options(*names: str) -> Iterator[None]:
    """Raise a ScenarioError about one of these arguments again as one about the option of that name."""
    try:
        yield
    except ScenarioError as error:
        name, separator, rest = str(error).partition(":")
        if name not in names:
            raise
        raise ScenarioError(f"--{name.replace('_', '-')}{separator}{rest}") from error
