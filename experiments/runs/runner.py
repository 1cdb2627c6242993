"""Runs go out to worker processes, records come back into the store; a run that goes wrong becomes a row of its own."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.process import BaseProcess

from bicoastal.emulation.base import RunFailedError, RunSpec, UnsupportedError
from bicoastal.emulation.memory import machine_memory_bytes, run_memory_bytes
from bicoastal.emulation.records import RunRecord
from bicoastal.emulation.registry import BackendRegistry
from bicoastal.emulation.scaled import scaled_run
from bicoastal.experiments.basics.interruption import TerminatedError
from bicoastal.experiments.basics.value_text import value_text
from bicoastal.experiments.runs.notes import paths_note, scale_notes
from bicoastal.experiments.runs.setups import setup_key
from bicoastal.experiments.runs.specifications import compared_job
from bicoastal.experiments.runs.store import RunRow, RunStatus, Store, UnfitRecordError, run_key
from bicoastal.experiments.scenario.scenario import Scenario
from bicoastal.transports.registry import Registry
from bicoastal.wan.units import format_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One run to be made: a transport, a seed, a world. options: what the backend is made with besides its registry.

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
        """Under which its result stands in the store."""
        return run_key(self.spec, self._world)

    @property
    def setup(self) -> str:
        """What it shares with the runs that it is compared with."""
        return setup_key(self.spec, self.jobs, self._world)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Of the compared transport, "key=value" each."""
        use = compared_job(self.spec, self.jobs).transport
        return tuple(f"{name}={value_text(value)}" for name, value in use.parameters)

    @property
    def _world(self) -> str:
        return "/".join((self.backend, *(f"{name}={value}" for name, value in self.options)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a task; `record` is None when there is nothing but `status` and `reason` to tell."""

    status: RunStatus
    reason: str
    record: RunRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Where tasks find their backend and their transports; it travels to the workers."""

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
    """Return a task for each transport and seed, transport by transport; scale: see `emulation.scaled`.

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
    tasks: Sequence[Task], store: Store, world: World, *, workers: int | None = None, progress: Progress | None = None
) -> None:
    """Run every task and write each result as soon as it is there, whatever becomes of the others.

    workers: processes at most; None for one per core, as far as memory goes; 0 to run in this process. After an
    interruption (KeyboardInterrupt passes through) the store holds what was finished, and no worker is left behind.
    """
    for task, found in _outcomes(tasks, world, workers):
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


def run_task(task: Task, world: World) -> Outcome:
    """Run one task here. Whatever goes wrong in the world or the transport is an outcome, not an exception."""
    needed_bytes, available_bytes = run_memory_bytes(task.spec), machine_memory_bytes()
    if needed_bytes > available_bytes:
        reason = (
            f"takes up to {format_size(needed_bytes)} of memory, and this machine has {format_size(available_bytes)}"
        )
        return Outcome(status="unsupported", reason=reason)
    try:
        record = world.backends.resolve(task.backend)(world.transports, **dict(task.options)).run(task.spec)
    except UnsupportedError as error:
        return Outcome(status="unsupported", reason=_sentence(error))
    except RunFailedError as error:
        return Outcome(status="failed", reason=_sentence(error))
    except BaseException as error:  # a third party's transport or backend may raise anything, and the others go on
        if isinstance(error, KeyboardInterrupt | TerminatedError) and parent_process() is None:
            raise  # a person's wish; workers get none
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


def _outcomes(tasks: Sequence[Task], world: World, workers: int | None) -> Iterator[tuple[Task, Outcome]]:
    if workers == 0:
        for task in tasks:
            yield task, run_task(task, world)
        return
    left = dict(enumerate(tasks))
    try:
        for index, outcome in _in_pool(left, world, min(workers or _fitting(tasks), len(tasks))):
            yield left.pop(index), outcome
    except BrokenProcessPool:
        # A process died (out of memory, most likely) and took the pool along: nobody knows which task it had.
        # What is left is run one by one, each in a process of its own, so that only the culprit is lost.
        for index in list(left):
            task = left.pop(index)
            try:
                ((_, outcome),) = _in_pool({index: task}, world, 1)
            except BrokenProcessPool:
                outcome = Outcome(status="failed", reason="the process that ran it died; it may have run out of memory")
            yield task, outcome


def _fitting(tasks: Sequence[Task]) -> int:
    """Return how many of the largest task this machine can run at once: one per core, or fewer where memory ends."""
    largest_bytes = max((run_memory_bytes(task.spec) for task in tasks), default=1)
    return max(1, min(os.cpu_count() or 1, machine_memory_bytes() // largest_bytes))


def _in_pool(tasks: dict[int, Task], world: World, workers: int) -> Iterator[tuple[int, Outcome]]:
    if not tasks:
        return
    with _pool(workers) as executor:
        with _no_interrupts():  # submitting starts the workers
            indices: dict[Future[Outcome], int] = {
                executor.submit(run_task, task, world): index for index, task in tasks.items()
            }
        pending = set(indices)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda item: indices[item]):
                yield indices[future], future.result()


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Put Ctrl-C off until the block is left; processes started in it never get one, not even while they import."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool that is gone when the block is left, in whatever way."""
    before = set(active_children())
    # spawn: a fresh interpreter has no threads, locks or database of this one's
    executor = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_start_worker)
    try:
        yield executor
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        _terminate(child for child in active_children() if child not in before)
        raise
    executor.shutdown()


def _terminate(children: Iterable[BaseProcess]) -> None:
    for child in children:
        child.terminate()
        while child.exitcode is None:  # join() alone knows nothing of a child that the pool's own thread has reaped
            child.join(0.1)


def _start_worker() -> None:
    _keep_memory()
    if sys.stderr is not None:
        os.dup2(2, 1)  # what a third party's transport prints must not come between the parent's table or JSON
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what follows
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _keep_memory() -> None:
    """Let glibc keep freed memory: a run makes the same gradients again and again, and fresh pages cost more than sums.

    Without it a third of a run's CPU time goes into page faults. Elsewhere than on glibc there is nothing to set.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(-4, 0)  # M_MMAP_MAX: no block is mapped, and so unmapped, by itself
        mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD: the heap shrinks only when this much lies free at its end


def _end_with_parent() -> None:
    """A worker whose parent was killed would otherwise wait for ever: it holds both ends of its own queue."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
