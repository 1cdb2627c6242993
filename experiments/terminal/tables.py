"""Tables for people: a comparison, and the notes below a table."""

from collections.abc import Iterable, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from bicoastal.commandline import meaning_of
from bicoastal.runs import Comparison

WIDE_COLUMNS = 100
_TERM_COLUMNS = len("completion:")
STATUS_STYLES = {"ok": "green", "degraded": "yellow", "unsupported": "dim", "failed": "red"}


def to_table(comparison: Comparison, *, width: int, notes: Sequence[str] = ()) -> Group:
    """Return the table for people. Below it are the meaning of its columns and `notes`, each as "term: meaning".

    Below a width of `WIDE_COLUMNS` the column of the first iteration is left out.
    """
    wide = width >= WIDE_COLUMNS
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("transport", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for heading in ("n", *(["first"] if wide else []), "min", "p50", "p99", "max"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("effi-|ciency", "over-|head", "re-|pairs", "time-|outs"):
        whole, broken = heading.replace("-|", ""), heading.replace("|", "\n")
        table.add_column(whole if wide else broken, justify="right", no_wrap=True)
    for result in comparison.transports:
        cells = result.cells()
        if not wide:
            del cells["first"]
        table.add_row(Text(result.name), Text(result.status, style=STATUS_STYLES[result.status]), *cells.values())
    title = Text(f"{comparison.scenario} in {comparison.backend}: completion of an iteration, ms", style="bold")
    reasons = [
        Text(result.trouble, style=STATUS_STYLES[result.status]) for result in comparison.transports if result.trouble
    ]
    return Group(title, Text(), table, Text(), *reasons, to_notes([*meaning_of(comparison, wide=wide), *notes]))


def to_notes(lines: Iterable[str]) -> Table:
    """Return lines of the form "term: meaning" as a table with two columns."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=_TERM_COLUMNS, no_wrap=True, style="dim")
    grid.add_column(style="dim", overflow="fold")
    for line in lines:
        term, _, meaning = line.partition(": ")
        grid.add_row(Text(f"{term}:"), Text(meaning))
    return grid
