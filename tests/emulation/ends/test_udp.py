"""Sans-IO transports over real UDP sockets: whole messages, foreign datagrams, and errors of the kernel."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.ends.udp import UdpEnd
from bicoastal.transports.base import Datagram
from bicoastal.transports.registry import Registry
from bicoastal.wan.topology import MIN_MTU_BYTES
from helpers.loopback_flow_ends import EAST, TOKEN, WEST, Loopback
from helpers.small_runs import PLAIN, TCP_FRAME_BYTES, plane, planes

FRAMING_BYTES, OVERHEAD_BYTES = 38, 50


@contextmanager
def ends(transport: str, **links: int) -> Iterator[tuple[Loopback, UdpEnd, UdpEnd]]:
    topology = planes(plane(framing_bytes=FRAMING_BYTES, **links), overhead_bytes=OVERHEAD_BYTES)
    loop = Loopback(transport, topology)
    server = UdpEnd(loop.context("server"))
    client = UdpEnd(loop.context("client"))
    try:
        yield loop, client, server
    finally:
        client.close()
        server.close()


@contextmanager
def raw_peer(loop: Loopback, *, of: str, own_port: int | None = None) -> Iterator[socket.socket]:
    """A plain socket in the place of the far end of a server or a client."""
    clients, servers = (WEST, loop.port + 20_000), (EAST, loop.port)
    here, there = (clients, servers) if of == "server" else (servers, clients)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind((here[0], here[1] if own_port is None else own_port))
        made.connect(there)
        made.settimeout(5)
        yield made


@pytest.mark.parametrize("transport", [PLAIN, "cubic", "quic"])
def test_messages_cross_whole_in_any_size(transport: str) -> None:
    with ends(transport) as (loop, client, server):
        for end in (server, client):
            end.open(loop.clock.now())
        assert loop.run_until(lambda: loop.ears.connections == [loop.flow.name])
        sent = [(number, bytes(range(256)) * size) for number, size in enumerate((4, 1, 0, 2000))]
        for number, data in sent:
            client.send(number, memoryview(data), loop.clock.now())
        assert loop.run_until(lambda: len(loop.ears.messages) == len(sent))
        assert sorted(loop.ears.messages) == sent
        assert loop.ears.failures == []
        assert server.tally().counters.rejected == 0
        # 513,280 bytes with the headers of every packet and acknowledgement, loopback being so fast that some repeat
        assert client.tally().wire_bytes > 514_280
        assert client.tally().counters.packets > 514_280 // 1500


def test_datagrams_without_the_token_are_dropped_and_counted() -> None:
    loop = Loopback("cubic")
    server = UdpEnd(loop.context("server"))
    server.open(loop.clock.now())
    with raw_peer(loop, of="server") as stranger:
        for octets in (b"", b"x", TOKEN[:-1], b"8 OCTETS" + bytes(100), bytes(3000)):
            stranger.send(octets)
        assert loop.run_until(lambda: server.tally().counters.rejected == 5)
        stranger.send(TOKEN + bytes(100))  # it knows the token, and yet this is no segment
        assert loop.run_until(lambda: server.tally().counters.rejected == 6)
    with raw_peer(loop, of="server", own_port=0) as elsewhere:
        elsewhere.send(TOKEN + bytes(100))  # the right token from another port: the kernel keeps it away
        assert not loop.run_until(lambda: server.tally().counters.rejected != 6, limit_s=0.05)
    assert loop.ears == type(loop.ears)()
    server.close()


def test_another_runs_token_does_not_connect() -> None:
    loop = Loopback("cubic")
    server = UdpEnd(loop.context("server"))
    client = UdpEnd(loop.context("client", token=b"of other"))
    client.open(loop.clock.now())
    assert loop.run_until(lambda: server.tally().counters.rejected >= 1)
    assert loop.ears.connections == []
    client.close()
    server.close()


@pytest.mark.parametrize("transport", ["quic", "mpquic", "quic-fec", "mpquic-fec"])
def test_a_process_that_knows_token_and_seed_but_not_the_secret_is_refused(transport: str) -> None:
    loop = Loopback(transport)
    server = UdpEnd(loop.context("server"))
    client = UdpEnd(loop.context("client", secret=b"that of another run of this seed"))
    client.open(loop.clock.now())
    assert loop.run_until(lambda: loop.ears.failures)
    assert "certificate is not the pinned one" in loop.ears.failures[0]
    assert loop.ears.connections == []
    client.close()
    server.close()


def test_what_a_connection_begins_with_does_not_follow_from_the_seed() -> None:
    hellos = set()
    for _ in range(2):
        loop = Loopback("quic")
        with raw_peer(loop, of="client") as peer:
            client = UdpEnd(loop.context("client"))
            client.open(loop.clock.now())
            hellos.add(peer.recv(2000)[len(TOKEN) :][6:14])  # RFC 9000 §17.2: the connection identifier is drawn first
            client.close()
    assert len(hellos) == 2


def test_a_datagram_carries_the_token_and_is_counted_with_all_that_the_world_adds() -> None:
    topology = planes(plane(framing_bytes=FRAMING_BYTES), overhead_bytes=OVERHEAD_BYTES)
    loop = Loopback("cubic", topology)
    with raw_peer(loop, of="client") as peer:
        client = UdpEnd(loop.context("client"))
        client.open(loop.clock.now())
        octets = peer.recv(2000)
        assert octets[:8] == TOKEN
        # IPv4 20, UDP 8, then what the socket got
        assert client.tally().wire_bytes == 28 + len(octets) + FRAMING_BYTES + OVERHEAD_BYTES
        client.close()


def test_a_full_packet_of_the_machine_is_a_full_packet_on_the_path() -> None:
    """1500 bytes of path, less Ethernet in IP: what the kernel would have to cut is never sent."""
    with ends("cubic") as (loop, client, server):
        for end in (server, client):
            end.open(loop.clock.now())
        assert loop.run_until(lambda: loop.ears.connections)
        before = client.tally()
        client.send(0, memoryview(bytes(100_000)), loop.clock.now())
        assert loop.run_until(lambda: loop.ears.messages)
        sent = client.tally() - before
        # our TCP's headers are 32 bytes (RFC 9293 and 7323) in IP's and UDP's 28 and the token's 8
        headers = 32 + 28 + 8
        room = loop.topology.path_mtu_bytes("plane0") - headers
        stream = 100_000 + TCP_FRAME_BYTES
        assert sent.counters.packets - sent.counters.repairs == -(-stream // room)
        if not sent.counters.repairs:
            assert sent.wire_bytes == stream + sent.counters.packets * (headers + FRAMING_BYTES + OVERHEAD_BYTES)


@pytest.mark.parametrize("transport", ["quic", "mpquic-fec"])
def test_a_machine_that_counts_udps_header_itself_fills_packets_too(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    send = UdpEnd._send

    def measured(end: UdpEnd, sock: socket.socket, added_bytes: int, datagram: Datagram, now: float) -> None:
        sizes.append(len(TOKEN) + datagram.wire_bytes)
        assert datagram.wire_bytes == 28 + len(bytes(datagram.payload))
        send(end, sock, added_bytes, datagram, now)

    monkeypatch.setattr(UdpEnd, "_send", measured)
    with ends(transport) as (loop, client, server):
        for end in (server, client):
            end.open(loop.clock.now())
        assert loop.run_until(lambda: loop.ears.connections)
        client.send(0, memoryview(bytes(100_000)), loop.clock.now())
        assert loop.run_until(lambda: loop.ears.messages)
        assert max(sizes) == loop.topology.path_mtu_bytes("plane0")
        assert sizes.count(max(sizes)) > 20  # the handshake fills fewer


def test_a_far_end_that_is_not_there_yet_is_waited_for() -> None:
    loop = Loopback("cubic")
    client = UdpEnd(loop.context("client"))
    client.open(loop.clock.now())
    assert not loop.run_until(lambda: loop.ears.failures or loop.ears.connections, limit_s=0.05)
    server = UdpEnd(loop.context("server"))
    server.open(loop.clock.now())
    assert loop.run_until(lambda: loop.ears.connections)
    assert loop.ears.failures == []
    client.close()
    server.close()


def test_a_datagram_that_the_kernel_can_never_send_ends_the_flow_in_a_sentence() -> None:
    loop = Loopback(PLAIN, planes(plane(mtu_bytes=70_000)))  # loopback takes 65,535
    server = UdpEnd(loop.context("server"))
    client = UdpEnd(loop.context("client"))
    for end in (server, client):
        end.open(loop.clock.now())
    assert loop.run_until(lambda: loop.ears.connections)
    client.send(0, memoryview(bytes(70_000)), loop.clock.now())
    name = f"{loop.flow.name}:client"
    assert loop.ears.failures[0] == f"{name}: a datagram cannot be sent: Message too long"
    client.close()
    server.close()


def test_a_path_too_narrow_for_what_udp_adds_is_refused() -> None:
    least = Registry.installed().resolve("quic").min_mtu_bytes
    loop = Loopback("quic", planes(plane(mtu_bytes=least + 7)))  # wide enough in the simulator
    with pytest.raises(
        UnsupportedError, match=rf"^quic over UDP needs packets of {least + 8} bytes; plane0 takes {least + 7}$"
    ):
        UdpEnd(loop.context("client"))
    with ends("quic", mtu_bytes=least + 8 + OVERHEAD_BYTES):
        pass


def test_the_narrowest_allowed_path_works() -> None:
    with ends("cubic", mtu_bytes=MIN_MTU_BYTES + OVERHEAD_BYTES) as (loop, client, server):
        for end in (server, client):
            end.open(loop.clock.now())
        assert loop.run_until(lambda: loop.ears.connections)
        client.send(1, memoryview(bytes(5000)), loop.clock.now())
        assert loop.run_until(lambda: loop.ears.messages == [(1, bytes(5000))])


def test_close_closes_the_sockets() -> None:
    for _ in range(3):
        with ends("cubic") as (loop, _, _):
            assert loop.run_until(lambda: True)
    with ends("cubic") as (loop, client, _):
        port = loop.port
        client.close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
            again.bind((WEST, port + 20_000))
