"""Cleaning removes the remains of dead runs, and no live run, similar name or target of a link."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.ground.cleanup import clean
from bicoastal.emulation.ground.identity import RUN_PATTERN, Process, RunDirectory, runtime_root


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return runtime_root()


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    process.stdin.close()


def abandon(root: Path, name: str, processes: str = "") -> Path:
    """Leave a directory as a killed run does: with a lock file that is not locked."""
    directory = root / name
    directory.mkdir(mode=0o700)
    (directory / "lock").touch()
    (directory / "hosts").write_text("10.64.0.1 east\n")
    (directory / "processes").write_text(processes)
    return directory


def test_a_run_owns_a_directory_for_as_long_as_it_lives(root: Path) -> None:
    with RunDirectory() as run:
        assert run.path.stat().st_mode & 0o777 == 0o700
        assert RUN_PATTERN.fullmatch(run.path.name)
        assert clean().running == (run.tag,)
        assert run.path.exists()
    assert not run.path.exists()
    assert clean().running == ()


def test_two_runs_have_different_tags(root: Path) -> None:
    with RunDirectory() as one, RunDirectory() as other:
        assert one.tag != other.tag
        assert set(clean().running) == {one.tag, other.tag}


def test_what_a_dead_run_left_is_removed(root: Path) -> None:
    left = abandon(root, "run-bc012345")
    assert clean().removed == ("bc012345",)
    assert not left.exists()


def test_a_directory_without_a_lock_is_a_dead_runs(root: Path) -> None:
    (root / "run-bc012345").mkdir()
    assert clean().removed == ("bc012345",)


@pytest.mark.parametrize("name", ["run-bc01234", "run-bc0123456", "run-BC012345", "xrun-bc012345", "bc012345"])
def test_similar_names_are_not_removed(root: Path, name: str) -> None:
    directory = abandon(root, name)
    assert clean().removed == ()
    assert directory.exists()


def test_links_are_not_followed(root: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("mine")
    (root / "run-bc012345").symlink_to(precious)
    inside = abandon(root, "run-bc543210")
    (inside / "way out").symlink_to(precious)
    assert clean().removed == ("bc543210",)
    assert (precious / "data").read_text() == "mine"


def test_a_process_of_a_dead_run_is_killed(root: Path, bystander: subprocess.Popen[bytes]) -> None:
    process = Process.of(bystander.pid)
    abandon(root, "run-bc012345", f"{process.pid} {process.start_ticks}\n")
    assert clean().killed == (bystander.pid,)
    assert bystander.wait(10) == -9


def test_a_later_process_with_the_same_number_is_left(root: Path, bystander: subprocess.Popen[bytes]) -> None:
    process = Process.of(bystander.pid)
    abandon(root, "run-bc012345", f"{process.pid} {process.start_ticks - 1}\n")
    assert clean().killed == ()
    assert bystander.poll() is None


def test_an_incomplete_line_is_skipped(root: Path, bystander: subprocess.Popen[bytes]) -> None:
    process = Process.of(bystander.pid)
    abandon(root, "run-bc012345", f"nonsense\n{process.pid} {process.start_ticks}")
    report = clean()
    assert (report.removed, report.killed) == (("bc012345",), ())


@pytest.mark.parametrize("number", [0, 2**22 + 1, 10**30])
def test_a_number_without_a_process_raises(root: Path, number: int) -> None:
    abandon(root, "run-bc012345", f"{number} 1\n")
    report = clean()
    assert (report.removed, report.killed) == (("bc012345",), ())


def test_a_recorded_process_is_found_again(root: Path) -> None:
    with RunDirectory() as run:
        run.record(os.getpid())
        (line,) = (run.path / "processes").read_text().splitlines()
        own = Process.of(os.getpid())
        assert line == f"{own.pid} {own.start_ticks}"
        assert own.is_alive()


def test_a_process_that_has_ended_is_not_alive() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(ProcessLookupError):
        Process.of(ended.pid)


def test_without_a_runtime_directory_there_is_one_in_tmp_for_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert runtime_root() == Path(f"/tmp/bicoastal-{os.getuid()}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "relative/path")
    assert runtime_root() == Path(f"/tmp/bicoastal-{os.getuid()}")


def test_a_root_that_others_may_write_to_is_refused(root: Path) -> None:
    root.chmod(0o770)
    with pytest.raises(UnsupportedError, match=r"is not a directory that belongs to this user alone$"):
        clean()


def test_to_the_last_removes_the_root_only_when_it_is_empty(root: Path) -> None:
    abandon(root, "run-bc012345")
    with RunDirectory() as run:
        clean(to_the_last=True)
        assert run.path.exists()
    foreign = root / "notes"
    foreign.write_text("mine")
    clean(to_the_last=True)
    assert foreign.exists()
    foreign.unlink()
    clean(to_the_last=True)
    assert not root.exists()
    with RunDirectory() as run:
        assert run.path.parent == root


def test_a_run_that_begins_during_a_removal_gets_a_directory(root: Path) -> None:
    """The lock that a run waits for may be removed by who holds it, and the directory with it."""
    code = (
        "import sys\nfrom bicoastal.emulation.ground.identity import RunDirectory\n"
        "for _ in range(300):\n    with RunDirectory() as run:\n        assert (run.path / 'lock').exists()\n"
    )
    with ExitStack() as stack:
        runs = [stack.enter_context(subprocess.Popen([sys.executable, "-c", code])) for _ in range(2)]
        while any(run.poll() is None for run in runs):
            clean(to_the_last=True)
    assert [run.returncode for run in runs] == [0, 0]
    clean(to_the_last=True)
    assert not root.exists()
