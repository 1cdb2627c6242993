"""The allocator against linear programs, exact filling and an exact greedy search, on any network."""

from collections.abc import Sequence
from fractions import Fraction
from math import fsum, inf

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bicoastal.transports.b4.allocator import Allocation, FlowGroup, TunnelGroup, allocate
from bicoastal.transports.b4.bandwidth import Application
from bicoastal.transports.b4.network import Edge, Network
from bicoastal.transports.b4.tunnels import cheapest_tunnels, route_of
from helpers.reference_allocator import (
    Appetite,
    fill_exactly,
    max_min,
    most_throughput,
    quantise_exactly,
    routing_anywhere,
    routing_on_paths,
    simple_paths,
)

G = 1e9
SITES = "ABCDE"
PAIRS = [(a, b) for a in SITES for b in SITES if a != b]
WEIGHTS = (0.5, 1, 2, 10)


@st.composite
def networks(draw: st.DrawFn, capacities: st.SearchStrategy[float] = st.integers(0, 20)) -> Network:  # noqa: B008
    edges = draw(st.lists(st.tuples(st.sampled_from(PAIRS), capacities, st.integers(1, 5)), min_size=3, max_size=12))
    return Network(
        sites=tuple(SITES),
        edges=tuple(
            Edge(link=f"l{index}", tail=tail, head=head, capacity_bps=capacity * G, cost=cost)
            for index, ((tail, head), capacity, cost) in enumerate(edges)
        ),
    )


@st.composite
def traffic(draw: st.DrawFn, demands: st.SearchStrategy[float] = st.integers(0, 30)) -> list[FlowGroup]:  # noqa: B008
    wants = st.lists(st.tuples(st.sampled_from(WEIGHTS), demands), min_size=1, max_size=2)
    pairs = draw(st.lists(st.sampled_from(PAIRS), min_size=1, max_size=6, unique=True))
    return [
        FlowGroup(
            source=source,
            destination=destination,
            applications=tuple(
                Application(name=str(index), weight=weight, demand_bps=demand * G)
                for index, (weight, demand) in enumerate(draw(wants))
            ),
        )
        for source, destination in pairs
    ]


def edges_of(network: Network) -> list[tuple[str, str, int]]:
    return [(edge.tail, edge.head, int(edge.cost)) for edge in network.edges]


def paths_of(network: Network, groups: Sequence[FlowGroup], count: int | None = None) -> list[list[tuple[int, ...]]]:
    """Return the open paths of each group, cheapest first, by brute force."""
    return [
        [
            path
            for path in simple_paths(edges_of(network), group.source, group.destination)
            if all(network.edges[index].capacity_bps for index in path)
        ][:count]
        for group in groups
    ]


def fractions(groups: Sequence[FlowGroup]) -> list[list[tuple[Fraction, Fraction]]]:
    return [
        [(Fraction(each.weight), Fraction(round(each.demand_bps / G))) for each in group.applications]
        for group in groups
    ]


def capacities(network: Network) -> list[Fraction]:
    return [Fraction(round(edge.capacity_bps / G)) for edge in network.edges]


def carried(network: Network, group: TunnelGroup) -> dict[tuple[int, ...], float]:
    return {route_of(network, share.tunnel): share.rate_bps / G for share in group.tunnels}


def check_feasible(network: Network, allocation: Allocation) -> None:
    """Check, to the bit, that no edge carries more than its capacity."""
    crossing: list[list[float]] = [[] for _ in network.edges]
    for group in allocation.groups:
        for share in group.tunnels:
            assert share.rate_bps >= 0
            assert share.tunnel.pair == (group.group.source, group.group.destination)
            for index in route_of(network, share.tunnel):
                crossing[index].append(share.rate_bps)
    for edge, rates in zip(network.edges, crossing, strict=True):
        assert fsum(rates) <= edge.capacity_bps
        assert allocation.load_bps(edge.link, edge.tail) == fsum(rates)


@settings(max_examples=150)
@given(networks(), traffic())
def test_with_one_tunnel_a_group_it_is_the_max_min_solution_of_a_linear_program(
    network: Network, groups: list[FlowGroup]
) -> None:
    allocation = allocate(network, groups, tunnels_per_group=1)
    paths = paths_of(network, groups, 1)
    appetites = [
        Appetite(commodity=index, weight=each.weight, demand=each.demand_bps / G)
        for index, group in enumerate(groups)
        if paths[index]
        for each in group.applications
    ]
    assume(appetites)
    found = [
        rate / G
        for index, group in enumerate(allocation.groups)
        if paths[index]
        for rate in group.application_bps.values()
    ]
    routing = routing_on_paths([edge.capacity_bps / G for edge in network.edges], paths)
    assert found == pytest.approx(list(max_min(routing, appetites)), rel=1e-5, abs=1e-5)


