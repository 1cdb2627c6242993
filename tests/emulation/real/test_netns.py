"""The world of real packets: what every world promises, what its links do, and how it ends when something dies."""

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bicoastal.emulation.base import JobSpec, RunFailedError, RunSpec, TransportUse, UnsupportedError
from bicoastal.emulation.real.netns import NetnsBackend
from bicoastal.emulation.records import LinkRecord, RunRecord
from bicoastal.emulation.testing import check_backend
from bicoastal.transports.registry import Registry
from bicoastal.wan.loss import Bernoulli, TailOfBurst
from bicoastal.wan.schedule import Outage
from helpers.process_table import all_gone, ours
from helpers.small_runs import PLAIN, background, iterations, job, plane, planes, run_spec, simulate

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("mark")]

RATE_BPS, DELAY_S = 8e6, 0.010
BACKEND = NetnsBackend(Registry.installed(), probing=False)


def spec_of(transport: str, *, links: int = 1, changes: dict[str, object] | None = None, **of_job: object) -> RunSpec:
    """Return a small run over slow links."""
    values = {"rate_bps": RATE_BPS, "delay_s": DELAY_S, "mtu_bytes": 1500, "queue_bytes": 200_000, **(changes or {})}
    topology = planes(*(plane(f"plane{number}", **values) for number in range(links)))
    made: JobSpec = job(transport, paths=tuple(topology.paths), **{"shard_bytes": 50_000, "gap_s": 0.05, **of_job})  # type: ignore[arg-type]
    return run_spec(topology, made, time_limit_s=20.0)


def run(spec: RunSpec) -> RunRecord:
    record = BACKEND.run(spec)
    assert record.status != "failed", record.reason
    assert all(row.verified for row in record.iterations)
    return record


def link(record: RunRecord, direction: str, name: str = "plane0") -> LinkRecord:
    (found,) = (row for row in record.links if (row.link, row.direction) == (name, direction))
    return found


# -- what every world promises ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", [PLAIN, "adaptive", "kernel-cubic", "kernel-adaptive"])
def test_it_passes_the_conformance_suite(transport: str) -> None:
    report = check_backend(BACKEND, transport=TransportUse(name=transport))
    assert report.ok, str(report)
    assert report.real_time
    assert report.unsupported == {}


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["reno", "cubic", "kernel-reno", "kernel-mptcp", "quic"])
def test_it_passes_the_conformance_suite_with_other_transports(transport: str) -> None:
    report = check_backend(BACKEND, transport=TransportUse(name=transport))
    assert report.ok, str(report)


def test_its_links_are_measured_before_a_run() -> None:
    backend = NetnsBackend(Registry.installed())
    record = backend.run(spec_of("kernel-cubic", iterations=1))
    assert record.status != "failed", record.reason


def test_mptcp_uses_every_path_and_so_is_faster_than_one() -> None:
    record = run(spec_of("kernel-mptcp", links=2, shard_bytes=500_000, iterations=2, start_s=0.3))
    for name in ("plane0", "plane1"):
        for direction in ("west>east", "east>west"):
            assert link(record, direction, name).bytes > 200_000
    completion_s = iterations(record)[1].completion_s
    assert completion_s is not None
    assert completion_s < 500_000 * 8 / RATE_BPS


# -- what its links do ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["cubic", "kernel-cubic", "kernel-adaptive"])
@pytest.mark.parametrize("pattern", ["exchange", "reduce-scatter"])
def test_the_tail_of_every_burst_is_lost_and_nothing_else(transport: str, pattern: str) -> None:
    """Bursts of our own are marked, the kernel's are told by counting octets, behind a greeting and for odd halves."""
    changes = {"loss": TailOfBurst(packets=1)}
    spec = spec_of(transport, changes=changes, iterations=3, pattern=pattern, shard_bytes=40_004, gap_s=0.3)
    record = run(spec)
    bursts = 3 * spec.jobs[0].allreduce.trips
    for direction in ("west>east", "east>west"):
        assert link(record, direction).lost == bursts
    for flow in record.flows:
        if flow.trip == spec.jobs[0].allreduce.trips - 1:
            assert flow.repairs >= spec.jobs[0].allreduce.trips
    if transport == "cubic":
        assert [row.lost for row in simulate(spec).links] == [bursts, bursts]


