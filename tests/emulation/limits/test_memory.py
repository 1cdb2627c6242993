"""The memory that a run takes, as the kernel counts it, against the estimate."""

import subprocess
import sys
from pathlib import Path

import pytest

from bicoastal.emulation.limits.memory import (
    background_memory_bytes,
    job_memory_bytes,
    machine_memory_bytes,
    run_memory_bytes,
)
from bicoastal.wan.allreduce import AllReduceSpec
from helpers.small_runs import background, plane, planes, run_spec

MEASURE = """
import sys
from helpers.small_runs import job, plane, planes, run_spec, simulate
from bicoastal.emulation.limits.memory import run_memory_bytes

def peak_bytes():
    with open("/proc/self/status") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))

links = [plane(f"plane{index}", rate_bps=5e9, mtu_bytes=int(sys.argv[3])) for index in range(4)]
array_bytes = int(sys.argv[2]) or None
of = job(sys.argv[1], shard_bytes=60_000_001, array_bytes=array_bytes, paths=[link.name for link in links])
spec = run_spec(planes(*links), of)
before = peak_bytes()
assert simulate(spec).status == "ok"
print(before, peak_bytes(), run_memory_bytes(spec))
"""


def measure(transport: str, array_bytes: int, mtu_bytes: int) -> tuple[int, int, int]:
    here = Path(__file__).parents
    out = subprocess.check_output(
        [sys.executable, "-c", MEASURE, transport, str(array_bytes), str(mtu_bytes)],
        text=True,
        timeout=100,
        env={"PYTHONPATH": f"{here[2]}:{here[1]}"},
    )
    before, peak, said = map(int, out.split())
    return before, peak, said


@pytest.mark.parametrize(("array_bytes", "mtu_bytes"), [(0, 1500), (1_000_000, 9000)])
def test_a_run_takes_at_most_the_estimated_memory(array_bytes: int, mtu_bytes: int) -> None:
    _, peak, said = measure("cubic", array_bytes, mtu_bytes)
    assert peak <= said


def test_a_small_array_saves_more_memory_than_its_own_arithmetic() -> None:
    before, peak, _ = measure("reno", 1_000_000, 9000)
    # two coasts, and of the shard at each no more than the longest of 4 stripes, on its way out and joined
    assert peak - before < 1.5 * 60e6


def test_the_estimate_grows_with_message_array_and_packets() -> None:
    small = AllReduceSpec(sites=("west", "east"), shard_bytes=10**9, array_bytes=10**6)
    whole = AllReduceSpec(sites=("west", "east"), shard_bytes=10**9)
    assert 4e9 < job_memory_bytes(small, 9000) < job_memory_bytes(small, 1500) < 6e9
    assert 10e9 < job_memory_bytes(whole, 9000) < 11e9
    assert 2e9 < background_memory_bytes(10**9, 9000) < 2.2e9
    alone, both = run_spec(planes(plane())), run_spec(planes(plane()), background=(background(message_bytes=10**9),))
    assert run_memory_bytes(both) - run_memory_bytes(alone) == background_memory_bytes(10**9, 1500)


def test_the_machine_memory_is_at_most_the_kernels_figure() -> None:
    with open("/proc/meminfo", encoding="ascii") as file:
        total = 1024 * int(next(line for line in file if line.startswith("MemTotal:")).split()[1])
    assert 0 < machine_memory_bytes() <= total
