"""Exit codes, and output on stdout. This module is quick to import."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

DONE, FAILED, BAD_INPUT, UNSUPPORTED, INTERRUPTED = 0, 1, 2, 3, 130


class OutputError(Exception):
    """Stdout cannot be written; the message is one sentence."""


def say(line: str) -> None:
    """Print a line on stdout. Raises OutputError if it cannot be written, BrokenPipeError if the reader is gone."""
    with _output_errors():
        print(line, flush=True)


def flush() -> None:
    """Flush stdout. Raises the errors of `say`."""
    with _output_errors():
        sys.stdout.flush()


@contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output cannot be written ({error.strerror})") from error