@settings(max_examples=200)
@given(networks(), traffic())
def test_with_any_number_of_tunnels_it_is_the_filling_of_the_paper(network: Network, groups: list[FlowGroup]) -> None:
    # §4.3: the preferred tunnel is the cheapest path without a bottleneck edge. Here: of all paths there are.
    paths = paths_of(network, groups)
    ways = [[dict.fromkeys(path, Fraction(1)) for path in own] for own in paths]
    exact = fill_exactly(capacities(network), fractions(groups), ways)
    allocation = allocate(network, groups, tunnels_per_group=None)
    for index, group in enumerate(allocation.groups):
        rates = {paths[index][way]: float(rate) for way, rate in exact.rates[index].items()}
        assert carried(network, group) == pytest.approx(rates, rel=1e-8)
        share = exact.shares[index]
        assert group.fair_share == (inf if share is None else pytest.approx(float(share), rel=1e-8))


@settings(max_examples=100)
@given(networks(), traffic(), st.integers(1, 3))
def test_with_listed_tunnels_it_is_the_filling_along_the_list(
    network: Network, groups: list[FlowGroup], count: int
) -> None:
    pairs = [(group.source, group.destination) for group in groups]
    table = cheapest_tunnels(network, pairs, count)
    paths = paths_of(network, groups, count)
    ways = [[dict.fromkeys(path, Fraction(1)) for path in own] for own in paths]
    exact = fill_exactly(capacities(network), fractions(groups), ways)
    allocation = allocate(network, groups, tunnels=table)
    for index, group in enumerate(allocation.groups):
        rates = {paths[index][way]: float(rate) for way, rate in exact.rates[index].items()}
        assert carried(network, group) == pytest.approx(rates, rel=1e-8)


@settings(max_examples=60)
@given(networks(), traffic(), st.sampled_from([2, 3, 4]))
def test_quantised_splits_are_those_of_an_exact_greedy_search(
    network: Network, groups: list[FlowGroup], quanta: int
) -> None:
    check_quantised(network, groups, quanta)


def check_quantised(network: Network, groups: list[FlowGroup], quanta: int) -> None:
    splits = quantise_exactly(capacities(network), fractions(groups), paths_of(network, groups), quanta)
    allocation = allocate(network, groups, tunnels_per_group=None, quantum=1 / quanta)
    found = [[share.split for share in group.tunnels] for group in allocation.groups]
    assert found == [pytest.approx([float(part) for part in own]) for own in splits]


def test_candidates_that_are_level_but_for_rounding_do_not_wait_for_each_other() -> None:
    links = [("CA", 20, 1), ("DB", 5, 4), ("AC", 12, 2), ("CB", 1, 5), ("AB", 14, 5), ("AC", 3, 5), ("CD", 2, 1)]
    edges = tuple(
        Edge(link=f"l{index}", tail=ends[0], head=ends[1], capacity_bps=gbps * G, cost=cost)
        for index, (ends, gbps, cost) in enumerate(links)
    )
    wants = {"AC": ((10, 26), (0.5, 2)), "CD": ((0.5, 2),), "CB": ((1, 5), (2, 17))}
    groups = [
        FlowGroup(
            source=pair[0],
            destination=pair[1],
            applications=tuple(
                Application(name=str(index), weight=weight, demand_bps=gbps * G)
                for index, (weight, gbps) in enumerate(own)
            ),
        )
        for pair, own in wants.items()
    ]
    check_quantised(Network(sites=tuple("ABCD"), edges=edges), groups, 3)


@settings(max_examples=150)
@given(
    networks(st.floats(0, 1e3, allow_subnormal=False)),
    traffic(st.floats(0, 1e3, allow_subnormal=False) | st.just(inf)),
    st.sampled_from([1, 2, 4, None]),
    st.sampled_from([None, 0.5, 0.25, 1 / 3]),
)
def test_every_allocation_is_feasible_and_says_what_it_gives(
    network: Network, groups: list[FlowGroup], limit: int | None, quantum: float | None
) -> None:
    allocation = allocate(network, groups, tunnels_per_group=limit, quantum=quantum)
    check_feasible(network, allocation)
    for group in allocation.groups:
        assert limit is None or len(group.tunnels) <= limit
        assert group.rate_bps == pytest.approx(group.group.function.bps_at(group.fair_share), rel=1e-7)
        assert sum(group.application_bps.values()) == pytest.approx(group.rate_bps, rel=1e-7)
        if group.rate_bps:
            assert fsum(share.split for share in group.tunnels) == pytest.approx(1)
            for share in group.tunnels:
                assert share.rate_bps == pytest.approx(share.split * group.rate_bps, rel=1e-9)
                if quantum is not None:
                    assert share.split / quantum == pytest.approx(round(share.split / quantum), abs=1e-9)


@settings(max_examples=100)
@given(networks(), traffic(), st.sampled_from([0.5, 0.25]))
def test_a_quantised_allocation_is_max_min_fair_for_its_splits(
    network: Network, groups: list[FlowGroup], quantum: float
) -> None:
    """A group that wants more crosses a full edge on which no other hungry group has a higher fair share."""
    allocation = allocate(network, groups, quantum=quantum)
    shares_on: list[list[float]] = [[] for _ in network.edges]
    for group in allocation.groups:
        for index in {index for share in group.tunnels if share.split for index in route_of(network, share.tunnel)}:
            shares_on[index].append(group.fair_share)
    for group in allocation.groups:
        if group.fair_share == inf or not group.tunnels:
            continue
        crossed = {index for share in group.tunnels if share.split for index in route_of(network, share.tunnel)}
        assert any(
            allocation.load_bps(network.edges[index].link, network.edges[index].tail)
            >= network.edges[index].capacity_bps * (1 - 1e-8)
            and all(share == inf or share <= group.fair_share * (1 + 1e-8) for share in shares_on[index])
            for index in crossed
        )


