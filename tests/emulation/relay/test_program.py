"""The relay with real packets: delays, rates and losses as specified, and a correct report."""

import os
import signal
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import pytest

from bicoastal.emulation.base import RunFailedError, UnsupportedError
from bicoastal.emulation.ground.namespaces import TwoCoasts
from bicoastal.emulation.ground.wiring import MIDDLE
from bicoastal.emulation.relay.frames import DscpBursts, TcpBursts, burst_to_tos
from bicoastal.emulation.relay.packet_ring import ring_bytes
from bicoastal.emulation.relay.process import Relays
from bicoastal.wan.loss import LossSpec, NoLoss, TailOfBurst
from bicoastal.wan.recorded_loss import Listed
from bicoastal.wan.schedule import Outage
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

pytestmark = pytest.mark.root

LINK = LinkSpec(name="plane", a="east", b="west", rate_bps=1e8, delay_s=0.02)


def one_path(link: LinkSpec, *, overhead_bytes: int = 0) -> Topology:
    return Topology(
        sites=[Site(name="east"), Site(name="west")],
        links=[link],
        paths=[Path(name="path", sites=("east", "west"), links=("plane",), overhead_bytes=overhead_bytes)],
    )


@contextmanager
def datagram_sockets(coasts: TwoCoasts, path: str = "path") -> Iterator[tuple[socket.socket, socket.socket]]:
    """A socket at either end of a path, connected to each other."""
    east, west = coasts.wiring.ports_of(path)
    with (
        coasts.socket("east", socket.AF_INET, socket.SOCK_DGRAM) as one,
        coasts.socket("west", socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        for each, port in ((one, east), (other, west)):
            each.bind((port.address, 0))
            each.settimeout(2)
        one.connect(other.getsockname())
        other.connect(one.getsockname())
        yield one, other


def received(end: socket.socket, settling_s: float = 0.3) -> list[bytes]:
    """Return all that arrives until nothing has for a while."""
    end.settimeout(settling_s)
    found = []
    while True:
        try:
            found.append(end.recv(65536))
        except TimeoutError:
            return found


def transfer(coasts: TwoCoasts, size: int, *, port: int = 0, path: str = "path") -> float:
    """Carry bytes from east to west over the kernel's TCP; return the seconds it took, connection not included."""
    west = coasts.port("west", path)
    with (
        coasts.socket("west", socket.AF_INET, socket.SOCK_STREAM) as listener,
        coasts.socket("east", socket.AF_INET, socket.SOCK_STREAM) as sender,
    ):
        listener.bind((west.address, port))
        listener.listen()
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        sender.bind((coasts.port("east", path).address, 0))
        sender.settimeout(20)
        sender.connect(listener.getsockname())
        receiver, _ = listener.accept()
        with receiver:
            receiver.settimeout(20)
            sending = threading.Thread(target=sender.sendall, args=(bytes(size),))
            began_s = time.monotonic()
            sending.start()
            left = size
            while left:
                left -= len(receiver.recv(1 << 18))
            sending.join()
            return time.monotonic() - began_s


def test_a_round_trip_takes_what_the_links_say() -> None:
    with TwoCoasts(one_path(LINK)) as coasts, Relays(coasts, seed=1), datagram_sockets(coasts) as (east, west):
        trips = []
        for _ in range(20):
            began_s = time.monotonic()
            east.send(b"ping")
            west.send(west.recv(9))
            east.recv(9)
            trips.append(time.monotonic() - began_s)
    wanted_s = 2 * (0.02 + (4 + 28 + 38) * 8 / 1e8)
    assert all(trip > wanted_s for trip in trips)
    assert sorted(trips)[5] < wanted_s + 2e-3  # the test's own processes take part of it


def test_frames_arrive_whole_and_in_order_up_to_the_mtu() -> None:
    link = replace(LINK, mtu_bytes=9000)
    with (
        TwoCoasts(one_path(link, overhead_bytes=50)) as coasts,
        Relays(coasts, seed=1),
        datagram_sockets(coasts) as (east, west),
    ):
        sent = [os.urandom(size) for size in (1, 18, 100, 1472, 5000, 8950 - 28)]
        for data in sent:
            east.send(data)
        assert [west.recv(65536) for _ in sent] == sent


@pytest.mark.parametrize(
    ("loss", "arriving"),
    [(NoLoss(), range(10)), (Listed(indices=(0, 3, 9)), (1, 2, 4, 5, 6, 7, 8))],
    ids=["none", "listed"],
)
def test_exactly_what_the_link_loses_is_missing(loss: LossSpec, arriving: range | tuple[int, ...]) -> None:
    with (
        TwoCoasts(one_path(replace(LINK, loss=loss, loss_back=NoLoss()))) as coasts,
        Relays(coasts, seed=1) as relays,
        datagram_sockets(coasts) as (east, west),
    ):
        for number in range(10):
            east.send(bytes([number]))
            west.send(bytes([number]))
        assert [data[0] for data in received(west)] == list(arriving)
        assert [data[0] for data in received(east)] == list(range(10))
        forth, back = relays.report().links
        assert (forth.packets, forth.lost, back.lost) == (10, 10 - len(arriving), 0)


def test_a_corrupt_frame_fails_its_checksum_and_is_dropped_by_the_receiver() -> None:
    with (
        TwoCoasts(one_path(replace(LINK, corrupt=1.0))) as coasts,
        Relays(coasts, seed=1) as relays,
        datagram_sockets(coasts) as (east, west),
    ):
        for _ in range(10):
            east.send(bytes(100))
        assert received(west) == []
        assert relays.report().links[0].corrupted == 10


def test_the_tail_of_our_own_bursts_is_recognised_by_its_marks() -> None:
    topology = one_path(replace(LINK, loss=TailOfBurst(packets=2)))
    with (
        TwoCoasts(topology) as coasts,
        Relays(coasts, seed=1, bursts={"path": DscpBursts()}),
        datagram_sockets(coasts) as (east, west),
    ):
        for number in range(5):
            tos = struct.pack("i", burst_to_tos(4 - number, 0))
            east.sendmsg([bytes([number])], [(socket.IPPROTO_IP, socket.IP_TOS, tos)])
        assert [data[0] for data in received(west)] == [0, 1, 2]


def test_the_tail_of_a_tcp_burst_is_lost_once_and_repaired() -> None:
    topology = one_path(replace(LINK, loss=TailOfBurst(packets=1)))
    bursts = {"path": TcpBursts(port=5001, burst_bytes=(200_000,))}
    with TwoCoasts(topology) as coasts, Relays(coasts, seed=1, bursts=bursts) as relays:
        transfer(coasts, 200_000, port=5001)
        assert relays.report().links[0].lost == 1


def test_kernel_tcp_fills_the_link() -> None:
    with TwoCoasts(one_path(LINK)) as coasts, Relays(coasts, seed=1) as relays:
        took_s = transfer(coasts, 10_000_000)
        report = relays.report()
    # RFC 6928's ten segments double every RTT of 40 ms until 500 kB are in flight: some 6 RTT before the link is full
    bound_s = 0.02 + 10_000_000 * (1448 + 52 + 38) / 1448 * 8 / 1e8
    assert bound_s < took_s < bound_s + 0.4
    assert report.lateness.count > 6900
    assert (report.ring_dropped, report.unsent) == (0, 0)
    assert {link.direction for link in report.links} == {"east>west", "west>east"}


def test_every_path_has_its_own_links() -> None:
    topology = Topology(
        sites=[Site(name="east"), Site(name="west")],
        links=[replace(LINK, name=f"l{number}", delay_s=0.01 * (number + 1)) for number in range(3)],
        paths=[Path(name=f"p{number}", sites=("east", "west"), links=(f"l{number}",)) for number in range(3)],
    )
    with TwoCoasts(topology) as coasts, Relays(coasts, seed=1) as relays:
        for number in range(3):
            with datagram_sockets(coasts, f"p{number}") as (east, west):
                trips = []
                for _ in range(10):
                    began_s = time.monotonic()
                    east.send(b"?")
                    west.recv(1)
                    trips.append(time.monotonic() - began_s)
            assert 0.01 * (number + 1) < min(trips) < 0.01 * (number + 1) + 5e-3
        counts = {(link.link, link.direction): link.packets for link in relays.report().links}
    assert counts == {(f"l{n}", way): 10 * (way == "east>west") for n in range(3) for way in ("east>west", "west>east")}


def test_many_paths_share_the_memory_and_lose_nothing_for_it() -> None:
    """With 32 paths a ring has 2048 slots, so that it is filled more than once here, and begun again."""
    topology = Topology(
        sites=[Site(name="east"), Site(name="west")],
        links=[replace(LINK, name=f"l{number}", delay_s=5e-3) for number in range(32)],
        paths=[Path(name=f"p{number}", sites=("east", "west"), links=(f"l{number}",)) for number in range(32)],
    )
    with TwoCoasts(topology) as coasts, Relays(coasts, seed=1) as relays, datagram_sockets(coasts, "p31") as ends:
        east, west = ends
        for first in range(0, 5000, 50):
            for number in range(first, first + 50):
                east.send(number.to_bytes(2, "big"))
            assert [int.from_bytes(west.recv(9), "big") for _ in range(50)] == list(range(first, first + 50))
        assert relays.report().ring_dropped == 0


@pytest.mark.parametrize(("count", "mebibytes"), [(1, 16), (8, 16), (16, 16), (17, 8), (64, 4), (200, 1), (20_000, 1)])
def test_rings_have_a_size_that_all_of_them_can_have(count: int, mebibytes: int) -> None:
    assert ring_bytes(count) == mebibytes << 20


def test_what_happens_in_an_iteration_happens_when_it_begins() -> None:
    link = replace(LINK, events=(Outage(at_s=0.0, duration_s=60.0, iteration=2),))
    epoch_s = time.monotonic()
    with (
        TwoCoasts(one_path(link)) as coasts,
        Relays(coasts, seed=1, epoch_s=epoch_s) as relays,
        datagram_sockets(coasts) as (east, west),
    ):
        east.send(b"before")
        assert west.recv(9) == b"before"
        relays.begin_iteration(2, time.monotonic() - epoch_s)
        assert relays.report().links[0].dropped_outage == 0
        east.send(b"during")
        assert received(west) == []
        relays.restart(seed=1, epoch_s=time.monotonic(), calm=True)
        assert relays.report().links[0].packets == 0
        east.send(b"after")
        assert west.recv(9) == b"after"


def test_queues_are_sampled_when_asked_for() -> None:
    with (
        TwoCoasts(one_path(replace(LINK, rate_bps=1e6, queue_bytes=100_000))) as coasts,
        Relays(coasts, seed=1, sample_interval_s=0.01) as relays,
        datagram_sockets(coasts) as (east, west),
    ):
        for _ in range(20):
            east.send(bytes(1000))
        assert len(received(west)) == 20
        queues = [sample for sample in relays.report().queues if sample.direction == "east>west"]
    assert max(sample.backlog_bytes for sample in queues) > 10_000
    assert queues[-1].backlog_bytes == 0
    assert all(later.at_s > earlier.at_s for earlier, later in pairwise(queues))


def test_a_relay_that_dies_is_a_failed_run() -> None:
    with TwoCoasts(one_path(LINK)) as coasts, Relays(coasts, seed=1) as relays:
        for pid in relays.pids:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(RunFailedError, match=r"^the relay (has died|is gone)"):
            deque((relays.report() for _ in range(1000)), maxlen=0)  # it may still answer while it dies


def test_a_relay_without_interfaces_is_refused_in_one_sentence() -> None:
    with TwoCoasts(one_path(LINK)) as coasts:
        coasts.namespaces.run(MIDDLE, ["ip", "link", "del", coasts.port("east", "path").middle_device])
        with pytest.raises(UnsupportedError, match=r"^the relay cannot take its interfaces: No such device$"):
            Relays(coasts, seed=1)


@pytest.mark.slow
def test_half_a_gigabit_of_tcp_passes_and_half_of_that_on_time() -> None:
    with TwoCoasts(one_path(replace(LINK, rate_bps=2e9, delay_s=2e-3))) as coasts, Relays(coasts, seed=1):
        assert 250_000_000 * 8 / transfer(coasts, 250_000_000) > 500e6
    reports = []
    for _ in range(3):  # somebody else's work may disturb one of them
        with (
            TwoCoasts(one_path(replace(LINK, rate_bps=250e6, delay_s=0.03))) as coasts,
            Relays(coasts, seed=1) as relays,
        ):
            transfer(coasts, 80_000_000)
            reports.append(relays.report())
    assert min(report.lateness.p99_s for report in reports) < 0.5e-3
    assert () in [report.troubles() for report in reports]
