"""`bicoastal doctor` tells what is missing and how to get it; `bicoastal clean` tells what it has removed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from bicoastal.emulation.ground.identity import Process, RunDirectory, runtime_root
from bicoastal.emulation.probing.ceiling import MachineCeiling
from bicoastal.emulation.probing.host import Ceiling, Fact, HostFacts
from bicoastal.experiments import cli
from bicoastal.experiments.commands.doctor import ceiling_lines, to_document, to_table
from helpers.process_table import FORBIDDEN, as_nobody

FOUND = HostFacts(
    facts=(
        Fact(name="relay", available=True),
        Fact(name="netem", available=False, detail="unknown [kind]", remedy="modprobe sch_netem"),
    ),
    ceiling=Ceiling(tcp_bps=5.2e8, packets_per_s=81_234.5, cpu_share=0.93, half_p99_s=1.2e-4, real_time=True),
)
MACHINE = MachineCeiling(frame_s=8e-6, packet_s=200e-6, processors=2)  # 0.6 of the one that no relay has


def test_what_is_missing_stands_beside_what_adds_it() -> None:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(to_table(FOUND))
    lines = captured.get().splitlines()
    assert lines[2].split() == ["relay", "yes"]
    assert lines[3].split(maxsplit=2) == ["netem", "no", "unknown [kind]. To add it: modprobe sch_netem"]
    assert ceiling_lines(FOUND.ceiling, MACHINE) == [
        "ceiling: the relay carried 520 Mbit/s of kernel TCP at MTU 1500, 81,234 frames/s, with 93% of a core;",
        "at half of that, 99 % of frames were less than 120 us late.",
        "our own transports: 3,000 data packets/s, both directions together, which at MTU 9000 is 216 Mbit/s.",
    ]


def test_the_document_has_the_same_in_units_of_the_code() -> None:
    document = json.loads(json.dumps(to_document(FOUND, MACHINE)))
    assert document["facts"][1]["remedy"] == "modprobe sch_netem"
    assert document["ceiling"]["tcp_bps"] == 5.2e8
    assert document["own_packets_per_s"] == pytest.approx(3000)
    nothing = to_document(HostFacts(facts=(), ceiling=None), None)
    assert (nothing["ceiling"], nothing["own_packets_per_s"]) == (None, None)


@pytest.mark.root
def test_the_doctor_finds_a_machine_that_carries_packets() -> None:
    argv = [sys.executable, "-m", "bicoastal", "doctor", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    facts = {fact["name"]: fact for fact in document["facts"]}
    assert facts["relay"]["available"]
    assert document["ceiling"]["tcp_bps"] > 50e6
    assert document["own_packets_per_s"] > 100
    for fact in facts.values():
        assert fact["available"] or fact["remedy"] or fact["detail"], fact


DOCTOR = "import sys; from bicoastal.experiments.cli import main; sys.exit(main(['doctor', *sys.argv[1:]]))"


@pytest.mark.root
def test_the_doctor_finds_a_machine_that_does_not() -> None:
    done = as_nobody(DOCTOR, "--json", through=FORBIDDEN)
    assert (done.returncode, done.stderr) == (3, "")
    document = json.loads(done.stdout)
    facts = {fact["name"]: fact for fact in document["facts"]}
    assert document["ceiling"] is None
    for name in ("namespaces as root", "namespaces without root", "veth", "netem", "relay"):
        assert not facts[name]["available"]
    assert facts["namespaces as root"]["remedy"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return runtime_root()


def test_clean_tells_what_it_removed_and_what_it_left_alone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dead = root / "run-bc000001"
    dead.mkdir()
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as orphan,
        RunDirectory() as living,
    ):
        process = Process.of(orphan.pid)
        (dead / "processes").write_text(f"{process.pid} {process.start_ticks}\n")
        assert cli.main(["clean"]) == 0
        assert orphan.wait(10) == -9
        orphan.stdin.close()
        assert living.path.exists()
        assert capsys.readouterr().out.splitlines() == [
            "removed the run bc000001",
            f"ended process {orphan.pid}",
            f"left alone the run {living.tag}, which is alive",
        ]
    assert cli.main(["clean"]) == 0
    assert capsys.readouterr().out == "there was nothing to remove\n"


def test_clean_refuses_a_directory_that_others_may_write_to(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root.chmod(0o777)
    assert cli.main(["clean"]) == 3
    assert capsys.readouterr().err.endswith("is not a directory that belongs to this user alone\n")
