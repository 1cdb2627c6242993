"""Ends of flows on the loopback interface, both in this process, and who hears of them."""

import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from bicoastal.emulation.driver import APPLICATION, Driver
from bicoastal.emulation.ends.flow_end import EndContext
from bicoastal.emulation.processes.coordination import PathEnd
from bicoastal.emulation.realtime.real_clock import RealClock
from bicoastal.emulation.traffic.flows import Flow, plan_flows
from bicoastal.transports.events import Buffer
from bicoastal.transports.registry import Registry
from bicoastal.wan.topology import Topology
from helpers.small_runs import job, plane, planes, run_spec

WEST, EAST = "127.0.0.1", "127.0.0.2"
TOKEN, SECRET = b"8 octets", b"that the ends of one run share"


@dataclass
class Ears:
    """A listener that remembers."""

    connections: list[str] = field(default_factory=list)
    messages: list[tuple[int, bytes]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def connected(self, flow: str, now: float) -> None:
        self.connections.append(flow)

    def delivered(self, flow: str, message_id: int, data: Buffer, now: float) -> None:
        self.messages.append((message_id, bytes(data)))

    def failed(self, reason: str) -> None:
        self.failures.append(reason)

    def noticed(self, source: str, kind: str, detail: str, now: float) -> None:
        self.notices.append(kind)


class Loopback:
    """Contexts for the ends of the flow from west, 127.0.0.1, to east, 127.0.0.2, and the loop that drives them."""

    def __init__(self, transport: str, topology: Topology | None = None) -> None:
        self.topology = topology or planes(plane())
        self.flow: Flow = plan_flows(
            run_spec(self.topology, job(transport, paths=tuple(self.topology.paths))), Registry.installed()
        )[0]
        self.clock = RealClock()
        self.driver = Driver(self.clock)
        self.ears = Ears()
        self.port = free_port()

    def context(self, role: Literal["client", "server"], *, token: bytes = TOKEN, secret: bytes = SECRET) -> EndContext:
        here, there = (WEST, EAST) if role == "client" else (EAST, WEST)
        return EndContext(
            flow=self.flow,
            role=role,
            topology=self.topology,
            ends=[
                PathEnd(path=path, address=here, peer_address=there, device="lo", table="local")
                for path in self.flow.paths
            ],
            port=self.port,
            token=token,
            secret=secret,
            seed=1,
            marks_bursts=False,
            driver=self.driver,
            clock=self.clock,
            listener=self.ears,
        )

    def run_until(self, true: Callable[[], object], *, limit_s: float = 20.0) -> bool:
        """Drive the ends until something is true; say whether it has become so."""
        until_s = self.clock.now() + limit_s
        found = False

        def look(_: object, now: float) -> None:
            nonlocal found
            found = bool(true())
            if found or now > until_s:
                self.driver.stop()
            else:
                self.driver.at(now + 0.001, APPLICATION, look, None)

        self.driver._stopped = False
        self.driver.at(self.clock.now(), APPLICATION, look, None)
        self.driver.run()
        return found


def free_port() -> int:
    """Return a port that is free at both addresses, as is the one 20,000 above it, for TCP and UDP."""
    while True:
        with socket.create_server((EAST, 0)) as tried:
            port: int = tried.getsockname()[1] % 20_000 + 20_000
        try:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                for address in (WEST, EAST):
                    for number in (port, port + 20_000):
                        with socket.socket(socket.AF_INET, kind) as one:
                            one.bind((address, number))
        except OSError:
            continue
        return port
