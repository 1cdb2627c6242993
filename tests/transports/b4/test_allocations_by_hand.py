"""Allocations that can be worked out by hand: weights, outages, other ways, and no way at all."""

from dataclasses import replace
from math import inf

import pytest

from bicoastal.transports.b4.allocator import FlowGroup, allocate
from bicoastal.transports.b4.bandwidth import Application
from bicoastal.transports.b4.network import Edge, Network
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

G = 1e9


def test_in_another_round_who_has_another_way_keeps_off_the_bottleneck() -> None:
    # From A to B over C is cheaper than over D, but C-B is all that X has. There is enough for both.
    costs = {"A-C": 1.0, "C-B": 1.0, "A-D": 1.25, "D-B": 1.25, "X-C": 1.0}
    edges = tuple(
        Edge(link=link, tail=link[0], head=link[2], capacity_bps=10 * G, cost=cost) for link, cost in costs.items()
    )
    job = Application(name="job", weight=1, demand_bps=10 * G)
    groups = [FlowGroup(source=source, destination="B", applications=(job,)) for source in "AX"]
    network = Network(sites=tuple("ABCDX"), edges=edges)
    assert [group.rate_bps / G for group in allocate(network, groups).groups] == pytest.approx([10, 5])
    allocation = allocate(network, groups, rounds=2)
    assert [group.rate_bps / G for group in allocation.groups] == pytest.approx([10, 10])
    assert [share.tunnel.links for share in allocation.groups[0].tunnels] == [("A-D", "D-B")]
    assert allocation.groups[1].tunnels[0].tunnel.links == ("X-C", "C-B")


def two_jobs(small_demand_bps: float) -> dict[str, float]:
    network = Network(sites=("A", "B"), edges=(Edge(link="wan", tail="A", head="B", capacity_bps=11 * G),))
    jobs = (
        Application(name="large", weight=10, demand_bps=inf),
        Application(name="small", weight=1, demand_bps=small_demand_bps),
    )
    group = FlowGroup(source="A", destination="B", applications=jobs)
    return allocate(network, [group]).of("A", "B").application_bps


def test_two_jobs_share_a_bottleneck_by_their_weights() -> None:
    assert two_jobs(inf) == pytest.approx({"large": 10 * G, "small": 1 * G})


def test_what_the_smaller_job_leaves_goes_to_the_other() -> None:
    assert two_jobs(0.25 * G) == pytest.approx({"large": 10.75 * G, "small": 0.25 * G})


def planes(count: int) -> Topology:
    return Topology(
        sites=[Site(name="east"), Site(name="west")],
        links=[LinkSpec(name=f"p{n}", a="east", b="west", rate_bps=100 * G, delay_s=0.03) for n in range(count)],
        paths=[Path(name=f"plane-{n}", sites=("east", "west"), links=(f"p{n}",)) for n in range(count)],
    )


def test_after_an_outage_the_surviving_planes_carry_the_traffic() -> None:
    network = Network.from_topology(planes(4))
    job = Application(name="job", weight=1, demand_bps=350 * G)
    groups = [FlowGroup(source=a, destination=b, applications=(job,)) for a, b in (("east", "west"), ("west", "east"))]
    before = allocate(network, groups)
    edges = tuple(replace(edge, capacity_bps=0.0) if edge.link == "p1" else edge for edge in network.edges)
    after = allocate(replace(network, edges=edges), groups)
    for source, destination in (("east", "west"), ("west", "east")):
        assert before.of(source, destination).rate_bps == pytest.approx(350 * G)
        assert after.of(source, destination).rate_bps == pytest.approx(300 * G)
        assert [share.tunnel.links for share in after.of(source, destination).tunnels] == [("p0",), ("p2",), ("p3",)]


def test_a_group_without_a_way_gets_nothing_and_is_no_error() -> None:
    network = Network(sites=("A", "B"), edges=(Edge(link="x", tail="A", head="B", capacity_bps=0.0),))
    job = Application(name="job", weight=1, demand_bps=G)
    allocation = allocate(network, [FlowGroup(source="A", destination="B", applications=(job,))])
    assert allocation.groups[0].tunnels == ()
    assert allocation.groups[0].fair_share == 0
    assert allocation.groups[0].application_bps == {"job": 0}


def test_with_too_many_tunnels_the_last_and_the_widest_are_kept() -> None:
    gbps = (5, 1, 8, 2, 3)
    edges = tuple(Edge(link=f"p{n}", tail="A", head="B", capacity_bps=rate * G, cost=n) for n, rate in enumerate(gbps))
    job = Application(name="job", weight=1, demand_bps=inf)
    group = FlowGroup(source="A", destination="B", applications=(job,))
    allocation = allocate(Network(sites=("A", "B"), edges=edges), [group], tunnels_per_group=3)
    assert [share.tunnel.name for share in allocation.groups[0].tunnels] == ["p0", "p2", "p4"]
    assert allocation.rate_bps == pytest.approx(16 * G)
