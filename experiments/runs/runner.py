"""Tasks are run, in worker processes or here, and their results written to the store. Each task makes one row.

A run that fails, or that its world does not support, makes a row with the reason.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing import parent_process

from bicoastal.emulation.base import RunFailedError, RunSpec, UnsupportedError
from bicoastal.emulation.limits.memory import machine_memory_bytes, run_memory_bytes
from bicoastal.emulation.limits.scaled import scaled_run
from bicoastal.emulation.records import RunRecord
from bicoastal.emulation.registry import BackendRegistry
from bicoastal.experiments.basics.interruption import TerminatedError
from bicoastal.experiments.basics.value_text import value_text
from bicoastal.experiments.runs.notes import paths_note, scale_notes
from bicoastal.experiments.runs.setups import setup_key
from bicoastal.experiments.runs.specifications import compared_job
from bicoastal.experiments.runs.store import RunRow, RunStatus, Store, UnfitRecordError, run_key
from bicoastal.experiments.runs.workers import in_workers
from bicoastal.experiments.scenario.scenario import Scenario
from bicoastal.transports.registry import Registry
from bicoastal.wan.units import format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run to be made: a transport, a seed, a backend. options: what the backend is made with besides its registry.

    study, settings, labels, source, notes: as in `RunRow`; the specification has what decides the run.
    """

    transport: str
    jobs: tuple[str, ...]
    backend: str
    spec: RunSpec
    options: tuple[tuple[str, str], ...] = ()
    study: str = ""
    settings: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    source: str = ""
    notes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The key of its result in the store."""
        return run_key(self.spec, self._backend_text)

    @property
    def setup(self) -> str:
        """The digest of what it shares with the runs that it is compared with."""
        return setup_key(self.spec, self.jobs, self._backend_text)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Of the compared transport, "key=value" each."""
        use = compared_job(self.spec, self.jobs).transport
        return tuple(f"{name}={value_text(value)}" for name, value in use.parameters)

    @property
    def _backend_text(self) -> str:
        return "/".join((self.backend, *(f"{name}={value}" for name, value in self.options)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a task. record: None where the run left none; then `status` and `reason` are all there is."""

    status: RunStatus
    reason: str
    record: RunRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registries:
    """The tables in which tasks find their backend and their transports. Worker processes get a copy."""

    backends: BackendRegistry
    transports: Registry


_MAX_REASON = 500

Progress = Callable[[Task, Outcome], None]


def plan(
    scenario: Scenario,
    *,
    backend: str,
    transports: Sequence[str],
    seeds: Sequence[int],
    sampled: bool = True,
    scale: float = 1.0,
    options: Mapping[str, str] | None = None,
    study: str = "",
    settings: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> list[Task]:
    """Return a task for each transport and seed, transport by transport; scale: see `emulation.limits.scaled`.

    study, settings, labels: as in `RunRow`; the last setting of a key holds.
    Time series are kept for the first seed alone, if `sampled`: they take most of the room, and one is enough to draw.
    """
    notes = (paths_note(scenario), *scale_notes(scenario, scale))
    in_force = tuple({text.partition("=")[0]: text for text in settings}.values())
    return [
        Task(
            transport=transport,
            jobs=scenario.compared_jobs,
            backend=backend,
            spec=scaled_run(scenario.run_spec(transport, seed=seed, sampled=sampled and seed == seeds[0]), scale),
            options=tuple(sorted((options or {}).items())),
            study=study,
            settings=in_force,
            labels=tuple(labels),
            source=scenario.source,
            notes=notes,
        )
        for transport in transports
        for seed in seeds
    ]


def run_all(
    tasks: Sequence[Task],
    store: Store,
    registries: Registries,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Run every task, and write each result when it is there. A task that fails does not stop the others.

    workers: processes at most; None for one per core, or fewer where memory is short; 0 to run in this process. After
    an interruption (KeyboardInterrupt is raised again) the store holds what was finished, and no worker still runs.
    """
    for task, found in _outcomes(tasks, registries, workers):
        outcome = found
        try:
            store.write(_row(task, outcome), outcome.record)
        except UnfitRecordError as error:
            outcome = Outcome(status="failed", reason=_sentence(error))
            store.write(_row(task, outcome), None)
        if progress is not None:
            progress(task, outcome)


def _row(task: Task, outcome: Outcome) -> RunRow:
    record = outcome.record
    return RunRow(
        key=task.key,
        scenario=task.spec.name,
        study=task.study,
        settings=task.settings,
        labels=task.labels,
        source=task.source,
        backend=task.backend,
        transport=task.transport,
        parameters=task.parameters,
        jobs=task.jobs,
        seed=task.spec.seed,
        scale=task.spec.scale if record is None else record.scale,
        setup=task.setup,
        options=task.options,
        spec=task.spec,
        notes=task.notes,
        status=outcome.status,
        reason=outcome.reason,
        array_note="" if record is None else record.array_note,
    )


def run_task(task: Task, registries: Registries) -> Outcome:
    """Run one task in this process. An error of the backend or the transport becomes an outcome, not an exception."""
    needed_bytes, available_bytes = run_memory_bytes(task.spec), machine_memory_bytes()
    if needed_bytes > available_bytes:
        reason = (
            f"takes up to {format_size(needed_bytes)} of memory, and this machine has {format_size(available_bytes)}"
        )
        return Outcome(status="unsupported", reason=reason)
    try:
        record = registries.backends.resolve(task.backend)(registries.transports, **dict(task.options)).run(task.spec)
    except UnsupportedError as error:
        return Outcome(status="unsupported", reason=_sentence(error))
    except RunFailedError as error:
        return Outcome(status="failed", reason=_sentence(error))
    except BaseException as error:  # a third party's transport or backend may raise anything, and the others go on
        if isinstance(error, KeyboardInterrupt | TerminatedError) and parent_process() is None:
            raise  # a person has asked the program to end; worker processes get no such signal
        return Outcome(status="failed", reason=f"{type(error).__name__}: {_sentence(error)}")
    return Outcome(status=record.status, reason=record.reason, record=record)


def _sentence(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as broken:  # a third party's __str__
        text = f"its message cannot be read ({type(broken).__name__})"
    # neither line breaks nor escape sequences reach the terminal
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.split()))
    return f"{text[: _MAX_REASON - 1]}…" if len(text) > _MAX_REASON else text or "no reason was given"


def _outcomes(tasks: Sequence[Task], registries: Registries, workers: int | None) -> Iterator[tuple[Task, Outcome]]:
    if workers == 0:
        for task in tasks:
            yield task, run_task(task, registries)
        return
    run = partial(run_task, registries=registries)
    left = dict(enumerate(tasks))
    try:
        for index, outcome in in_workers(run, left, min(workers or _fitting(tasks), len(tasks))):
            yield left.pop(index), outcome
    except BrokenProcessPool:
        # A process died, most likely because memory ran out, and the pool ended with it. Which task it had is not
        # known. What is left runs one by one, each in a process of its own, so that only the faulty task is lost.
        for index in list(left):
            task = left.pop(index)
            try:
                ((_, outcome),) = in_workers(run, {index: task}, 1)
            except BrokenProcessPool:
                outcome = Outcome(status="failed", reason="the process that ran it died; it may have run out of memory")
            yield task, outcome


def _fitting(tasks: Sequence[Task]) -> int:
    """Return how many of the largest task this machine can run at once: one per core, or fewer where memory ends."""
    largest_bytes = max((run_memory_bytes(task.spec) for task in tasks), default=1)
    return max(1, min(os.cpu_count() or 1, machine_memory_bytes() // largest_bytes))
