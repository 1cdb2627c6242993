import pickle
from dataclasses import FrozenInstanceError, replace

import pytest

from bicoastal.wan.checks import FieldError
from bicoastal.wan.loss import Bernoulli
from bicoastal.wan.schedule import Outage, RateStep
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

SITES = (Site(name="west"), Site(name="middle"), Site(name="east"))


def link(name: str = "l", a: str = "west", b: str = "east", **values) -> LinkSpec:
    return LinkSpec(**{"name": name, "a": a, "b": b, "rate_bps": 5e9, "delay_s": 0.030, **values})


def two_hops() -> Topology:
    return Topology(
        sites=SITES,
        links=(
            link("first", "west", "middle", rate_bps=10e9, delay_s=0.010, mtu_bytes=9000),
            link("second", "east", "middle", rate_bps=5e9, delay_s=0.020, mtu_bytes=1500),
        ),
        paths=(
            Path(name="through", sites=("west", "middle", "east"), links=("first", "second"), overhead_bytes=50),
            Path(name="back", sites=("middle", "west"), links=("first",)),
        ),
    )


def test_a_path_has_the_delay_of_all_its_links_and_the_rate_and_mtu_of_the_least() -> None:
    topology = two_hops()
    assert topology.path_delay_s("through") == pytest.approx(0.030)
    assert topology.path_rtt_s("through") == pytest.approx(0.060)
    assert topology.path_rate_bps("through") == 5e9
    assert topology.path_mtu_bytes("through") == 1450
    assert [part.name for part in topology.path_links("through")] == ["first", "second"]


def test_a_path_has_the_peak_rate_that_its_slowest_link_could_allow() -> None:
    steps = (RateStep(at_s=1.0, rate_bps=8e9), RateStep(at_s=0.0, rate_bps=2e9, iteration=3))
    outage = Outage(at_s=0.0, duration_s=0.5, iteration=1)
    topology = Topology(
        sites=SITES[::2],
        links=(
            link("faster", events=(*steps, outage)),
            link("slower", events=steps[1:]),
            link("dark", events=(outage,)),
        ),
        paths=[Path(name=name, sites=("west", "east"), links=(name,)) for name in ("faster", "slower", "dark")],
    )
    assert [topology.path_peak_rate_bps(name) for name in topology.paths] == [8e9, 5e9, 5e9]
    first, second = replace(two_hops().links["first"], events=steps), two_hops().links["second"]
    hops = replace(two_hops(), links=(first, second))
    assert hops.path_peak_rate_bps("through") == 5e9
    assert hops.path_peak_rate_bps("back") == 10e9


def test_the_default_queue_is_one_bandwidth_delay_product() -> None:
    assert link().bdp_bytes == pytest.approx(5e9 * 0.060 / 8)
    assert link().queue_limit_bytes == 37_500_000
    assert link(queue_bytes=1000).queue_limit_bytes == 1000
    assert link(delay_s=0.0).queue_limit_bytes == 1538  # room for one full packet


def test_links_and_paths_are_read_by_name_in_the_order_given_and_cannot_be_written() -> None:
    topology = two_hops()
    assert list(topology.links) == ["first", "second"]
    assert list(topology.paths) == ["through", "back"]
    with pytest.raises(TypeError):
        topology.links["first"] = link()
    with pytest.raises(FrozenInstanceError):
        topology.sites = ()


