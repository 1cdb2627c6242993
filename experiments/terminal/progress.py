"""Progress on stderr: a bar for a person at a terminal, a few plain lines for a log."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bicoastal.runs import Outcome, RunProgress, Task

_MAX_LINES = 20
_MOST_REMEMBERED_S = 600.0  # of past runs, to estimate the time left: a run may take minutes


@contextmanager
def reporter(tasks: Sequence[Task]) -> Iterator[RunProgress]:
    """Give the function to call after each task. It writes nothing on stdout."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _Lines(len(tasks))
        return
    times = TimeElapsedColumn(), "elapsed,", TimeRemainingColumn(), "left"
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), "runs,", *times
    with Progress(*columns, console=console, transient=True, speed_estimate_period=_MOST_REMEMBERED_S) as progress:
        bar = progress.add_task("running", total=len(tasks))

        def report(task: Task, outcome: Outcome) -> None:
            if outcome.status != "ok":
                progress.console.print(_line(task, outcome), markup=False)
            progress.update(bar, advance=1, description=f"done: {task.transport}, seed {task.spec.seed}")

        yield report


class _Lines:
    """At most `_MAX_LINES` lines, evenly spread, and one for each run that is not "ok"."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._every = -(-total // _MAX_LINES)

    def __call__(self, task: Task, outcome: Outcome) -> None:
        self._done += 1
        if outcome.status != "ok" or self._done % self._every == 0 or self._done == self._total:
            print(f"{_line(task, outcome)} ({self._done} of {self._total})", file=sys.stderr, flush=True)


def _line(task: Task, outcome: Outcome) -> str:
    line = f"{task.transport}, seed {task.spec.seed}: {outcome.status}"
    return f"{line}, {outcome.reason}" if outcome.reason else line
