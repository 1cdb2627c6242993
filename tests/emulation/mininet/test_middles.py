"""The same run through the relay, through netem, and through netem on Mininet, on one machine. In the guest:
`make test-vm`.
"""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import sqrt
from statistics import median

import pytest

from bicoastal.emulation.base import Backend, RunSpec
from bicoastal.emulation.ground.coasts import Coasts
from bicoastal.emulation.ground.namespaces import TwoCoasts
from bicoastal.emulation.ground.wiring import CoastOptions
from bicoastal.emulation.mininet.backend import MininetBackend
from bicoastal.emulation.mininet.coasts import MininetCoasts
from bicoastal.emulation.real import netem
from bicoastal.emulation.real.netns import NetnsBackend
from bicoastal.transports.registry import Registry
from bicoastal.wan.loss import Bernoulli
from bicoastal.wan.topology import Topology
from helpers.small_runs import job, plane, planes, run_spec, simulate

pytestmark = [
    pytest.mark.vm,
    pytest.mark.filterwarnings("ignore:The distutils package is deprecated:DeprecationWarning"),  # Mininet's
]
RATE_BPS, DELAY_S = 4e6, 0.030  # what an emulated processor keeps up with
QUEUE_BYTES = 120_000  # twice a burst: nothing overflows


def backends() -> Mapping[str, Backend]:
    registry = Registry.installed()
    return {
        "relay": NetnsBackend(registry),
        "netem": NetnsBackend(registry, impairment="netem"),
        "mininet": MininetBackend(registry),
    }


def spec_of(transport: str, *, loss: float = 0.0, iterations: int = 5) -> RunSpec:
    """Return a run of bursts of two bandwidth-delay products, in windows that go stale between them."""
    link = plane(rate_bps=RATE_BPS, delay_s=DELAY_S, queue_bytes=QUEUE_BYTES, loss=Bernoulli(probability=loss))
    made = job(transport, shard_bytes=60_000, iterations=iterations, gap_s=0.7, start_s=0.5)
    return run_spec(planes(link), made, time_limit_s=30.0)


def medians_ms(spec: RunSpec, worlds: Mapping[str, Backend]) -> dict[str, float]:
    found = {}
    for name, backend in worlds.items():
        record = backend.run(spec)
        assert record.status != "failed", (name, record.reason)
        assert all(row.verified for row in record.iterations), name
        found[name] = 1e3 * median(row.completion_s for row in record.iterations if row.completion_s is not None)
    return found


@pytest.mark.parametrize("transport", ["reno", "adaptive", "kernel-cubic"])
def test_relay_netem_and_mininet_take_as_long_for_the_same_bursts(transport: str) -> None:
    pytest.importorskip("mininet", reason="Mininet is in the guest: make test-vm")
    spec = spec_of(transport)
    found = medians_ms(spec, backends())
    if not transport.startswith("kernel-"):
        found["sim"] = 1e3 * median(row.completion_s or 0.0 for row in simulate(spec).iterations)
    assert max(found.values()) < 1.10 * min(found.values()), found


def test_a_window_that_queues_takes_the_kernel_as_long_whatever_it_queues_in() -> None:
    """Windows of ten jumbo frames, which leave their host at once. A queue that the sending kernel counted as its own
    would let two of them out at a time, and the far data's acknowledgements past the rest: 154 ms in place of 188.
    """
    pytest.importorskip("mininet", reason="Mininet is in the guest: make test-vm")
    link = plane(rate_bps=25e6, delay_s=DELAY_S, mtu_bytes=9000)
    made = job("kernel-reno", shard_bytes=285_650, iterations=4, gap_s=0.7, start_s=0.5)
    found = medians_ms(run_spec(planes(link), made, time_limit_s=30.0), backends())
    assert max(found.values()) < 1.10 * min(found.values()), found


@contextmanager
def behind_netem(world: str, topology: Topology) -> Iterator[Coasts]:
    if world == "mininet":
        with MininetCoasts(topology, options=CoastOptions(), seed=1) as hosts:
            yield hosts
    else:
        with TwoCoasts(topology, stages=netem.stage_counts(topology)) as coasts:
            netem.apply(coasts, seed=1)
            yield coasts


@pytest.mark.parametrize("world", ["netem", "mininet"])
def test_what_queues_in_the_middle_is_off_its_socket_s_account(world: str) -> None:
    """A sender whose buffer holds two packets sends forty, which take the link 120 ms, without having to wait."""
    pytest.importorskip("mininet", reason="Mininet is in the guest: make test-vm")
    topology = planes(plane(rate_bps=RATE_BPS, delay_s=DELAY_S, queue_bytes=QUEUE_BYTES))
    with (
        behind_netem(world, topology) as coasts,
        coasts.socket("west", socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
        sender.setblocking(False)
        sender.connect((coasts.wiring.port("west", "plane0").peer_address, 9))
        for _ in range(40):
            sender.send(bytes(1400))


def test_relay_and_netem_lose_as_many_packets() -> None:
    """Of the data packets 3 % are lost, and each is repaired once: within four deviations of a binomial."""
    spec = spec_of("reno", loss=0.03, iterations=10)
    found = {}
    for name in ("relay", "netem"):
        record = backends()[name].run(spec)
        assert record.status != "failed", (name, record.reason)
        packets = sum(flow.packets - flow.repairs for flow in record.flows)
        deviations = (sum(flow.repairs for flow in record.flows) - 0.03 * packets) / sqrt(0.03 * 0.97 * packets)
        found[name] = round(deviations, 2)
    assert all(abs(deviations) < 4 for deviations in found.values()), found