def test_a_topology_is_a_value() -> None:
    topology = two_hops()
    assert topology == two_hops()
    assert hash(topology) == hash(two_hops())
    again = pickle.loads(pickle.dumps(topology))
    assert again == topology
    assert again.path_mtu_bytes("through") == 1450
    lossy = replace(
        topology, links=[replace(part, loss=Bernoulli(probability=0.1)) for part in topology.links.values()]
    )
    assert lossy != topology
    assert lossy.links["second"].loss == Bernoulli(probability=0.1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": " "}, "name: ' ' is not a name"),
        ({"a": ""}, "a: ''"),
        ({"b": "west"}, "b: the link 'l' joins 'west' with itself"),
        ({"rate_bps": 0}, "rate_bps: 0"),
        ({"rate_bps": float("inf")}, "rate_bps: inf"),
        ({"delay_s": -1}, "delay_s: -1"),
        ({"delay_s": float("nan")}, "delay_s: nan"),
        ({"queue_bytes": 0}, "queue_bytes: 0"),
        ({"queue_bytes": 1.5}, "queue_bytes: 1.5"),
        ({"mtu_bytes": 575}, "mtu_bytes: 575"),
        ({"framing_bytes": -1}, "framing_bytes: -1"),
        ({"loss": 0.1}, "loss: 0.1 is not a kind of loss"),
        ({"loss_back": "none"}, "loss_back: 'none'"),
        ({"jitter_s": -1}, "jitter_s: -1"),
        ({"reorder": 1.1}, "reorder: 1.1 is not a probability"),
        ({"reorder": 0.1}, "reorder_delay_s: reordering needs"),
        ({"reorder_delay_s": float("inf")}, "reorder_delay_s: inf"),
        ({"duplicate": -0.1}, "duplicate: -0.1 is not a probability"),
        ({"corrupt": True}, "corrupt: True is not a probability"),
        ({"events": [Outage(at_s=0, duration_s=1)]}, "events: "),
        ({"events": (Outage(at_s=0, duration_s=2), Outage(at_s=1, duration_s=2))}, "events: the outages"),
    ],
)
def test_a_link_that_makes_no_sense_is_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        link(**values)


P = Path(name="p", sites=("west", "east"), links=("l",))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Site(name=""), "name: "),
        (lambda: Path(name="p", sites=("west",), links=()), "sites: the path 'p' needs at least two sites"),
        (lambda: Path(name="p", sites=("west", "east", "west"), links=("l", "l")), "sites: .* same site twice"),
        (lambda: Path(name="p", sites=("west", "east"), links=("l", "m")), "links: the path 'p' needs 1 for 2 sites"),
        (lambda: Path(name="p", sites=("west", "east"), links=("l",), overhead_bytes=-1), "overhead_bytes: -1"),
        (lambda: Topology(sites=(*SITES, Site(name="west")), links=(), paths=()), "sites: two .* 'west'"),
        (lambda: Topology(sites=SITES, links=(link(), link()), paths=()), "links: two of them are called 'l'"),
        (lambda: Topology(sites=SITES, links=(link(),), paths=(P, P)), "paths: two of them are called 'p'"),
        (lambda: Topology(sites=SITES, links=(link(b="south"),), paths=()), "links: 'l' ends at 'south'"),
        (lambda: Topology(sites=SITES, links=(), paths=(P,)), "paths: 'p' uses 'l', which is not a link"),
        (
            lambda: Topology(sites=SITES, links=(link(),), paths=(replace(P, sites=("west", "south")),)),
            "paths: 'p' comes to 'south'",
        ),
        (
            lambda: Topology(sites=SITES, links=(link(),), paths=(replace(P, sites=("west", "middle")),)),
            "paths: 'p' uses 'l', which does not join 'west' and 'middle'",
        ),
        (
            lambda: Topology(sites=SITES, links=(link(),), paths=(replace(P, overhead_bytes=1000),)),
            "paths: the encapsulation of 'p' leaves less than 576 bytes",
        ),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        make()


def test_the_least_delay_between_sites_takes_the_shortest_way_whatever_the_hops() -> None:
    def link(a: str, b: str, delay_s: float) -> LinkSpec:
        return LinkSpec(name=f"{a}-{b}", a=a, b=b, rate_bps=1e9, delay_s=delay_s)

    topology = Topology(
        sites=[Site(name=name) for name in ("sea", "den", "nyc", "moon")],
        links=[link("sea", "nyc", 0.050), link("den", "sea", 0.012), link("den", "nyc", 0.020)],
        paths=[],
    )
    assert topology.least_delay_s("sea", "nyc") == pytest.approx(0.032)
    assert topology.least_delay_s("nyc", "sea") == pytest.approx(0.032)
    assert topology.least_delay_s("sea", "sea") == 0
    assert topology.least_delay_s("sea", "moon") == float("inf")
    with pytest.raises(KeyError, match="mars"):
        topology.least_delay_s("sea", "mars")
    with pytest.raises(KeyError, match="mars"):
        topology.least_delay_s("mars", "sea")


def test_a_site_with_the_sign_of_a_direction_in_its_name_is_refused() -> None:
    with pytest.raises(FieldError, match=r"^name: 'a>b' holds a '>'"):
        Site(name="a>b")
