"""How commands end, and where they print what they were asked for. Nothing here is slow to import."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

DONE, FAILED, BAD_INPUT, UNSUPPORTED, INTERRUPTED = 0, 1, 2, 3, 130


class OutputError(Exception):
    """Stdout cannot be written; the message is one sentence."""


def say(line: str) -> None:
    """Print a line on stdout. Raises OutputError where that cannot be written, BrokenPipeError when nobody reads."""
    with _told():
        print(line, flush=True)


def flush() -> None:
    """Bring out what others have printed on stdout. Raises as `say` does."""
    with _told():
        sys.stdout.flush()


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output cannot be written ({error.strerror})") from error
