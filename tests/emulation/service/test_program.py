"""A controller in a separate process: accepted peers, refused peers, and invalid messages."""

import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from bicoastal.emulation.driver import APPLICATION, Driver
from bicoastal.emulation.processes.coordination import ServiceAddress
from bicoastal.emulation.processes.credentials import Credentials, tls_context
from bicoastal.emulation.real.service_hosts import ServiceHosts
from bicoastal.emulation.realtime.real_clock import RealClock
from bicoastal.emulation.records import NoticeRecord
from bicoastal.emulation.service.authority import issue
from bicoastal.emulation.service.control import ControlMessage
from bicoastal.emulation.service.link import ServiceLink
from bicoastal.emulation.service.program import MOST_UNIDENTIFIED
from bicoastal.emulation.service.tls_stream import TlsStream
from bicoastal.emulation.traffic.flows import plan_flows
from bicoastal.transports.b4.messages import AgentState, Grant, PathReport, decode
from bicoastal.transports.base import Datagram
from bicoastal.transports.registry import Registry
from helpers.loopback_coasts import LoopbackGround
from helpers.small_runs import job, plane, planes, run_spec

DELAY_S = 0.1
_LENGTH = struct.Struct("!I")


class Controller:
    """The process, and the addresses that coasts are given."""

    def __init__(self, directory: Path) -> None:
        topology = planes(plane(delay_s=DELAY_S))
        spec = run_spec(topology, job("b4"))
        self.flows = plan_flows(spec, Registry.installed())
        self.hosts = ServiceHosts(spec, self.flows, LoopbackGround(topology, directory))
        self.epoch_s = time.monotonic()
        self.hosts.connect(self.epoch_s)

    @property
    def now(self) -> float:
        """The run's time."""
        return time.monotonic() - self.epoch_s

    def address(self, site: str) -> ServiceAddress:
        (address,) = self.hosts.addresses[site]
        return address

    def finish(self) -> dict[str, list[str]]:
        """End it; return what it has told, by kind."""
        told: dict[str, list[str]] = {}
        for notice in self.hosts.finish():
            assert isinstance(notice, NoticeRecord)
            told.setdefault(notice.kind, []).append(notice.detail)
        return told


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    made = Controller(tmp_path)
    try:
        yield made
    finally:
        made.hosts.close()


class Peer:
    """A blocking end of a stream, as the tests play it."""

    def __init__(self, address: ServiceAddress, context: ssl.SSLContext) -> None:
        plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        plain.settimeout(5)
        plain.connect(address.socket)
        self._tls = context.wrap_socket(plain)

    def send(self, octets: bytes) -> None:
        self._tls.sendall(_LENGTH.pack(len(octets)) + octets)

    def send_raw(self, octets: bytes) -> None:
        self._tls.sendall(octets)

    def say(self, controller: Controller, peer: int, payload: bytes, *, sent_s: float | None = None) -> None:
        now = controller.now if sent_s is None else sent_s
        self.send(bytes(ControlMessage.of(Datagram(-1, payload, 100, now), service=0, peer=peer, now=now)))

    def hear(self, limit_s: float = 5.0) -> bytes:
        """Return the next message, b"" when the other end has closed it or nothing comes."""
        self._tls.settimeout(limit_s)
        try:
            length = self._take(_LENGTH.size)
            return self._take(_LENGTH.unpack(length)[0]) if length else b""
        except (TimeoutError, ssl.SSLError, ConnectionError):
            return b""

    def _take(self, size: int) -> bytes:
        taken = b""
        while len(taken) < size:
            more = self._tls.recv(size - len(taken))
            if not more:
                return b""
            taken += more
        return taken

    def close(self) -> None:
        self._tls.close()


@contextmanager
def peer(address: ServiceAddress, credentials: Credentials | None = None) -> Iterator[Peer]:
    made = Peer(address, tls_context(credentials or address.credentials, server=False))
    try:
        yield made
    finally:
        made.close()


def announcement(flow: str, sequence: int = 1) -> bytes:
    return bytes(
        AgentState(
            flow=flow,
            instance=7,
            sequence=sequence,
            reason="announce",
            demand_bytes=10**6,
            deadline_s=None,
            back=False,
            epoch=0,
            granted=0,
            lease_left_s=0.0,
            paths=(PathReport(name="plane0", up=True, forward_bps=0.0, back_bps=0.0),),
        )
    )


def both_announce(controller: Controller, west: Peer, east: Peer) -> None:
    for number, (flow, each) in enumerate(zip(controller.flows, (west, east), strict=True)):
        each.say(controller, number, announcement(flow.name))


def test_coasts_get_their_grants_when_the_delay_to_the_site_has_passed(controller: Controller) -> None:
    with peer(controller.address("west")) as west, peer(controller.address("east")) as east:
        began_s = controller.now
        both_announce(controller, west, east)
        for number, each in enumerate((west, east)):
            message = ControlMessage.decode(each.hear())
            grant = decode(message.payload)
            assert isinstance(grant, Grant)
            assert (message.service, message.peer, grant.instance) == (0, number, 7)
            assert grant.shares[0].forward_bps > 0
            # the controller stands at west: what east says takes the delay, and it waits until both have spoken
            assert message.sent_s >= began_s + DELAY_S
    told = controller.finish()
    assert len(told["b4-heard"]) == 2
    assert "service-turned-away" not in told


