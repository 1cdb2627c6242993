"""Efficiency against loss: one scenario at several losses, and the figure of it.

python -m experiments.losses [SCENARIO] [--losses 0,1e-5,1e-4,1e-3,1e-2] [--transport T …] [--iterations N]
                             [--seeds N] [--out DIR]
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from emulation.registry import BackendRegistry
from experiments.arguments import Parser, directory
from experiments.cli import run
from experiments.compare import Comparison, compare
from experiments.comparing import MAX_SEEDS, resolve_transports
from experiments.console import DONE, FAILED, say
from experiments.overrides import Override, option, parse_override
from experiments.pictures import LOSS, check_places, prepare_matplotlib
from experiments.progress import reporter
from experiments.reading import ScenarioError, shown
from experiments.runner import Task, World, plan, run_all
from experiments.scenario import DEFAULT_SCENARIO, Scenario, load_scenario
from experiments.store import Store
from transports.registry import Registry

DEFAULT_LOSSES = "0,1e-5,1e-4,1e-3,1e-2"


def compare_losses(
    scenarios: Sequence[tuple[float, Scenario]],
    store: Store,
    world: World,
    *,
    backend: str,
    transports: Sequence[str],
    seeds: int,
    workers: int | None = None,
) -> list[tuple[float, Comparison]]:
    """Run each scenario, given with the loss it stands for, and return its comparison."""
    tasks: list[list[Task]] = [
        plan(
            scenario,
            backend=backend,
            transports=transports,
            seeds=range(scenario.seed, scenario.seed + seeds),
            sampled=False,
        )
        for _, scenario in scenarios
    ]
    together = [task for group in tasks for task in group]
    with reporter(together) as progress:
        run_all(together, store, world, workers=workers, progress=progress)
    return [
        (loss, compare(store, [task.key for task in group])) for (loss, _), group in zip(scenarios, tasks, strict=True)
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sweep that the arguments ask for, and return its exit code, as `bicoastal` does."""
    return run(_sweep, argv)


def _sweep(argv: Sequence[str] | None) -> int:
    parser = Parser(prog="python -m experiments.losses", description="Draw efficiency against loss.")
    parser.add_argument("scenario", nargs="?", default=DEFAULT_SCENARIO, metavar="SCENARIO")
    parser.add_argument("--losses", default=DEFAULT_LOSSES, help=f"per packet, with commas (default: {DEFAULT_LOSSES})")
    parser.add_argument("--transport", action="append", metavar="T")
    parser.add_argument("--backend", default="sim")
    parser.add_argument("--iterations", type=int, metavar="N")
    parser.add_argument("--seeds", type=int, default=1, metavar="N")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=directory, default=Path("out/losses"), metavar="DIR")
    arguments = parser.parse_args(argv)
    if not 1 <= arguments.seeds <= MAX_SEEDS:
        raise ScenarioError(f"--seeds: {arguments.seeds} is not between 1 and {MAX_SEEDS}")
    world = World(backends=BackendRegistry.installed(), transports=Registry.installed())
    common = [parse_override(text) for text in arguments.set]
    if arguments.iterations is not None:
        common.append(option("--iterations", "scenario.iterations", arguments.iterations))
    scenarios = [
        (loss, load_scenario(arguments.scenario, world.transports, [*common, _loss(loss)]))
        for loss in _losses(arguments.losses)
    ]
    transports = resolve_transports(
        arguments.transport or scenarios[0][1].transports, world.transports, arguments.transport
    )
    with Store(arguments.out) as store:
        check_places(arguments.out, [LOSS])
        groups = compare_losses(
            scenarios, store, world, backend=arguments.backend, transports=transports, seeds=arguments.seeds
        )
    prepare_matplotlib()
    from experiments.plot import draw_efficiency_against_loss  # noqa: PLC0415 (matplotlib is slow to import)

    say(str(draw_efficiency_against_loss(groups, world.transports, arguments.out)))
    return FAILED if any(r.status == "failed" for _, comparison in groups for r in comparison.transports) else DONE


def _losses(text: str) -> list[float]:
    losses = []
    for part in text.split(","):
        try:
            losses.append(float(part))
        except ValueError:
            raise ScenarioError(f"--losses: {shown(part)} is not a probability") from None
    return losses


def _loss(loss: float) -> Override:
    return option("--losses", "links.loss", loss)


if __name__ == "__main__":
    sys.exit(main())
