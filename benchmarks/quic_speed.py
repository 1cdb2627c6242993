"""How much CPU QUIC takes per data packet, both ends together: aioquic as it comes, and as the transports use it.

    python benchmarks/quic_speed.py [--mtu 1500] [--profile]

One message crosses a lossless path of 60 ms in virtual time. Nothing else is simulated, so that the figures are those
of the two endpoints and a queue of datagrams. The rows below the first two show growth, with the length of the message
and with the number of paths. On a shared machine only ratios within one run mean much.
"""

import argparse
import cProfile
import pstats
import ssl
import time
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import HandshakeCompleted, StreamDataReceived

from bicoastal.transports.base import Datagram, Endpoint, EndpointContext, PathView
from bicoastal.transports.events import Buffer, Connected, Event, MessageReceived
from bicoastal.transports.quic.credentials import public_credentials
from bicoastal.transports.registry import Registry
from bicoastal.wan.flow_id import FlowId

ONE_WAY_S = 0.030
SLACK_S = 1e-6  # aioquic's loss timer is set and tested with different rounding, and spins in virtual time


class Stock(Endpoint):
    """aioquic's connection under the same verbs, configured for bulk: CUBIC, large windows, AES-GCM."""

    def __init__(self, *, is_client: bool, mtu_bytes: int) -> None:
        credentials = public_credentials()
        self._configuration = QuicConfiguration(
            is_client=is_client,
            certificate=credentials.certificate,
            private_key=credentials.private_key,
            congestion_control_algorithm="cubic",
            max_data=1 << 32,
            max_stream_data=1 << 32,
            max_datagram_size=mtu_bytes - 28,
            verify_mode=ssl.CERT_NONE,
        )
        self._connection: QuicConnection | None = None
        if is_client:
            self._connection = QuicConnection(configuration=self._configuration)
            self._connection.connect("peer", now=0.0)
        self._received = bytearray()

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        """Take a datagram; the first one makes the server's connection."""
        if self._connection is None:
            length = datagram.payload[5]
            self._connection = QuicConnection(
                configuration=self._configuration,
                original_destination_connection_id=datagram.payload[6 : 6 + length],
            )
        self._connection.receive_datagram(datagram.payload, "peer", now)

    def datagrams_to_send(self, now: float) -> list[Datagram]:
        """Return what aioquic wants to send."""
        if self._connection is None:
            return []
        return [Datagram(0, data, 28 + len(data), now) for data, _ in self._connection.datagrams_to_send(now)]

    def get_timer(self) -> float | None:
        """Return aioquic's timer."""
        if self._connection is None:
            return None
        timer = self._connection.get_timer()
        return None if timer is None else timer + SLACK_S

    def handle_timer(self, now: float) -> None:
        """Pass the timer on."""
        if self._connection is not None:
            self._connection.handle_timer(now)

    def next_event(self) -> Event | None:
        """Return what the harness waits for."""
        while self._connection is not None and (event := self._connection.next_event()) is not None:
            if isinstance(event, HandshakeCompleted):
                return Connected()
            if isinstance(event, StreamDataReceived):
                self._received += event.data
                if event.end_stream:
                    return MessageReceived(message_id=1, data=self._received)
        return None

    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        """Send on stream 2."""
        if self._connection is None:
            raise RuntimeError("not connected")
        self._connection.send_stream_data(2, bytes(data), end_stream=True)


def stock(mtu_bytes: int, paths: int) -> tuple[Endpoint, Endpoint]:
    return Stock(is_client=True, mtu_bytes=mtu_bytes), Stock(is_client=False, mtu_bytes=mtu_bytes)


def transport(name: str) -> Callable[[int, int], tuple[Endpoint, Endpoint]]:
    spec = Registry.installed().resolve(name)

    make_endpoint = spec.make_endpoint
    assert make_endpoint is not None

    def make(mtu_bytes: int, paths: int) -> tuple[Endpoint, Endpoint]:
        views = tuple(PathView(path_id=i, name=f"path{i}", mtu_bytes=mtu_bytes) for i in range(paths))
        client, server = (
            make_endpoint(
                EndpointContext(
                    role=role,
                    flow=FlowId(
                        owner="speed", source="west", destination="east", paths=tuple(view.name for view in views)
                    ),
                    paths=views,
                    rng=Random(role),
                    parameters=spec.make_parameters({}),
                )
            )
            for role in ("client", "server")
        )
        return client, server

    return make


