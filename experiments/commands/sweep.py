"""`bicoastal sweep`: a study's runs, all together over the machine's cores, then a table and curves."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from bicoastal import Results, ScenarioError, Study, load_study, plan_study, run_tasks
from bicoastal.commandline import MAX_SEEDS, check_transports, format_milliseconds
from bicoastal.experiments.commands.compare import exit_code, overrides_of, settings_of
from bicoastal.experiments.terminal.arguments import as_options, directory
from bicoastal.experiments.terminal.documents import say_document
from bicoastal.experiments.terminal.pictures import prepare_matplotlib, write_figures
from bicoastal.experiments.terminal.progress import reporter
from bicoastal.experiments.terminal.showing import show
from bicoastal.experiments.terminal.tables import STATUS_STYLES, to_notes
from bicoastal.runs import Group, comparison_document, unfinished

_SHOWN = ("n", "bound", "p50", "p99", "max", "efficiency", "overhead")
_MOST_TOLD = 10  # reasons of failed and degraded runs; the page of `report` has all
_BROKEN = {"efficiency": "effi-\nciency", "overhead": "over-\nhead"}


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    sweeping = commands.add_parser("sweep", help="compare transports over a whole grid of scenarios")
    sweeping.add_argument("study", metavar="STUDY", help="a bundled study or a .toml file (see `list studies`)")
    sweeping.add_argument("--out", type=directory, metavar="DIR", help="for results (default: out/STUDY)")
    sweeping.add_argument("--resume", action="store_true", help="keep what is there and run only what is not")
    sweeping.add_argument("--transport", action="append", metavar="T", help="in place of the study's; may be repeated")
    sweeping.add_argument("--backend", help="in place of the study's")
    sweeping.add_argument("--scale", metavar="auto|N", help="divide rates and payloads by N (default: auto; 1 in sim)")
    sweeping.add_argument("--iterations", type=int, metavar="N", help="iterations of each run")
    sweeping.add_argument("--seeds", type=int, metavar="N", help="in place of the study's")
    sweeping.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change every point's scenario, as in compare"
    )
    sweeping.add_argument("--workers", type=int, metavar="N", help="processes (default: one per core)")
    sweeping.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    sweeping.set_defaults(command=_sweep)


def _sweep(arguments: argparse.Namespace) -> int:
    for name, most in (("seeds", MAX_SEEDS), ("workers", 1024)):
        if (given := getattr(arguments, name)) is not None and not 1 <= given <= most:
            raise ScenarioError(f"--{name}: {given} is not between 1 and {most}")
    with redirect_stdout(sys.stderr):  # transports are imported here, and may print; JSON must stay alone
        study = load_study(arguments.study, changes=overrides_of(arguments, "iterations"))
        transports = check_transports(
            arguments.transport or study.transports, label="--transport" if arguments.transport else ""
        )
    with as_options("seeds", "backend", "scale"):
        tasks = plan_study(
            study,
            transports=transports,
            seeds=arguments.seeds,
            backend=arguments.backend,
            scale=arguments.scale or "auto",
            settings=settings_of(arguments),
        )
    out = arguments.out or Path("out") / study.name
    missing = unfinished(tasks, out) if arguments.resume else tasks
    with reporter(missing) as progress:
        results = run_tasks(tasks, directory=out, workers=arguments.workers, resume=arguments.resume, progress=progress)
    with results:
        found = results.groups
        if arguments.json:
            say_document(to_study_document(study, found))
        else:
            show(to_study_table(study, found), Text(), to_notes(_meaning(study, found)))
        files = [str(results.path), *_draw(results, out)]  # last: an error here loses no results
    if not arguments.json:
        show(to_notes([f"written: {', '.join(files)}"]))
    return exit_code(*(group.comparison for group in found))


def to_study_document(study: Study, groups: Sequence[Group]) -> dict[str, Any]:
    """Return the JSON document of `sweep --json`: for each point its settings and the document of `compare --json`."""
    return {
        "study": study.name,
        "points": [{"settings": dict(group.settings), **comparison_document(group.comparison)} for group in groups],
    }


def to_study_table(study: Study, groups: Sequence[Group]) -> Table:
    """Return the table for people: a row for each point and transport, times in ms."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    for axis in study.axes:
        table.add_column(axis.key, justify="right", no_wrap=True)
    for heading in ("transport", "status"):
        table.add_column(heading, no_wrap=True)
    for heading in _SHOWN:
        table.add_column(_BROKEN.get(heading, heading), justify="right", no_wrap=True)
    for group in groups:
        values = [group.settings.get(axis.key, "") for axis in study.axes]
        for result in group.comparison.transports:
            cells = {**result.cells(), "bound": format_milliseconds(group.comparison.bound_s)}
            table.add_row(
                *values,
                result.name,
                Text(result.status, style=STATUS_STYLES[result.status]),
                *(cells[heading] for heading in _SHOWN),
            )
            values = [""] * len(values)
    return table


def _meaning(study: Study, groups: Sequence[Group]) -> list[str]:
    lines = [f"{study.name}: {study.description or 'times in ms'}; completion of an iteration, ms."]
    troubles = (result.trouble for group in groups for result in group.comparison.transports if result.trouble)
    lines += list(dict.fromkeys(troubles))[:_MOST_TOLD]
    scales = {group.comparison.scale for group in groups if group.comparison.scale != 1}
    lines += [f"scale: rates and payloads were divided by {scale:g}; the RTT was kept." for scale in sorted(scales)]
    return lines


def _draw(results: Results, into: Path) -> list[str]:
    prepare_matplotlib()
    return write_figures(into, {f"{name}.png": figure for name, figure in results.curve_figures().items()})
