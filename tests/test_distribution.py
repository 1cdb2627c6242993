"""What a wheel and a source distribution hold, and that both work outside the checkout."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from helpers.shown_code import ROOT

pytestmark = pytest.mark.slow
ROOMS = ("wan", "transports", "emulation", "experiments")


def run(*command: str, cwd: Path, **environment: str) -> str:
    """Return what a command prints on stdout. Raises where it fails."""
    ended = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the files that git has: a build leaves files in the directory it runs in."""
    copy = tmp_path_factory.mktemp("sources")
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for name in filter(None, names):
        if not os.path.lexists(ROOT / name):  # removed, and not committed yet
            continue
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            (copy / name).symlink_to(os.readlink(ROOT / name))
        else:
            (copy / name).write_bytes((ROOT / name).read_bytes())
    return copy


def build_wheel(sources: Path, into: Path) -> Path:
    """Return the wheel of a source tree."""
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    run(sys.executable, "-c", build, str(into), cwd=sources)
    (wheel,) = into.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("setuptools")
    return build_wheel(sources, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("setuptools")
    into = tmp_path_factory.mktemp("sdist")
    build = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    run(sys.executable, "-c", build, str(into), cwd=sources)
    (found,) = into.glob("*.tar.gz")
    return found


def files_of_the_checkout(suffix: str) -> set[str]:
    """Return the files of the four rooms, as they are called below bicoastal/."""
    return {
        f"bicoastal/{path.relative_to(ROOT)}"
        for room in ROOMS
        for path in (ROOT / room).rglob(f"*{suffix}")
        if "__pycache__" not in path.parts
    }


def test_a_wheel_has_one_name_at_the_top(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert tops == {"bicoastal", f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"}


def test_a_wheel_has_every_module_and_every_table_as_a_real_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {item.filename: item for item in archive.infolist()}
        assert files_of_the_checkout(".py") <= set(inside)
        assert files_of_the_checkout(".toml") <= set(inside)
        assert {"bicoastal/__init__.py", "bicoastal/py.typed", "bicoastal/interface/results.py"} <= set(inside)
        for name, item in inside.items():
            assert item.external_attr >> 28 != 0o12, f"{name} is a link"
        module = archive.read("bicoastal/wan/units.py")
    assert module == (ROOT / "wan" / "units.py").read_bytes()


def works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Hold that the commands work from a wheel, without the checkout."""
    place = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    # The entry points of the checkout's own installation must not count: what is first on the path does.
    start = "import sys; from bicoastal.experiments.cli import main; sys.exit(main())"
    command = (sys.executable, "-P", "-c", start)
    where = run(
        sys.executable, "-P", "-c", "import bicoastal; print(bicoastal.__file__)", cwd=tmp_path, PYTHONPATH=str(place)
    )
    assert Path(where.strip()) == place / "bicoastal" / "__init__.py"
    listed = run(*command, "list", "scenarios", cwd=tmp_path, PYTHONPATH=str(place))
    assert "lossless" in listed
    compared = run(*command, "compare", "lossless", "--iterations", "1", "--json", cwd=tmp_path, PYTHONPATH=str(place))
    assert {row["status"] for row in json.loads(compared)["transports"]} == {"ok"}


def test_a_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    works_outside_the_checkout(wheel, tmp_path)


def test_a_source_distribution_gives_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = (path for path in tmp_path.iterdir() if path.is_dir())
    again = build_wheel(tree, tmp_path)
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert {
            name: one.getinfo(name).CRC for name in one.namelist() if not name.endswith(("RECORD", "METADATA"))
        } == {name: other.getinfo(name).CRC for name in other.namelist() if not name.endswith(("RECORD", "METADATA"))}
