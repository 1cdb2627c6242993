"""A stream of messages over TLS: whole and in order, and closed with a reason after any error."""

import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bicoastal.emulation.processes.credentials import Credentials, identities, tls_context
from bicoastal.emulation.realtime.real_clock import RealClock
from bicoastal.emulation.service.authority import issue
from bicoastal.emulation.service.tls_stream import LARGEST_MESSAGE_BYTES, TlsStream

NAMES = ["bicoastal://site/east", "bicoastal://service/b4"]


class End:
    """A stream and what it told."""

    def __init__(self, plain: socket.socket, credentials: Credentials, clock: RealClock, *, server: bool) -> None:
        self.peer: frozenset[str] | None = None
        self.messages: list[bytes] = []
        self.closed: list[str] = []
        self.stream = TlsStream(
            plain,
            tls_context(credentials, server=server),
            clock,
            server=server,
            on_open=self._opened,
            on_message=lambda octets, now: self.messages.append(octets),
            on_closed=self.closed.append,
        )

    def _opened(self, certificate: Mapping[str, Any] | None) -> None:
        self.peer = identities(certificate)


@pytest.fixture
def issued(tmp_path: Path) -> Mapping[str, Credentials]:
    return issue(tmp_path, NAMES)


@pytest.fixture
def clock() -> RealClock:
    return RealClock()


def serve(clock: RealClock, until: Callable[[], object], limit_s: float = 20.0) -> bool:
    end_s = clock.now() + limit_s
    while not until() and clock.now() < end_s:
        clock.wait_until(clock.now() + 0.02)
    return bool(until())


@pytest.fixture
def ends(issued: Mapping[str, Credentials], clock: RealClock) -> Iterator[tuple[End, End]]:
    pair = socket.socketpair()
    made = tuple(
        End(plain, issued[name], clock, server=index == 1)
        for index, (plain, name) in enumerate(zip(pair, NAMES, strict=True))
    )
    for end in made:
        end.stream.start()
    assert serve(clock, lambda: all(end.peer for end in made))
    yield made[0], made[1]
    for end in made:
        end.stream.close()


def test_messages_cross_whole_and_in_order_both_ways(ends: tuple[End, End], clock: RealClock) -> None:
    client, server = ends
    assert (client.peer, server.peer) == ({NAMES[1]}, {NAMES[0]})
    sent = [Random(size).randbytes(size) for size in (0, 1, 16_384, 16_385, LARGEST_MESSAGE_BYTES, 3)]
    for message in sent:
        client.stream.send(message)
        server.stream.send(message[::-1])
    assert serve(clock, lambda: len(client.messages) == len(server.messages) == len(sent))
    assert server.messages == sent
    assert client.messages == [message[::-1] for message in sent]


def test_messages_that_are_too_long_or_come_too_late_are_refused(ends: tuple[End, End], clock: RealClock) -> None:
    client, server = ends
    with pytest.raises(ValueError, match=rf"^message: {LARGEST_MESSAGE_BYTES + 1} octets"):
        client.stream.send(bytes(LARGEST_MESSAGE_BYTES + 1))
    server.stream.close()
    assert serve(clock, lambda: client.closed)
    assert server.closed == []  # it has closed it itself
    with pytest.raises(ValueError, match=r"^message: 1 octets"):
        client.stream.send(b"x")


def test_a_stream_whose_other_end_does_not_read_is_closed(ends: tuple[End, End], clock: RealClock) -> None:
    client, server = ends
    clock.on_readable(server.stream._socket.fileno(), None)
    for _ in range(100):
        if client.stream.is_open:
            client.stream.send(bytes(100_000))
    assert client.closed == ["the other end takes nothing"]


@pytest.mark.parametrize("seed", range(20))
def test_octets_that_are_not_tls_close_it_and_nothing_else(
    issued: Mapping[str, Credentials], clock: RealClock, seed: int
) -> None:
    rng = Random(seed)
    ours, theirs = socket.socketpair()
    server = End(ours, issued[NAMES[1]], clock, server=True)
    server.stream.start()
    garbage = rng.randbytes(rng.randrange(1, 3000))
    if seed % 2:
        garbage = b"\x16\x03\x01" + (len(garbage) - 1).to_bytes(2, "big") + b"\x01" + garbage[1:]  # a ClientHello
    with theirs:
        theirs.sendall(garbage)
        theirs.shutdown(socket.SHUT_WR)
        assert serve(clock, lambda: server.closed)
    assert len(server.closed) == 1
    assert server.closed[0]
    assert (server.peer, server.messages) == (None, [])


def test_a_flipped_bit_closes_it(ends: tuple[End, End], clock: RealClock) -> None:
    client, server = ends
    client.stream._tls.write(b"\0\0\0\5hello")
    octets = bytearray(client.stream._outgoing.read())
    octets[-1] ^= 1
    client.stream._socket.sendall(octets)
    assert serve(clock, lambda: server.closed)
    assert server.messages == []
