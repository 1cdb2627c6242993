"""`bicoastal report`: the results of a directory as one HTML page, which needs no other file."""

import argparse
from pathlib import Path
from typing import Any

from bicoastal import open_results
from bicoastal.commandline import written_whole
from bicoastal.experiments.terminal.arguments import directory
from bicoastal.experiments.terminal.console import DONE, say
from bicoastal.experiments.terminal.pictures import prepare_matplotlib

FILE_NAME = "report.html"


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    reporting = commands.add_parser("report", help="make a page of the results of a directory")
    reporting.add_argument("directory", type=directory, metavar="DIR")
    reporting.set_defaults(command=_report)


def _report(arguments: argparse.Namespace) -> int:
    results: Path = arguments.directory
    prepare_matplotlib()
    with open_results(results) as opened:
        page = opened.page()
    path = results / FILE_NAME
    with written_whole(path) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    say(str(path))
    return DONE
