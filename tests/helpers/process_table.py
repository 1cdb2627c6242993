"""Processes of a run as the machine sees them, and programs started as an ordinary user."""

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

UNPRIVILEGED = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
# A user namespace in which no more of either kind may be made: namespaces(7), max_net_namespaces
_LIMITS = "echo 0 > /proc/sys/user/max_net_namespaces; echo 0 > /proc/sys/user/max_user_namespaces"
FORBIDDEN = ["unshare", "--user", "--map-root-user", "sh", "-c", f'{_LIMITS}; exec "$@"', "sh"]


def new_mark() -> str:
    """Return an assignment that no other process has in its environment."""
    return f"BICOASTAL_TEST={secrets.token_hex(8)}"


def ours(mark: str) -> list[int]:
    """Return the processes that have inherited a mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes()
            except (ProcessLookupError, FileNotFoundError, PermissionError):
                continue
            if mark.encode() in environment:
                found.append(int(entry.name))
    return found


def all_gone(mark: str) -> bool:
    """Say whether the processes with a mark have ended; one that is just being replaced by exec shows none."""
    until = time.monotonic() + 10
    absent = 0
    while absent < 10 and time.monotonic() < until:
        time.sleep(0.01)  # other processes end in their own time
        absent = 0 if ours(mark) else absent + 1
    return absent == 10


def python_for_everybody() -> str:
    """Return a Python that an ordinary user may run: a virtual environment is often closed to others."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        code = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
        tried = subprocess.run(
            [*UNPRIVILEGED, "sh", "-c", f"{candidate} -c '{code}'"], capture_output=True, check=False
        )
        if tried.returncode == 0:
            return candidate
    pytest.skip("an ordinary user may run no Python of this version here")


def as_nobody(code: str, *arguments: str, through: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run a Python program as an ordinary user who has nothing, through another command if so wished."""
    argv = [*UNPRIVILEGED, *through, python_for_everybody(), "-c", code, *arguments]
    with tempfile.TemporaryDirectory() as runtime:
        os.chown(runtime, 65534, 65534)
        environment = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "XDG_RUNTIME_DIR": runtime,
        }
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment, cwd="/", timeout=90)
