"""`bicoastal list`: the scenarios, studies, transports, backends and deployments."""

import argparse
import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from bicoastal import ScenarioError, list_backends, list_deployments, list_scenarios, list_studies, list_transports
from bicoastal.experiments.terminal.console import DONE, say

_LISTS = {
    "transports": list_transports,
    "backends": list_backends,
    "scenarios": list_scenarios,
    "studies": list_studies,
    "deployments": list_deployments,
}


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    listing = commands.add_parser("list", help="list what there is to choose from")
    listing.add_argument("what", nargs="?", choices=tuple(_LISTS))
    listing.set_defaults(command=_list)


def _list(arguments: argparse.Namespace) -> int:
    if arguments.what is None:
        raise ScenarioError(f"list: expected what to list, one of {', '.join(_LISTS)}")
    rows = list(_LISTS[arguments.what]().items())
    # on a terminal lines are wrapped between words; a file or a pipe gets one line for each
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in to_lines(rows, columns):
        say(line)
    return DONE


def to_lines(rows: Sequence[tuple[str, str]], columns: int | None) -> list[str]:
    """Return names and descriptions side by side, wrapped at `columns`; None: one line for each."""
    width = max((len(name) for name, _ in rows), default=0)
    lines = []
    for name, description in rows:
        parts = [description]
        if columns is not None:
            parts = textwrap.wrap(description, max(columns - width - 2, 20)) or [""]
        lines += [f"{label:{width}}  {part}".rstrip() for label, part in zip_longest([name], parts, fillvalue="")]
    return lines
