"""How commands end, and where they print what they were asked for. Nothing here is slow to import."""

DONE, FAILED, BAD_INPUT, UNSUPPORTED, INTERRUPTED = 0, 1, 2, 3, 130


class OutputError(Exception):
    """Stdout cannot be written; the message is one sentence."""


class TerminatedError(BaseException):
    """SIGTERM or SIGHUP has come: like KeyboardInterrupt, nothing but the outermost level stops it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def say(line: str) -> None:
    """Print a line on stdout. Raises OutputError where that cannot be written, BrokenPipeError when nobody reads."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output cannot be written ({error.strerror})") from error
