"""Network namespaces of a run: their contents, no effect on the machine, and nothing left after the run."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path as FilePath

import pytest

from bicoastal.emulation.base import RunFailedError, UnsupportedError
from bicoastal.emulation.ground.cleanup import clean
from bicoastal.emulation.ground.identity import runtime_root
from bicoastal.emulation.ground.namespaces import Namespaces, TwoCoasts
from bicoastal.emulation.ground.wiring import MIDDLE, CoastOptions
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
from helpers.process_table import FORBIDDEN, all_gone, as_nobody, new_mark, ours

pytestmark = pytest.mark.root

TOPOLOGY = Topology(
    sites=[Site(name="east"), Site(name="west")],
    links=[LinkSpec(name=f"l{number}", a="east", b="west", rate_bps=1e8, delay_s=0.03) for number in range(2)],
    paths=[Path(name=f"p{number}", sites=("east", "west"), links=(f"l{number}",)) for number in range(2)],
)
BRIDGED = {"p0": 1, "p1": 1}
Starter = Callable[[bool], tuple[subprocess.Popen[str], str]]
BOTH = pytest.mark.parametrize("rootless", [False, True], ids=["as root", "rootless"])


@pytest.fixture(scope="module", params=[False, True], ids=["as root", "rootless"])
def coasts(request: pytest.FixtureRequest) -> Iterator[TwoCoasts]:
    with TwoCoasts(TOPOLOGY, stages=BRIDGED, rootless=request.param) as made:
        yield made


def run(coasts: TwoCoasts, site: str, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(coasts.enter(site, argv), capture_output=True, text=True, check=False, timeout=20)


def test_a_socket_uses_the_path_of_its_address_both_ways(coasts: TwoCoasts) -> None:
    for path in TOPOLOGY.paths:
        east, west = coasts.wiring.ports_of(path)
        with (
            coasts.socket("east", socket.AF_INET, socket.SOCK_STREAM) as client,
            coasts.socket("west", socket.AF_INET, socket.SOCK_STREAM) as server,
        ):
            server.bind((west.address, 0))
            server.listen()
            client.bind((east.address, 0))
            client.settimeout(5)
            client.connect(server.getsockname())
        for site, device in (("east", east.device), ("west", west.device)):
            (counts,) = re.findall(rf"{device}: +(\d+) +(\d+)", run(coasts, site, "cat", "/proc/self/net/dev").stdout)
            assert int(counts[1]) >= 2, f"{path} carried nothing to {site}"


def test_an_address_of_another_path_is_reached_over_ones_own(coasts: TwoCoasts) -> None:
    source = coasts.port("east", "p1")
    route = run(coasts, "east", "ip", "route", "get", coasts.port("west", "p0").address, "from", source.address)
    assert f"dev {source.device}" in route.stdout


def test_there_is_no_ipv6_and_nothing_is_sent_unasked(coasts: TwoCoasts) -> None:
    assert run(coasts, "east", "ip", "-6", "address").stdout == ""
    neighbours = run(coasts, "east", "ip", "neighbor").stdout.splitlines()
    assert neighbours
    assert all("PERMANENT" in line for line in neighbours)
    assert "MULTICAST" not in run(coasts, "east", "ip", "link", "show", coasts.port("east", "p0").device).stdout


def test_offloads_are_off(coasts: TwoCoasts) -> None:
    for name, device in (("east", coasts.port("east", "p0").device), (MIDDLE, coasts.port("east", "p0").middle_device)):
        features = coasts.namespaces.run(name, ["ethtool", "-k", device])
        for feature in (
            "tcp-segmentation-offload",
            "generic-segmentation-offload",
            "generic-receive-offload",
            "tx-checksumming",
            "scatter-gather",
        ):
            assert re.search(rf"^{feature}: off", features, re.MULTILINE), feature


def test_settings_hold_in_the_coasts_and_not_outside(coasts: TwoCoasts) -> None:
    for name in ("tcp_no_metrics_save", "tcp_rmem"):
        inside = run(coasts, "east", "cat", f"/proc/sys/net/ipv4/{name}").stdout.split()
        assert inside == coasts.wiring.sysctls("east", CoastOptions())[f"net.ipv4.{name}"].split()
    assert FilePath("/proc/sys/net/ipv4/tcp_no_metrics_save").read_text().strip() == "0"


def test_nothing_of_a_run_is_seen_in_the_machines_own_namespace(coasts: TwoCoasts) -> None:
    assert coasts.wiring.tag not in FilePath("/proc/net/dev").read_text()
    assert "10.64.0.1" not in FilePath("/proc/net/fib_trie").read_text()


def test_sites_are_known_by_name_on_the_coasts_alone(coasts: TwoCoasts) -> None:
    assert run(coasts, "west", "getent", "hosts", "east", "west-p1").stdout.split() == [
        "10.64.0.1", "east", "10.64.1.2", "west-p1",
    ]  # fmt: skip
    assert "10.64." not in FilePath("/etc/hosts").read_text()


@pytest.mark.parametrize(
    ("script", "status"), [("exit 3", 3), ("kill -TERM $$", -15), ("kill -KILL $$", -9), ("true", 0)]
)
def test_a_program_ends_as_it_would_outside(coasts: TwoCoasts, script: str, status: int) -> None:
    assert run(coasts, "east", "sh", "-c", script).returncode == status


@pytest.mark.parametrize(("argv", "status"), [(["no-such-program"], 127), (["/etc/hosts"], 126)])
def test_a_program_that_cannot_start_says_so_in_one_line(coasts: TwoCoasts, argv: list[str], status: int) -> None:
    done = run(coasts, "east", *argv)
    assert done.returncode == status
    assert len(done.stderr.splitlines()) == 1
    assert argv[0] in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_goes_on_to_the_program(coasts: TwoCoasts, number: signal.Signals) -> None:
    script = f"trap 'echo caught; exit 7' {number.name.removeprefix('SIG')}; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(coasts.enter("east", ["sh", "-c", script]), stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "ready\n"
        program.send_signal(number)
        assert program.wait(10) == 7
        assert program.stdout.read() == "caught\n"


def test_standard_streams_directory_and_environment_are_the_callers(coasts: TwoCoasts, tmp_path: FilePath) -> None:
    done = subprocess.run(
        coasts.enter("west", ["sh", "-c", "cat; pwd; echo $COAST"]),
        input="in\n",
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "COAST": "west"},
    )
    assert done.stdout == f"in\n{tmp_path}\nwest\n"


def test_a_command_that_fails_says_why_in_one_sentence(coasts: TwoCoasts) -> None:
    with pytest.raises(UnsupportedError, match=r"^ip link set nosuch up: Cannot find device \"nosuch\"$"):
        coasts.namespaces.run("east", ["ip", "link", "set", "nosuch", "up"])


def test_roots_sockets_may_have_larger_buffers_than_the_machine_allows(coasts: TwoCoasts) -> None:
    allowed = int(FilePath("/proc/sys/net/core/rmem_max").read_text())
    wanted = 64 << 20 if not coasts.namespaces.rootless else allowed
    with coasts.socket("east", socket.AF_INET, socket.SOCK_DGRAM, buffer_bytes=64 << 20) as large:
        assert large.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * wanted  # doubled: socket(7)


def test_a_congestion_control_can_be_given_to_every_program() -> None:
    options = CoastOptions(congestion_control="reno")
    with TwoCoasts(TOPOLOGY, options=options, stages=BRIDGED) as coasts:
        port = coasts.port("west", "p0")
        with (
            coasts.socket("east", socket.AF_INET, socket.SOCK_STREAM) as client,
            coasts.socket("west", socket.AF_INET, socket.SOCK_STREAM) as server,
        ):
            server.bind((port.address, 0))
            server.listen()
            client.connect(server.getsockname())
            accepted, _ = server.accept()
            with accepted:
                for end in (client, accepted):
                    used = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
                    assert used.rstrip(b"\0") == b"reno"


def test_two_runs_at_once_are_separate() -> None:
    with (
        TwoCoasts(TOPOLOGY, stages=BRIDGED) as one,
        TwoCoasts(TOPOLOGY, stages=BRIDGED) as other,
    ):
        assert one.wiring.tag != other.wiring.tag
        assert one.port("west", "p0").address == other.port("west", "p0").address
        with one.socket("west", socket.AF_INET, socket.SOCK_DGRAM) as server:
            server.bind((one.port("west", "p0").address, 9))
            server.setblocking(False)
            with other.socket("east", socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.connect((other.port("west", "p0").address, 9))
                stranger.send(b"?")
                with pytest.raises(ConnectionRefusedError):  # the other west has nobody there, and says so
                    stranger.recv(1)
            with pytest.raises(BlockingIOError):
                server.recv(1)


# -- ends -------------------------------------------------------------------------------------------------------------


RUN = """
import subprocess, sys
from bicoastal.emulation.ground.namespaces import TwoCoasts
from bicoastal.emulation.relay.process import Relays
from tests_topology import TOPOLOGY
print("begun", flush=True)
with TwoCoasts(TOPOLOGY, rootless=sys.argv[1] == "True") as coasts, Relays(coasts, seed=1):
    subprocess.run(coasts.enter("east", ["sh", "-c", "setsid sleep 1000 & setsid sleep 1000 &"]))
    print("up", flush=True)
    input()
