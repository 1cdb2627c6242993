"""Worker processes that end with their parent: a function is called for each of many items, some at a time."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.process import BaseProcess
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_workers(act: Callable[[Item], Result], items: Mapping[int, Item], workers: int) -> Iterator[tuple[int, Result]]:
    """Yield act(item) for every item with its number, as they are done, in at most so many processes.

    Raises BrokenProcessPool where a process died. However the loop over this ends, all processes have ended then.
    """
    if not items:
        return
    with _pool(workers) as executor:
        with without_interrupts():  # submitting starts the workers
            indices: dict[Future[Result], int] = {executor.submit(act, item): index for index, item in items.items()}
        pending = set(indices)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda item: indices[item]):
                yield indices[future], future.result()


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Delay Ctrl-C until the block has ended. Processes that start in the block never get one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Give the block a pool of processes. They have ended when the block has, however it ends."""
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
        while child.exitcode is None:  # join() alone does not see that the pool's own thread has reaped the child
            child.join(0.1)


def _start_worker() -> None:
    _keep_memory()
    if sys.stderr is not None:
        os.dup2(2, 1)  # what a third party's transport prints must not come between the parent's table or JSON
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group, and the parent acts on it
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _keep_memory() -> None:
    """Let glibc keep freed memory: a run makes the same gradients many times, and a new page costs more than a sum.

    Without it a third of a run's CPU time goes into page faults. C libraries other than glibc have no such setting.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(-4, 0)  # M_MMAP_MAX: no block is mapped, and so unmapped, by itself
        mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD: the heap shrinks only when this much lies free at its end


def _end_with_parent() -> None:
    """End this worker when its parent has ended. It would wait for ever otherwise: it holds both ends of its queue."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
