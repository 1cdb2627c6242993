"""`bicoastal compare` with real packets: killed at any moment, by whomever it is run, and where it cannot run."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from bicoastal.emulation.ground.cleanup import clean
from bicoastal.emulation.ground.identity import runtime_root
from bicoastal.experiments.runs.store import FILE_NAME, Store
from helpers.process_table import FORBIDDEN, all_gone, as_nobody, new_mark

pytestmark = pytest.mark.root

SCENARIO = """
[scenario]
name = "small"
sites = ["west", "east"]
iterations = 2
gap = "100 ms"

[[links]]
name = "plane"
rate = "8 Mbit/s"
rtt = "10 ms"

[allreduce]
shard = "20 kB"
"""
TRANSPORTS = ("kernel-cubic", "cubic", "kernel-reno")
CODE = "import sys; from bicoastal.experiments.cli import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A scenario, and a place for runs where nobody else's are."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    file = tmp_path / "small.toml"
    file.write_text(SCENARIO)
    return str(file)


def arguments(scenario: str, out: Path | str, *more: str) -> list[str]:
    chosen = [word for name in TRANSPORTS for word in ("--transport", name)]
    return ["compare", scenario, "--backend", "netns", *chosen, "--scale", "1", "--out", str(out), *more]


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """What a test has started; what is still there in the end is killed."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def killed_at_random(
    small: str, tmp_path: Path, started: list[subprocess.Popen[bytes]], *, runs: int, seed: int
) -> list[str]:
    """Start comparisons, end each at some moment, and hold what is left against what may be; return how they ended."""
    rng = Random(seed)
    ends = []
    for number in range(runs):
        out = tmp_path / f"out{number}"
        wish = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)[number % 3]
        mark = new_mark()
        name, _, value = mark.partition("=")
        process = subprocess.Popen(
            [sys.executable, "-c", CODE, *arguments(small, out)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, name: value},
        )
        started.append(process)
        before_s = time.monotonic()
        stop_s = rng.uniform(0.05, 6.0)  # from the start on: the ceiling, the namespaces, probes, runs, pictures
        while process.poll() is None and time.monotonic() - before_s < stop_s:
            time.sleep(0.01)
        process.send_signal(wish)
        _, said = process.communicate(timeout=60)
        code = process.returncode
        ends.append(f"{wish.name} {code}")
        assert code in (0, 128 + wish, -wish), said.decode()
        begun = b" in main\n" in said  # else Python was cut off before it came to our first line
        assert b"Traceback" not in said or not begun, said.decode()
        assert all_gone(mark), f"{wish.name} after {stop_s:.2f} s left processes"
        finished = said.count(b"seed 0: ")
        if (out / FILE_NAME).exists():
            with Store.existing(out) as store:
                rows = store.runs()
                assert len(rows) >= finished
                for row in rows:
                    assert row.status in ("ok", "degraded"), row.reason
                    assert len(store.iterations(row.key)) == 2
        else:
            assert not finished
        assert clean().running == ()
        assert not list(runtime_root().glob("run-*"))
    return ends


def test_killed_at_any_moment_it_leaves_nothing_but_what_was_finished_and_the_next_one_starts(
    small: str, tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    killed_at_random(small, tmp_path, started, runs=6, seed=1)
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments(small, tmp_path / "last", "--json")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["backend"], document["scale"]) == ("netns", 1.0)
    assert [(row["name"], row["n"], row["failed"]) for row in document["transports"]] == [
        (name, 2, 0) for name in TRANSPORTS
    ]


@pytest.mark.slow
def test_killed_fifty_times_at_any_moment_it_leaves_nothing(
    small: str, tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    ends = killed_at_random(small, tmp_path, started, runs=50, seed=2)
    assert len(set(ends)) >= 3


RUN = """
from bicoastal.emulation.real.netns import NetnsBackend
from bicoastal.emulation.limits.scaled import scaled_run
from bicoastal.experiments.scenario.overrides import parse_override
from bicoastal.experiments.scenario.scenario import load_scenario
from bicoastal.transports.registry import Registry

registry = Registry.installed()
changes = [parse_override("scenario.iterations=2"), parse_override("scenario.gap='100 ms'")]
scenario = load_scenario("metro", registry, changes)
for name in ("kernel-adaptive", "cubic", "kernel-mptcp"):
    record = NetnsBackend(registry, probing=False).run(scaled_run(scenario.run_spec(name, seed=0), 2000))
    print(name, len(record.iterations), all(row.verified for row in record.iterations), record.status != "failed")
"""


def test_an_ordinary_user_may_compare_too() -> None:
    """Without its probes, which a busy machine does not pass: an ordinary user's relay waits for its turn."""
    done = as_nobody(RUN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name} 2 True True" for name in ("kernel-adaptive", "cubic", "kernel-mptcp")]


def test_without_namespaces_one_sentence_says_so() -> None:
    done = as_nobody(CODE, "compare", "metro", "--backend", "netns", "--out", "/tmp/x", through=FORBIDDEN)
    assert (done.returncode, done.stdout) == (3, "")
    assert re.fullmatch(r"bicoastal: network namespaces cannot be made here: [^\n]+\n", done.stderr)


def test_without_the_capabilities_a_container_lacks_it_is_one_sentence_too() -> None:
    """As root of a container that may make no namespaces: the capabilities are gone, and user namespaces forbidden."""
    drop = ["setpriv", "--bounding-set=-sys_admin,-net_admin,-net_raw", "--inh-caps=-all", "sh", "-c"]
    script = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    inside = ["unshare", "--user", "--map-root-user", *drop, script, "sh"]
    done = subprocess.run(
        [*inside, sys.executable, "-c", CODE, "compare", "metro", "--backend", "netns", "--out", "/tmp/x"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert re.fullmatch(r"bicoastal: network namespaces cannot be made here: [^\n]+\n", done.stderr)


def test_netem_where_the_kernel_has_none_is_unsupported_not_skipped(small: str, tmp_path: Path) -> None:
    tried = subprocess.run(
        ["unshare", "-rn", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"],
        capture_output=True,
        check=False,
    )
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments(small, tmp_path / "out", "--impairment", "netem")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if tried.returncode:
        assert done.returncode == 3
        assert done.stdout.count("unsupported") >= len(TRANSPORTS)
        assert "Traceback" not in done.stderr
    else:
        assert done.returncode == 0, done.stderr
