"""Removes what killed runs left: their directories, and their processes that still run. Nothing else is changed.

Namespaces and their contents end with a run's processes, so nothing else can be left.
"""

import errno
import fcntl
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from bicoastal.emulation.ground.identity import LOCK, PROCESSES, ROOT_LOCK, RUN_PATTERN, Process, locked_root


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanReport:
    """removed: tags of dead runs. killed: numbers of processes. running: tags of runs that are alive."""

    removed: tuple[str, ...] = ()
    killed: tuple[int, ...] = ()
    running: tuple[str, ...] = ()


def clean(*, to_the_last: bool = False) -> CleanReport:
    """Remove what dead runs of this user left, and report it. Runs that are alive are not changed.

    to_the_last: also remove the runtime root when it is empty.
    Raises UnsupportedError when the runtime root is not ours, OSError when something cannot be removed.
    """
    removed: list[str] = []
    running: list[str] = []
    killed: list[int] = []
    with locked_root() as root:
        for directory in sorted(root.iterdir()):
            matched = RUN_PATTERN.fullmatch(directory.name)
            if matched is None or directory.is_symlink() or not directory.is_dir():
                continue
            if _is_locked(directory):
                running.append(matched[1])
                continue
            for process in _recorded(directory):
                if _kill(process):
                    killed.append(process.pid)
            shutil.rmtree(directory)
            removed.append(matched[1])
        if to_the_last and [entry.name for entry in root.iterdir()] == [ROOT_LOCK]:
            (root / ROOT_LOCK).unlink()
            try:
                root.rmdir()
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:  # a run that begins at this moment has made a new lock
                    raise
    return CleanReport(removed=tuple(removed), killed=tuple(killed), running=tuple(running))


def _kill(process: Process) -> bool:
    """Kill a process that still runs. The descriptor belongs to one process, so no later one with its number dies."""
    if not process.is_alive():
        return False
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not process.is_alive():
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except ProcessLookupError:  # it has just ended
        return False
    finally:
        os.close(descriptor)
    return True


def _is_locked(directory: Path) -> bool:
    try:
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:  # killed before it made one: a run makes and locks its directory under the root's lock
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _recorded(directory: Path) -> list[Process]:
    """Read the recorded processes of a run; an incomplete last line is skipped."""
    path = directory / PROCESSES
    if not path.exists():
        return []
    processes = []
    for line in path.read_text(encoding="ascii").splitlines(keepends=True):
        fields = line.split()
        if line.endswith("\n") and len(fields) == 2 and all(field.isdecimal() for field in fields):
            processes.append(Process(pid=int(fields[0]), start_ticks=int(fields[1])))
    return processes
