"""The demand of a run, calculated by hand, and the ceiling of a given machine."""

import pytest

from bicoastal.emulation.base import RunSpec, UnsupportedError
from bicoastal.emulation.limits.scaled import scaled_run
from bicoastal.emulation.probing.ceiling import Demand, MachineCeiling
from bicoastal.emulation.traffic.flows import plan_flows
from bicoastal.transports.registry import Registry
from bicoastal.wan.topology import Topology
from helpers.small_runs import background, job, plane, planes, run_spec

# 12 Mbit/s and 1500 bytes: 1000 packets per second each way; the other one 3000.
TWO = planes(plane(rate_bps=12e6, mtu_bytes=1500, queue_bytes=90_000), plane("plane1", rate_bps=36e6, mtu_bytes=1500))
BOTH = tuple(TWO.paths)
MACHINE = MachineCeiling(frame_s=10e-6, packet_s=100e-6, processors=4)


def demand(topology: Topology, *parts: object, relays: int = 1, **changes: object) -> Demand:
    spec = run_spec(topology, *parts, **changes)  # type: ignore[arg-type]
    return Demand.of(spec, plan_flows(spec, Registry.installed()), relays=relays)


def test_full_links_are_counted_in_packets_both_directions() -> None:
    assert demand(TWO, job("cubic", paths=BOTH)) == Demand(relayed_per_s=8000.0, own_per_s=8000.0, rate_bps=48e6)


def test_the_kernels_packets_cost_the_relay_alone() -> None:
    assert demand(TWO, job("kernel-cubic", paths=BOTH)) == Demand(relayed_per_s=8000.0, own_per_s=0.0, rate_bps=48e6)


def test_the_relay_with_the_most_decides() -> None:
    assert demand(TWO, job("cubic", paths=BOTH), relays=2).relayed_per_s == 6000.0


def test_an_unused_path_costs_nothing_and_a_shared_one_counts_once() -> None:
    alone = demand(TWO, job("cubic"))
    assert alone == Demand(relayed_per_s=2000.0, own_per_s=2000.0, rate_bps=12e6)
    assert demand(TWO, job("cubic"), job("reno", name="other")) == alone
    assert demand(TWO, job("cubic"), background=(background("kernel-cubic"),)) == alone
    one_way = demand(TWO, job("kernel-cubic"), background=(background("cubic"),))
    assert one_way == Demand(relayed_per_s=2000.0, own_per_s=1000.0, rate_bps=12e6)


def test_a_transport_over_many_paths_fills_them_all() -> None:
    assert demand(TWO, job("kernel-mptcp", paths=BOTH)).relayed_per_s == 8000.0


def test_a_machines_ceilings_are_shares_of_its_processors() -> None:
    assert MACHINE.relays == 1
    # half of a processor, at 10 µs for each frame, of which there are three for two data packets
    assert MACHINE.relayed_per_s == pytest.approx(0.5 / 15e-6)
    # 0.6 of the three processors that the relay leaves, at 100 µs for each packet
    assert MACHINE.own_per_s == pytest.approx(18_000)
    assert MachineCeiling(frame_s=1e-5, packet_s=1e-4, processors=1).own_per_s == pytest.approx(6_000)
    assert MachineCeiling(frame_s=1e-5, packet_s=1e-4, processors=9).relays == 3
    # frames of 9000 octets, both directions
    assert MACHINE.rate_bps == pytest.approx(0.5 / 15e-6 * 72_000 / 2)


def test_a_run_above_the_ceiling_is_refused_with_a_scale_that_fits() -> None:
    small = demand(TWO, job("cubic", paths=BOTH))
    assert MACHINE.least_scale(small) == 1.0
    MACHINE.require(small)
    large = demand(planes(plane(rate_bps=1.2e9, mtu_bytes=1500)), job("cubic"))  # 200,000 packets per second
    assert MACHINE.least_scale(large) == pytest.approx(200_000 / 18_000)
    with pytest.raises(
        UnsupportedError,
        match=r"^1\.2 Gbit/s over all links is more than the 108 Mbit/s that this machine can carry of it: "
        r"divide rates and payloads by 11\.1 or more \(--scale\)$",
    ):
        MACHINE.require(large)
    kernel = demand(planes(plane(rate_bps=1.2e9, mtu_bytes=1500)), job("kernel-cubic"))
    assert MACHINE.least_scale(kernel) == pytest.approx(200_000 * 15e-6 / 0.5)


def whole() -> RunSpec:
    return run_spec(TWO, job(shard_bytes=1_000_003, paths=BOTH, array_bytes=4000), background=(background(),))


def test_a_scaled_run_is_divided_and_records_its_scale() -> None:
    scaled = scaled_run(whole(), 8)
    assert scaled.scale == 8
    assert [link.rate_bps for link in scaled.topology.links.values()] == [1.5e6, 4.5e6]
    allreduce = scaled.jobs[0].allreduce
    assert allreduce.shard_bytes == 125_000  # whole elements of four octets
    assert allreduce.array_bytes == 4000
    assert scaled.background[0].message_bytes == 6250
    assert scaled_run(scaled, 2).scale == 16
    assert MACHINE.least_scale(demand(scaled.topology, job("cubic", paths=BOTH))) == 1.0


def test_a_payload_never_vanishes_and_an_array_never_outgrows_it() -> None:
    tiny = scaled_run(whole(), 1e9)
    assert tiny.background[0].message_bytes == 1
    assert (tiny.jobs[0].allreduce.shard_bytes, tiny.jobs[0].allreduce.array_bytes) == (4, 4)
    halves = run_spec(TWO, job(pattern="reduce-scatter", shard_bytes=1000))
    assert scaled_run(halves, 1e9).jobs[0].allreduce.shard_bytes == 8  # an element for each trip


def test_a_divisor_of_one_changes_nothing_and_an_invalid_one_is_refused() -> None:
    spec = whole()
    assert scaled_run(spec, 1) is spec
    for wrong in (0, -2, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"^divisor: "):
            scaled_run(spec, wrong)
