"""A project of somebody else, with folders called as this one's, that brings a transport of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.shown_code import ROOT, example_transport

FOLDERS = ("wan", "transports", "emulation", "experiments")
COMPARE = ("compare", "metro", "--set", "allreduce.shard=200 kB", "--iterations", "2", "--json", "--out", "out")
NETNS = ("--backend", "netns", "--scale", "1000")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the project's directory. Whatever imports one of its folders fails."""
    for name in FOLDERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise ImportError('this is another project\\'s {name}')\n")
    (tmp_path / "scalable.py").write_text(example_transport())
    return tmp_path


def bicoastal(project: Path, *arguments: str, search: tuple[str, ...] = (".",)) -> subprocess.CompletedProcess[str]:
    """Run the command line in the project; search: the directories of PYTHONPATH."""
    command = [sys.executable, "-P", "-c", "import sys; from bicoastal.experiments.cli import main; sys.exit(main())"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if search:
        environment["PYTHONPATH"] = os.pathsep.join(search)
    return subprocess.run(
        [*command, *arguments], cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def verified(ended: subprocess.CompletedProcess[str], *names: str) -> None:
    """Hold that each of these transports carried both iterations."""
    assert ended.returncode == 0, ended.stderr
    rows = json.loads(ended.stdout)["transports"]
    assert [(row["name"], row["n"], row["failed"]) for row in rows] == [(name, 2, 0) for name in names]


def announce(project: Path) -> Path:
    """Install the transport as a package that announces it, without an installer; return where."""
    place = project / "site"
    about = place / "scalable_tcp-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: scalable-tcp\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[bicoastal.transports]\nscalable = scalable:SCALABLE\n")
    (project / "scalable.py").rename(place / "scalable.py")
    return place


def test_the_folders_of_the_project_are_not_those_of_bicoastal(project: Path) -> None:
    for name in FOLDERS:
        ended = subprocess.run(
            [sys.executable, "-c", f"import {name}"], cwd=project, capture_output=True, text=True, check=False
        )
        assert f"this is another project's {name}" in ended.stderr


def test_its_transport_runs_by_the_name_of_its_module(project: Path) -> None:
    verified(
        bicoastal(project, *COMPARE, "--transport", "reno", "--transport", "scalable:SCALABLE"),
        "reno",
        "scalable:SCALABLE",
    )


def test_its_transport_runs_by_the_name_that_its_package_announces(project: Path) -> None:
    place = announce(project)
    listed = bicoastal(project, "list", "transports", search=(".", str(place)))
    assert "scalable         Scalable TCP (Kelly 2003)" in listed.stdout.splitlines()
    verified(bicoastal(project, *COMPARE, "--transport", "scalable", search=(".", str(place))), "scalable")


@pytest.mark.root
@pytest.mark.parametrize("transport", ["scalable:SCALABLE", "scalable"])
def test_its_transport_runs_over_real_packets(transport: str, project: Path) -> None:
    search: tuple[str, ...] = (".",)
    if ":" not in transport:
        search = (".", str(announce(project)))
    verified(bicoastal(project, *COMPARE, *NETNS, "--transport", transport, search=search), transport)


def test_a_file_of_the_project_does_not_stand_in_for_a_module_of_pythons(project: Path) -> None:
    (project / "random.py").write_text("raise ImportError('this is another project\\'s random')\n")
    verified(bicoastal(project, *COMPARE, "--transport", "reno", search=()), "reno")


@pytest.mark.root
def test_nor_does_it_in_the_processes_of_real_packets(project: Path) -> None:
    (project / "random.py").write_text("raise ImportError('this is another project\\'s random')\n")
    verified(bicoastal(project, *COMPARE, *NETNS, "--transport", "b4", search=()), "b4")


def test_the_checkout_has_these_folders_and_they_are_found_below_bicoastal_alone() -> None:
    for name in FOLDERS:
        assert (ROOT / name / "__init__.py").is_file()
        assert (ROOT / "bicoastal" / name).is_symlink()
