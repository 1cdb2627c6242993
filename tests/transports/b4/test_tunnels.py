import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicoastal.transports.b4.network import Edge, Network
from bicoastal.transports.b4.tunnels import (
    Tunnel,
    cheapest_routes_from,
    cheapest_tunnels,
    route_of,
)
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
from helpers.reference_allocator import simple_paths

SITES = "ABCDE"


@st.composite
def networks(draw: st.DrawFn) -> Network:
    ends = st.tuples(st.sampled_from(SITES), st.sampled_from(SITES)).filter(lambda pair: pair[0] != pair[1])
    edges = draw(st.lists(st.tuples(ends, st.integers(0, 4)), min_size=1, max_size=12))
    return Network(
        sites=tuple(SITES),
        edges=tuple(
            Edge(link=f"l{index}", tail=tail, head=head, capacity_bps=1.0, cost=cost)
            for index, ((tail, head), cost) in enumerate(edges)
        ),
    )


@settings(max_examples=150)
@given(networks(), st.integers(1, 6))
def test_the_cheapest_tunnels_are_those_of_a_full_enumeration(network: Network, count: int) -> None:
    edges = [(edge.tail, edge.head, int(edge.cost)) for edge in network.edges]
    found = cheapest_tunnels(network, [("A", "B")], count)["A", "B"]
    assert [route_of(network, tunnel) for tunnel in found] == simple_paths(edges, "A", "B")[:count]


@settings(max_examples=100)
@given(networks(), st.sets(st.integers(0, 11), max_size=4))
def test_the_cheapest_routes_avoid_what_they_must(network: Network, avoiding: set[int]) -> None:
    edges = [(edge.tail, edge.head, int(edge.cost)) for edge in network.edges]
    routes = cheapest_routes_from(network, "A", avoiding)
    for site in SITES[1:]:
        open_paths = [path for path in simple_paths(edges, "A", site) if not avoiding & set(path)]
        assert routes.get(site) == (open_paths[0] if open_paths else None)


def test_an_edge_without_capacity_is_not_used_and_no_way_is_no_tunnel() -> None:
    network = Network(
        sites=("A", "B", "C"),
        edges=tuple(
            Edge(link=f"{a}{b}", tail=a, head=b, capacity_bps=bps)
            for a, b, bps in (("A", "B", 0), ("A", "C", 1), ("C", "B", 1))
        ),
    )
    table = cheapest_tunnels(network, [("A", "B"), ("B", "A")], 2)
    assert [tunnel.sites for tunnel in table["A", "B"]] == [("A", "C", "B")]
    assert table["B", "A"] == ()


def test_parallel_links_are_tunnels_of_their_own_in_the_order_listed() -> None:
    edges = tuple(Edge(link=f"plane-{n}", tail="A", head="B", capacity_bps=1) for n in (2, 0, 1))
    table = cheapest_tunnels(Network(sites=("A", "B"), edges=edges), [("A", "B")], 4)
    assert [tunnel.links for tunnel in table["A", "B"]] == [("plane-2",), ("plane-0",), ("plane-1",)]


def test_the_cheapest_tunnel_of_a_topology_has_the_least_delay() -> None:
    topology = Topology(
        sites=[Site(name=name) for name in "ABC"],
        links=[
            LinkSpec(name="ab", a="A", b="B", rate_bps=1e9, delay_s=0.03),
            LinkSpec(name="ac", a="A", b="C", rate_bps=1e9, delay_s=0.01),
            LinkSpec(name="cb", a="C", b="B", rate_bps=1e9, delay_s=0.01),
        ],
        paths=(),
    )
    table = cheapest_tunnels(Network.from_topology(topology), [("A", "B"), ("B", "A")], 2)
    assert [tunnel.links for tunnel in table["A", "B"]] == [("ac", "cb"), ("ab",)]
    assert [tunnel.links for tunnel in table["B", "A"]] == [("cb", "ac"), ("ab",)]


def test_a_path_is_a_tunnel_both_ways() -> None:
    path = Path(name="around", sites=("A", "C", "B"), links=("ac", "cb"))
    assert Tunnel.along(path, back=True) == Tunnel(name="around", sites=("B", "C", "A"), links=("cb", "ac"))


@pytest.mark.parametrize("pair", [("A", "Z"), ("Z", "A"), ("A", "A")])
def test_pairs_of_unknown_or_equal_sites_are_refused(pair: tuple[str, str]) -> None:
    network = Network(sites=("A", "B"), edges=(Edge(link="x", tail="A", head="B", capacity_bps=1),))
    with pytest.raises(ValueError, match=r"^pairs: "):
        cheapest_tunnels(network, [pair], 1)


@pytest.mark.parametrize(
    ("field", "sites", "links"),
    [("sites", ("A",), ()), ("sites", ("A", "B", "A"), ("x", "y")), ("links", ("A", "B"), ("x", "y"))],
)
def test_tunnels_that_are_no_path_are_refused(field: str, sites: tuple[str, ...], links: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        Tunnel(name="t", sites=sites, links=links)
