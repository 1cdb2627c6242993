"""A recorded capacity as a key of a link: read, followed by the simulator and the relay, refused by netem."""

from itertools import pairwise
from pathlib import Path

import pytest

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.processes.wire_format import WireFormat
from bicoastal.emulation.real.netem import stage_counts
from bicoastal.emulation.relay.model import RelayModel
from bicoastal.emulation.simulator import SimulatorBackend
from bicoastal.experiments import cli
from bicoastal.experiments.runs.setups import setup_key
from bicoastal.experiments.scenario.scenario import Scenario, ScenarioError, load_scenario
from bicoastal.transports.registry import Registry
from bicoastal.wan.schedule import CapacityTrace
from bicoastal.wan.topology import LinkSpec

TEXT = """
[scenario]
name = "recorded"
iterations = 1
gap = "0 s"
sample_interval = "50 ms"

[[links]]
name = "plane"
capacity_trace = "capacity.txt"
rtt = "10 ms"
queue = "10 MB"
framing = 4

[allreduce]
shard = "1 MB"

[transports]
default = ["b4"]

[transports.b4]
rate_bps = 100e6
"""
# The recorded link carries data from west to east only: no acknowledgements of another direction join its queue.
ONE_WAY = TEXT.replace(
    "[allreduce]",
    """
[[links]]
name = "other"
rate = "8 Mbit/s"
rtt = "10 ms"
queue = "10 MB"

[[background]]
transport = "b4"
parameters = { rate_bps = 100e6 }
message = "1 MB"
messages = 1
paths = ["plane"]

[allreduce]
paths = ["other"]
""",
)
# 1504 bytes in every millisecond of the first 100, in every second of the next 100: 12 and 6 Mbit/s.
OPPORTUNITIES = [*range(1, 101), *range(102, 201, 2)]


def written(directory: Path, trace: str, text: str = TEXT) -> str:
    (directory / "capacity.txt").write_text(trace)
    path = directory / "recorded.toml"
    path.write_text(text)
    return str(path)


def load(directory: Path, trace: str, text: str = TEXT) -> Scenario:
    return load_scenario(written(directory, trace, text), Registry.installed())


def test_the_rate_over_time_follows_the_recording_within_a_packet(tmp_path: Path) -> None:
    scenario = load(tmp_path, "\n".join(map(str, OPPORTUNITIES)), ONE_WAY)
    spec = scenario.run_spec("b4", seed=1)
    record = SimulatorBackend(Registry.installed()).run(spec)
    assert record.status == "ok", record.reason
    # The sender offers 100 Mbit/s for 0.1 s, and repeats some packets until 0.3 s. Then the link only drains its queue.
    queues = [row for row in record.queues if (row.link, row.direction) == ("plane", "west>east") and row.at_s > 0.3]
    draining = [row for row in queues if row.backlog_bytes > 10_000]
    assert len(draining) > 8
    for before, after in pairwise(draining):
        carried_bytes = before.backlog_bytes - after.backlog_bytes
        due_bytes = 1504 * (opportunities(after.at_s) - opportunities(before.at_s))
        assert carried_bytes == pytest.approx(due_bytes, abs=1504)


def opportunities(at_s: float) -> int:
    """Return how many opportunities the recording has until a time, over its periods."""
    whole, part = divmod(round(at_s * 1000), 200)
    return whole * len(OPPORTUNITIES) + sum(each <= part for each in OPPORTUNITIES)


def test_the_rate_of_the_link_is_the_mean_of_the_recording_unless_given(tmp_path: Path) -> None:
    link = load(tmp_path, "0, 4 Gbit/s\n1 s, 2 Gbit/s\n3 s, 1 Gbit/s\n").topology.links["plane"]
    assert link.events == (CapacityTrace(steps=((0.0, 4e9), (1.0, 2e9), (3.0, 1e9))),)
    assert link.rate_bps == pytest.approx((4e9 + 2 * 2e9) / 3)
    given = TEXT.replace('rtt = "10 ms"', 'rtt = "10 ms"\nrate = "3 Gbit/s"')
    assert load(tmp_path, "0, 4 Gbit/s\n", given).topology.links["plane"].rate_bps == 3e9


def test_the_relay_gives_each_packet_its_opportunity(tmp_path: Path) -> None:
    topology = load(tmp_path, "\n".join(map(str, OPPORTUNITIES))).topology
    relay = RelayModel(topology, ["plane"], seed=1)
    whole_packet = bytes(14 + 1500)  # with the framing of the link, 1504 bytes
    for _ in range(2 * len(OPPORTUNITIES)):
        relay.submit(0, whole_packet, 0.0)
    due_ms = [(each.due_s - 0.005) * 1000 for each in relay.departures(10.0, 1 << 30)]
    assert due_ms == pytest.approx([period + at for period in (0, 200) for at in OPPORTUNITIES])


def test_another_recording_makes_another_setup(tmp_path: Path) -> None:
    keys = [
        setup_key(load(tmp_path, trace).run_spec("b4", seed=0), ("job",), "sim")
        for trace in ("0, 4 Gbit/s\n1, 2e9", "0, 4 Gbit/s\n1, 2.1e9")
    ]
    assert keys[0] != keys[1]


def test_a_recording_reaches_another_process_unchanged(tmp_path: Path) -> None:
    topology = load(tmp_path, "\n".join(map(str, OPPORTUNITIES))).topology
    form = WireFormat[LinkSpec](LinkSpec)
    assert form.decode(form.encode(topology.links["plane"])) == topology.links["plane"]


def test_netem_and_mininet_refuse_a_recording_with_the_reason(tmp_path: Path) -> None:
    topology = load(tmp_path, "1\n2\n").topology
    with pytest.raises(UnsupportedError, match="netem cannot change link 'plane' while a run goes on; the relay can"):
        stage_counts(topology)  # both call it before they set up anything


@pytest.mark.parametrize(
    ("trace", "sentence"),
    [
        ("", "'capacity.txt': it is empty; expected lines of milliseconds, or of a time and a rate"),
        ("1\nx\n", "'capacity.txt': line 2: 'x' is not a whole number of milliseconds"),
        ("0, 1 Gbit/s\n1, slow\n", "'capacity.txt': line 2: '1, slow' is not a time and a rate, such as"),
    ],
)
def test_a_malformed_file_ends_the_command_with_a_sentence(
    tmp_path: Path, trace: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, trace)
    assert cli.main(["compare", path, "--out", str(tmp_path / "out")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{path}: links[0].capacity_trace: {sentence}" in said


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "1\n", TEXT.replace("capacity.txt", "gone.txt"))
    with pytest.raises(ScenarioError, match=r"capacity_trace: 'gone.txt' cannot be read \(No such file"):
        load_scenario(path, Registry.installed())
    path = written(tmp_path, "1\n", TEXT.replace("capacity.txt", "/dev/zero"))
    with pytest.raises(ScenarioError, match="capacity_trace: the file is larger than 32 MB"):
        load_scenario(path, Registry.installed())


def test_a_step_beside_a_recording_is_refused(tmp_path: Path) -> None:
    step = '[[links.events]]\nat = "1 s"\nrate = "1 Gbit/s"\n\n[allreduce]'
    with pytest.raises(ScenarioError, match="events: a capacity trace cannot stand beside"):
        load(tmp_path, "1\n2\n", TEXT.replace("[allreduce]", step))
