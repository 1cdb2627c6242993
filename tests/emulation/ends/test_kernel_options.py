"""The kernel keeps to a pacing rate from the moment it is set."""

import select
import socket
import struct
import time
from contextlib import suppress

import pytest

from bicoastal.emulation.ends.kernel_options import set_pacing_rate

SO_MAX_PACING_RATE = 47


@pytest.mark.parametrize(("rate_bps", "bytes_per_s"), [(8e6, 10**6), (0.0, 1), (400e9, 50 * 10**9)])
def test_any_rate_reaches_the_kernel(rate_bps: float, bytes_per_s: int) -> None:
    with socket.socket() as one:
        set_pacing_rate(one, rate_bps)
        assert struct.unpack("@L", one.getsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, 8)) == (bytes_per_s,)


def test_the_kernel_paces_and_slows_down_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as sender:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)  # the first ten segments are never paced
        set_pacing_rate(sender, 80e6)
        sender.connect(server.getsockname())
        receiver, _ = server.accept()
        with receiver:
            for end in (sender, receiver):
                end.setblocking(False)
            arrived_s = []
            for rate_bps in (80e6, 20e6):
                set_pacing_rate(sender, rate_bps)
                began_s, unsent, left = time.monotonic(), bytes(500_000), 500_000
                while left:
                    with suppress(BlockingIOError):
                        unsent = unsent[sender.send(unsent) :] if unsent else unsent
                    select.select([receiver], [sender] if unsent else [], [], 5)
                    with suppress(BlockingIOError):
                        left -= len(receiver.recv(left))
                arrived_s.append(time.monotonic() - began_s)
    for took_s, rate_bps in zip(arrived_s, (80e6, 20e6), strict=True):
        assert took_s > 0.8 * 500_000 * 8 / rate_bps
