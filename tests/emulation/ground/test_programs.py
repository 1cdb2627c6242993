"""Programs on the coasts: labelled output, exit codes and signals."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path as FilePath

import pytest

from bicoastal.emulation.base import RunFailedError
from bicoastal.emulation.ground.namespaces import TwoCoasts
from bicoastal.emulation.ground.programs import LabelledOutput, Program, Stream, run_programs
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

pytestmark = pytest.mark.root

TOPOLOGY = Topology(
    sites=[Site(name="east"), Site(name="west")],
    links=[LinkSpec(name="l", a="east", b="west", rate_bps=1e8, delay_s=0.03)],
    paths=[Path(name="p", sites=("east", "west"), links=("l",))],
)
FOREVER = "trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.02; done"
DEAF = "trap '' TERM INT; echo ready; while :; do sleep 0.02; done"


@pytest.fixture(scope="module")
def coasts() -> Iterator[TwoCoasts]:
    with TwoCoasts(TOPOLOGY, stages={"p": 1}) as made:
        yield made


class Lines:
    """Takes lines; acts once as many of them as given have the word "ready" in them."""

    def __init__(self, readies: int = 0, act: Callable[[], None] = lambda: None) -> None:
        self.found: dict[Stream, list[bytes]] = {"stdout": [], "stderr": []}
        self._readies = readies
        self._act = act

    def __call__(self, stream: Stream, line: bytes) -> None:
        self.found[stream].append(line)
        if b"ready" in line:
            self._readies -= 1
            if self._readies == 0:
                self._act()


def run(coasts: TwoCoasts, lines: Callable[[Stream, bytes], None], *scripts: str, **options: object) -> int:
    programs = [
        Program(name=name, site=name, argv=("sh", "-c", script))
        for name, script in zip(("east", "west"), scripts, strict=False)
    ]
    with LabelledOutput(lines, width=5) as output:
        return run_programs(coasts, programs, output, **options)  # type: ignore[arg-type]


def test_each_line_has_its_programs_name_and_each_stream_stays_apart(coasts: TwoCoasts) -> None:
    lines = Lines()
    assert run(coasts, lines, "echo one; echo two >&2; printf end", r"printf 'a\377\r\nb\n\n'") == 0
    assert [line for line in lines.found["stdout"] if line.startswith(b"east")] == [b"east  | one\n", b"east  | end\n"]
    assert [line for line in lines.found["stdout"] if line.startswith(b"west")] == [
        b"west  | a\xff\r\n",
        b"west  | b\n",
        b"west  | \n",
    ]
    assert lines.found["stderr"] == [b"east  | two\n"]


def test_no_line_of_much_output_is_lost_or_torn(coasts: TwoCoasts) -> None:
    lines = Lines()
    assert run(coasts, lines, "seq 100000", "seq 100000") == 0
    for name in ("east", "west"):
        own = [line for line in lines.found["stdout"] if line.startswith(name.encode())]
        assert own == [f"{name}  | {number}\n".encode() for number in range(1, 100_001)]


@pytest.mark.parametrize(
    ("scripts", "code"),
    [
        (("true", "true"), 0),
        (("exit 3", "exec sleep 100"), 3),
        (("exec sleep 100", "kill -TERM $$"), 128 + 15),
        (("exec no-such-program", "exec sleep 100"), 127),
        (("exit 3",), 3),
    ],
    ids=["both well", "one fails", "one is killed", "one is not there", "one alone"],
)
def test_the_exit_code_is_that_of_the_first_that_failed(coasts: TwoCoasts, scripts: tuple[str, ...], code: int) -> None:
    began_s = time.monotonic()
    assert run(coasts, Lines(), *scripts) == code
    assert time.monotonic() - began_s < 10


def waiting_for(file: FilePath, then: str) -> str:
    return f"while ! [ -e {file} ]; do sleep 0.02; done; {then}"


def test_a_program_that_is_asked_to_end_may_tidy_up_and_does_not_count(coasts: TwoCoasts, tmp_path: FilePath) -> None:
    lines = Lines(1, (tmp_path / "ready").touch)
    assert run(coasts, lines, FOREVER, waiting_for(tmp_path / "ready", "exit 4")) == 4
    assert lines.found["stdout"] == [b"east  | ready\n", b"east  | asked\n"]


@pytest.mark.parametrize("until", ["either", "west"])
def test_the_end_of_one_can_be_the_end_of_both(coasts: TwoCoasts, until: str) -> None:
    assert run(coasts, Lines(), FOREVER, "sleep 0.3", until=until) == 0


def test_both_are_waited_for_unless_told_otherwise(coasts: TwoCoasts) -> None:
    lines = Lines()
    assert run(coasts, lines, "sleep 0.5; echo late", "true") == 0
    assert run(coasts, lines, "sleep 0.5; echo late", "true", until="east") == 0
    assert lines.found["stdout"] == [b"east  | late\n"] * 2


def test_a_program_that_does_not_end_is_killed(coasts: TwoCoasts, tmp_path: FilePath) -> None:
    began_s = time.monotonic()
    lines = Lines(1, (tmp_path / "ready").touch)
    assert run(coasts, lines, DEAF, waiting_for(tmp_path / "ready", "true"), until="west", patience_s=0.3) == 0
    assert 0.3 < time.monotonic() - began_s < 8


def signal_us(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_reaches_every_program_once(coasts: TwoCoasts, number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo {name}; sleep 0.2; exit $1' {name}; echo ready; while :; do sleep 0.02; done"
    lines = Lines(2, signal_us(number))
    before = signal.getsignal(number)
    assert run(coasts, lines, script.replace("$1", "0"), script.replace("$1", "6")) == 6
    words = sorted(line.split()[-1] for line in lines.found["stdout"])
    assert words == [name.encode()] * 2 + [b"ready"] * 2
    assert signal.getsignal(number) == before


def test_a_program_without_a_trap_dies_of_the_signal_and_it_shows(coasts: TwoCoasts) -> None:
    script = "echo ready; exec sleep 100"
    assert run(coasts, Lines(2, signal_us(signal.SIGINT)), script, script) == 130


def test_a_second_signal_kills_a_program_that_ignores_the_first(coasts: TwoCoasts) -> None:
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    began_s = time.monotonic()
    assert run(coasts, Lines(1, twice), DEAF) == 137
    assert time.monotonic() - began_s < 5


def test_a_signal_that_is_ignored_stays_ignored(coasts: TwoCoasts) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run(coasts, Lines(1, signal_us(signal.SIGHUP)), "echo ready; sleep 0.3; exit 5") == 5
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_output_error_ends_the_programs_and_is_raised(coasts: TwoCoasts) -> None:
    def refuse(_stream: Stream, _line: bytes) -> None:
        raise BrokenPipeError

    began_s = time.monotonic()
    with pytest.raises(BrokenPipeError):
        run(coasts, refuse, "exec yes", "exec sleep 100")
    assert time.monotonic() - began_s < 10


def test_programs_end_when_what_they_depend_on_does(coasts: TwoCoasts) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as foundation:
        lines = Lines(2, foundation.kill)
        with pytest.raises(RunFailedError, match=r"^the relay between the coasts has died$"):
            run(coasts, lines, FOREVER, FOREVER, depends_on=[foundation.pid])
    assert lines.found["stdout"].count(b"east  | asked\n") == 1


def test_one_program_has_the_terminal_alone(coasts: TwoCoasts, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    lines = Lines()
    programs = [
        Program(name="east", site="east", argv=("sh", "-c", "echo mine; echo too >&2"), terminal=True),
        Program(name="west", site="west", argv=("echo", "named")),
    ]
    with LabelledOutput(lines, width=4) as output:
        assert run_programs(coasts, programs, output) == 0
    assert capfdbinary.readouterr() == (b"mine\n", b"too\n")
    assert lines.found == {"stdout": [b"west | named\n"], "stderr": []}


def test_what_a_program_leaves_in_the_background_does_not_hold_the_output_open() -> None:
    lines = Lines()
    with LabelledOutput(lines, width=4) as output, TwoCoasts(TOPOLOGY, stages={"p": 1}) as coasts:
        program = Program(name="east", site="east", argv=("sh", "-c", "sleep 1000 & echo done"))
        assert run_programs(coasts, [program], output) == 0
    assert lines.found["stdout"] == [b"east | done\n"]


LISTEN = "import socket, time; s = socket.socket({}); time.sleep(0.5); s.bind(('', 7)); {}; print('up'); time.sleep({})"


@pytest.mark.parametrize(
    ("arguments", "then"),
    [
        ("", "s.listen()"),
        ("socket.AF_INET, socket.SOCK_DGRAM", "pass"),
        ("socket.AF_INET6", "s.listen()"),
    ],
    ids=["TCP", "UDP", "both IP versions"],
)
def test_the_others_start_when_the_first_listens(coasts: TwoCoasts, arguments: str, then: str) -> None:
    lines = Lines()
    programs = [
        Program(name="east", site="east", argv=("echo", "after")),
        Program(name="west", site="west", argv=(sys.executable, "-uc", LISTEN.format(arguments, then, 100))),
    ]
    with LabelledOutput(lines, width=4) as output:
        assert run_programs(coasts, programs, output, first="west", until="east") == 0
    assert lines.found["stdout"][0] == b"west | up\n"


@pytest.mark.parametrize(("script", "code", "after"), [("true", 0, 1), ("exit 3", 3, 0)], ids=["well", "badly"])
def test_a_first_program_that_ends_does_not_keep_the_others_waiting(
    coasts: TwoCoasts, script: str, code: int, after: int
) -> None:
    lines = Lines()
    assert run(coasts, lines, script, "echo after", first="east") == code
    assert lines.found["stdout"] == [b"west  | after\n"] * after


def test_while_the_first_is_waited_for_signals_end_everything(coasts: TwoCoasts) -> None:
    lines = Lines(1, signal_us(signal.SIGTERM))
    assert run(coasts, lines, FOREVER, "echo never", first="east") == 9
    assert lines.found["stdout"] == [b"east  | ready\n", b"east  | asked\n"]
