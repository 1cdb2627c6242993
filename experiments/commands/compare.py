"""`bicoastal compare`: from its arguments to runs, table and pictures."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from rich.console import Console

from bicoastal.emulation.registry import BackendRegistry
from bicoastal.experiments.analysis.comparison import Comparison, compare, to_document, to_notes, to_table
from bicoastal.experiments.extrapolation.at_scale import AtScale, at_scale
from bicoastal.experiments.figures.files import OVERVIEW, SERIES, check_places, prepare_matplotlib
from bicoastal.experiments.runs.runner import Registries, plan, run_all
from bicoastal.experiments.runs.scale import fitting_divisor, make_backend, parse_divisor
from bicoastal.experiments.runs.store import Store
from bicoastal.experiments.scenario.overrides import Override, option, parse_override, setting
from bicoastal.experiments.scenario.scenario import DEFAULT_SCENARIO, MAX_SEEDS, Scenario, load_scenario
from bicoastal.experiments.scenario.tables import ScenarioError
from bicoastal.experiments.scenario.workload import check_transport_name
from bicoastal.experiments.terminal.arguments import directory
from bicoastal.experiments.terminal.console import DONE, FAILED, UNSUPPORTED
from bicoastal.experiments.terminal.documents import say_document
from bicoastal.experiments.terminal.progress import reporter
from bicoastal.experiments.terminal.showing import show
from bicoastal.transports.registry import Registry, UnknownTransportError
from bicoastal.wan.units import format_time


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
    world = Registries(backends=BackendRegistry.installed(), transports=Registry.installed())
    if not 1 <= arguments.seeds <= MAX_SEEDS:
        raise ScenarioError(f"--seeds: {arguments.seeds} is not between 1 and {MAX_SEEDS}")
    with redirect_stdout(sys.stderr):  # transports are imported here, and may print what has no place in JSON
        scenario = load_scenario(arguments.scenario, world.transports, overrides_of(arguments, "iterations", "seed"))
        names = arguments.transport or scenario.transports
        transports = resolve_transports(names, world.transports, arguments.transport)
    seeds = scenario.seeds(arguments.seeds)
    options = {} if arguments.impairment is None else {"impairment": arguments.impairment}
    divisor = parse_divisor(arguments.scale or "auto")
    backend = make_backend(world, arguments.backend, options)
    real_time = backend.capabilities().real_time
    if divisor is None:
        divisor = fitting_divisor(backend, scenario, transports)
    tasks = plan(
        scenario,
        backend=arguments.backend,
        transports=transports,
        seeds=seeds,
        scale=divisor,
        options=options,
        settings=settings_of(arguments),
    )
    out = arguments.out or Path("out") / scenario.name
    with Store(out) as store:
        check_places(out, [OVERVIEW, SERIES])
        with reporter(tasks) as progress:
            run_all(tasks, store, world, workers=0 if real_time else None, progress=progress)
        comparison = compare(store, [task.key for task in tasks])
        scaled, refused = _at_scale(store, comparison, scenario)
        if arguments.json:
            documents = {name: each.document() for name, each in scaled.items()}
            say_document(to_document(comparison, documents))
        else:
            width = Console().width
            notes = [*tasks[0].notes, *_at_scale_notes(scaled, refused)]
            show(to_table(comparison, width=width, notes=notes))
        files = [
            str(store.path),
            *_draw(store, comparison, world.transports, out),
        ]  # last: what failed here costs least
    if not arguments.json:
        show(to_notes([f"written: {', '.join(files)}"]))
    return exit_code(comparison)


def _at_scale(
    store: Store, comparison: Comparison, scenario: Scenario
) -> tuple[Mapping[str, AtScale], Mapping[str, str]]:
    """Return what the runs say of the whole deployment, if the compared traffic is one job of one."""
    jobs = [job for job in scenario.jobs if job.transport is None]
    if len(jobs) != 1 or jobs[0].deployment is None:
        return {}, {}
    return at_scale(store, comparison, jobs[0].deployment, trips=jobs[0].allreduce.trips)


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
    """Return the changes that --set asks for, and those options that set a key of [scenario] with their name."""
    overrides = [parse_override(text) for text in arguments.set]
    for name in options:
        if (value := getattr(arguments, name)) is not None:
            overrides.append(option(f"--{name}", f"scenario.{name}", value))
    return overrides


def settings_of(arguments: argparse.Namespace) -> list[str]:
    """Return what --set and --iterations change, "key=value" each: what is said of the runs (`Task.settings`)."""
    settings = [setting(text) for text in arguments.set]
    if arguments.iterations is not None:
        settings.append(f"scenario.iterations={arguments.iterations}")
    return settings


def resolve_transports(names: Sequence[str], registry: Registry, given: Sequence[str] | None) -> list[str]:
    """Check that every name can be had, and return each once."""
    place = "--transport: " if given else ""
    for name in names:
        try:
            check_transport_name(name, registry)
            registry.resolve(name)
        except (ScenarioError, UnknownTransportError) as error:
            raise ScenarioError(f"{place}{error}") from error
    return list(dict.fromkeys(names))


def _draw(store: Store, comparison: Comparison, registry: Registry, directory: Path) -> list[str]:
    prepare_matplotlib()
    from bicoastal.experiments.figures.overview import draw_comparison  # noqa: PLC0415 (matplotlib takes half a second that `list` need not)

    return [str(path) for path in draw_comparison(store, comparison, registry, directory)]


def exit_code(*comparisons: Comparison) -> int:
    """Return how a command ends that has made these comparisons: 1 after a failed run, 3 when nothing was supported."""
    statuses = [result.status for comparison in comparisons for result in comparison.transports]
    if "failed" in statuses:
        return FAILED
    return UNSUPPORTED if all(status == "unsupported" for status in statuses) else DONE
