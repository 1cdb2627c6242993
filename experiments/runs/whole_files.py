"""Files that are complete or absent, also when the program ends while it writes them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bicoastal.experiments.runs.store import StoreError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give the block another file to write. It replaces `path` when the block has ended without an error.

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
