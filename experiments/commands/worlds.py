"""One scaled scenario in several worlds, side by side: do the simulator, real packets and the kernel agree?

A transport of ours runs in virtual time and over real sockets; where the kernel has the same algorithm, its own
implementation runs on the same links. What is compared is the median completion of an iteration, over several seeds
where packets are lost by chance: one loss less, or a few packets sooner, moves the median of a single run by a third.
Beside them stands, where there is one for the case, what the model of the transport's tail says of that median.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from rich.table import Table
from rich.text import Text

from bicoastal.emulation.base import Backend, RunFailedError, RunSpec, UnsupportedError
from bicoastal.emulation.limits.scaled import scaled_run
from bicoastal.emulation.records import Status
from bicoastal.emulation.registry import BackendRegistry, UnknownBackendError
from bicoastal.emulation.traffic.ledger import iteration_bound_s
from bicoastal.experiments.extrapolation.tails.expected import NotModelledError, expected_median_s
from bicoastal.experiments.extrapolation.tails.models import NoModelError
from bicoastal.experiments.runs.scale import fitting_divisor, parse_divisor
from bicoastal.experiments.scenario.overrides import parse_override
from bicoastal.experiments.scenario.scenario import Scenario, load_scenario
from bicoastal.experiments.scenario.tables import ScenarioError
from bicoastal.experiments.terminal.console import DONE, FAILED, UNSUPPORTED, say
from bicoastal.experiments.terminal.documents import say_document
from bicoastal.experiments.terminal.showing import show
from bicoastal.transports.registry import Registry, UnknownTransportError
from bicoastal.wan.loss import Bernoulli
from bicoastal.wan.units import format_time

TOLERANCE = 0.10
ITERATIONS, SEEDS = 20, 10
_WORSE = ("ok", "degraded", "failed")
ANALYTIC = "analytic"
KERNEL = {"reno": "kernel-reno", "cubic": "kernel-cubic"}
# Twice an RTO of 260 to 350 ms is below the gap, three times it above: every world halves idle windows as often.
_GAP = "scenario.gap=700 ms"
# Connections have long been greeted when the first burst comes: an acknowledgement in its midst alters its slow start.
_COMMON = (_GAP, "allreduce.start=500 ms", "scenario.sample_interval=1 h")
_ONE_PLANE = ("links.count=1", *_COMMON)
STANDARD: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("lossless", "lossless", _ONE_PLANE),
    ("loss 1e-4", "coast-to-coast", (*_ONE_PLANE, "links.loss=1e-4")),
    ("loss 1e-3", "coast-to-coast", (*_ONE_PLANE, "links.loss=1e-3")),
    ("shallow queue", "shallow-queue", _COMMON),
    ("tail loss", "tail-loss", _ONE_PLANE),
)
"""The five scenarios of the comparison: a name, a bundled scenario, and what is changed in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is compared. scale: what rates and payloads are divided by; seeds: how many runs make one figure."""

    name: str
    scenario: Scenario
    scale: float
    seeds: int = 1

    def specs(self, carrier: str) -> Iterator[RunSpec]:
        """Give the runs of one transport, one for each seed."""
        for seed in self.scenario.seeds(self.seeds):
            yield scaled_run(self.scenario.run_spec(carrier, seed=seed, sampled=False), self.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A transport in a world: its median completion (seconds; None where it did not run), and how it went.

    n: the iterations that it is the median of, none where it is a model's.
    """

    world: str
    transport: str
    median_s: float | None
    n: int
    status: Status | str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One scenario and one transport in every world. scale: what rates and payloads were divided by."""

    scenario: str
    transport: str
    scale: float
    bound_s: float
    cells: tuple[Cell, ...]

    @property
    def disagreement(self) -> float | None:
        """The largest median over the smallest, minus one; None with fewer than two worlds."""
        medians = [cell.median_s for cell in self.cells if cell.median_s is not None]
        return max(medians) / min(medians) - 1.0 if len(medians) > 1 else None


Tell = Callable[[str], None]


class ComparedWorld(Protocol):
    """Where cases are run, or reckoned."""

    @property
    def name(self) -> str:
        """Return the name of its column."""

    def carriers(self, transport: str) -> Sequence[str]:
        """Return the transports that stand for one: itself, and its twin in the kernel."""

    def cell(self, carrier: str, case: Case) -> Cell:
        """Return what a transport does in a case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A backend's world."""

    name: str
    backend: Backend

    def carriers(self, transport: str) -> Sequence[str]:
        """Return the transport, and the kernel's implementation of it where packets are real."""
        real_time = self.backend.capabilities().real_time
        return (transport, *([KERNEL[transport]] if real_time and transport in KERNEL else []))

    def cell(self, carrier: str, case: Case) -> Cell:
        """Return the median over all seeds. A cell is as good as the worst of its runs."""
        done: list[float] = []
        status: Status | str = "ok"
        reason = ""
        for spec in case.specs(carrier):
            try:
                record = self.backend.run(spec)
            except (UnsupportedError, RunFailedError) as error:
                done, status, reason = [], "failed", str(error)
                if isinstance(error, UnsupportedError):
                    status = "unsupported"
                break
            done += [row.completion_s for row in record.iterations if row.completion_s is not None]
            if _WORSE.index(record.status) > _WORSE.index(status):
                status, reason = record.status, record.reason
        middle_s = median(done) if done else None
        return Cell(world=self.name, transport=carrier, median_s=middle_s, n=len(done), status=status, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Analytic:
    """The world of closed forms: what the models of the transports' tails say."""

    name: str = ANALYTIC

    def carriers(self, transport: str) -> Sequence[str]:
        """Return the transport alone."""
        return (transport,)

    def cell(self, carrier: str, case: Case) -> Cell:
        """Return the model's median, or why there is none."""
        middle_s, status, reason = None, "ok", ""
        try:
            middle_s = expected_median_s(next(case.specs(carrier)))
        except (NoModelError, NotModelledError) as error:
            status, reason = "unsupported", str(error)
        return Cell(world=self.name, transport=carrier, median_s=middle_s, n=0, status=status, reason=reason)


def compare_worlds(
    cases: Sequence[Case], transports: Sequence[str], worlds: Sequence[ComparedWorld], *, tell: Tell
) -> list[Row]:
    """Run every case and transport in every world, one after another, and return the rows.

    The first iteration, in which nothing has been learned yet, counts like any other. tell: hears of each cell before
    its runs begin.
    """
    rows = []
    for case in cases:
        for transport in transports:
            cells: list[Cell] = []
            for world in worlds:
                for carrier in world.carriers(transport):
                    tell(f"{case.name}: {carrier} in {world.name}")
                    cells.append(world.cell(carrier, case))
            spec = next(case.specs(transport))
            bound_s = max(iteration_bound_s(job, spec.topology) for job in spec.jobs)
            rows.append(
                Row(scenario=case.name, transport=transport, scale=case.scale, bound_s=bound_s, cells=tuple(cells))
            )
    return rows


def standard_cases(registry: Registry, iterations: int) -> list[tuple[str, Scenario]]:
    """Return the five scenarios, each with so many iterations."""
    return [
        (
            name,
            load_scenario(
                source, registry, [parse_override(text) for text in (*changes, f"scenario.iterations={iterations}")]
            ),
        )
        for name, source, changes in STANDARD
    ]


def _by_chance(scenario: Scenario) -> bool:
    """Tell whether any link loses packets at random."""
    links = scenario.topology.links.values()
    return any(isinstance(loss, Bernoulli) for link in links for loss in (link.loss, link.loss_back))


def to_table(rows: Sequence[Row]) -> Table:
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
            "–" if off is None else Text(f"{off:.1%}", style="green" if off <= TOLERANCE else "red"),
        )
    return table


