"""`bicoastal export`: the results of a directory as tables that other programs read."""

import argparse
import csv
from pathlib import Path
from typing import Any

from bicoastal import open_results
from bicoastal.commandline import written_whole
from bicoastal.experiments.terminal.arguments import directory
from bicoastal.experiments.terminal.console import DONE, say
from bicoastal.runs import TABLES


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    exporting = commands.add_parser("export", help="write the results of a directory as tables")
    exporting.add_argument("directory", type=directory, metavar="DIR")
    exporting.add_argument("--format", choices=("csv",), default="csv")
    exporting.set_defaults(command=_export)


def _export(arguments: argparse.Namespace) -> int:
    results: Path = arguments.directory
    with open_results(results) as opened:
        for name in TABLES:
            columns, rows = opened.dump(name)
            path = results / f"{name}.csv"
            with written_whole(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(columns)
                writer.writerows(rows)
            say(str(path))
    return DONE