@settings(max_examples=60)
@given(networks(), traffic())
def test_the_order_of_the_groups_does_not_matter(network: Network, groups: list[FlowGroup]) -> None:
    forth = allocate(network, groups)
    back = allocate(network, groups[::-1])
    for group in forth.groups:
        other = back.of(*group.group.key)
        assert carried(network, group) == pytest.approx(carried(network, other), rel=1e-8)


@settings(max_examples=40)
@given(networks(), traffic(), st.sampled_from([None, 0.25]))
def test_equal_arguments_give_equal_allocations(
    network: Network, groups: list[FlowGroup], quantum: float | None
) -> None:
    assert allocate(network, groups, quantum=quantum) == allocate(network, groups, quantum=quantum)


@settings(max_examples=100)
@given(networks(), traffic(), st.sampled_from([2, 4, None]), st.integers(2, 6))
def test_more_rounds_are_feasible_and_never_less_max_min_fair(
    network: Network, groups: list[FlowGroup], limit: int | None, rounds: int
) -> None:
    once = allocate(network, groups, tunnels_per_group=limit)
    often = allocate(network, groups, tunnels_per_group=limit, rounds=rounds)
    check_feasible(network, often)
    shares = [sorted(group.fair_share for group in each.groups) for each in (once, often)]
    for before, after in zip(shares[0], shares[1], strict=True):
        if after != pytest.approx(before, rel=1e-8):
            assert after > before
            break
    for group in often.groups:
        assert limit is None or len(group.tunnels) <= limit
        assert group.rate_bps == pytest.approx(group.group.function.bps_at(group.fair_share), rel=1e-7)


def test_weights_far_apart_do_not_lose_the_light_ones_slope() -> None:
    # The heavy groups leave the shared edge one after the other; what is left of its slope is 18 digits smaller.
    network = Network(sites=("A", "B"), edges=(Edge(link="x", tail="A", head="B", capacity_bps=4 * G),))
    heavy = [Application(name=f"h{n}", weight=1e9 / (n + 1), demand_bps=G) for n in range(3)]
    light = [Application(name=f"l{n}", weight=1e-9, demand_bps=10 * G) for n in range(2)]
    groups = [
        FlowGroup(source="A", destination="B", service=each.name, applications=(each,)) for each in (*heavy, *light)
    ]
    allocation = allocate(network, groups)
    assert [group.rate_bps / G for group in allocation.groups] == pytest.approx([1, 1, 1, 0.5, 0.5])
    check_feasible(network, allocation)


@pytest.mark.slow
@pytest.mark.parametrize(("quantum", "rounds", "least"), [(None, 1, 0.95), (0.25, 1, 0.93), (None, 8, 0.99)])
def test_on_a_network_like_b4_it_is_close_to_the_linear_program_over_all_paths(
    quantum: float | None, rounds: int, least: float
) -> None:
    # 16 sites, 46 unidirectional edges, 240 site pairs: Table 3. Pseudo-random by arithmetic, so that it never changes.
    sites = tuple(f"s{index:02}" for index in range(16))
    joined = {(index, (index + 1) % 16) for index in range(16)} | {
        (0, 5), (2, 9), (4, 13), (1, 11), (7, 14), (3, 8), (6, 12)
    }  # fmt: skip
    edges = tuple(
        Edge(link=f"{a}-{b}", tail=sites[tail], head=sites[head], capacity_bps=(100 + 37 * (a * b % 7)) * G, cost=1 + a)
        for a, b in sorted(joined)
        for tail, head in ((a, b), (b, a))
    )
    network = Network(sites=sites, edges=edges)
    groups = [
        FlowGroup(
            source=a,
            destination=b,
            applications=(Application(name="job", weight=WEIGHTS[(i * j) % 4], demand_bps=(4 + i * j % 11) * G),),
        )
        for i, a in enumerate(sites)
        for j, b in enumerate(sites)
        if i != j
    ]
    routing = routing_anywhere(
        sites,
        [(edge.tail, edge.head) for edge in edges],
        [edge.capacity_bps / G for edge in edges],
        [(group.source, group.destination) for group in groups],
    )
    appetites = [
        Appetite(commodity=index, weight=group.applications[0].weight, demand=group.function.demand_bps / G)
        for index, group in enumerate(groups)
    ]
    fair = max_min(routing, appetites)
    allocation = allocate(network, groups, quantum=quantum, rounds=rounds)
    check_feasible(network, allocation)
    assert allocation.rate_bps / G / most_throughput(routing, appetites, fair) > least  # the program meets all demand
