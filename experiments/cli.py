"""The command line: `bicoastal compare`, `list` and `export`.

Exit codes: 0 done; 1 a run failed; 2 bad usage or input, in one sentence; 3 nothing asked for is supported here;
130 interrupted.
"""

import argparse
import csv
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from rich.console import Console

from emulation.base import RunFailedError, UnsupportedError
from emulation.registry import BackendRegistry, UnknownBackendError
from experiments import extrapolate, validate
from experiments.bundled import bundled_data, bundled_names
from experiments.compare import Comparison, compare, to_document, to_table
from experiments.console import OutputError, say
from experiments.deployment import load_deployment
from experiments.overrides import Override, option, parse_override
from experiments.progress import reporter
from experiments.reading import ScenarioError, parse_toml
from experiments.runner import World, plan, run_all
from experiments.scenario import DEFAULT_SCENARIO, MAX_SEED, Scenario, load_scenario
from experiments.store import TABLES, Store, StoreError
from experiments.workload import check_transport_name
from transports.registry import Registry, UnknownTransportError
from wan.units import format_rate, format_size, format_time

DONE, FAILED, BAD_INPUT, UNSUPPORTED, INTERRUPTED = 0, 1, 2, 3, 130
MAX_SEEDS = 100_000


class TerminatedError(BaseException):
    """SIGTERM or SIGHUP has come: like KeyboardInterrupt, nothing but the outermost level stops it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, and takes no shortened options: later ones would change their meaning."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Raise it as what `guarded` makes one sentence of."""
        raise ScenarioError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (default: the process's arguments) asks for, and return its exit code."""
    if argv is None:
        _prepare_process()

    def command() -> int:
        arguments = _parser().parse_args(argv)
        code: int = arguments.command(arguments)
        return code

    return guarded(command)


def guarded(command: Callable[[], int]) -> int:
    """Return the exit code of `command`; what it may raise becomes a sentence on stderr and a code too."""
    try:
        code = command()
        sys.stdout.flush()
    except SystemExit as ended:  # argparse, after --help or --version
        return ended.code if isinstance(ended.code, int) else DONE
    except (ScenarioError, StoreError) as error:
        print(f"bicoastal: {error}", file=sys.stderr)
        return BAD_INPUT
    except UnsupportedError as error:
        print(f"bicoastal: {error}", file=sys.stderr)
        return UNSUPPORTED
    except RunFailedError as error:
        print(f"bicoastal: {error}", file=sys.stderr)
        return FAILED
    except OutputError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # see below
        print(f"bicoastal: {error}", file=sys.stderr)
        return BAD_INPUT
    except TerminatedError as error:
        print("bicoastal: terminated; what was finished is kept", file=sys.stderr)
        return 128 + error.number
    except KeyboardInterrupt:
        print("bicoastal: interrupted; what was finished is kept", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has had enough. The interpreter flushes stdout once more at its end: give it a place to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return code


def _prepare_process() -> None:
    """Make stdout and the signals behave, whoever started the process."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # a closed stream's number must not fall to a file of ours
        os.set_inheritable(number, True)  # nor to one of a worker's
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # print() would take the other one instead
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (as long as the process)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no × shows a question mark
    for wish in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(wish) == signal.SIG_DFL:  # nohup's is respected
            signal.signal(wish, _terminate)


def _terminate(number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once is enough: what follows is tidying up
    raise TerminatedError(number)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="bicoastal", description="Compare WAN transports for training that crosses a continent.")
    parser.add_argument("--version", action="version", version=f"bicoastal {version('bicoastal')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

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
    comparing.add_argument("--out", type=Path, metavar="DIR", help="for results (default: out/SCENARIO)")
    comparing.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    comparing.set_defaults(command=_compare)

    listing = commands.add_parser("list", help="list what there is to choose from")
    listing.add_argument("what", choices=tuple(_LISTS))
    listing.set_defaults(command=_list)

    exporting = commands.add_parser("export", help="write the results of a directory as tables")
    exporting.add_argument("directory", type=Path, metavar="DIR")
    exporting.add_argument("--format", choices=("csv",), default="csv")
    exporting.set_defaults(command=_export)

    validate.add_parser(commands)
    extrapolate.add_parser(commands)
    return parser


# -- compare ----------------------------------------------------------------------------------------------------------


def _compare(arguments: argparse.Namespace) -> int:
    world = World(backends=BackendRegistry.installed(), transports=Registry.installed())
    if not 1 <= arguments.seeds <= MAX_SEEDS:
        raise ScenarioError(f"--seeds: {arguments.seeds} is not between 1 and {MAX_SEEDS}")
    with redirect_stdout(sys.stderr):  # transports are imported here, and may print what has no place in JSON
        scenario = load_scenario(arguments.scenario, world.transports, _overrides(arguments))
        names = arguments.transport or scenario.transports
        transports = resolve_transports(names, world.transports, arguments.transport)
    try:
        world.backends.resolve(arguments.backend)
    except UnknownBackendError as error:
        raise ScenarioError(f"--backend: {error}") from error
    seeds = range(scenario.seed, scenario.seed + arguments.seeds)
    if seeds[-1] > MAX_SEED:
        raise ScenarioError(f"--seeds: seed {seeds[-1]} would be more than {MAX_SEED}")
    tasks = plan(scenario, backend=arguments.backend, transports=transports, seeds=seeds)
    directory = arguments.out or Path("out") / scenario.name
    with Store(directory) as store:
        with reporter(tasks) as progress:
            run_all(tasks, store, world, progress=progress)
        comparison = compare(store, [task.key for task in tasks])
        files = [str(store.path), *_draw(store, comparison, world.transports, directory)]
    if arguments.json:
        say(json.dumps(to_document(comparison), indent=2, allow_nan=False))
    else:
        console = Console(highlight=False)
        notes = [_paths_note(scenario), f"written: {', '.join(files)}"]
        with console.capture() as captured:
            console.print(to_table(comparison, width=console.width, notes=notes))
        say(captured.get().removesuffix("\n"))
    return _exit_code(comparison)


def _overrides(arguments: argparse.Namespace) -> list[Override]:
    overrides = [parse_override(text) for text in arguments.set]
    for name in ("iterations", "seed"):
        if (value := getattr(arguments, name)) is not None:
            overrides.append(option(f"--{name}", f"scenario.{name}", value))
    return overrides


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
    from experiments.plot import draw_comparison  # noqa: PLC0415 (matplotlib takes half a second that `list` need not)

    return [str(path) for path in draw_comparison(store, comparison, registry, directory)]


def _paths_note(scenario: Scenario) -> str:
    topology = scenario.topology
    names = dict.fromkeys(path for job in scenario.jobs for path in job.paths)
    kinds = dict.fromkeys((topology.path_rate_bps(name), topology.path_rtt_s(name)) for name in names)
    shards = dict.fromkeys(job.allreduce.shard_bytes for job in scenario.jobs)
    listed = ", ".join(
        f"{sum((topology.path_rate_bps(name), topology.path_rtt_s(name)) == kind for name in names)} × "
        f"{format_rate(kind[0])} at RTT {format_time(kind[1])}"
        for kind in kinds
    )
    return f"paths: {listed}; shard: {', '.join(format_size(size) for size in shards)} in each direction."


def _exit_code(comparison: Comparison) -> int:
    statuses = [result.status for result in comparison.transports]
    if "failed" in statuses:
        return FAILED
    return UNSUPPORTED if all(status == "unsupported" for status in statuses) else DONE


# -- list -------------------------------------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> int:
    rows = _LISTS[arguments.what]()
    width = max((len(name) for name, _ in rows), default=0)
    for name, description in rows:
        say(f"{name:{width}}  {description}".rstrip())
    return DONE


def _list_transports() -> list[tuple[str, str]]:
    registry = Registry.installed()
    rows = []
    for name in registry.names():
        try:
            rows.append((name, registry.resolve(name).description))
        except UnknownTransportError as error:
            rows.append((name, f"unusable: {error}"))
    return rows


def _list_backends() -> list[tuple[str, str]]:
    registry = BackendRegistry.installed()
    rows = []
    for name in registry.names():
        try:
            backend = registry.resolve(name)
        except UnknownBackendError as error:
            rows.append((name, f"unusable: {error}"))
        else:
            rows.append((name, (backend.__doc__ or "").strip().splitlines()[0] if backend.__doc__ else ""))
    return rows


def _list_scenarios() -> list[tuple[str, str]]:
    rows = []
    for name in bundled_names("scenarios"):
        document = parse_toml(bundled_data("scenarios", name), f"{name}.toml")
        header = document.get("scenario")
        rows.append((name, str(header.get("description", "")) if isinstance(header, dict) else ""))
    return rows


def _list_deployments() -> list[tuple[str, str]]:
    rows = []
    for name in bundled_names("deployments"):
        deployment = load_deployment(name, None)
        shard = format_size(deployment.wide_area_shard_bytes)
        pairs = f"{deployment.gpu_pairs:,} GPU pairs, {shard} for each to send across"
        what = pairs if deployment.sites == 2 else f"{deployment.gpus:,} GPUs at one site"
        rows.append((name, f"{what}. {deployment.source}"))
    return rows


_LISTS = {
    "transports": _list_transports,
    "backends": _list_backends,
    "scenarios": _list_scenarios,
    "deployments": _list_deployments,
}


# -- export -----------------------------------------------------------------------------------------------------------


def _export(arguments: argparse.Namespace) -> int:
    directory: Path = arguments.directory
    with Store.existing(directory) as store:
        for table in TABLES:
            columns, rows = store.dump(table)
            path = directory / f"{table}.csv"
            unfinished = path.with_suffix(f".csv.{os.getpid()}.unfinished")
            try:
                with unfinished.open("w", encoding="utf-8", newline="") as file:
                    writer = csv.writer(file, lineterminator="\n")
                    writer.writerow(columns)
                    writer.writerows(rows)
                unfinished.replace(path)  # a file of that name is whole, always
            except OSError as error:
                raise StoreError(f"{path}: cannot be written ({error.strerror})") from error
            finally:
                unfinished.unlink(missing_ok=True)
            say(str(path))
    return DONE


if __name__ == "__main__":
    sys.exit(main())