def test_a_coast_may_send_only_for_the_flows_that_begin_at_its_site(controller: Controller) -> None:
    with peer(controller.address("west")) as west:
        west.say(controller, 1, announcement(controller.flows[1].name))  # it is east's
        west.say(controller, 7, announcement("nobody's"))
        west.send(b"short")
        west.say(controller, 0, b"{ no JSON")
        west.say(controller, 0, announcement(controller.flows[0].name), sent_s=controller.now - 60.0)
        assert west.hear(0.5) == b""
        with peer(controller.address("east")) as east:
            both_announce(controller, west, east)
            assert east.hear()
            assert west.hear()
    told = controller.finish()
    assert told["service-rejected"] == ["from west: message: west does not speak for peer 1", "3 messages in all"]
    assert [detail.split(":")[1].strip() for detail in told["b4-rejected"]] == ["message"]
    assert len(told["b4-heard"]) == 2  # nothing of what was said a minute ago


def strangers_context(controller: Controller) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(controller.address("west").credentials.authority)
    return context


def test_a_peer_without_a_certificate_of_the_run_is_refused_and_counted(controller: Controller, tmp_path: Path) -> None:
    address = controller.address("west")
    other = tmp_path / "other"
    other.mkdir()
    foreign = tls_context(next(iter(issue(other, ["bicoastal://site/west"]).values())), server=False)
    foreign.load_verify_locations(address.credentials.authority)
    for context in (strangers_context(controller), strangers_context(controller), foreign):
        stranger = Peer(address, context)  # in TLS 1.3 a client hears only later what is thought of it
        with ExitStack() as stack:
            stack.callback(stranger.close)
            stack.enter_context(suppress(ssl.SSLError))
            stranger.say(controller, 0, announcement(controller.flows[0].name))
            assert stranger.hear() == b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as plain:
        plain.settimeout(5)
        plain.connect(address.socket)
        plain.sendall(announcement(controller.flows[0].name))
        assert b"grant" not in plain.recv(1000)
    told = controller.finish()
    assert "b4-heard" not in told
    counted = {detail for detail in told["service-turned-away"] if "in all" in detail}
    assert sum(int(detail.split()[0]) for detail in counted) == 4
    assert any("PEER_DID_NOT_RETURN_A_CERTIFICATE" in detail and detail.startswith("2 in all") for detail in counted)
    assert any("CERTIFICATE_VERIFY_FAILED" in detail for detail in counted)


def test_silent_connections_do_not_displace_a_coast(controller: Controller) -> None:
    address = controller.address("west")
    with ExitStack() as stack:
        for _ in range(MOST_UNIDENTIFIED + 8):
            silent = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            silent.connect(address.socket)
        deadline_s = time.monotonic() + 30
        heard = b""
        while not heard and time.monotonic() < deadline_s:  # until the process has lost its patience with them
            try:
                with peer(address) as west, peer(controller.address("east")) as east:
                    both_announce(controller, west, east)
                    heard = west.hear(1.0)
            except (ssl.SSLError, OSError):
                time.sleep(0.2)
        assert heard
    counted = [detail for detail in controller.finish()["service-turned-away"] if "in all" in detail]
    assert any("too many at once" in detail for detail in counted)
    assert f"{MOST_UNIDENTIFIED} in all: it does not say who it is" in counted


def test_a_message_that_is_too_long_closes_only_its_own_stream(controller: Controller) -> None:
    with peer(controller.address("west")) as west:
        west.send_raw(_LENGTH.pack(2**31) + bytes(1000))
        assert west.hear() == b""
    with peer(controller.address("west")) as west, peer(controller.address("east")) as east:
        both_announce(controller, west, east)
        assert west.hear()


def test_the_last_stream_of_a_coast_counts(controller: Controller) -> None:
    west, east = controller.address("west"), controller.address("east")
    with peer(west) as before, peer(east) as other, peer(west) as after:
        both_announce(controller, after, other)
        assert after.hear()
        assert before.hear() == b""


def test_credentials_of_a_coast_are_not_a_services(controller: Controller) -> None:
    """Who takes the service's place at its socket, with a coast's certificate, is not believed."""
    west, east = controller.address("west"), controller.address("east")
    path = f"{west.socket}-impostor"
    clock = RealClock()
    driver = Driver(clock)
    told: list[tuple[str, str]] = []
    link = ServiceLink(
        ServiceAddress(transport="b4", sites=west.sites, socket=path, credentials=west.credentials),
        "west",
        controller.flows,
        planes(plane()),
        driver=driver,
        clock=clock,
        noticed=lambda source, kind, detail, now: told.append((kind, detail)),
    )
    routes = link.join(controller.flows[0].name, lambda datagram, now: told.append(("heard", "")))
    assert set(routes) == {-1}
    received: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()
        streams: list[TlsStream] = []

        def accept(now: float) -> None:
            end, _ = listener.accept()
            streams.append(
                TlsStream(
                    end,
                    tls_context(east.credentials, server=True),
                    clock,
                    server=True,
                    on_open=lambda certificate: None,
                    on_message=lambda octets, at: received.append(octets),
                    on_closed=lambda why: None,
                )
            )
            streams[-1].start()

        clock.on_readable(listener.fileno(), accept)
        routes[-1](Datagram(-1, b"a secret", 100, 0.0), clock.now())
        link.open(clock.now())
        driver.at(clock.now() + 0.5, APPLICATION, lambda _, now: driver.stop(), None)
        driver.run()
        link.close()
        for stream in streams:
            stream.close()
    assert told == [("service-lost", "who listens is not the service")]
    assert streams
    assert received == []
