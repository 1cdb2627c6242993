import pytest

from bicoastal.transports.b4.network import Edge, Network
from bicoastal.wan.topology import LinkSpec, Site, Topology

TOPOLOGY = Topology(
    sites=[Site(name="east"), Site(name="west")],
    links=[LinkSpec(name="p0", a="east", b="west", rate_bps=4e11, delay_s=0.03)],
    paths=[],
)


def test_a_link_is_an_edge_each_way() -> None:
    network = Network.from_topology(TOPOLOGY)
    ends = [(edge.tail, edge.head, edge.capacity_bps, edge.cost) for edge in network.edges]
    assert ends == [("east", "west", 4e11, 0.03), ("west", "east", 4e11, 0.03)]


@pytest.mark.parametrize(
    ("field", "value"), [("link", ""), ("head", "A"), ("capacity_bps", -1), ("cost", -1), ("cost", float("inf"))]
)
def test_bad_edges_are_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        Edge(**{"link": "x", "tail": "A", "head": "B", "capacity_bps": 1.0, field: value})


def test_networks_that_do_not_hang_together_are_refused() -> None:
    edge = Edge(link="x", tail="A", head="B", capacity_bps=1)
    with pytest.raises(ValueError, match=r"^sites: "):
        Network(sites=("A", "A", "B"), edges=(edge,))
    with pytest.raises(ValueError, match=r"^edges: 'x' ends at 'B'"):
        Network(sites=("A",), edges=(edge,))
    with pytest.raises(ValueError, match=r"^edges: two"):
        Network(sites=("A", "B"), edges=(edge, edge))
