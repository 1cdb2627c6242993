"""Striping and the bound, against arithmetic done by hand."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.emulation.traffic.flows import PathCapacity, message_bound_s, message_id, plan_flows, stripe, trip_of
from bicoastal.transports.registry import Registry
from bicoastal.wan.checks import FieldError
from bicoastal.wan.schedule import RateStep
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
from helpers.small_runs import job, plane, run_spec
from helpers.small_runs import planes as coasts


def planes(*rates_and_delays: tuple[float, float]) -> Topology:
    links = [
        LinkSpec(name=f"plane{i}", a="east", b="west", rate_bps=rate_bps, delay_s=delay_s)
        for i, (rate_bps, delay_s) in enumerate(rates_and_delays)
    ]
    paths = [Path(name=link.name, sites=("east", "west"), links=(link.name,)) for link in links]
    return Topology(sites=(Site(name="east"), Site(name="west")), links=links, paths=paths)


RATES = st.floats(1e3, 1e12)


@given(st.integers(0, 10**9), st.lists(st.tuples(st.floats(0, 1), RATES), min_size=1, max_size=9))
def test_stripes_are_contiguous_and_whole_and_land_together(total: int, ends: list[tuple[float, float]]) -> None:
    capacities = [PathCapacity(*end) for end in ends]
    edges = stripe(total, capacities)
    assert edges[0][0] == 0
    assert edges[-1][1] == total
    assert all(left[1] == right[0] for left, right in pairwise(edges))
    topology = planes(*((rate_bps, delay_s) for delay_s, rate_bps in ends))
    bound_s = message_bound_s(topology, list(topology.paths), total)
    for (start, stop), capacity in zip(edges, capacities, strict=True):
        lands_s = capacity.delay_s + 8 * (stop - start) / capacity.rate_bps
        one_byte_s = 8 / capacity.rate_bps
        if stop > start:
            assert lands_s == pytest.approx(bound_s, rel=1e-6, abs=2 * one_byte_s)
        else:
            assert lands_s >= bound_s - 2 * one_byte_s - 1e-6 * bound_s


@given(st.integers(0, 10**9), st.lists(RATES, min_size=1, max_size=9))
def test_over_equal_delays_stripes_are_proportional_to_the_rates(total: int, rates: list[float]) -> None:
    for (start, stop), rate_bps in zip(stripe(total, [PathCapacity(0.03, rate) for rate in rates]), rates, strict=True):
        assert abs((stop - start) - total * rate_bps / sum(rates)) <= 1 + 1e-6 * total


@given(st.integers(0, 2**40), st.integers(0, 255))
def test_message_identifiers_tell_iteration_and_trip(iteration: int, trip: int) -> None:
    assert trip_of(message_id(iteration, trip)) == (iteration, trip)


def test_the_bound_of_equal_planes_is_propagation_plus_a_quarter_of_the_serialisation() -> None:
    topology = planes(*[(5e9, 0.030)] * 4)
    # 57.13 MB over 4 planes of 5 Gbit/s: 30 ms + 22.852 ms
    assert message_bound_s(topology, list(topology.paths), 57_130_000) == pytest.approx(0.052852, abs=1e-9)


def test_a_plane_with_a_long_delay_adds_nothing() -> None:
    topology = planes((1e9, 0.010), (1e9, 1.0))
    assert message_bound_s(topology, list(topology.paths), 1_000_000) == pytest.approx(0.018)


def test_unequal_planes_share_so_that_all_end_together() -> None:
    # T = (8 B + r1 d1 + r2 d2) / (r1 + r2) = (8e6 + 1e7 + 6e7) / 3e9
    topology = planes((1e9, 0.010), (2e9, 0.030))
    assert message_bound_s(topology, list(topology.paths), 10_000_000) == pytest.approx((8e7 + 1e7 + 6e7) / 3e9)


def test_the_bound_is_that_of_the_highest_rate_that_capacity_steps_bring() -> None:
    step = RateStep(at_s=0.0, rate_bps=4e9, iteration=5)
    link = LinkSpec(name="plane", a="east", b="west", rate_bps=1e9, delay_s=0.010, events=(step,))
    topology = Topology(
        sites=(Site(name="east"), Site(name="west")),
        links=[link],
        paths=[Path(name="plane", sites=("east", "west"), links=("plane",))],
    )
    assert message_bound_s(topology, ["plane"], 1_000_000) == pytest.approx(0.012)


def test_two_flows_with_one_label_are_refused() -> None:
    topology = coasts(plane("x"), plane("y/west>east/x"))
    one, other = job("reno", name="job/west>east/y", paths=("x",)), job("reno", name="job", paths=("y/west>east/x",))
    plan_flows(run_spec(topology, one), Registry.installed())
    with pytest.raises(FieldError, match="two flows are called 'job/west>east/y/west>east/x'"):
        plan_flows(run_spec(topology, one, other), Registry.installed())
