"""Settings of the kernel's TCP: the pacing rate of a connection, and the initial windows of a route."""

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
    """Limit a connection's payload to `rate_bps`; a lower rate than before applies at once (tcp(7)).

    The kernel counts payload only, so the caller subtracts the share of the headers. The least rate is one byte/s.
    """
    rate = min(max(round(rate_bps / 8), 1), (1 << 63) - 1)
    connection.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, _UNSIGNED_LONG.pack(rate))


def set_initial_windows(end: PathEnd, initial_segments: int) -> None:
    """Set the initial send and receive windows of new connections to the far end of a path.

    Raises UnsupportedError where the process may not change the route.
    """
    largest_buffer = int(Path("/proc/sys/net/ipv4/tcp_rmem").read_text(encoding="ascii").split()[2])
    windows = {"initcwnd": initial_segments, "initrwnd": largest_buffer // _LEAST_MSS_BYTES}
    words = [word for name, size in windows.items() for word in (name, str(min(size, LARGEST_INITIAL_WINDOW)))]
    route = [f"{end.peer_address}/32", "dev", end.device, "src", end.address, "table", end.table]
    run_ip("route", "change", *route, *words, refusal="the route's initial window cannot be changed")


def run_ip(*words: str, refusal: str) -> None:
    """Change a setting of this process's network namespace with `ip`.

    Raises UnsupportedError, with `refusal` and the message of `ip`, when `ip` fails.
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
