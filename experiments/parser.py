"""Which commands there are; the module of each says what it may be told."""

import argparse
from importlib.metadata import version

from experiments import comparing, execute, export, extrapolate, listing, machine, report, size, sweep, validate
from experiments.arguments import Parser


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; what it parses has a `command`, a function of the arguments."""
    parser = Parser(prog="bicoastal", description="Compare WAN transports for training that crosses a continent.")
    parser.add_argument("--version", action="version", version=f"bicoastal {version('bicoastal')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    comparing.add_parser(commands)
    sweep.add_parser(commands)
    listing.add_parser(commands)
    report.add_parser(commands)
    export.add_parser(commands)
    execute.add_parser(commands)
    machine.add_parsers(commands)
    extrapolate.add_parser(commands)
    size.add_parser(commands)
    validate.add_parser(commands)
    return parser
