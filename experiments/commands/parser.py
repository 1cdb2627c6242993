"""The parser of the command line. The module of each command adds the arguments."""

import argparse
from importlib.metadata import version

from bicoastal.experiments.commands import (
    compare,
    doctor,
    execute,
    export,
    extrapolate,
    listing,
    report,
    size,
    sweep,
    validate,
)
from bicoastal.experiments.terminal.arguments import Parser


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line. A parsed result has `command`, a function of the arguments."""
    parser = Parser(prog="bicoastal", description="Compare WAN transports for training that crosses a continent.")
    parser.add_argument("--version", action="version", version=f"bicoastal {version('bicoastal')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    compare.add_parser(commands)
    sweep.add_parser(commands)
    listing.add_parser(commands)
    report.add_parser(commands)
    export.add_parser(commands)
    execute.add_parser(commands)
    doctor.add_parsers(commands)
    extrapolate.add_parser(commands)
    size.add_parser(commands)
    validate.add_parser(commands)
    return parser
