"""The three toys prove that the interface carries more than TCP: many paths, services, and programs of their own."""

from dataclasses import replace

import pytest

from bicoastal.emulation.base import JobSpec, RunSpec, TransportUse, UnsupportedError
from bicoastal.emulation.records import RunRecord
from bicoastal.emulation.simulator import SimulatorBackend
from bicoastal.transports.registry import Registry
from bicoastal.wan.allreduce import AllReduceSpec
from bicoastal.wan.loss import Bernoulli, LossSpec, NoLoss
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
from helpers.example_frames import OVERHEAD_BYTES
from helpers.example_transports import NATIVE, STEERED, STRIPER

SHARD_BYTES = 500_000
RATE_BPS = 1e8
MTU_BYTES = 1500


def run_spec(transport: str, *, paths: int, delay_s: float = 0.001, loss: LossSpec | None = None) -> RunSpec:
    names = tuple(f"plane{index}" for index in range(paths))
    topology = Topology(
        sites=[Site(name="west"), Site(name="east")],
        links=[
            LinkSpec(
                name=name, a="west", b="east", rate_bps=RATE_BPS, delay_s=delay_s, mtu_bytes=MTU_BYTES,
                queue_bytes=100_000, framing_bytes=0, loss=loss or NoLoss(),
            )
            for name in names
        ],
        paths=[Path(name=name, sites=("west", "east"), links=(name,)) for name in names],
    )  # fmt: skip
    allreduce = AllReduceSpec(sites=("west", "east"), shard_bytes=SHARD_BYTES)
    job = JobSpec(name="job", transport=TransportUse(name=transport), paths=names, allreduce=allreduce, iterations=4)
    return RunSpec(name="toys", topology=topology, jobs=(job,))


def simulate(spec: RunSpec) -> RunRecord:
    return SimulatorBackend(Registry([STRIPER, STEERED, NATIVE])).run(spec)


def test_a_many_path_transport_gets_one_flow_per_direction_and_uses_every_path() -> None:
    record = simulate(run_spec("toy-striper", paths=2))
    assert record.status == "ok"
    assert all(iteration.verified for iteration in record.iterations)
    assert len(record.summaries) == 2
    carried = {(link.link, link.direction): link.bytes for link in record.links}
    assert len(carried) == 4
    total = 4 * 2 * SHARD_BYTES
    assert all(octets > 0.24 * total for octets in carried.values())


def test_two_paths_take_about_half_the_time_of_one() -> None:
    one, two = (
        min(iteration.completion_s or 0.0 for iteration in simulate(run_spec("toy-striper", paths=paths)).iterations)
        for paths in (1, 2)
    )
    assert one > SHARD_BYTES * 8 / RATE_BPS
    assert 0.45 < two / one < 0.65


def test_a_service_sets_the_pace() -> None:
    record = simulate(run_spec("toy-steered", paths=1))
    share_bps = 0.9 * RATE_BPS / 2  # the governor's rule, for one flow in each direction
    assert {notice.detail for notice in record.notices} >= {f"{int(share_bps)} bit/s"}
    packets = -(-SHARD_BYTES // (MTU_BYTES - OVERHEAD_BYTES))
    paced_s = (SHARD_BYTES + packets * OVERHEAD_BYTES) * 8 / share_bps
    for iteration in record.iterations:
        assert iteration.verified
        assert iteration.completion_s is not None
        assert paced_s < iteration.completion_s < 1.1 * paced_s + 0.002


def test_a_service_is_as_far_away_as_its_site() -> None:
    """The governor stands in the west: only the eastern client's request has to cross and come back first."""
    record = simulate(run_spec("toy-steered", paths=1, delay_s=0.03))
    handshakes = {summary.source: summary.handshake_s for summary in record.summaries}
    assert handshakes["west"] == pytest.approx(0.06, rel=0.01)
    assert handshakes["east"] == pytest.approx(0.12, rel=0.01)


def test_a_native_transport_is_unsupported_in_virtual_time() -> None:
    with pytest.raises(UnsupportedError, match=r"^toy-native is a program for real packets"):
        simulate(run_spec("toy-native", paths=1))


@pytest.mark.parametrize(("transport", "paths"), [("toy-striper", 2), ("toy-steered", 1)])
def test_a_run_is_a_function_of_its_seed_and_not_of_the_encoding(transport: str, paths: int) -> None:
    spec = run_spec(transport, paths=paths, loss=Bernoulli(probability=0.01))
    record = simulate(spec)
    assert any(link.lost for link in record.links)
    assert simulate(spec) == record
    assert simulate(replace(spec, eager_encoding=True)) == record
    assert simulate(replace(spec, seed=1)) != replace(record, seed=1)
