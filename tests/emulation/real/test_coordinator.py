"""A run over the loopback interface: real processes and real sockets, without namespaces or privileges."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bicoastal.emulation.base import RunFailedError, RunSpec, UnsupportedError
from bicoastal.emulation.processes.coordination import CoastPlan, Order, PathEnd
from bicoastal.emulation.real import conduct
from bicoastal.emulation.real.coordinator import CoastHandle, Conducted, Coordinator
from bicoastal.emulation.testing import transports
from bicoastal.emulation.traffic.flows import plan_flows
from bicoastal.transports.registry import Registry
from bicoastal.wan.topology import Topology
from helpers.small_runs import background, job, plane, planes, run_spec


@dataclass(frozen=True)
class LoopbackGround:
    """Coasts that are one machine's loopback addresses, of which each process has its own for testing."""

    topology: Topology
    directory: Path
    west: str = f"127.{1 + os.getpid() % 200}.{os.getpid() // 200 % 250}.1"
    east: str = f"127.{1 + os.getpid() % 200}.{os.getpid() // 200 % 250}.2"

    def enter(self, site: str, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def path_ends(self, site: str) -> Sequence[PathEnd]:
        here, there = (self.west, self.east) if site == "west" else (self.east, self.west)
        return [
            PathEnd(path=path, address=here, peer_address=there, device="lo", table="local")
            for path in self.topology.paths
        ]

    def record(self, pid: int) -> None:
        pass


def conducted(spec: RunSpec, directory: Path, begun: list[tuple[int, float]] | None = None) -> Conducted:
    note = [] if begun is None else begun
    flows = plan_flows(spec, Registry.installed())
    ground = LoopbackGround(spec.topology, directory)
    with Coordinator(spec, flows, ground, on_begin=lambda *begins: note.append(begins)) as coordinator:
        assert len(coordinator.pids) == 2
        result = coordinator.run(time.monotonic() + 0.05)
    for pid in coordinator.pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    return result


def test_jobs_and_background_run_side_by_side_and_both_halves_come_together(tmp_path: Path) -> None:
    ours = job("cubic", shard_bytes=100_000, iterations=3, gap_s=0.05, start_s=0.0)
    theirs = job("kernel-reno", name="kernel", shard_bytes=200_000, pattern="reduce-scatter", gap_s=0.05, start_s=0.1)
    spec = run_spec(
        planes(plane()),
        ours,
        theirs,
        background=(background("reno", message_bytes=10_000, messages=4),),
        sample_interval_s=0.002,
    )
    begun: list[tuple[int, float]] = []
    result = conducted(spec, tmp_path, begun)
    assert result.failure == ""
    rows = [(row.job, row.iteration, row.verified) for row in sorted(result.iterations, key=lambda row: row.job)]
    assert rows == [("job", number, True) for number in range(3)] + [("kernel", number, True) for number in range(2)]
    assert [number for number, _ in begun] == [0, 1, 2]
    assert [row.start_s for row in result.iterations if row.job == "job"] == [begins_s for _, begins_s in begun]
    for row in result.iterations:
        parts = [flow for flow in result.flows if (flow.job, flow.iteration) == (row.job, row.iteration)]
        assert row.completion_s == pytest.approx(
            max(part.start_s + (part.completion_s or 9) for part in parts) - row.start_s
        )
        assert row.wire_bytes == sum(part.wire_bytes for part in parts) > row.payload_bytes
        assert sum(part.rejected for part in parts) == 0
    assert {summary.flow for summary in result.summaries} == {
        flow.name for flow in plan_flows(spec, Registry.installed())
    }
    assert all(summary.handshake_s is not None and 0 < summary.handshake_s < 5 for summary in result.summaries)
    assert {sample.flow.partition("/")[0] for sample in result.samples} <= {"job", "kernel", "others"}
    assert [sample.at_s for sample in result.samples] == sorted(sample.at_s for sample in result.samples)


@pytest.mark.parametrize(
    ("transport", "failure", "rows"),
    [
        (transports.MUTE_NAME, "job/west>east/plane0 did not connect within 1 s", []),
        (transports.STALLING_NAME, "iteration 1 of job did not complete within 1 s", [(0, True), (1, False)]),
        (transports.FLIPPING_NAME, "iteration 0 of job: a rank's result is not the true sum", [(0, False)]),
    ],
)
def test_a_transport_that_fails_leaves_its_finished_rows_and_a_sentence(
    transport: str, failure: str, rows: list[tuple[int, bool]], tmp_path: Path
) -> None:
    result = conducted(run_spec(planes(plane()), job(transport, gap_s=0.02, start_s=0.0), time_limit_s=1.0), tmp_path)
    assert result.failure == failure
    assert [(row.iteration, row.verified) for row in result.iterations] == rows
    for row in result.iterations:
        assert (row.status == "failed") == (not row.verified)
        if not row.verified:
            assert row.reason == failure


def test_another_jobs_failure_does_not_spoil_what_is_complete(tmp_path: Path) -> None:
    good = job("cubic", iterations=50, gap_s=0.02, start_s=0.0)
    bad = job(transports.FAILING_NAME, name="bad", start_s=0.3)
    result = conducted(run_spec(planes(plane()), good, bad), tmp_path)
    assert transports.FAILURE in result.failure
    finished = [row for row in result.iterations if row.job == "job" and row.status != "failed"]
    assert [row.iteration for row in finished] == list(range(len(finished)))
    assert 0 < len(finished) < 50
    for row in result.iterations:
        if row.status == "failed":
            assert row.reason == result.failure


@pytest.mark.parametrize(
    ("transport", "sentence"),
    [
        (
            "helpers.faulty_transports:RAISING",
            r"the process of (west|east) broke: ZeroDivisionError at faulty_transports\.py:\d+: one bit\nby none",
        ),
        ("helpers.faulty_transports:LEAVING", r"the process of (west|east) has died: exit status 7"),
        (
            "helpers.faulty_transports:UNBORN",
            r"the process of (west|east) broke: TypeError at faulty_transports\.py:\d+: not today",
        ),
        ("helpers.faulty_transports:STUCK", r"east and west did not end iteration 1 of job within 1\.2 s"),
    ],
)
def test_a_transport_that_kills_its_process_is_distinguished_from_one_that_fails(
    transport: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conduct, "PATIENCE_S", 0.2)
    with pytest.raises(RunFailedError, match=rf"^{sentence}$"):
        conducted(run_spec(planes(plane()), job(transport, gap_s=0.02), time_limit_s=1.0), tmp_path)


def test_a_coasts_refusal_is_reported_with_its_reason(tmp_path: Path) -> None:
    narrow = Registry.installed().resolve("quic").min_mtu_bytes + 7
    with pytest.raises(UnsupportedError, match=r"^quic over UDP needs packets of \d+ bytes; plane0 takes \d+$"):
        conducted(run_spec(planes(plane(mtu_bytes=narrow)), job("quic")), tmp_path)
    elsewhere = LoopbackGround(planes(plane()), tmp_path, west="192.0.2.1", east="192.0.2.2")  # RFC 5737: nobody's
    spec = run_spec(planes(plane()), job("cubic"))
    with pytest.raises(
        UnsupportedError, match=r"^the sockets of west cannot be made: Cannot assign requested address$"
    ):
        Coordinator(spec, plan_flows(spec, Registry.installed()), elsewhere, on_begin=lambda *_: None)


def test_every_run_has_a_secret_of_its_own_that_both_coasts_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[CoastPlan] = []
    tell = CoastHandle.send

    def overhear(handle: CoastHandle, order: Order) -> None:
        if isinstance(order, CoastPlan):
            plans.append(order)
        tell(handle, order)

    monkeypatch.setattr(CoastHandle, "send", overhear)
    spec = run_spec(planes(plane()), job("quic", shard_bytes=10_000))
    for _ in range(2):
        assert conducted(spec, tmp_path).failure == ""
    secrets = [bytes.fromhex(plan.secret) for plan in plans]
    assert secrets[0] == secrets[1] != secrets[2] == secrets[3]
    assert {len(secret) for secret in secrets} == {32}
    assert not any(plan.secret in repr(plan) for plan in plans)
