"""One scaled scenario in several worlds, side by side: do the simulator, real packets and the kernel agree?

A transport of ours runs in virtual time and over real sockets; where the kernel has the same algorithm, its own
implementation runs on the same links. What is compared is the median completion of an iteration.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.table import Table
from rich.text import Text

from emulation.base import RunFailedError, UnsupportedError
from emulation.records import Status
from emulation.registry import BackendRegistry
from emulation.scaled import scaled_run
from experiments.overrides import parse_override
from experiments.scenario import Scenario, load_scenario
from transports.registry import Registry
from wan.units import format_time

TOLERANCE = 0.10
KERNEL = {"reno": "kernel-reno", "cubic": "kernel-cubic"}
_ONE_PLANE = ("links.count=1", "scenario.gap=500 ms", "scenario.sample_interval=1 h")
STANDARD: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("lossless", "lossless", _ONE_PLANE),
    ("loss 1e-4", "coast-to-coast", (*_ONE_PLANE, "links.loss=1e-4")),
    ("loss 1e-3", "coast-to-coast", (*_ONE_PLANE, "links.loss=1e-3")),
    ("shallow queue", "shallow-queue", ("scenario.gap=500 ms", "scenario.sample_interval=1 h")),
    ("tail loss", "tail-loss", _ONE_PLANE),
)
"""The five scenarios of the comparison: a name, a bundled scenario, and what is changed in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A transport in a world: its median completion (seconds; None where it did not run), and how it went."""

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


Told = Callable[[str], None]


def compare_worlds(
    cases: Sequence[tuple[str, Scenario]],
    transports: Sequence[str],
    *,
    backends: BackendRegistry,
    registry: Registry,
    worlds: Sequence[str],
    scale: float,
    tell: Told,
) -> list[Row]:
    """Run every case and transport in every world, one after another, and return the rows.

    cases: names and scenarios. worlds: names of backends. The first iteration, in which nothing has been learned yet,
    counts like any other. tell: hears of each run before it begins.
    """
    rows = []
    made = {world: backends.resolve(world)(registry) for world in worlds}
    for name, scenario in cases:
        for transport in transports:
            cells: list[Cell] = []
            bound_s = 0.0
            for world, backend in made.items():
                for carrier in (transport, KERNEL.get(transport)):
                    if carrier is None or (carrier != transport and not backend.capabilities().real_time):
                        continue
                    tell(f"{name}: {carrier} in {world}")
                    spec = scaled_run(scenario.run_spec(carrier, seed=scenario.seed, sampled=False), scale)
                    try:
                        record = backend.run(spec)
                    except (UnsupportedError, RunFailedError) as error:
                        status = "unsupported" if isinstance(error, UnsupportedError) else "failed"
                        cells.append(
                            Cell(world=world, transport=carrier, median_s=None, n=0, status=status, reason=str(error))
                        )
                        continue
                    done = [row.completion_s for row in record.iterations if row.completion_s is not None]
                    bound_s = max((row.bound_s for row in record.iterations), default=bound_s)
                    cells.append(
                        Cell(
                            world=world,
                            transport=carrier,
                            median_s=median(done) if done else None,
                            n=len(done),
                            status=record.status,
                            reason=record.reason,
                        )
                    )
            rows.append(Row(scenario=name, transport=transport, scale=scale, bound_s=bound_s, cells=tuple(cells)))
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
