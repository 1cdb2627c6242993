"""Runs: to run a scenario by several transports, to plan runs, to resume them, and to open what earlier runs left."""

import os
from collections.abc import Sequence
from pathlib import Path

from bicoastal.emulation.registry import BackendRegistry
from bicoastal.experiments.runs.runner import Progress, Registries, Task, plan, run_all
from bicoastal.experiments.runs.scale import fitting_divisor, make_backend, parse_divisor
from bicoastal.experiments.runs.store import FILE_NAME, Store
from bicoastal.experiments.scenario.scenario import Scenario
from bicoastal.experiments.scenario.study import Study
from bicoastal.interface.results import Results
from bicoastal.interface.scenarios import Source, check_transports, load_scenario, with_iterations
from bicoastal.transports.registry import Registry, TransportSpec

_GOOD = ("ok", "degraded")

RunProgress = Progress
"""What is called with each task and its outcome: `Callable[[Task, Outcome], None]`."""


def run(
    scenario: Scenario | Source = "coast-to-coast",
    *,
    transports: Sequence[str | TransportSpec] | None = None,
    seeds: Sequence[int] | None = None,
    iterations: int | None = None,
    backend: str = "sim",
    impairment: str | None = None,
    scale: str | float = "auto",
    workers: int | None = 0,
    directory: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Results:
    """Carry a scenario's all-reduce by each transport, once for each seed, and return the results.

    scenario: what `load_scenario` gives, or a name or path for it. transports: names, "module:ATTRIBUTE", or
    specifications (default: the scenario's). seeds: default: the scenario's one. iterations: of each job (default: as
    the scenario says). backend: "sim", "netns", "mininet", or another that is installed. impairment: "relay" or
    "netem", for real packets. scale: what rates and payloads are divided by; "auto": what this machine can carry, 1 in
    sim. workers: processes; 0 runs in this one, None is one per core. Specifications that were given as objects, and
    real packets, run in this process. A script that takes workers needs the guard `if __name__ == "__main__":`.
    directory: where the results are kept besides; None writes nothing. progress: is called with each task and its
    outcome.

    Raises ScenarioError, UnsupportedError and StoreError, each with one sentence. A run that fails raises nothing: its
    status and reason stand in the results.
    """
    planned = plan_runs(
        scenario,
        transports=transports,
        seeds=seeds,
        iterations=iterations,
        backend=backend,
        impairment=impairment,
        scale=scale,
    )
    specs = [each for each in transports or () if isinstance(each, TransportSpec)]
    return run_tasks(planned, specs=specs, workers=workers, directory=directory, progress=progress)


def plan_runs(
    scenario: Scenario | Source,
    *,
    transports: Sequence[str | TransportSpec] | None = None,
    seeds: Sequence[int] | None = None,
    iterations: int | None = None,
    backend: str = "sim",
    impairment: str | None = None,
    scale: str | float = "auto",
    settings: Sequence[str] = (),
) -> list[Task]:
    """Return what `run` would run, transport by transport. The first seed of each keeps time series.

    settings: what was changed in the scenario, "key=value" each; kept beside the results. The rest as in `run`.
    """
    if not isinstance(scenario, Scenario):
        scenario = load_scenario(scenario)
    if iterations is not None:
        scenario = with_iterations(scenario, iterations)
    chosen = list(scenario.transports if transports is None else transports)
    registries = _registries([each for each in chosen if isinstance(each, TransportSpec)])
    names = check_transports(chosen)
    options = {} if impairment is None else {"impairment": impairment}
    divisor = parse_divisor(str(scale))
    made = make_backend(registries, backend, options)
    if divisor is None:
        divisor = fitting_divisor(made, scenario, names)
    return plan(
        scenario,
        backend=backend,
        transports=names,
        seeds=[scenario.seed] if seeds is None else seeds,
        scale=divisor,
        options=options,
        settings=settings,
    )


def plan_study(
    study: Study,
    *,
    transports: Sequence[str] | None = None,
    seeds: int | None = None,
    backend: str | None = None,
    scale: str | float = "auto",
    settings: Sequence[str] = (),
) -> list[Task]:
    """Return the runs of a study, point by point, without time series.

    transports, seeds (how many), backend: in place of the study's. settings: what was changed at every point,
    "key=value" each. One divisor serves all points, or they could not be compared. Raises ScenarioError, and
    UnsupportedError where the backend carries none of the transports.
    """
    names = check_transports(study.transports if transports is None else transports)
    chosen = backend or study.backend
    made = make_backend(_registries(), chosen, {})
    divisor = parse_divisor(str(scale))
    if divisor is None:
        divisor = max(fitting_divisor(made, point.scenario, names) for point in study.points)
    tasks: list[Task] = []
    for point in study.points:
        tasks += plan(
            point.scenario,
            backend=chosen,
            transports=names,
            seeds=point.scenario.seeds(seeds or study.seeds),
            sampled=False,
            scale=divisor,
            study=study.name,
            settings=(*study.settings, *settings, *point.settings),
            labels=[f"{axis.key}={axis.label}" for axis in study.axes if axis.label != axis.key],
        )
    return tasks


def run_tasks(
    tasks: Sequence[Task],
    *,
    specs: Sequence[TransportSpec] = (),
    workers: int | None = 0,
    directory: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Results:
    """Run what was planned and return the results of all of it.

    specs: transports that are not installed. resume: leave out the runs whose result is in `directory` already.
    The rest as in `run`.
    """
    registries = _registries(specs)
    if specs or _in_real_time(tasks, registries):
        workers = 0
    store = Store(None if directory is None else Path(directory))
    try:
        missing = _unfinished(store, tasks) if resume else tasks
        run_all(missing, store, registries, workers=workers, progress=progress)
        return Results(store, [task.key for task in tasks], registries.transports)
    except BaseException:
        store.close()
        raise


def unfinished(tasks: Sequence[Task], directory: str | os.PathLike[str]) -> list[Task]:
    """Return the tasks whose result is not in `directory`, or is there as failed, unsupported or of other settings."""
    if not (Path(directory) / FILE_NAME).is_file():
        return list(tasks)
    with Store.existing(Path(directory)) as store:
        return _unfinished(store, tasks)


def open_results(directory: str | os.PathLike[str]) -> Results:
    """Return all results that a directory holds. Raises StoreError, in one sentence, where there are none."""
    store = Store.existing(Path(directory))
    keys = [row.key for row in store.runs()]
    return Results(store, keys, Registry.installed(), whole=True)


def _registries(specs: Sequence[TransportSpec] = ()) -> Registries:
    return Registries(backends=BackendRegistry.installed(), transports=Registry.installed().with_specs(*specs))


def _in_real_time(tasks: Sequence[Task], registries: Registries) -> bool:
    made = {(task.backend, task.options) for task in tasks}
    return any(make_backend(registries, name, dict(options)).capabilities().real_time for name, options in made)


def _unfinished(store: Store, tasks: Sequence[Task]) -> list[Task]:
    done = {(run.key, run.settings) for run in store.runs([task.key for task in tasks]) if run.status in _GOOD}
    return [task for task in tasks if (task.key, task.settings) not in done]