"""


@pytest.fixture
def start(tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch) -> Iterator[Starter]:
    """Start a run, with relays and a program in the background on a coast; its processes carry a mark.

    Its runtime directory, and from now on this process's, is one that no other run uses.
    """
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "tests_topology.py").write_text(
        "from bicoastal.wan.topology import LinkSpec, Path, Site, Topology\n"
        "TOPOLOGY = Topology(sites=[Site(name='east'), Site(name='west')],\n"
        "    links=[LinkSpec(name='l', a='east', b='west', rate_bps=1e8, delay_s=0.03)],\n"
        "    paths=[Path(name='p', sites=('east', 'west'), links=('l',))])\n"
    )
    started: list[subprocess.Popen[str]] = []

    def begin(rootless: bool) -> tuple[subprocess.Popen[str], str]:
        mark = new_mark()
        name, value = mark.split("=")
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(rootless)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, name: value, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        )
        started.append(process)
        assert process.stdout.readline() == "begun\n"
        return process, mark

    yield begin
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@BOTH
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_a_run_that_is_killed(start: Starter, number: signal.Signals, rootless: bool) -> None:
    process, mark = start(rootless)
    assert process.stdout.readline() == "up\n"
    assert len(ours(mark)) >= 6  # the run, the holder, its first process, the relay and what enters it, the programs
    process.send_signal(number)
    process.wait(20)
    assert all_gone(mark)
    clean()
    assert [entry.name for entry in runtime_root().iterdir()] == [".lock"]


@pytest.mark.slow
def test_fifty_runs_killed_at_random_moments_leave_nothing(
    start: Starter,
) -> None:
    marks = []
    for attempt in range(50):
        process, mark = start(bool(attempt % 2))
        marks.append(mark)
        time.sleep(0.6 * (attempt * 0.618 % 1))  # evenly over the second half-second, in no order
        process.send_signal((signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[attempt % 3])
        process.wait(20)
        assert all_gone(mark), f"attempt {attempt}"
    clean()
    assert [entry.name for entry in runtime_root().iterdir()] == [".lock"]
    with TwoCoasts(TOPOLOGY, stages=BRIDGED) as coasts:
        assert run(coasts, "east", "true").returncode == 0


def test_a_program_on_a_coast_ends_with_the_coasts() -> None:
    with TwoCoasts(TOPOLOGY, stages=BRIDGED) as coasts:
        argv = coasts.enter("east", ["sh", "-c", "echo ready; sleep 1000"])
        program = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert program.stdout.readline() == "ready\n"
    with program:
        assert program.wait(10) == -signal.SIGKILL


def test_a_holder_that_dies_is_a_failed_run() -> None:
    with Namespaces(["only"]) as spaces:
        os.kill(spaces.pids[0], signal.SIGKILL)
        with pytest.raises(RunFailedError, match=r"^the holder of the network namespaces (is gone|has died)"):
            spaces.run("only", ["true"])


# -- ordinary users ---------------------------------------------------------------------------------------------------

CARRY = """
import socket
from bicoastal.emulation.ground.namespaces import TwoCoasts
from bicoastal.emulation.relay.process import Relays
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
topology = Topology(sites=[Site(name="east"), Site(name="west")],
    links=[LinkSpec(name="l", a="east", b="west", rate_bps=1e8, delay_s=0.01)],
    paths=[Path(name="p", sites=("east", "west"), links=("l",))])
