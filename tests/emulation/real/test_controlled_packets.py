"""Senders under a controller with real packets, in network namespaces: ours, and the kernel's TCP."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from bicoastal.emulation.base import RunSpec
from bicoastal.emulation.ground.identity import runtime_root
from bicoastal.emulation.real.netns import NetnsBackend
from bicoastal.emulation.records import RunRecord
from bicoastal.transports.registry import Registry
from helpers.process_table import ours
from helpers.small_runs import job, plane, planes, run_spec

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("mark")]

RATE_BPS, DELAY_S = 40e6, 0.010
QUEUE_BYTES = 150_000  # 30 ms, which a late process may fill, and too much by a fifth overflows within a burst
BACKEND = NetnsBackend(Registry.installed(), probing=False)


def two_jobs(transport: str, *, iterations: int = 4) -> RunSpec:
    """Return a run of two jobs, of weights 3 and 1, that both want the one link for a second."""
    topology = planes(plane(rate_bps=RATE_BPS, delay_s=DELAY_S, mtu_bytes=1500, queue_bytes=QUEUE_BYTES))
    parameters = (("weights", "first=3, second=1"), ("lease_s", 1.5))
    sizes = {"first": 750_000, "second": 250_000}
    return run_spec(
        topology,
        *(
            job(transport, name=name, shard_bytes=size, iterations=iterations, gap_s=0.3, parameters=parameters)
            for name, size in sizes.items()
        ),
        time_limit_s=30.0,
    )


def run(spec: RunSpec) -> RunRecord:
    record = BACKEND.run(spec)
    assert record.status != "failed", record.reason
    assert all(row.verified for row in record.iterations)
    # nothing is over-allocated: what the links saw says so
    assert [row.dropped_queue for row in record.links] == [0, 0]
    return record


@pytest.mark.parametrize("transport", ["b4", "kernel-b4"])
def test_two_jobs_share_a_link_by_their_weights_and_nothing_overflows(transport: str) -> None:
    record = run(two_jobs(transport))
    heard = {notice.source for notice in record.notices if notice.kind == "b4-heard"}
    assert heard == {"b4-controller"}
    granted = {notice.source for notice in record.notices if notice.kind == "b4-rate"}
    assert granted == {
        f"{name}/{way}/plane0:client" for name in ("first", "second") for way in ("west>east", "east>west")
    }
    # each alone takes 152 and 52 ms; three quarters and one quarter of the link take both about 210
    for name in ("first", "second"):
        rows = [row for row in record.iterations if row.job == name]
        assert all(row.completion_s is not None and row.completion_s < 0.6 for row in rows[1:]), rows


def kill_service(mark: str, told: list[float]) -> None:
    """Kill the process that hosts the services, a second after both coasts have reached it."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        for pid in ours(mark):
            try:
                argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if argv[1:4] != [b"-P", b"-m", b"bicoastal.emulation.service.program"]:
                    continue
                sockets = [one for one in Path(f"/proc/{pid}/fd").iterdir() if os.readlink(one).startswith("socket:")]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if len(sockets) == 4:  # the coordinator's, the listening one, and one for each coast
                time.sleep(1)
                os.kill(pid, signal.SIGKILL)
                told.append(time.monotonic())
                return
        time.sleep(0.02)


@pytest.mark.parametrize("transport", ["b4", "kernel-b4"])
def test_the_controller_is_killed_and_the_senders_go_on(transport: str, mark: str) -> None:
    told: list[float] = []
    killing = threading.Thread(target=kill_service, args=(mark, told))
    BACKEND.capabilities()  # so that what is measured first is measured before
    killing.start()
    record = run(two_jobs(transport, iterations=14))
    killing.join()
    assert told
    assert record.status == "degraded"
    assert f"the services of {transport} were started again 1 time" in record.reason
    kinds = {notice.kind for notice in record.notices}
    assert {"service-restarted", "service-lost", "service-back"} <= kinds


def test_no_key_survives_the_run(mark: str) -> None:
    before = set(runtime_root().rglob("*.pem"))
    run(two_jobs("b4", iterations=1))
    assert set(runtime_root().rglob("*.pem")) <= before
