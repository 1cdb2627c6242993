"""How much memory a run takes at most, and how much this machine has, so that a run can be refused in time."""

import os
from pathlib import Path

from bicoastal.emulation.base import JobSpec, RunSpec
from bicoastal.wan.allreduce import AllReduceSpec

_PACKET_BYTES = 1000  # of objects for each packet on its way: at most 800 were measured, over all transports
_INTERPRETER_BYTES = 150_000_000  # with numpy and all modules imported
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def machine_memory_bytes() -> int:
    """Return the physical memory in bytes, or the limit of the control group (a container) where that is smaller."""
    least = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in _CGROUP_LIMITS:
        if file.is_file() and (text := file.read_text(encoding="ascii").strip()).isdigit():  # "max": no limit
            least = min(least, int(text))
    return least


def job_memory_bytes(allreduce: AllReduceSpec, mtu_bytes: int) -> int:
    """Return the memory that a job's messages take at most, in bytes, with both coasts in one process.

    Each coast takes three times the array: the sum, the result, and one repetition or the buffer where stripes are
    collected. It also takes twice the message: at the sender, and where the transport reassembles it. Stripes take
    less: of a message that repeats its array only the longest stripe is stored whole. Packets hold `mtu_bytes`.
    """
    array_bytes = allreduce.elements * allreduce.itemsize
    coast_bytes = 3 * array_bytes + 2 * allreduce.shard_bytes
    return 2 * (coast_bytes + _packets_bytes(allreduce.shard_bytes, mtu_bytes))


def background_memory_bytes(message_bytes: int, mtu_bytes: int) -> int:
    """Return the memory that a background flow's messages take at most, in bytes.

    Each message is stored twice: at the sender, and where the transport reassembles it. Packets hold `mtu_bytes`.
    """
    return 2 * message_bytes + _packets_bytes(message_bytes, mtu_bytes)


def run_memory_bytes(spec: RunSpec) -> int:
    """Return the memory that a process takes at most to run `spec`, in bytes, without the time series."""
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
