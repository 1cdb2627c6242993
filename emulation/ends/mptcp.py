"""The kernel's MPTCP as a transport: one connection over all paths, one subflow for each (RFC 8684).

The receiver announces its address on every path except the first. The sender's kernel opens a subflow to each of them;
the route to an address selects the sender's own address. Counters are the sums over the subflows.
"""

import ctypes
import os
import socket
import struct
from functools import cache

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.ends.flow_end import EndContext
from bicoastal.emulation.ends.kernel_options import run_ip
from bicoastal.emulation.ends.kernel_tcp import KernelTcpEnd
from bicoastal.emulation.ends.tcp_info import TcpInfo, combined_info, parse_tcp_info
from bicoastal.transports.registry import TransportSpec

IPPROTO_MPTCP = 262
_SOL_MPTCP, _MPTCP_TCPINFO = 284, 2  # linux/mptcp.h
_SUBFLOW_DATA = struct.Struct(
    "=4I"
)  # struct mptcp_subflow_data: its own size, number of subflows, entry size in the kernel, our entry size
_INFO_BYTES = 256
MOST_SUBFLOWS = 8  # the kernel's limit, without the first subflow


class MptcpEnd(KernelTcpEnd):
    """One end of a connection over several paths. Raises UnsupportedError for too many paths."""

    def __init__(self, context: EndContext) -> None:
        if len(context.ends) > MOST_SUBFLOWS + 1:
            raise UnsupportedError(f"MPTCP has {MOST_SUBFLOWS + 1} subflows at most, not {len(context.ends)}")
        _allow_subflows()
        if context.role == "server":
            for end in context.ends[1:]:
                _announce(end.address, end.device)
        super().__init__(context, congestion_control="cubic", protocol=IPPROTO_MPTCP)
        self._libc = ctypes.CDLL(None, use_errno=True)

    def bind_listener(self, listener: socket.socket) -> None:
        """Listen on every address, since subflows arrive at each of them."""
        listener.bind(("", self.context.port))

    def read_info(self, connection: socket.socket) -> TcpInfo:
        """Return the kernel's figures of all subflows, combined."""
        size = _SUBFLOW_DATA.size + (MOST_SUBFLOWS + 1) * _INFO_BYTES
        room = ctypes.create_string_buffer(_SUBFLOW_DATA.pack(_SUBFLOW_DATA.size, 0, 0, _INFO_BYTES), size)
        length = ctypes.c_uint(size)
        failed = self._libc.getsockopt(connection.fileno(), _SOL_MPTCP, _MPTCP_TCPINFO, room, ctypes.byref(length))
        if failed:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        _, count, _, step = _SUBFLOW_DATA.unpack_from(room)
        parts = [room.raw[_SUBFLOW_DATA.size + index * step :][:step] for index in range(count)]
        return combined_info([parse_tcp_info(part) for part in parts])


@cache
def _allow_subflows() -> None:
    """Let connections of this namespace have as many subflows as the kernel allows; once in a process."""
    _ip("limits", "set", "subflows", str(MOST_SUBFLOWS), "add_addr_accepted", str(MOST_SUBFLOWS))


@cache
def _announce(address: str, device: str) -> None:
    """Let connections of this namespace announce an address; once in a process."""
    _ip("endpoint", "add", address, "dev", device, "signal")


def _ip(*words: str) -> None:
    run_ip("mptcp", *words, refusal=f"ip mptcp {' '.join(words)}")


KERNEL_MPTCP = TransportSpec(
    name="kernel-mptcp",
    kind="native",
    paths="many",
    description="The kernel's MPTCP with CUBIC, one subflow for each plane",
    requires=frozenset({"kernel cubic", "kernel mptcp"}),
    program="bicoastal.emulation.ends.mptcp:MptcpEnd",
    colour="#fa9fb5",
    marker="P",
)