@pytest.mark.parametrize("transport", ["cubic", "kernel-cubic"])
def test_the_number_of_losses_is_binomial(transport: str) -> None:
    loss = 0.02
    record = run(
        spec_of(transport, changes={"loss": Bernoulli(probability=loss), "delay_s": 0.001}, shard_bytes=1_000_000)
    )
    packets = sum(row.packets for row in record.links)
    lost = sum(row.lost for row in record.links)
    assert packets > 2500
    assert abs(lost - packets * loss) < 5 * (packets * loss * (1 - loss)) ** 0.5
    assert sum(flow.repairs for flow in record.flows) >= 0.5 * lost  # some of what is lost are acknowledgements


def test_link_events_of_an_iteration_happen_in_it() -> None:
    event = Outage(at_s=0.0, duration_s=0.3, iteration=1)
    record = run(spec_of("kernel-cubic", changes={"events": (event,)}, iterations=3, gap_s=0.2))
    took = [row.completion_s or 0.0 for row in iterations(record)]
    assert took[1] > 0.3 > max(took[0], took[2])
    assert link(record, "west>east").dropped_outage > 0


def test_a_tiny_message_leaves_some_stripes_empty_and_arrives() -> None:
    for transport in ("kernel-cubic", "cubic"):
        run(spec_of(transport, links=3, shard_bytes=4, iterations=1))


def test_other_traffic_takes_its_share_of_a_link() -> None:
    spec = spec_of("kernel-cubic", shard_bytes=200_000, iterations=2)
    alone = iterations(run(spec))[1].completion_s
    others = background("kernel-cubic", message_bytes=400_000)
    beside = iterations(run(replace(spec, background=(others,))))[1].completion_s
    assert alone is not None
    assert beside is not None
    assert beside > 1.25 * alone


def test_two_runs_at_once_do_not_disturb_each_other() -> None:
    """Names, addresses and ports are the same in both; each finds its own octets verified."""
    records: list[RunRecord] = []
    specs = [
        replace(spec_of("kernel-cubic", shard_bytes=size, iterations=4, gap_s=0.2), seed=size)
        for size in (20_000, 30_000)
    ]
    threads = [threading.Thread(target=lambda spec=spec: records.append(BACKEND.run(spec))) for spec in specs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((record.seed, len(record.iterations)) for record in records) == [(20_000, 4), (30_000, 4)]
    for record in records:
        assert record.status != "failed", record.reason
        assert sum(flow.rejected for flow in record.flows) == 0


def test_a_run_above_the_ceiling_is_refused_with_the_ceiling() -> None:
    spec = spec_of("kernel-cubic", changes={"rate_bps": 400e9})
    with pytest.raises(UnsupportedError, match=r"^400 Gbit/s over all links is more than the .*bit/s that this"):
        BACKEND.run(spec)
    scale = BACKEND.least_scale(spec)
    assert BACKEND.least_scale(spec_of("kernel-cubic", changes={"rate_bps": 400e9 / scale / 1.01})) == 1.0


def test_a_path_too_narrow_for_udp_is_unsupported() -> None:
    least = Registry.installed().resolve("quic").min_mtu_bytes
    with pytest.raises(UnsupportedError, match=rf"^quic over UDP needs packets of {least + 8} bytes; plane0 takes"):
        BACKEND.run(spec_of("quic", changes={"mtu_bytes": least + 7}))


# -- what dies, and what does what it should not ----------------------------------------------------------------------


def kill_when_running(mark: str, module: str, number: int) -> threading.Thread:
    """Send a signal to the innermost process that runs a module, once iterations have begun."""

    def act() -> None:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            for pid in ours(mark):
                try:
                    argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if argv[1:4] == [b"-P", b"-m", module.encode()]:
                    time.sleep(1.5)
                    os.kill(pid, number)
                    return
            time.sleep(0.02)

    thread = threading.Thread(target=act)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("module", "number", "sentence"),
    [
        (
            "bicoastal.emulation.real.endpoint",
            signal.SIGKILL,
            r"the process of (west|east) has died: SIGKILL; it may have run out of memory",
        ),
        (
            "bicoastal.emulation.real.endpoint",
            signal.SIGTERM,
            r"the process of (west|east) has died: (exit status 143|SIGTERM)",
        ),
        (
            "bicoastal.emulation.relay.program",
            signal.SIGKILL,
            r"the relay (between the coasts has died|is gone: Broken pipe)",
        ),
    ],
)
def test_a_process_that_dies_ends_the_run_at_once_in_a_sentence(
    mark: str, module: str, number: int, sentence: str
) -> None:
    killing = kill_when_running(mark, module, number)
    began_s = time.monotonic()
    with pytest.raises(RunFailedError, match=rf"^{sentence}$"):
        BACKEND.run(spec_of("cubic", gap_s=60.0))  # it rests, and nobody has anything to say to anybody
    killing.join()
    assert time.monotonic() - began_s < 30
    assert all_gone(mark)
