"""What the kernel's TCP can be told from outside: how fast a connection may send, and with what windows it begins."""

import socket
import struct
import subprocess
from pathlib import Path

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.ground.namespaces import find_tool, require_tools
from bicoastal.emulation.processes.coordination import PathEnd

LARGEST_INITIAL_WINDOW = 65_535  # segments
_SO_MAX_PACING_RATE = 47  # asm-generic/socket.h; bytes per second
_UNSIGNED_LONG = struct.Struct("@L")
_LEAST_MSS_BYTES = 536  # RFC 9293 §3.7.1
_COMMAND_TIME_LIMIT_S = 5.0


def set_pacing_rate(connection: socket.socket, rate_bps: float) -> None:
    """Let a connection send payload no faster than `rate_bps`; at once where that is slower than before (tcp(7)).

    The kernel counts payload: what headers take has to be taken off before. One byte a second is the least.
    """
    rate = min(max(round(rate_bps / 8), 1), (1 << 63) - 1)
    connection.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, _UNSIGNED_LONG.pack(rate))


def set_initial_windows(end: PathEnd, initial_segments: int) -> None:
    """Set the initial windows of new connections to the far end of a path: ours to send, and what we can receive.

    Raises UnsupportedError where it may not be done.
    """
    largest_buffer = int(Path("/proc/sys/net/ipv4/tcp_rmem").read_text(encoding="ascii").split()[2])
    windows = {"initcwnd": initial_segments, "initrwnd": largest_buffer // _LEAST_MSS_BYTES}
    words = [word for name, size in windows.items() for word in (name, str(min(size, LARGEST_INITIAL_WINDOW)))]
    route = [f"{end.peer_address}/32", "dev", end.device, "src", end.address, "table", end.table]
    run_ip("route", "change", *route, *words, refusal="the route's initial window cannot be changed")


def run_ip(*words: str, refusal: str) -> None:
    """Change something of this process's network namespace by `ip`.

    Raises UnsupportedError, `refusal` and what `ip` says, where it may not be done.
    """
    require_tools("ip")
    done = subprocess.run(
        [find_tool("ip") or "ip", *words],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_COMMAND_TIME_LIMIT_S,
    )
    if done.returncode:
        raise UnsupportedError(f"{refusal}: {' '.join(done.stderr.split())}")
