"""The command line, `bicoastal COMMAND …`: exit codes and signals. `experiments.commands.parser` lists the commands.

Exit codes: 0 done; 1 a run failed; 2 bad usage or input, in one sentence; 3 nothing asked for is supported here;
130 interrupted. Those of `exec` are its programs' own, once they run.

Whatever takes its time to import is imported once signals are taken care of: a Ctrl-C in the first half second is one
like any other.
"""

import io
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from bicoastal.experiments.basics.interruption import TerminatedError
from bicoastal.experiments.terminal.console import (
    BAD_INPUT,
    DONE,
    FAILED,
    INTERRUPTED,
    UNSUPPORTED,
    OutputError,
    flush,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` asks for, and return its exit code; what it may raise becomes a sentence and one too.

    argv: None for the process's arguments; the process is then prepared.
    """
    try:
        if argv is None:
            _prepare_process()
        code = _run(argv)
        flush()
    except OutputError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # see below
        print(f"bicoastal: {error}", file=sys.stderr)
        return BAD_INPUT
    except TerminatedError as error:
        print("bicoastal: terminated; what was finished is kept", file=sys.stderr)
        return 128 + error.number
    except KeyboardInterrupt:
        print("bicoastal: interrupted; what was finished is kept", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has had enough. The interpreter flushes stdout once more at its end: give it a place to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except Exception as error:
        known = _code_of(error)
        if known is None:
            raise
        print(f"bicoastal: {error}", file=sys.stderr)
        return known
    return code


def _run(argv: Sequence[str] | None) -> int:
    from bicoastal.experiments.commands.parser import build_parser  # noqa: PLC0415 (slow: see the top of this file)

    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as ended:  # after --help or --version
        return ended.code if isinstance(ended.code, int) else DONE
    code: int = arguments.command(arguments)
    return code


def _code_of(error: Exception) -> int | None:
    """Return the exit code of what commands raise on purpose; None for what is a fault of this program."""
    from bicoastal import ScenarioError, StoreError, UnsupportedError  # noqa: PLC0415 (slow: see the top of this file)
    from bicoastal.backend import RunFailedError  # noqa: PLC0415 (slow: see the top of this file)

    codes = {ScenarioError: BAD_INPUT, StoreError: BAD_INPUT, UnsupportedError: UNSUPPORTED, RunFailedError: FAILED}
    return next((code for kind, code in codes.items() if isinstance(error, kind)), None)


def _prepare_process() -> None:
    """Make stdout and the signals behave, whoever started the process."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # a closed stream's number must not fall to a file of ours
        os.set_inheritable(number, True)  # nor to one of a worker's
    os.close(number)
    # print() would take the other stream instead of one that is closed; nothing can be written on stdout then, and
    # what cannot be said on stderr is not.
    for name, mode in (("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            stream = open(os.open(os.devnull, mode), "w", encoding="utf-8")  # noqa: SIM115 (as long as the process)
            setattr(sys, name, stream)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no × shows a question mark
    for wish in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(wish) == signal.SIG_DFL:  # nohup's is respected
            signal.signal(wish, _terminate)


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once is enough: what follows is tidying up
    raise TerminatedError(number)
