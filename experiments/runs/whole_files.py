"""Files that are there whole or not at all, whatever ends the program meanwhile."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bicoastal.experiments.runs.store import StoreError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give the block another file to write, which takes the place of `path` when the block has ended well.

    Two programs may write one path at once. Raises StoreError, in one sentence, where it cannot be written.
    """
    unfinished = path.with_suffix(f"{path.suffix}.{os.getpid()}.unfinished")
    try:
        yield unfinished
        os.replace(unfinished, path)
    except BaseException as error:
        with suppress(OSError):  # where nothing can be written, there is nothing to remove
            unfinished.unlink()
        if isinstance(error, OSError):
            raise StoreError(f"{path}: cannot be written ({error.strerror or error})") from error
        raise
