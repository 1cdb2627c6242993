"""Where pictures stand, and what has to be so before one can be drawn; nothing here is slow to import."""

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bicoastal.experiments.runs.store import StoreError

OVERVIEW, SERIES = "overview.png", "series.png"
EXPOSED, STAGES = "exposed-share.png", "stages.png"


def check_places(directory: Path, names: Sequence[str]) -> None:
    """Raise StoreError, before anything has been run for them, where a picture could not be put in its place."""
    for name in names:
        if (directory / name).is_dir():
            raise StoreError(f"{directory / name}: is a directory, and a picture is to stand there")


def make_place(directory: Path, names: Sequence[str]) -> None:
    """Make `directory` for pictures, with its parents. Raises StoreError, in one sentence, where they cannot stand."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise StoreError(f"{directory}: is no directory for pictures ({why})") from error
    check_places(directory, names)


def prepare_matplotlib() -> None:
    """Let matplotlib be imported without a word by whoever has no home, or none that can be written.

    It then keeps its cache in a temporary directory, and warns that this takes longer; nobody here can act on that.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    if "MPLCONFIGDIR" not in os.environ:
        try:
            Path.home()
        except RuntimeError:  # neither HOME nor an entry in the password file: matplotlib would not even start
            cache = os.environ["MPLCONFIGDIR"] = tempfile.mkdtemp(prefix="bicoastal-matplotlib-")
            atexit.register(shutil.rmtree, cache, ignore_errors=True)
