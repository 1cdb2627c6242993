"""`bicoastal compare`: from its arguments to runs, table and pictures."""

import argparse
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from rich.console import Console

from bicoastal import Results, Scenario, ScenarioError, load_scenario, run_tasks
from bicoastal.commandline import (
    DEFAULT_SCENARIO,
    MAX_SEEDS,
    Override,
    check_transports,
    format_time,
    option,
    parse_override,
    setting,
)
from bicoastal.experiments.terminal.arguments import as_options, directory
from bicoastal.experiments.terminal.console import DONE, FAILED, UNSUPPORTED
from bicoastal.experiments.terminal.documents import say_document
from bicoastal.experiments.terminal.pictures import OVERVIEW, SERIES, check_places, prepare_matplotlib, write_figures
from bicoastal.experiments.terminal.progress import reporter
from bicoastal.experiments.terminal.showing import show
from bicoastal.experiments.terminal.tables import to_notes, to_table
from bicoastal.planning import AtScale
from bicoastal.runs import Comparison, comparison_document, plan_runs


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    comparing = commands.add_parser("compare", help="carry a scenario's all-reduce by several transports")
    comparing.add_argument(
        "scenario",
        nargs="?",
        default=DEFAULT_SCENARIO,
        metavar="SCENARIO",
        help=f"a bundled scenario or a .toml file (default: {DEFAULT_SCENARIO})",
    )
    comparing.add_argument(
        "--transport", action="append", metavar="T", help="a transport's name or module:ATTRIBUTE; may be repeated"
    )
    comparing.add_argument("--backend", default="sim", help="the world to run in (default: sim)")
    comparing.add_argument(
        "--impairment",
        choices=("netem", "relay"),
        help="what impairs real packets: the kernel's netem or the relay (default: the relay)",
    )
    comparing.add_argument(
        "--scale",
        metavar="auto|N",
        help="divide rates and payloads by N (default: auto, by what the machine can carry; 1 in sim)",
    )
    comparing.add_argument("--iterations", type=int, metavar="N", help="iterations of each run")
    comparing.add_argument("--seed", type=int, metavar="N", help="the first run's seed")
    comparing.add_argument("--seeds", type=int, default=1, metavar="N", help="how many seeds to run (default: 1)")
    comparing.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change the scenario: links.loss=1e-3, links[1].loss=0, adaptive.KEY=…, scenario.gap='1 s'",
    )
    comparing.add_argument("--out", type=directory, metavar="DIR", help="for results (default: out/SCENARIO)")
    comparing.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    comparing.set_defaults(command=_compare)


def _compare(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.seeds <= MAX_SEEDS:
        raise ScenarioError(f"--seeds: {arguments.seeds} is not between 1 and {MAX_SEEDS}")
    with redirect_stdout(sys.stderr):  # transports are imported here, and may print; JSON must stay alone
        scenario = load_scenario(arguments.scenario, changes=overrides_of(arguments, "iterations", "seed"))
        transports = check_transports(
            arguments.transport or scenario.transports, label="--transport" if arguments.transport else ""
        )
    with as_options("seeds", "backend", "impairment", "scale"):
        tasks = plan_runs(
            scenario,
            transports=transports,
            seeds=scenario.seeds(arguments.seeds),
            backend=arguments.backend,
            impairment=arguments.impairment,
            scale=arguments.scale or "auto",
            settings=settings_of(arguments),
        )
    out = arguments.out or Path("out") / scenario.name
    check_places(out, [OVERVIEW, SERIES])
    with reporter(tasks) as progress:
        results = run_tasks(tasks, directory=out, workers=None, progress=progress)
    with results:
        comparison = results.comparison
        scaled, refused = _at_scale(results, scenario)
        if arguments.json:
            documents = {name: each.document() for name, each in scaled.items()}
            say_document(comparison_document(comparison, documents))
        else:
            notes = [*results.runs[0].notes, *_at_scale_notes(scaled, refused)]
            show(to_table(comparison, width=Console().width, notes=notes))
        files = [str(results.path), *_draw(results, out)]  # last: an error here loses no results
    if not arguments.json:
        show(to_notes([f"written: {', '.join(files)}"]))
    return exit_code(comparison)


def _at_scale(results: Results, scenario: Scenario) -> tuple[Mapping[str, AtScale], Mapping[str, str]]:
    """Return the result for the whole deployment, if the compared traffic is one job of a deployment."""
    jobs = [job for job in scenario.jobs if job.transport is None]
    if len(jobs) != 1 or jobs[0].deployment is None:
        return {}, {}
    return results.at_scale(jobs[0].deployment, trips=jobs[0].allreduce.trips)


def _at_scale_notes(scaled: Mapping[str, AtScale], refused: Mapping[str, str]) -> list[str]:
    notes = []
    if scaled:
        listed = ", ".join(
            f"{name} {format_time(each.completion_s)} ({format_time(each.completion_low_s)} to "
            f"{format_time(each.completion_high_s)}; exposed {format_time(each.exposed_s)})"
            for name, each in scaled.items()
        )
        messages = next(iter(scaled.values())).messages
        notes.append(
            f"at scale: the slowest of all {messages:,} messages, in half of the steps, by each transport's tail model "
            f"at the loss that its runs bear out, which has an interval of 95 %, losses independent: {listed}."
        )
    notes += [f"at scale: {name}: {each.evidence}." for name, each in scaled.items()]
    notes += [f"at scale: nothing can be said of {name}: {reason}." for name, reason in refused.items()]
    return notes


def overrides_of(arguments: argparse.Namespace, *options: str) -> list[Override]:
    """Return the changes of --set, and of the options that set the key of the same name in [scenario]."""
    overrides = [parse_override(text) for text in arguments.set]
    for name in options:
        if (value := getattr(arguments, name)) is not None:
            overrides.append(option(f"--{name}", f"scenario.{name}", value))
    return overrides


def settings_of(arguments: argparse.Namespace) -> list[str]:
    """Return the changes of --set and --iterations, "key=value" each, for `Task.settings`."""
    settings = [setting(text) for text in arguments.set]
    if arguments.iterations is not None:
        settings.append(f"scenario.iterations={arguments.iterations}")
    return settings


def _draw(results: Results, into: Path) -> list[str]:
    prepare_matplotlib()
    return write_figures(into, {OVERVIEW: results.figure(), SERIES: results.series_figure()})


def exit_code(*comparisons: Comparison) -> int:
    """Return the exit code after these comparisons: 1 after a failed run, 3 if no transport was supported."""
    statuses = [result.status for comparison in comparisons for result in comparison.transports]
    if "failed" in statuses:
        return FAILED
    return UNSUPPORTED if all(status == "unsupported" for status in statuses) else DONE
