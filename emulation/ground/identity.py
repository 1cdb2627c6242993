"""The identity of a run on this machine: a random tag, and a private directory with a lock.

Every run owns a directory `run-<tag>` under the runtime root, and holds a lock on a file in it until it ends. A process
that gets this lock knows that the run is dead (`emulation.ground.cleanup`). The kernel releases the lock however the
run ends.
"""

import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.closing import Closing

TAG_PATTERN = re.compile(r"bc[0-9a-f]{6}")
RUN_PATTERN = re.compile(r"run-(bc[0-9a-f]{6})")
ROOT_LOCK = ".lock"
LOCK = "lock"
PROCESSES = "processes"


def runtime_root() -> Path:
    """Return the parent of all run directories, readable by this user alone. It is made when it does not exist.

    It is $XDG_RUNTIME_DIR/bicoastal where that is set and private, else /tmp/bicoastal-<uid>.
    Raises UnsupportedError when another user owns it or may write to it, FileNotFoundError when it has been removed.
    """
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given and os.path.isabs(given) and os.access(given, os.W_OK | os.X_OK) and _is_private(Path(given)):
        root = Path(given, "bicoastal")
    else:
        root = Path(f"/tmp/bicoastal-{os.getuid()}")
    try:
        with suppress(FileExistsError):
            root.mkdir(mode=0o700)
    except OSError as error:
        raise UnsupportedError(f"{root} cannot be made: {error.strerror}") from error
    if not _is_private(root):
        raise UnsupportedError(f"{root} is not a directory that belongs to this user alone")
    return root


def _is_private(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


@contextmanager
def locked_root() -> Iterator[Path]:
    """Lock the runtime root, so that no other process makes or removes run directories in it, and yield it.

    A root may be removed before it is locked; then the next one is tried. Raises as `runtime_root`.
    """
    while True:
        try:
            root = runtime_root()
            descriptor = _open_lock(root)
        except FileNotFoundError:  # `clean` has just removed it
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(
                descriptor
            ).st_nlink:  # else it was removed while this process waited, and the lock has no effect
                yield root
                return
        finally:
            os.close(descriptor)


def _open_lock(root: Path) -> int:
    return os.open(root / ROOT_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process. Its start (clock ticks since boot) distinguishes it from later processes with its number."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> Self:
        """Return the process that has this number now. Raises ProcessLookupError."""
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            raise ProcessLookupError(pid) from None
        # proc_pid_stat(5): the name, field 2, may hold anything; the start time is field 22.
        return cls(pid=pid, start_ticks=int(text.rpartition(")")[2].split()[19]))

    def is_alive(self) -> bool:
        """Return whether it still runs."""
        try:
            return Process.of(self.pid) == self
        except ProcessLookupError:
            return False


class RunDirectory(Closing):
    """The private directory of a run, which is removed with its contents at the end. A context manager.

    tag: "bc" and six hexadecimal digits, unique among the runs of this user. path: the directory.
    """

    def __init__(self) -> None:
        with locked_root() as root:
            while True:
                self.tag = f"bc{secrets.token_hex(3)}"
                self.path = root / f"run-{self.tag}"
                try:
                    self.path.mkdir(mode=0o700)
                except FileExistsError:
                    continue
                break
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def record(self, pid: int) -> None:
        """Record a process of this run, so that `cleanup` finds it when the run is killed."""
        process = Process.of(pid)
        with open(self.path / PROCESSES, "a", encoding="ascii") as file:
            file.write(f"{process.pid} {process.start_ticks}\n")

    def close(self) -> None:
        """Remove the directory."""
        root_lock = _open_lock(self.path.parent)
        try:
            fcntl.flock(root_lock, fcntl.LOCK_EX)
            shutil.rmtree(
                self.path
            )  # without the root's lock, `clean` might take it for a dead run when its lock file is removed
        finally:
            os.close(root_lock)
            os.close(self._lock)