def carry(client: Endpoint, server: Endpoint, message: bytes) -> tuple[float, int, float]:
    """Carry a message; return (CPU seconds from the offer on, data packets, seconds of virtual time)."""
    heap: list[tuple[float, int, Endpoint, Datagram | None]] = []
    number = count().__next__
    armed: dict[int, float] = {}
    data_packets = 0
    offered_s = offered_cpu_s = 0.0

    def pump(machine: Endpoint, now: float) -> bool:
        nonlocal data_packets, offered_s, offered_cpu_s
        other = server if machine is client else client
        for datagram in machine.datagrams_to_send(now):
            data_packets += machine is client and datagram.wire_bytes > 1000
            heappush(heap, (max(now, datagram.depart_at) + ONE_WAY_S, number(), other, datagram))
        while (event := machine.next_event()) is not None:
            if isinstance(event, Connected) and machine is client:
                data_packets, offered_s, offered_cpu_s = 0, now, time.process_time()
                machine.send_message(1, message, now)
                pump(machine, now)
            elif isinstance(event, MessageReceived):
                if event.data != message:
                    raise SystemExit("the message has changed on its way")
                return True
        timer = machine.get_timer()
        if timer is not None and max(timer, now) < armed.get(id(machine), float("inf")):
            armed[id(machine)] = max(timer, now)
            heappush(heap, (armed[id(machine)], number(), machine, None))
        return False

    pump(client, 0.0)
    while True:
        now, _, machine, datagram = heappop(heap)
        if datagram is not None:
            machine.receive_datagram(datagram, now)
        elif armed.get(id(machine)) != now:
            continue  # an earlier timer has taken its place
        else:
            del armed[id(machine)]
            timer = machine.get_timer()
            if timer is not None and timer <= now:
                machine.handle_timer(now)
        if pump(machine, now):
            return time.process_time() - offered_cpu_s, data_packets, now - offered_s


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--profile", action="store_true", help="show where quic spends its time, and nothing else")
    mtu_bytes = parser.parse_args().mtu
    if parser.parse_args().profile:
        with cProfile.Profile() as profile:
            carry(*transport("quic")(mtu_bytes, 1), Random(1).randbytes(20_000_000))
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
        return
    print(f"{'run':<40}{'CPU s':>8}{'packets':>9}{'us/packet':>11}{'virtual s':>11}")

    def row(name: str, make: Callable[[int, int], tuple[Endpoint, Endpoint]], size: int, paths: int, mtu: int) -> float:
        cpu_s, packets, took_s = carry(*make(mtu, paths), Random(1).randbytes(size))
        each = 1e6 * cpu_s / packets
        print(f"{name:<40}{cpu_s:>8.2f}{packets:>9}{each:>11.1f}{took_s:>11.3f}", flush=True)
        return each

    for mtu in (mtu_bytes, 9000):
        before = row(f"aioquic, 20 MB, MTU {mtu}", stock, 20_000_000, 1, mtu)
        after = row(f"quic, 20 MB, MTU {mtu}", transport("quic"), 20_000_000, 1, mtu)
        print(f"{'':<40}{after / before:>8.2f} times aioquic's cost")
    for size in (5, 20, 80):
        row(f"quic, {size} MB, MTU {mtu_bytes}", transport("quic"), size * 1_000_000, 1, mtu_bytes)
    for size in (5, 80):
        row(f"mpquic-fec, {size} MB, 4 paths, MTU {mtu_bytes}", transport("mpquic-fec"), size * 1_000_000, 4, mtu_bytes)
    for name in ("mpquic", "mpquic-fec"):
        for paths in (1, 2, 4, 8):
            row(f"{name}, 20 MB, {paths} paths, MTU {mtu_bytes}", transport(name), 20_000_000, paths, mtu_bytes)


if __name__ == "__main__":
    main()