with TwoCoasts(topology) as coasts, Relays(coasts, seed=1) as relays:
    with coasts.socket("east", socket.AF_INET, socket.SOCK_DGRAM) as east, \\
            coasts.socket("west", socket.AF_INET, socket.SOCK_DGRAM) as west:
        west.bind((coasts.port("west", "p").address, 0))
        west.settimeout(10)
        east.sendto(b"over", west.getsockname())
        print(west.recv(9), coasts.namespaces.rootless, relays.report().real_time)
"""


def test_an_ordinary_user_has_coasts_too() -> None:
    done = as_nobody(CARRY)
    assert (done.stdout, done.stderr) == ("b'over' True False\n", "")


def test_where_namespaces_are_forbidden_one_sentence_says_so() -> None:
    code = (
        "from bicoastal.emulation.base import UnsupportedError\n"
        "from bicoastal.emulation.ground.namespaces import Namespaces\n"
        "try:\n    Namespaces(['a'])\nexcept UnsupportedError as error:\n    print(error)\n"
    )
    done = as_nobody(code, through=FORBIDDEN)
    assert done.stderr == ""
    refusal = r"network namespaces cannot be made here: network namespaces: [^\n]*; user namespaces: [^\n]*; [^\n]*\n"
    assert re.fullmatch(refusal, done.stdout)