def _column(row: Row, cell: Cell) -> str:
    return f"{cell.world}, kernel" if cell.transport != row.transport else cell.world


def _shown(cell: Cell | None) -> Text:
    if cell is None:
        return Text("")
    if cell.median_s is None:
        return Text(str(cell.status), style="dim")
    return Text(f"{1e3 * cell.median_s:.1f}{'*' if cell.status == 'degraded' else ''}")


def to_document(rows: Sequence[Row]) -> list[dict[str, Any]]:
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
    group.add_argument("--iterations", type=int, metavar="N", help=f"of each run (default: {ITERATIONS})")
    group.add_argument(
        "--seeds", type=int, metavar="N", help=f"runs of each where packets are lost by chance (default: {SEEDS})"
    )
    group.add_argument("--scale", metavar="auto|N", help="divide rates and payloads by N (default: auto)")


def require_worlds(arguments: argparse.Namespace) -> None:
    """Raise ScenarioError where an option of `add_options` was given without --worlds, which it would not change."""
    for option in ("world", "transport", "case", "iterations", "seeds", "scale"):
        if getattr(arguments, option) is not None:
            raise ScenarioError(f"--{option}: is for --worlds, which compares worlds and is not there")


def run(arguments: argparse.Namespace) -> int:
    """Run `validate --worlds`; 1 when a disagreement exceeds the tolerance, 3 when no world but one can be had."""
    registry, installed = Registry.installed(), BackendRegistry.installed()
    transports = arguments.transport or ["reno", "cubic", "adaptive"]
    iterations = ITERATIONS if arguments.iterations is None else arguments.iterations
    seeds_each = SEEDS if arguments.seeds is None else arguments.seeds
    if not 1 <= iterations <= 100_000:
        raise ScenarioError(f"--iterations: {iterations} is not between 1 and 100000")
    if not 1 <= seeds_each <= 1000:
        raise ScenarioError(f"--seeds: {seeds_each} is not between 1 and 1000")
    for transport in transports:
        try:
            registry.resolve(transport)
        except UnknownTransportError as error:
            raise ScenarioError(f"--transport: {error}") from error
    worlds: list[ComparedWorld] = []
    for name in arguments.world or ["sim", "netns", ANALYTIC]:
        try:
            worlds.append(Analytic() if name == ANALYTIC else Run(name=name, backend=installed.resolve(name)(registry)))
        except UnknownBackendError as error:
            raise ScenarioError(f"--world: {error}, and {ANALYTIC}") from error
    divisor = parse_divisor("auto" if arguments.scale is None else arguments.scale)
    wanted = arguments.case or [name for name, *_ in STANDARD]
    for name in wanted:
        if name not in [known for known, *_ in STANDARD]:
            raise ScenarioError(f"--case: {name!r} is none of {', '.join(known for known, *_ in STANDARD)}")
    cases = []
    for name, scenario in standard_cases(registry, iterations):
        if name not in wanted:
            continue
        backends = [world.backend for world in worlds if isinstance(world, Run)]
        fitting = divisor or max([fitting_divisor(backend, scenario, transports) for backend in backends], default=1.0)
        seeds = seeds_each if _by_chance(scenario) else 1
        cases.append(Case(name=name, scenario=scenario, scale=fitting, seeds=seeds))
    rows = compare_worlds(cases, transports, worlds, tell=lambda line: print(line, file=sys.stderr))
    if arguments.json:
        say_document(to_document(rows))
    else:
        show(to_table(rows))
        for line in _notes(rows):
            say(line)
    if all(row.disagreement is None for row in rows):
        return UNSUPPORTED
    return FAILED if any((row.disagreement or 0.0) > TOLERANCE for row in rows) else DONE


def _notes(rows: Sequence[Row]) -> list[str]:
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
