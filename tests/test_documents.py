"""What the documents show is run here as it stands there."""

import logging
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.image import imread

from bicoastal.emulation.base import JobSpec, RunSpec, TransportUse
from bicoastal.emulation.simulator import SimulatorBackend
from bicoastal.experiments import cli
from bicoastal.experiments.commands.parser import build_parser
from bicoastal.transports.registry import Registry, TransportSpec
from bicoastal.wan.allreduce import AllReduceSpec
from bicoastal.wan.loss import Bernoulli
from bicoastal.wan.topology import LinkSpec, Site, Topology
from bicoastal.wan.topology import Path as WanPath
from helpers.shown_code import example_transport, shown_code

ROOT = Path(__file__).parents[1]
DOCUMENTS = {
    path.name: path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
}
EXAMPLE, CHECK, SCRIPT = example_transport(), shown_code("check_transport("), shown_code("bicoastal.run(")


@pytest.fixture
def scalable() -> Iterator[TransportSpec]:
    module = ModuleType("scalable")
    sys.modules["scalable"] = module
    exec(compile(EXAMPLE, "scalable.py", "exec"), module.__dict__)
    yield module.SCALABLE
    del sys.modules["scalable"]


def test_the_example_transport_passes_the_conformance_suite_as_shown(scalable: TransportSpec) -> None:
    fewer = CHECK.replace("rng_factory=Random)", "rng_factory=Random, schedules=100)")
    assert fewer != CHECK
    exec(compile(fewer, "adding-a-transport.md", "exec"), {"SCALABLE": scalable})


def test_the_example_transport_resolves_by_module_and_attribute_and_carries_an_all_reduce(
    scalable: TransportSpec,
) -> None:
    assert Registry().resolve("scalable:SCALABLE") is scalable
    link = LinkSpec(name="plane", a="west", b="east", rate_bps=1e9, delay_s=0.03, loss=Bernoulli(probability=1e-3))
    topology = Topology(
        sites=[Site(name="west"), Site(name="east")],
        links=[link],
        paths=[WanPath(name="plane", sites=("west", "east"), links=("plane",))],
    )
    job = JobSpec(
        name="job",
        transport=TransportUse(name="scalable:SCALABLE"),
        paths=("plane",),
        allreduce=AllReduceSpec(sites=("west", "east"), shard_bytes=2_000_000),
        iterations=3,
    )
    record = SimulatorBackend(Registry()).run(RunSpec(name="readme", topology=topology, jobs=(job,)))
    assert record.status == "ok"
    assert all(iteration.verified for iteration in record.iterations)


def test_the_script_has_at_most_fifteen_lines_and_writes_its_figure_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(SCRIPT.splitlines()) <= 15
    monkeypatch.chdir(tmp_path)
    exec(compile(SCRIPT, "README.md", "exec"), {"__name__": "__main__"})
    assert [path.name for path in tmp_path.iterdir()] == ["comparison.png"]
    assert imread(tmp_path / "comparison.png").shape[1] == 1100  # 11 inches at matplotlib's 100 dots
    printed, told = capsys.readouterr()
    header, *rows = printed.splitlines()
    assert header.split()[:3] == ["transport", "status", "n"]
    assert [row.split()[:3] for row in rows[:2]] == [["cubic", "ok", "5"], ["adaptive", "ok", "5"]]
    assert told == ""


def test_the_same_in_a_notebook_prints_shows_writes_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = dict(mpl.rcParams), set(sys.modules) & {"matplotlib.pyplot"}, dict(os.environ), logging.root.handlers[:]
    lines = [line for line in SCRIPT.splitlines() if "print(" not in line and not line.startswith("for ")]
    cell = "\n".join(lines)
    for shown, here in (
        ('"coast-to-coast"', '"metro"'),  # takes less time
        ("iterations=5", "iterations=2"),
        ('results.figure().savefig("comparison.png")', "figure = results.figure()"),
    ):
        assert shown in cell
        cell = cell.replace(shown, here)
    namespace: dict[str, Any] = {}
    images = []
    for _ in range(2):  # a cell is run again and again in one namespace
        exec(compile(cell, "cell", "exec"), namespace)
        images.append(namespace["figure"]._repr_png_())
    assert images[0] == images[1]
    assert images[0].startswith(b"\x89PNG")
    after = dict(mpl.rcParams), set(sys.modules) & {"matplotlib.pyplot"}, dict(os.environ), logging.root.handlers[:]
    assert after == before
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_the_commands_shown_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    pattern = re.compile(r"^    (?:PYTHONPATH=\. )?(?:\.venv/bin/)?bicoastal (.*)$", re.MULTILINE)
    shown = [line for text in DOCUMENTS.values() for line in pattern.findall(text)]
    assert len(shown) > 20
    for line in shown:
        build_parser().parse_args(shlex.split(line, comments=True))
    assert capsys.readouterr().err == ""


def test_what_the_wan_rate_hangs_on_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (shown,) = re.findall(r"^(    what that hangs on.*?)\n\n", DOCUMENTS["extrapolation.md"], re.MULTILINE | re.DOTALL)
    monkeypatch.setenv("COLUMNS", "100")
    assert cli.main(["extrapolate"]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    lines = [line.removeprefix("    ") for line in shown.splitlines()]
    assert printed[printed.index(lines[0]) :][: len(lines)] == lines


def test_every_link_between_the_documents_leads_to_a_file() -> None:
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
