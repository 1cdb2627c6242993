"""`bicoastal export`: the results of a directory as tables that other programs read."""

import argparse
import csv
import os
from pathlib import Path
from typing import Any

from experiments.arguments import directory
from experiments.console import DONE, say
from experiments.store import TABLES, Store, StoreError


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    exporting = commands.add_parser("export", help="write the results of a directory as tables")
    exporting.add_argument("directory", type=directory, metavar="DIR")
    exporting.add_argument("--format", choices=("csv",), default="csv")
    exporting.set_defaults(command=_export)


def _export(arguments: argparse.Namespace) -> int:
    results: Path = arguments.directory
    with Store.existing(results) as store:
        for table in TABLES:
            columns, rows = store.dump(table)
            path = results / f"{table}.csv"
            unfinished = path.with_suffix(f".csv.{os.getpid()}.unfinished")
            try:
                with unfinished.open("w", encoding="utf-8", newline="") as file:
                    writer = csv.writer(file, lineterminator="\n")
                    writer.writerow(columns)
                    writer.writerows(rows)
                unfinished.replace(path)  # a file of that name is whole, always
            except OSError as error:
                raise StoreError(f"{path}: cannot be written ({error.strerror})") from error
            finally:
                unfinished.unlink(missing_ok=True)
            say(str(path))
    return DONE
