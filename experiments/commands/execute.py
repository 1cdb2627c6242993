"""`bicoastal exec`: any two programs on the two coasts, over the links of a scenario, with real packets."""

import argparse
import shlex
import sys
import time
from contextlib import ExitStack, redirect_stdout
from typing import Any

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.ground.namespaces import TwoCoasts
from bicoastal.emulation.ground.programs import LabelledOutput, Program, Stream, run_programs
from bicoastal.emulation.ground.wiring import CoastOptions
from bicoastal.emulation.probing.host import available_congestion_controls, measure_transfer
from bicoastal.emulation.probing.probe import probe
from bicoastal.emulation.real import netem
from bicoastal.emulation.relay.process import Relays
from bicoastal.experiments.runs.scale import parse_divisor
from bicoastal.experiments.scenario.overrides import option, parse_override
from bicoastal.experiments.scenario.scenario import DEFAULT_SCENARIO, Scenario, load_scenario
from bicoastal.experiments.scenario.tables import ScenarioError
from bicoastal.experiments.terminal.console import OutputError
from bicoastal.transports.registry import Registry
from bicoastal.wan.scaling import round_divisor, scaled_topology
from bicoastal.wan.topology import Topology
from bicoastal.wan.units import format_rate, format_time

EAST, WEST = "east", "west"
_UNTIL = ("both", "either", EAST, WEST)
_BRIEFLY_S = 0.4
_SHARE = 0.5  # of the ceiling: up to there relays are punctual
_PROBE_LOSS_S = 0.5


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
    for name, what in (("first", "begin with"), ("terminal", "give it to")):
        if (chosen := getattr(arguments, name)) not in (None, *commands):
            raise ScenarioError(f"--{name}: there is no --{chosen} to {what}")
    if arguments.until not in ("both", "either", *commands):
        raise ScenarioError(f"--until: there is no --{arguments.until} to wait for")
    divisor = parse_divisor(arguments.scale)
    try:
        options = CoastOptions(congestion_control=arguments.congestion_control)
    except ValueError as error:
        raise ScenarioError(f"--{error}".replace("congestion_control", "congestion-control", 1)) from error
    if options.congestion_control is not None:
        require_congestion_control(options.congestion_control)
    overrides = [parse_override(text) for text in arguments.set]
    if arguments.seed is not None:
        overrides.append(option("--seed", "scenario.seed", arguments.seed))
    with redirect_stdout(sys.stderr):  # transports are imported here, and may print what is no program's output
        scenario = load_scenario(arguments.scenario, Registry.installed(), overrides)
    sites = coast_sites(scenario.topology)
    require_no_training(scenario.topology)

    topology = _scaled(scenario, divisor)
    programs = [
        Program(name=name, site=sites[name], argv=argv, terminal=arguments.terminal == name)
        for name, argv in commands.items()
    ]
    with ExitStack() as stack:
        output = stack.enter_context(LabelledOutput(_write, width=max(map(len, commands))))
        if arguments.impairment == "netem":
            stages = netem.stage_counts(topology)
            coasts = stack.enter_context(TwoCoasts(topology, options=options, stages=stages))
            netem.apply(coasts, seed=scenario.seed)
            relays = None
        else:
            coasts = stack.enter_context(TwoCoasts(topology, options=options))
            relays = stack.enter_context(Relays(coasts, seed=scenario.seed, calm=True))
        for name, site in sites.items():
            if name not in coasts.sites:
                coasts.add_name(name, site)
        if not arguments.no_probe:
            probe(coasts, loss_time_s=_PROBE_LOSS_S).require()
        if relays is not None:
            relays.restart(seed=scenario.seed, epoch_s=time.monotonic())
        code = run_programs(
            coasts,
            programs,
            output,
            until=arguments.until,
            first=arguments.first,
            depends_on=() if relays is None else relays.pids,
        )
        for trouble in () if relays is None else relays.report(stop=True).troubles():
            _note(f"degraded: {trouble}")
    return code


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


def coast_sites(topology: Topology) -> dict[str, str]:
    """Return which sites are the coasts `east` and `west`: those called so, else the first is west, the last east.

    Raises ScenarioError when that is not clear.
    """
    ends = {end for path in topology.paths.values() for end in (path.sites[0], path.sites[-1])}
    coasts = [site.name for site in topology.sites if site.name in ends]
    if EAST in coasts and WEST in coasts:
        return {EAST: EAST, WEST: WEST}
    if len(coasts) != 2:
        raise ScenarioError(f"sites: expected two coasts, or one called {EAST!r} and one {WEST!r}, not {coasts}")
    if coasts[0] == EAST or coasts[1] == WEST:
        coasts.reverse()
    return {WEST: coasts[0], EAST: coasts[1]}


def require_no_training(topology: Topology) -> None:
    """Raise UnsupportedError for what links do by a training step's clock, which programs do not have."""

    for link in topology.links.values():
        if link.reads_bursts:
            raise UnsupportedError(
                f"link {link.name!r} loses the tail of each burst, and nobody knows where a program's bursts end"
            )
        if any(event.iteration is not None for event in link.events):
            raise UnsupportedError(f"link {link.name!r} changes in an iteration, and programs have none")


def require_congestion_control(name: str) -> None:
    """Raise UnsupportedError for a congestion control that this kernel does not have loaded."""
    available = available_congestion_controls()
    if name not in available:
        raise UnsupportedError(f"{name!r} is not one of this kernel's congestion controls, {', '.join(available)}")


def _scaled(scenario: Scenario, divisor: float | None) -> Topology:
    """Return the links as this machine can carry them. Raises UnsupportedError when it cannot as asked."""
    topology = scenario.topology
    total_bps = sum(link.rate_bps for link in topology.links.values())
    ceiling_bps = measure_transfer(rate_bps=5e9, delay_s=2e-3, duration_s=_BRIEFLY_S).tcp_bps
    fitting = round_divisor(total_bps / (ceiling_bps * _SHARE))
    if divisor is None:
        divisor = fitting
    elif total_bps / divisor > ceiling_bps:
        raise UnsupportedError(
            f"links of {format_rate(total_bps / divisor)} in all are above the {_about(ceiling_bps)} that this machine "
            f"can carry; --scale {fitting} fits"
        )
    scaled = scaled_topology(topology, divisor)
    kinds = [(scaled.path_rate_bps(name), scaled.path_rtt_s(name)) for name in scaled.paths]
    listed = ", ".join(
        f"{kinds.count(kind)} × {format_rate(kind[0])} at RTT {format_time(kind[1])}" for kind in dict.fromkeys(kinds)
    )
    _note(f"{scenario.name}, rates divided by {divisor:g}: {listed}")
    return scaled


def _about(rate_bps: float) -> str:
    return format_rate(float(f"{rate_bps:.2g}"))


def _note(text: str) -> None:
    print(f"bicoastal: {text}", file=sys.stderr, flush=True)


def _write(stream: Stream, line: bytes) -> None:
    target: Any = getattr(sys, stream)
    try:
        target.buffer.write(line)
        target.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        name = "standard output" if stream == "stdout" else "standard error"
        raise OutputError(f"{name} cannot be written ({error.strerror})") from error
