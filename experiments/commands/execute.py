"""`bicoastal exec`: any two programs on the two coasts, over the links of a scenario, with real packets."""

import argparse
import shlex
import sys
from contextlib import redirect_stdout
from typing import Any

from bicoastal import ScenarioError, load_scenario
from bicoastal.commandline import DEFAULT_SCENARIO, option, parse_override
from bicoastal.experiments.terminal.arguments import as_options
from bicoastal.experiments.terminal.console import OutputError
from bicoastal.machine import run_on_coasts

EAST, WEST = "east", "west"
_UNTIL = ("both", "either", EAST, WEST)


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    parser = commands.add_parser(
        "exec",
        help="run any two programs on the two coasts, over a scenario's links",
        description="Run any two programs on the two coasts, over a scenario's links, with real packets. Each knows "
        "the other's coast as `east` or `west`, and its address on one path as `east-PATH` or `west-PATH`.",
    )
    parser.add_argument(
        "scenario",
        nargs="?",
        default=DEFAULT_SCENARIO,
        metavar="SCENARIO",
        help=f"a bundled scenario or a .toml file (default: {DEFAULT_SCENARIO})",
    )
    for name in (EAST, WEST):
        parser.add_argument(f"--{name}", metavar="CMD", help=f"what to run there, as in --{name} 'ping -c 3 …'")
    parser.add_argument(
        "--until",
        choices=_UNTIL,
        default="both",
        help="whose end is the end of both (default: both); a program that fails ends the other at once",
    )
    parser.add_argument(
        "--first", choices=(EAST, WEST), help="start this one first, and the other when it listens on a port"
    )
    parser.add_argument("--terminal", choices=(EAST, WEST), help="the program that gets the terminal to itself")
    parser.add_argument(
        "--scale", default="auto", metavar="auto|N", help="divide rates by N (default: what this machine can carry)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of what the links do at random")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as in compare")
    parser.add_argument("--impairment", choices=("relay", "netem"), default="relay", help="what the links are made of")
    parser.add_argument("--congestion-control", metavar="NAME", help="of every TCP connection (default: the kernel's)")
    parser.add_argument("--no-probe", action="store_true", help="start without measuring the links first")
    parser.set_defaults(command=_execute)


def _execute(arguments: argparse.Namespace) -> int:
    commands = _commands(arguments)
    overrides = [parse_override(text) for text in arguments.set]
    if arguments.seed is not None:
        overrides.append(option("--seed", "scenario.seed", arguments.seed))
    with redirect_stdout(sys.stderr):  # transports are imported here, and may print
        scenario = load_scenario(arguments.scenario, changes=overrides)
    with as_options("first", "terminal", "until", "scale", "congestion_control"):
        return run_on_coasts(
            scenario,
            commands,
            write=_write,
            tell=_note,
            until=arguments.until,
            first=arguments.first,
            terminal=arguments.terminal,
            scale=arguments.scale,
            impairment=arguments.impairment,
            congestion_control=arguments.congestion_control,
            measured=not arguments.no_probe,
        )


def _commands(arguments: argparse.Namespace) -> dict[str, tuple[str, ...]]:
    found = {}
    for name in (EAST, WEST):
        text = getattr(arguments, name)
        if text is None:
            continue
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ScenarioError(f"--{name}: {text!r} is not a command: {str(error).lower()}") from error
        if not words:
            raise ScenarioError(f"--{name}: {text!r} is not a command")
        found[name] = tuple(words)
    if not found:
        raise ScenarioError("--east, --west: expected a command for one of them at least")
    return found


def _note(text: str) -> None:
    print(f"bicoastal: {text}", file=sys.stderr, flush=True)


def _write(stream: str, line: bytes) -> None:
    target: Any = getattr(sys, stream)
    try:
        target.buffer.write(line)
        target.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        name = "standard output" if stream == "stdout" else "standard error"
        raise OutputError(f"{name} cannot be written ({error.strerror})") from error
