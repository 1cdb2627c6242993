"""The file names of figures, and the checks before a figure is drawn. It imports matplotlib only to write one."""

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bicoastal import StoreError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OVERVIEW, SERIES = "overview.png", "series.png"
EXPOSED, STAGES = "exposed-share.png", "stages.png"


def check_places(directory: Path, names: Sequence[str]) -> None:
    """Raise StoreError if one of these files cannot be written, so that the user knows it before the runs."""
    for name in names:
        if (directory / name).is_dir():
            raise StoreError(f"{directory / name}: is a directory, and a picture is to stand there")


def make_place(directory: Path, names: Sequence[str]) -> None:
    """Make `directory`, with its parents, for pictures. Raises StoreError, in one sentence, if it cannot be used."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = getattr(error, "strerror", None) or error
        raise StoreError(f"{directory}: is no directory for pictures ({why})") from error
    check_places(directory, names)


def prepare_matplotlib() -> None:
    """Prepare this process for matplotlib: for the command line, since it changes the logging and the environment.

    Without a home directory that can be written, matplotlib keeps its cache in a temporary one and warns about it. A
    user of the command line cannot act on that warning.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    if "MPLCONFIGDIR" not in os.environ:
        try:
            Path.home()
        except RuntimeError:  # neither HOME nor an entry in the password file: matplotlib would not even start
            cache = os.environ["MPLCONFIGDIR"] = tempfile.mkdtemp(prefix="bicoastal-matplotlib-")
            atexit.register(shutil.rmtree, cache, ignore_errors=True)


def write_figures(directory: Path, figures: "Mapping[str, Figure | None]") -> list[str]:
    """Write each figure under its file's name into a directory; return the paths. Raises StoreError in one sentence."""
    from bicoastal import save_figure  # noqa: PLC0415 (it imports matplotlib, which is slow)

    return [str(save_figure(figure, directory / name)) for name, figure in figures.items() if figure is not None]
