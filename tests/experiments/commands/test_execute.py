"""`bicoastal exec` with real programs over a real link; and everything that keeps it from that, in one sentence."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path as FilePath
from statistics import median

import pytest

from bicoastal.emulation.base import UnsupportedError
from bicoastal.experiments import cli
from bicoastal.experiments.scenario.tables import ScenarioError
from bicoastal.interface.programs import coast_sites, require_no_training
from bicoastal.wan.loss import Bernoulli, Combined, TailOfBurst
from bicoastal.wan.schedule import Outage
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
from helpers.process_table import FORBIDDEN, all_gone, as_nobody, new_mark, ours

SCENARIO = """
[scenario]
name = "small"
sites = ["east", "west"]

[[links]]
name = "plane"
rate = "20 Mbit/s"
rtt = "20 ms"

[allreduce]
shard = "1 MB"
"""
COMMAND = [sys.executable, "-m", "bicoastal"]
AT_ONCE = ("--scale", "1", "--no-probe")


@pytest.fixture
def small(tmp_path: FilePath) -> str:
    file = tmp_path / "small.toml"
    file.write_text(SCENARIO)
    return str(file)


def execute(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    argv = [*COMMAND, "exec", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, **options)  # type: ignore[call-overload, no-any-return]


# -- with real packets ------------------------------------------------------------------------------------------------


@pytest.mark.root
def test_ping_finds_the_other_coast_by_name_a_round_trip_away(small: str) -> None:
    done = execute(small, "--east", "ping -c 5 -i 0.2 west", "--west", "ping -c 5 -i 0.2 east-plane", "--scale", "1")
    assert done.returncode == 0, done.stderr
    for name in ("east", "west"):
        times_ms = [
            float(found) for found in re.findall(rf"^{name} \| .* time=([\d.]+) ms$", done.stdout, re.MULTILINE)
        ]
        assert len(times_ms) == 5
        assert min(times_ms) >= 20.0
        assert median(times_ms) < 22.0
    assert done.stderr == "bicoastal: small, rates divided by 1: 1 × 20 Mbit/s at RTT 20 ms\n"


@pytest.mark.root
def test_iperf3_fills_the_link_and_no_more(small: str) -> None:
    done = execute(
        small, *AT_ONCE, "--west", "iperf3 -s", "--east", "iperf3 -J -c west -t 3", "--until", "east",
        "--first", "west", "--terminal", "east", "--congestion-control", "cubic",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("west | ") for line in lines)
    report = json.loads("\n".join(line for line in lines if not line.startswith("west | ")))
    assert report["end"]["sender_tcp_congestion"] == "cubic"
    wanted_bps = 20e6 * 1448 / (1448 + 52 + 38)  # MTU 1500 with timestamps, Ethernet's framing
    assert 0.9 * wanted_bps < report["end"]["sum_received"]["bits_per_second"] < 1.01 * wanted_bps


@pytest.mark.root
def test_a_sender_that_finds_nobody_fails_as_it_does_elsewhere(small: str) -> None:
    done = execute(small, *AT_ONCE, "--east", "iperf3 -c west", "--west", "sleep 100")
    assert done.returncode == 1
    assert "east | iperf3: error - unable to connect to server" in done.stderr
    assert "Connection refused" in done.stderr


@pytest.mark.root
def test_coasts_of_other_names_are_east_and_west_too(tmp_path: FilePath) -> None:
    file = tmp_path / "renamed.toml"
    file.write_text(SCENARIO.replace('["east", "west"]', '["oregon", "virginia"]'))
    done = execute(str(file), *AT_ONCE, "--west", "getent hosts east virginia", "--east", "getent hosts west oregon")
    assert done.returncode == 0, done.stderr
    assert sorted(line.split()[:3] for line in done.stdout.splitlines()) == [
        ["east", "|", "10.64.0.1"],
        ["east", "|", "10.64.0.1"],
        ["west", "|", "10.64.0.2"],
        ["west", "|", "10.64.0.2"],
    ]


@pytest.mark.root
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)], ids=["INT", "TERM", "KILL"]
)
def test_a_signal_ends_everything_and_leaves_nothing(
    small: str, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    mark = new_mark()
    script = "sh -c 'sleep 1000 & setsid sleep 1000 & echo up; exec sleep 1000'"
    with subprocess.Popen(
        [*COMMAND, "exec", small, *AT_ONCE, "--east", script, "--west", script],
        stdout=subprocess.PIPE,
        text=True,
        env=dict([*os.environ.items(), mark.split("=")]),
    ) as process:
        assert sorted(process.stdout.readline() for _ in range(2)) == ["east | up\n", "west | up\n"]
        assert len(ours(mark)) >= 10
        process.send_signal(number)
        assert process.wait(20) == code
    assert all_gone(mark)
    assert cli.main(["clean"]) == 0
    assert not (tmp_path / "bicoastal").exists()


class Terminal:
    """A process in a terminal of its own, and whoever sits before it."""

    def __init__(self, *argv: str) -> None:
        self.pid, self._keyboard = pty.fork()
        if self.pid == 0:
            os.execv(argv[0], argv)

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    def await_text(self, text: str, time_limit_s: float = 30.0) -> None:
        seen = b""
        until_s = time.monotonic() + time_limit_s
        while text.encode() not in seen:
            assert select.select([self._keyboard], (), (), until_s - time.monotonic())[0], seen
            seen += os.read(self._keyboard, 4096)

    def wait(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        os.close(self._keyboard)  # not before: that would hang up
        return os.waitstatus_to_exitcode(status)


@pytest.mark.root
def test_a_shell_may_have_the_terminal_and_keeps_its_control_c(small: str) -> None:
    terminal = Terminal(
        *COMMAND, "exec", small, *AT_ONCE, "--east", "sh -i", "--terminal", "east", "--west", "sleep 1000",
        "--until", "east",
    )  # fmt: skip
    terminal.await_text("# ")
    terminal.type("echo be''gun; sleep 1000\n")
    terminal.await_text("begun")
    time.sleep(0.5)  # until sleep has taken over
    terminal.type("\x03")
    terminal.type("ping -c 1 west | grep -c '1 received' && echo st''ill\n")
    terminal.await_text("still")
    terminal.type("exit 5\n")
    assert terminal.wait() == 5


@pytest.mark.root
def test_the_keyboard_is_the_programs_that_has_the_terminal_and_then_ours(small: str) -> None:
    terminal = Terminal(
        *COMMAND, "exec", small, *AT_ONCE, "--east", "ping -i 0.2 west", "--terminal", "east",
        "--west", "sh -c 'trap \"sleep 0.3; exit 7\" INT; while :; do sleep 0.05; done'",
    )  # fmt: skip
    terminal.await_text("icmp_seq=3 ")
    terminal.type("\x1a")  # nobody could continue what this stops
    terminal.await_text("icmp_seq=6 ")
    terminal.type("\x03")
    terminal.await_text(" packets transmitted")
    time.sleep(0.5)
    terminal.type("\x03")  # east has ended: this one is for us, who pass it on to west
    assert terminal.wait() == 7


@pytest.mark.root
def test_a_relay_that_dies_is_a_failed_run(small: str) -> None:
    mark = new_mark()
    with subprocess.Popen(
        [*COMMAND, "exec", small, *AT_ONCE, "--east", "sh -c 'echo up; exec sleep 1000'"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict([*os.environ.items(), mark.split("=")]),
    ) as process:
        assert process.stdout.readline() == "east | up\n"
        commands = {pid: FilePath(f"/proc/{pid}/cmdline").read_bytes() for pid in ours(mark)}
        (relay,) = [
            pid
            for pid, words in commands.items()
            if b"bicoastal.emulation.relay.program" in words and b"enter.py" not in words
        ]
        os.kill(relay, signal.SIGKILL)
        assert process.wait(20) == 1
        assert process.stderr.read().endswith("bicoastal: the relay between the coasts has died\n")
    assert all_gone(mark)


@pytest.mark.root
def test_nobody_reading_on_ends_the_programs_quietly(small: str) -> None:
    argv = [*COMMAND, "exec", small, *AT_ONCE, "--east", "yes", "--west", "sleep 1000"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "east | y\n"
        process.stdout.close()
        assert process.wait(20) == 128 + signal.SIGPIPE
        assert process.stderr.read().count("\n") == 1


@pytest.mark.root
def test_a_link_beyond_the_ceiling_is_refused_with_the_scale_that_fits(small: str) -> None:
    done = execute(small, "--scale", "0.001", "--east", "true")
    assert done.returncode == 3
    sentence = (
        r"bicoastal: links of 20 Gbit/s in all are above the [\d.]+ [MG]bit/s that this machine can carry; "
        r"--scale (\d+) fits\n"
    )
    assert re.fullmatch(sentence, done.stderr)


EXEC = "import sys; from bicoastal.experiments.cli import main; sys.exit(main(['exec', *sys.argv[1:]]))"


@pytest.mark.root
def test_an_ordinary_user_may_too(small: str) -> None:
    done = as_nobody(EXEC, "metro", "--scale", "1000", "--no-probe", "--east", "ping -c 1 west", "--west", "id -u")
    assert (done.returncode, "1 received" in done.stdout) == (0, True), done.stderr


@pytest.mark.root
def test_without_namespaces_one_sentence_says_so() -> None:
    done = as_nobody(EXEC, "--east", "true", through=FORBIDDEN)
    assert done.returncode == 3
    assert done.stdout == ""
    assert re.fullmatch(r"bicoastal: network namespaces cannot be made here: [^\n]+\n", done.stderr)


# -- what is no use ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "--east, --west: expected a command for one of them at least"),
        (["--east", "a 'b"], """--east: "a 'b" is not a command: no closing quotation"""),
        (["--west", " "], "--west: ' ' is not a command"),
        (["--west", "true", "--terminal", "east"], "--terminal: there is no --east to give it to"),
        (["--west", "true", "--first", "east"], "--first: there is no --east to begin with"),
        (["--west", "true", "--until", "east"], "--until: there is no --east to wait for"),
        (["--west", "true", "--scale", "0"], "--scale: '0' is neither 'auto' nor a number from 0.001 to 1e+06"),
        (["--west", "true", "--scale", "inf"], "--scale: 'inf' is neither 'auto' nor a number from 0.001 to 1e+06"),
        (["--west", "true", "--congestion-control", "a;b"], "--congestion-control: 'a;b' is not the name of one"),
        (["nowhere", "--west", "true"], "there is no scenario 'nowhere'"),
        (["--west", "true", "--set", "links.loss=2"], "--set links.loss: "),
    ],
)
def test_bad_usage_is_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["exec", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"bicoastal: {sentence}")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("scenario", ["tail-loss", "outage"])
def test_what_needs_a_training_steps_clock_is_not_supported(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["exec", scenario, "--east", "true"]) == 3
    assert capsys.readouterr().err.startswith("bicoastal: link '")


def test_a_congestion_control_that_the_kernel_lacks_is_not_supported(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["exec", "--east", "true", "--congestion-control", "magic"]) == 3
    assert capsys.readouterr().err.startswith("bicoastal: 'magic' is not one of this kernel's congestion controls, ")


def world(*sites: str, **changes: object) -> Topology:
    links = [
        LinkSpec(name=f"{a}-{b}", a=a, b=b, rate_bps=1e8, delay_s=0.01, **changes)  # type: ignore[arg-type]
        for a, b in pairwise(sites)
    ]
    return Topology(
        sites=[Site(name=name) for name in sites],
        links=links,
        paths=[Path(name=link.name, sites=(link.a, link.b), links=(link.name,)) for link in links],
    )


@pytest.mark.parametrize(
    ("sites", "east", "west"),
    [
        (("west", "east"), "east", "west"),
        (("east", "west"), "east", "west"),
        (("a", "b"), "b", "a"),
        (("east", "b"), "east", "b"),
        (("b", "west"), "b", "west"),
        (("a", "west"), "a", "west"),
        (("a", "east"), "east", "a"),
        (("west", "hub", "east"), "east", "west"),
    ],
)
def test_the_coasts_are_found(sites: tuple[str, ...], east: str, west: str) -> None:
    assert coast_sites(world(*sites)) == {"east": east, "west": west}


def test_coasts_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"^sites: expected two coasts, or one called 'east' and one 'west', not "):
        coast_sites(world("a", "b", "east"))


def test_what_programs_do_not_have_is_found_wherever_it_hides() -> None:
    require_no_training(world("a", "b", loss=Bernoulli(probability=0.1), events=(Outage(at_s=1.0, duration_s=1.0),)))
    hidden = Combined(parts=(Bernoulli(probability=0.1), Combined(parts=(TailOfBurst(),))))
    for changes in (
        {"loss": hidden},
        {"loss_back": TailOfBurst()},
        {"events": (Outage(at_s=1.0, duration_s=1.0, iteration=0),)},
    ):
        with pytest.raises(UnsupportedError, match=r"^link 'a-b' "):
            require_no_training(world("a", "b", **changes))


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["exec", "--help"]) == 0
    printed = capsys.readouterr().out
    for option in ("--east", "--west", "--until", "--first", "--terminal", "--scale", "--impairment", "--no-probe"):
        assert option in printed
