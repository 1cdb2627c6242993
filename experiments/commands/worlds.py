"""`bicoastal validate --worlds`: one scaled scenario in several worlds, side by side, and how far they disagree."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from bicoastal import ScenarioError
from bicoastal.commandline import format_time
from bicoastal.experiments.terminal.arguments import as_options
from bicoastal.experiments.terminal.console import DONE, FAILED, UNSUPPORTED, say
from bicoastal.experiments.terminal.documents import say_document
from bicoastal.experiments.terminal.showing import show
from bicoastal.validation import (
    ANALYTIC,
    DEFAULT_WORLD_ITERATIONS,
    DEFAULT_WORLD_SEEDS,
    WORLD_TOLERANCE,
    WorldCell,
    WorldRow,
    measure_worlds,
)


def to_table(rows: Sequence[WorldRow]) -> Table:
    """Return the table for people: medians in ms, a column for each world and kind of transport."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    for heading in ("scenario", "transport", "bound"):
        table.add_column(heading, no_wrap=True, justify="right" if heading == "bound" else "left")
    columns = list(dict.fromkeys(_column(row, cell) for row in rows for cell in row.cells))
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("disagreement", justify="right")
    for row in rows:
        found = {_column(row, cell): cell for cell in row.cells}
        off = row.disagreement
        table.add_row(
            row.scenario,
            row.transport,
            format_time(row.bound_s),
            *(_shown(found.get(column)) for column in columns),
            "–" if off is None else Text(f"{off:.1%}", style="green" if off <= WORLD_TOLERANCE else "red"),
        )
    return table


def _column(row: WorldRow, cell: WorldCell) -> str:
    return f"{cell.world}, kernel" if cell.transport != row.transport else cell.world


def _shown(cell: WorldCell | None) -> Text:
    if cell is None:
        return Text("")
    if cell.median_s is None:
        return Text(str(cell.status), style="dim")
    return Text(f"{1e3 * cell.median_s:.1f}{'*' if cell.status == 'degraded' else ''}")


def to_document(rows: Sequence[WorldRow]) -> list[dict[str, Any]]:
    """Return the rows as JSON values."""
    return [
        {
            "scenario": row.scenario,
            "transport": row.transport,
            "scale": row.scale,
            "bound_s": row.bound_s,
            "disagreement": row.disagreement,
            "cells": [
                {
                    "world": cell.world,
                    "transport": cell.transport,
                    "median_s": cell.median_s,
                    "n": cell.n,
                    "status": cell.status,
                    "reason": cell.reason,
                }
                for cell in row.cells
            ],
        }
        for row in rows
    ]


# -- the command ------------------------------------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `validate --worlds`."""
    group = parser.add_argument_group("with --worlds")
    group.add_argument(
        "--world", action="append", metavar="W", help="a backend, or analytic (default: sim, netns, analytic)"
    )
    group.add_argument("--transport", action="append", metavar="T", help="a transport (default: reno, cubic, adaptive)")
    group.add_argument("--case", action="append", metavar="C", help="one of the five scenarios (default: all)")
    group.add_argument("--iterations", type=int, metavar="N", help=f"of each run (default: {DEFAULT_WORLD_ITERATIONS})")
    group.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help=f"runs of each where packets are lost by chance (default: {DEFAULT_WORLD_SEEDS})",
    )
    group.add_argument("--scale", metavar="auto|N", help="divide rates and payloads by N (default: auto)")


def require_worlds(arguments: argparse.Namespace) -> None:
    """Raise ScenarioError where an option of `add_options` was given without --worlds, which it would not change."""
    for option in ("world", "transport", "case", "iterations", "seeds", "scale"):
        if getattr(arguments, option) is not None:
            raise ScenarioError(f"--{option}: is for --worlds, which compares worlds and is not there")


def run(arguments: argparse.Namespace) -> int:
    """Run `validate --worlds`; 1 when a disagreement exceeds the tolerance, 3 when no world but one can be had."""
    given = {
        "worlds": arguments.world,
        "transports": arguments.transport,
        "cases": arguments.case,
        "iterations": arguments.iterations,
        "seeds": arguments.seeds,
        "scale": arguments.scale,
    }
    with as_options("iterations", "seeds", "transport", "world", "case", "scale"):
        rows = measure_worlds(
            **{name: value for name, value in given.items() if value is not None},
            tell=lambda line: print(line, file=sys.stderr),
        )
    if arguments.json:
        say_document(to_document(rows))
    else:
        show(to_table(rows))
        for line in _notes(rows):
            say(line)
    if all(row.disagreement is None for row in rows):
        return UNSUPPORTED
    return FAILED if any((row.disagreement or 0.0) > WORLD_TOLERANCE for row in rows) else DONE


def _notes(rows: Sequence[WorldRow]) -> list[str]:
    lines = [
        "Medians of an iteration's completion in ms; * the machine was late or busy. kernel: the kernel's own "
        f"implementation on the same links. {ANALYTIC}: what the model of the transport's tail says.",
        "Rates and payloads were divided by "
        + ", ".join(dict.fromkeys(f"{row.scale:g} ({row.scenario})" for row in rows))
        + "; round trips, loss and packets are as they were.",
    ]
    for row in rows:
        for cell in row.cells:
            if cell.median_s is None:
                lines.append(f"{row.scenario}, {cell.transport} in {cell.world}: {cell.status}: {cell.reason}")
    return lines
