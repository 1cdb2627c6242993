"""Any two programs on the two coasts of a scenario, over its links, with real packets."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Literal

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.ground.namespaces import TwoCoasts
from bicoastal.emulation.ground.programs import LabelledOutput, Program, Stream, run_programs
from bicoastal.emulation.ground.wiring import CoastOptions
from bicoastal.emulation.probing.host import available_congestion_controls, measure_transfer
from bicoastal.emulation.probing.probe import probe
from bicoastal.emulation.real import netem
from bicoastal.emulation.relay.process import Relays
from bicoastal.experiments.runs.scale import parse_divisor
from bicoastal.experiments.scenario.scenario import Scenario
from bicoastal.experiments.scenario.tables import ScenarioError
from bicoastal.wan.scaling import round_divisor, scaled_topology
from bicoastal.wan.topology import Topology
from bicoastal.wan.units import format_rate, format_time

EAST, WEST = "east", "west"
_BRIEFLY_S = 0.4
_SHARE = 0.5  # of the ceiling: up to there relays are punctual
_PROBE_LOSS_S = 0.5

Until = Literal["both", "either", "east", "west"]


def run_on_coasts(
    scenario: Scenario,
    programs: Mapping[str, Sequence[str]],
    *,
    write: Callable[[Stream, bytes], None],
    tell: Callable[[str], None],
    until: str = "both",
    first: str | None = None,
    terminal: str | None = None,
    scale: str | float = "auto",
    impairment: str = "relay",
    congestion_control: str | None = None,
    measured: bool = True,
) -> int:
    """Run a program on each coast, or on one, over a scenario's links; return the exit code.

    programs: the words of each command, by coast, "east" or "west". write: takes each line of output, labelled, with
    the stream that it is for. tell: takes remarks, such as the divisor. until: whose end is the end of both: "both",
    "either", or a coast. first: the coast whose program starts first; the other one starts when it listens on a port.
    terminal: the coast whose program has the terminal to itself. scale: what rates are divided by, or "auto".
    impairment: "relay" or "netem". congestion_control: of every TCP connection. measured: measure every path first, and
    start nothing on one that is off.

    The exit code is that of the first program that failed. Raises ScenarioError, UnsupportedError and RunFailedError,
    in one sentence.
    """
    for name, coast, what in (("first", first, "begin with"), ("terminal", terminal, "give it to")):
        if coast is not None and coast not in programs:
            raise ScenarioError(f"{name}: there is no --{coast} to {what}")
    if until not in ("both", "either", *programs):
        raise ScenarioError(f"until: there is no --{until} to wait for")
    divisor = parse_divisor(str(scale))
    try:
        options = CoastOptions(congestion_control=congestion_control)
    except ValueError as error:
        raise ScenarioError(str(error)) from error
    if congestion_control is not None:
        require_congestion_control(congestion_control)
    sites = coast_sites(scenario.topology)
    require_no_training(scenario.topology)

    topology = _scaled(scenario, divisor, tell)
    started = [
        Program(name=name, site=sites[name], argv=tuple(argv), terminal=terminal == name)
        for name, argv in programs.items()
    ]
    with ExitStack() as stack:
        output = stack.enter_context(LabelledOutput(write, width=max(map(len, programs))))
        if impairment == "netem":
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
        if measured:
            probe(coasts, loss_time_s=_PROBE_LOSS_S).require()
        if relays is not None:
            relays.restart(seed=scenario.seed, epoch_s=time.monotonic())
        code = run_programs(
            coasts,
            started,
            output,
            until=until,
            first=first,
            depends_on=() if relays is None else relays.pids,
        )
        for trouble in () if relays is None else relays.report(stop=True).troubles():
            tell(f"degraded: {trouble}")
    return code


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


def _scaled(scenario: Scenario, divisor: float | None, tell: Callable[[str], None]) -> Topology:
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
    tell(f"{scenario.name}, rates divided by {divisor:g}: {listed}")
    return scaled


def _about(rate_bps: float) -> str:
    return format_rate(float(f"{rate_bps:.2g}"))
