"""How much memory a run takes at most, and how much this machine has: known before it is too late."""

import os
from pathlib import Path

from bicoastal.emulation.base import JobSpec, RunSpec
from bicoastal.wan.allreduce import AllReduceSpec

_PACKET_BYTES = 1000  # objects for each packet that is on its way: measured with every transport, at most 800
_INTERPRETER_BYTES = 150_000_000  # with numpy and all modules imported
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def machine_memory_bytes() -> int:
    """Return the physical memory, bytes, or less where a control group (a container) is allowed less."""
    least = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in _CGROUP_LIMITS:
        if file.is_file() and (text := file.read_text(encoding="ascii").strip()).isdigit():  # "max": no limit
            least = min(least, int(text))
    return least


def job_memory_bytes(allreduce: AllReduceSpec, mtu_bytes: int) -> int:
    """Return what a job's messages take at most, bytes, both coasts in one process; packets hold `mtu_bytes`.

    On each coast three times the array (the sum, the result, and a repetition or the room where stripes come together)
    and twice the message (where it leaves, and where the transport joins it). Stripes take less: of a message that
    repeats its array only the longest stripe is there as a whole.
    """
    array_bytes = allreduce.elements * allreduce.itemsize
    coast_bytes = 3 * array_bytes + 2 * allreduce.shard_bytes
    return 2 * (coast_bytes + _packets_bytes(allreduce.shard_bytes, mtu_bytes))


def background_memory_bytes(message_bytes: int, mtu_bytes: int) -> int:
    """Return what a background flow's messages take at most, bytes: once where they leave, once where they are joined.

    Packets hold `mtu_bytes`.
    """
    return 2 * message_bytes + _packets_bytes(message_bytes, mtu_bytes)


def run_memory_bytes(spec: RunSpec) -> int:
    """Return what a process that runs `spec` takes at most, bytes, its time series left aside."""
    total = _INTERPRETER_BYTES
    for part in spec.traffic:
        mtu_bytes = min(spec.topology.path_mtu_bytes(path) for path in part.paths)
        if isinstance(part, JobSpec):
            total += job_memory_bytes(part.allreduce, mtu_bytes)
        else:
            total += background_memory_bytes(part.message_bytes, mtu_bytes)
    return total


def _packets_bytes(message_bytes: int, mtu_bytes: int) -> int:
    return _PACKET_BYTES * -(-message_bytes // mtu_bytes)
