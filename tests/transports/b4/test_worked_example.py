"""The worked example of Jain et al., SIGCOMM 2013, §4.2-4.3 and Figure 7: every figure that it prints."""

from math import inf

import pytest

from bicoastal.transports.b4.allocator import Allocation, FlowGroup, allocate
from bicoastal.transports.b4.bandwidth import Application
from bicoastal.transports.b4.network import Edge, Network
from bicoastal.transports.b4.tunnels import cheapest_tunnels

G = 1e9
CAPACITY_GBPS = {"A-B": 10, "A-C": 10, "C-B": 10, "A-D": 5, "D-C": 5}
NETWORK = Network(
    sites=tuple("ABCD"),
    edges=tuple(
        Edge(link=link, tail=link[0], head=link[2], capacity_bps=gbps * G, cost=10 if link == "A-D" else 1)
        for link, gbps in CAPACITY_GBPS.items()
    ),
)


def groups(app1_gbps: float = 15) -> list[FlowGroup]:
    app1 = Application(name="App1", weight=10, demand_bps=app1_gbps * G)
    app2 = Application(name="App2", weight=1, demand_bps=5 * G)
    app3 = Application(name="App3", weight=0.5, demand_bps=10 * G)
    return [
        FlowGroup(source="A", destination="B", applications=(app1, app2)),
        FlowGroup(source="A", destination="C", applications=(app3,)),
    ]


def gbps(allocation: Allocation, destination: str) -> dict[str, float]:
    """Return the rates of one group by tunnel, to the two digits that the paper prints."""
    shares = allocation.of("A", destination).tunnels
    return {"-".join(share.tunnel.sites): round(share.rate_bps / G, 2) for share in shares}


@pytest.fixture(params=["searched", "listed", "in several rounds"])
def exact(request: pytest.FixtureRequest) -> Allocation:
    if request.param == "listed":
        return allocate(NETWORK, groups(), tunnels=cheapest_tunnels(NETWORK, [("A", "B"), ("A", "C")], 4))
    return allocate(NETWORK, groups(), rounds=8 if request.param == "in several rounds" else 1)


def test_the_tunnels_carry_what_the_paper_says(exact: Allocation) -> None:
    assert gbps(exact, "B") == {"A-B": 10.0, "A-C-B": 8.33, "A-D-C-B": 1.67}
    assert gbps(exact, "C") == {"A-C": 1.67, "A-D-C": 3.33}


def test_the_splits_are_the_published_ones(exact: Allocation) -> None:
    first, second = exact.groups
    assert [share.split for share in first.tunnels] == pytest.approx([1 / 2, 5 / 12, 1 / 12], abs=1e-12)
    assert [share.split for share in second.tunnels] == pytest.approx([1 / 3, 2 / 3], abs=1e-12)


def test_the_bottlenecks_are_met_in_the_order_of_the_paper(exact: Allocation) -> None:
    met = [(bottleneck.link, round(bottleneck.fair_share, 3)) for bottleneck in exact.bottlenecks]
    assert met == [("A-B", 0.909), ("A-C", 3.333), ("A-D", 10.0), ("D-C", 10.0)]


def test_the_fair_shares_are_infinite_and_ten(exact: Allocation) -> None:
    assert exact.of("A", "B").fair_share == inf
    assert exact.of("A", "C").fair_share == pytest.approx(10, rel=1e-12)


def test_at_the_first_bottleneck_the_groups_have_ten_and_0_45_gbps() -> None:
    # §4.3: "At a fair share of 0.9, FG1 is allocated 10Gbps and FG2 is allocated 0.45Gbps"
    first, second = (group.function for group in groups())
    assert first.bps_at(10 / 11) == pytest.approx(10 * G)
    assert round(second.bps_at(10 / 11) / G, 2) == 0.45
    assert round((second.bps_at(10 / 3) - second.bps_at(10 / 11)) / G, 2) == 1.21  # printed as 1.22, from 0.45 rounded


def test_quantised_to_halves_the_splits_are_the_published_ones() -> None:
    allocation = allocate(NETWORK, groups(), quantum=0.5)
    first, second = allocation.groups
    assert [share.split for share in first.tunnels] == [0.5, 0.5, 0.0]
    assert [share.split for share in second.tunnels] == [0.0, 1.0]


def test_quantised_fg1_is_satisfied_and_fg2_keeps_its_fair_share_of_ten() -> None:
    allocation = allocate(NETWORK, groups(), quantum=0.5)
    assert gbps(allocation, "B") == {"A-B": 10.0, "A-C-B": 10.0, "A-D-C-B": 0.0}
    assert gbps(allocation, "C") == {"A-C": 0.0, "A-D-C": 5.0}
    assert allocation.of("A", "B").fair_share == inf
    assert allocation.of("A", "C").fair_share == pytest.approx(10, rel=1e-12)


@pytest.mark.parametrize("quantum", [None, 0.5])
def test_when_app1_wants_only_5_gbps_both_groups_take_their_first_tunnel(quantum: float | None) -> None:
    # Figure 7(b): FG1's demand drops to 10 Gbit/s
    allocation = allocate(NETWORK, groups(app1_gbps=5), quantum=quantum)
    assert gbps(allocation, "B") == {"A-B": 10.0}
    assert gbps(allocation, "C") == {"A-C": 10.0}
