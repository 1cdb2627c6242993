"""What the README shows is run here as it stands there."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from bicoastal.emulation.base import JobSpec, RunSpec, TransportUse
from bicoastal.emulation.simulator import SimulatorBackend
from bicoastal.experiments import cli
from bicoastal.experiments.commands.parser import build_parser
from bicoastal.transports.registry import Registry, TransportSpec
from bicoastal.wan.allreduce import AllReduceSpec
from bicoastal.wan.loss import Bernoulli
from bicoastal.wan.topology import LinkSpec, Site, Topology
from bicoastal.wan.topology import Path as WanPath

README = Path(__file__).parents[1] / "README.md"
EXAMPLE, CHECK = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


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
    exec(compile(fewer, "README.md", "exec"), {"SCALABLE": scalable})


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


def test_the_commands_shown_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    shown = re.findall(r"^    \.venv/bin/bicoastal (.*)$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(shown) > 5
    for line in shown:
        build_parser().parse_args(shlex.split(line, comments=True))
    assert capsys.readouterr().err == ""


def test_what_the_wan_rate_hangs_on_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (shown,) = re.findall(
        r"^(    what that hangs on.*?)\n\n", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    monkeypatch.setenv("COLUMNS", "100")
    assert cli.main(["extrapolate"]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    lines = [line.removeprefix("    ") for line in shown.splitlines()]
    assert printed[printed.index(lines[0]) :][: len(lines)] == lines
