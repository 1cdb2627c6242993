"""The kernel's TCP on the loopback interface: whole messages, and only connections with the token."""

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.ends.kernel_tcp import HEADER_BYTES, TCP_HEADERS_BYTES, KernelTcpEnd
from helpers.loopback_flow_ends import EAST, TOKEN, WEST, Loopback
from helpers.small_runs import plane, planes

FRAMING_BYTES = 38


class Ends:
    """Both ends, and the loop between them."""

    def __init__(self, loop: Loopback) -> None:
        self.loop = loop
        self.server = KernelTcpEnd(loop.context("server"), congestion_control="reno")
        self.client = KernelTcpEnd(loop.context("client"), congestion_control="reno")

    def open(self) -> None:
        for end in (self.server, self.client):
            end.open(self.loop.clock.now())
        assert self.loop.run_until(lambda: self.loop.ears.connections == [self.loop.flow.name])

    def carry(self, *messages: bytes) -> None:
        """Send messages, numbered on from the last, and wait until they are there."""
        ears = self.loop.ears
        sent = list(enumerate(messages, len(ears.messages)))
        for number, data in sent:
            self.client.send(number, memoryview(data), self.loop.clock.now())
        already = len(ears.messages)
        assert self.loop.run_until(lambda: len(ears.messages) >= already + len(messages))
        assert ears.messages[already:] == sent
        assert ears.failures == []


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends(Loopback("kernel-reno", planes(plane(framing_bytes=FRAMING_BYTES))))
    yield made
    made.client.close()
    made.server.close()


@contextmanager
def stranger(ends: Ends, address: str = WEST) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as made:
        made.bind((address, 0))
        made.connect((EAST, ends.loop.port))
        made.settimeout(5)
        yield made


def test_messages_of_any_size_arrive_whole_and_in_order(ends: Ends) -> None:
    ends.open()
    # an empty one is what the rates may leave a stripe of a small message
    ends.carry(b"", b"x", os.urandom(5_000_000), b"", bytes(1000))


def test_messages_offered_before_the_connection_is_established_wait_for_it(ends: Ends) -> None:
    ends.client.open(ends.loop.clock.now())
    ends.carry(b"early", b"bird")


def test_a_messages_header_takes_no_segment_of_its_own(ends: Ends) -> None:
    ends.open()
    before = ends.client.tally()
    ends.carry(bytes(1000))
    assert (ends.client.tally() - before).counters.packets == 1


def test_the_kernels_counts_are_the_flows(ends: Ends) -> None:
    ends.open()
    before = ends.client.tally()
    size = 1_000_000
    ends.carry(bytes(size))
    until = time.monotonic() + 5
    while (info := ends.client.info()) is not None and info.in_flight_segments and time.monotonic() < until:
        time.sleep(0.001)
    sent = ends.client.tally() - before
    stream = size + HEADER_BYTES
    least_segments = -(-stream // 65_483)  # loopback's MTU of 65,536, less IP, TCP and timestamps
    assert least_segments <= sent.counters.packets <= 200
    each = TCP_HEADERS_BYTES + FRAMING_BYTES
    assert stream + each * sent.counters.packets <= sent.wire_bytes <= stream + each * (sent.counters.packets + 20)
    assert (sent.counters.repairs, sent.counters.timeouts, sent.counters.rejected) == (0, 0, 0)
    received = ends.server.tally()
    assert received.counters.packets == 0
    assert each <= received.wire_bytes <= each * 300  # acknowledgements
    sample = ends.client.sample(ends.loop.clock.now())
    assert sample.cwnd_bytes is not None
    assert sample.cwnd_bytes >= 10 * 536
    assert sample.in_flight_bytes == 0
    assert sample.srtt_s is not None
    assert 0 < sample.srtt_s < 1


def test_counts_of_a_closed_connection_are_kept(ends: Ends) -> None:
    ends.open()
    ends.carry(bytes(100_000))
    before = ends.client.tally(), ends.server.tally()
    ends.client.retire()
    assert ends.client.info() is None
    assert ends.client.tally().counters.packets == before[0].counters.packets
    ends.client.connect()
    ends.carry(bytes(100_000))
    after = ends.client.tally(), ends.server.tally()
    assert after[0].counters.packets > before[0].counters.packets
    assert after[0].wire_bytes >= before[0].wire_bytes + 100_000
    assert after[1].wire_bytes > before[1].wire_bytes
    assert ends.loop.ears.failures == []


@pytest.mark.parametrize(
    "header",
    [
        b"wrong one" + bytes(HEADER_BYTES - 9),
        struct.pack("!8sQQ", TOKEN, 1, 1 << 41),  # longer than any message
        b"GET / HTTP/1.1\r\nHost: west\r\n\r\n",
    ],
)
def test_a_connection_without_the_token_is_closed_and_counted(ends: Ends, header: bytes) -> None:
    ends.open()
    ends.carry(b"before")
    with stranger(ends) as made:
        made.send(header)
        assert ends.loop.run_until(lambda: ends.server.tally().counters.rejected == 1)
        with suppress(ConnectionResetError):  # when a part of what it had sent was left unread
            assert made.recv(9) == b""
    ends.carry(b"after")


def test_a_connection_from_another_address_is_closed(ends: Ends) -> None:
    ends.open()
    with stranger(ends, "127.0.0.3") as made:
        assert ends.loop.run_until(lambda: ends.server.tally().counters.rejected == 1)
        made.settimeout(5)
        assert made.recv(9) == b""
    ends.carry(b"after")


def test_a_silent_connection_or_half_a_header_does_not_delay_others(ends: Ends) -> None:
    with stranger(ends) as silent, stranger(ends) as slow:
        slow.send(TOKEN)
        ends.open()
        ends.carry(b"meanwhile")
        silent.close()
        slow.close()
        ends.carry(b"after")
    assert ends.server.tally().counters.rejected == 0


def test_a_far_end_that_does_not_listen_is_reported() -> None:
    loop = Loopback("kernel-reno")
    client = KernelTcpEnd(loop.context("client"), congestion_control="reno")
    client.open(loop.clock.now())
    assert loop.run_until(lambda: loop.ears.failures)
    assert loop.ears.failures == [f"{loop.flow.name}:client: Connection refused"]
    assert client.tally().wire_bytes > 0
    client.close()


def test_a_far_end_that_closes_is_reported(ends: Ends) -> None:
    ends.open()
    ends.carry(b"before")
    ends.client.send(1, memoryview(bytes(20_000_000)), ends.loop.clock.now())  # more than any buffer
    ends.server.close()
    assert ends.loop.run_until(lambda: ends.loop.ears.failures)
    (said,) = ends.loop.ears.failures
    assert said.removeprefix(f"{ends.client.name}: ") in ("Connection reset by peer", "Broken pipe")


def test_a_congestion_control_that_the_kernel_lacks_is_unsupported() -> None:
    loop = Loopback("kernel-reno")
    end = KernelTcpEnd(loop.context("client"), congestion_control="magic")
    with pytest.raises(UnsupportedError, match=r"^the kernel's magic cannot be had here: No such file or directory$"):
        end.open(loop.clock.now())
    with pytest.raises(UnsupportedError, match=r"^the kernel's magic cannot be had here: "):
        KernelTcpEnd(loop.context("server"), congestion_control="magic")


def test_the_kernel_uses_the_congestion_control_that_was_asked_for(ends: Ends) -> None:
    ends.open()
    connection = ends.client._connection
    assert connection is not None
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"
