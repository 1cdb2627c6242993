"""What the allocator refuses, by the name of the argument."""

from math import inf

import pytest

from bicoastal.transports.b4.allocator import FlowGroup, allocate
from bicoastal.transports.b4.bandwidth import Application
from bicoastal.transports.b4.network import Edge, Network
from bicoastal.transports.b4.tunnels import Tunnel

G = 1e9
JOB = Application(name="job", weight=1, demand_bps=G)
NETWORK = Network(
    sites=("A", "B", "C"),
    edges=(Edge(link="x", tail="A", head="B", capacity_bps=G), Edge(link="y", tail="B", head="C", capacity_bps=G)),
)
GROUP = FlowGroup(source="A", destination="B", applications=(JOB,))


@pytest.mark.parametrize("pair", [("A", "Z"), ("Z", "B")])
def test_demands_that_name_unknown_sites_are_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=r"^groups: 'Z' is not a site"):
        allocate(NETWORK, [FlowGroup(source=pair[0], destination=pair[1], applications=(JOB,))])


def test_two_groups_of_one_key_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^groups: two"):
        allocate(NETWORK, [GROUP, GROUP])


@pytest.mark.parametrize("quantum", [0, -0.5, 0.3, 2, inf])
def test_a_quantum_that_does_not_divide_one_is_refused(quantum: float) -> None:
    with pytest.raises(ValueError, match=r"^quantum: "):
        allocate(NETWORK, [GROUP], quantum=quantum)


@pytest.mark.parametrize("rounds", [0, 101])
def test_rounds_that_are_none_or_too_many_are_refused(rounds: int) -> None:
    with pytest.raises(ValueError, match=r"^rounds: "):
        allocate(NETWORK, [GROUP], rounds=rounds)


def test_no_tunnels_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^tunnels_per_group: "):
        allocate(NETWORK, [GROUP], tunnels_per_group=0)


@pytest.mark.parametrize(
    "tunnel",
    [
        Tunnel(name="t", sites=("A", "B"), links=("y",)),
        Tunnel(name="t", sites=("A", "C"), links=("x",)),
        Tunnel(name="t", sites=("B", "C"), links=("y",)),
    ],
)
def test_tunnels_that_the_network_does_not_have_are_refused(tunnel: Tunnel) -> None:
    with pytest.raises(ValueError, match=r"^tunnels: 't' "):
        allocate(NETWORK, [GROUP], tunnels={("A", "B"): (tunnel,)})


@pytest.mark.parametrize(
    ("field", "value"),
    [("source", ""), ("destination", "A"), ("applications", ()), ("applications", (JOB, JOB))],
)
def test_bad_flow_groups_are_refused(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        FlowGroup(**{"source": "A", "destination": "B", "applications": (JOB,), field: value})
