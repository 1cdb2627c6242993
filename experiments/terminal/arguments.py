"""The parsing of arguments, common to all commands."""

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from bicoastal import ScenarioError
from bicoastal.commandline import cut


class Parser(argparse.ArgumentParser):
    """Reports errors in one sentence. It accepts no shortened options: a new option could change their meaning."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raise a ScenarioError; `experiments.cli` prints it as one sentence."""
        raise ScenarioError(re.sub(r"\S+", lambda word: cut(word[0]), message))


def directory(text: str) -> Path:
    """Return the directory that an argument names. It need not exist. Raises argparse.ArgumentTypeError if empty."""
    if not text:
        raise argparse.ArgumentTypeError("'' names no directory")
    return Path(text)


@contextmanager
def as_options(*names: str) -> Iterator[None]:
    """Turn a ScenarioError about one of these arguments into one about the option: "scale: …" into "--scale: …"."""
    try:
        yield
    except ScenarioError as error:
        name, separator, rest = str(error).partition(":")
        if name not in names:
            raise
        raise ScenarioError(f"--{name.replace('_', '-')}{separator}{rest}") from error
