from itertools import pairwise
from math import inf
from random import Random

import pytest

from bicoastal.transports.b4.plan import Want, share_out
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

G = 1e9


def network(*rates_bps: float, delays_s: tuple[float, ...] = ()) -> Topology:
    """Return parallel links from west to east, each a path of its own name, and one path back over the first."""
    links = [
        LinkSpec(name=f"p{i}", a="west", b="east", rate_bps=rate, delay_s=delays_s[i] if delays_s else 0.03)
        for i, rate in enumerate(rates_bps)
    ]
    return Topology(
        sites=(Site(name="west"), Site(name="east")),
        links=links,
        paths=[Path(name=link.name, sites=("west", "east"), links=(link.name,)) for link in links],
    )


def want(number: int, *paths: str, weight: float = 1.0, demand_bps: float | None = inf, **changes: object) -> Want:
    values: dict[str, object] = {"up": (True,) * len(paths), "lowest": False, **changes}
    back = bool(values.pop("back", False))
    return Want(
        key=(number, bool(values["lowest"])),
        paths=paths,
        back=(back,) * len(paths),
        weight=weight,
        demand_bps=demand_bps,
        **values,
    )  # type: ignore[arg-type]


def shares(topology: Topology, *wants: Want, floor_bps: float = 0.0) -> list[tuple[float, ...]]:
    rates = share_out(topology, wants, headroom=0.0, floor_bps=dict.fromkeys(topology.paths, floor_bps))
    return [rates[each.key] for each in wants]


def test_a_flow_alone_gets_every_path_whole() -> None:
    assert shares(network(5 * G, 2 * G), want(0, "p0", "p1")) == [pytest.approx((5 * G, 2 * G))]


def test_weights_ten_to_one_share_a_link_ten_to_one() -> None:
    first, second = shares(network(11 * G), want(0, "p0", weight=10), want(1, "p0"), floor_bps=0.2 * G)
    assert (first[0], second[0]) == pytest.approx((10 * G, 1 * G), rel=1e-12)


def test_what_one_does_not_want_the_other_gets() -> None:
    first, second = shares(network(10 * G), want(0, "p0"), want(1, "p0", weight=100, demand_bps=3 * G))
    assert (first[0], second[0]) == pytest.approx((7 * G, 3 * G), rel=1e-12)


def test_a_finite_demand_takes_the_nearest_path_first() -> None:
    topology = network(5 * G, 5 * G, delays_s=(0.05, 0.03))
    assert shares(topology, want(0, "p0", "p1", demand_bps=6 * G)) == [pytest.approx((1 * G, 5 * G))]


def test_a_flow_between_bursts_gives_way_but_keeps_its_floor() -> None:
    busy, idle = shares(network(10 * G), want(0, "p0"), want(1, "p0", demand_bps=None), floor_bps=0.1 * G)
    assert (busy[0], idle[0]) == pytest.approx((9.9 * G, 0.1 * G), rel=1e-9)


def test_a_flow_between_bursts_keeps_what_nobody_else_wants() -> None:
    (idle,) = shares(network(10 * G), want(1, "p0", demand_bps=None), floor_bps=0.1 * G)
    assert idle[0] == pytest.approx(10 * G)


def test_far_ends_get_what_is_left_and_no_floor() -> None:
    far = want(0, "p0", demand_bps=None, lowest=True)
    alone = shares(network(10 * G), far, floor_bps=0.1 * G)
    assert alone == [pytest.approx((10 * G,))]
    _, beside = shares(network(10 * G), want(1, "p0", demand_bps=None), far, floor_bps=0.1 * G)
    assert beside[0] <= 1e-4 * 10 * G


def test_directions_do_not_compete() -> None:
    one, other = shares(network(10 * G), want(0, "p0"), want(1, "p0", back=True))
    assert (one[0], other[0]) == pytest.approx((10 * G, 10 * G))


def test_a_path_that_is_down_gets_its_floor_and_the_rest_goes_elsewhere() -> None:
    topology = network(5 * G, 5 * G)
    hit, other = shares(topology, want(0, "p0", "p1", up=(False, True)), want(1, "p0", "p1"), floor_bps=0.1 * G)
    assert hit[0] == pytest.approx(0.1 * G)
    # Max-min: the one that has both takes what the first cannot use, and no more than its floor of what it can.
    assert (other[0], hit[1], other[1]) == pytest.approx((4.9 * G, 4.9 * G, 0.1 * G))


@pytest.mark.parametrize("seed", range(40))
def test_no_link_is_ever_given_more_than_its_capacity(seed: int) -> None:
    rng = Random(seed)
    sites = [Site(name=name) for name in "abcd"]
    links = [
        LinkSpec(name=f"{x}{y}", a=x, b=y, rate_bps=rng.choice([1, 2, 5]) * G, delay_s=rng.choice([0.01, 0.02]))
        for x, y in ("ab", "bc", "cd", "ad")
    ]
    routes = ["abc", "adc", "bcd", "bad", "ab", "cd"]
    paths = [Path(name=r, sites=tuple(r), links=tuple(_link(x, y) for x, y in pairwise(r))) for r in routes]
    topology = Topology(sites=sites, links=links, paths=paths)
    wants = []
    for number in range(rng.randint(1, 6)):
        chosen = rng.choice([("abc", "adc"), ("bcd", "bad"), ("ab",), ("cd",)])
        for lowest in (False, True):
            wants.append(
                Want(
                    key=(number, lowest),
                    paths=chosen,
                    up=tuple(rng.random() < 0.8 for _ in chosen),
                    back=(lowest,) * len(chosen),
                    weight=rng.choice([0.5, 1, 10]),
                    demand_bps=rng.choice([None, inf, rng.random() * 3 * G]),
                    lowest=lowest,
                )
            )
    floor = 0.05 * G / 6
    rates = share_out(topology, wants, headroom=0.01, floor_bps=dict.fromkeys(routes, floor))
    loads: dict[tuple[str, str], float] = {}
    for each in wants:
        for path, rate in zip(each.paths, rates[each.key], strict=True):
            if not each.lowest:
                assert rate >= floor
            walk = path[::-1] if all(each.back) else path
            for x, y in pairwise(walk):
                loads[_link(x, y), x] = loads.get((_link(x, y), x), 0.0) + rate
    for (link, _), load in loads.items():
        assert load <= topology.links[link].rate_bps * 0.99 * (1 + 1e-12)


def _link(x: str, y: str) -> str:
    return "ad" if {x, y} == {"a", "d"} else "".join(sorted((x, y)))


def test_a_quantum_splits_a_rate_into_whole_parts() -> None:
    topology = network(3 * G, 5 * G, 2 * G)
    floors = dict.fromkeys(topology.paths, 0.0)
    wants = [want(0, "p0", "p1", "p2", demand_bps=7 * G)]
    exact = share_out(topology, wants, headroom=0.0, floor_bps=floors)[0, False]
    quarters = share_out(topology, wants, headroom=0.0, floor_bps=floors, quantum=0.25)[0, False]
    assert exact == pytest.approx((3 * G, 4 * G, 0))
    parts = [4 * rate / sum(quarters) for rate in quarters]
    assert parts == pytest.approx([round(part) for part in parts], abs=1e-9)
    assert quarters != pytest.approx(exact)


def test_a_second_round_keeps_a_flow_with_another_path_off_the_only_path_of_the_other() -> None:
    topology = network(10 * G, 10 * G, delays_s=(0.01, 0.015))
    floors = dict.fromkeys(topology.paths, 0.0)
    wants = [want(0, "p0", "p1", demand_bps=10 * G), want(1, "p0", demand_bps=10 * G)]
    once, twice = (
        share_out(topology, wants, headroom=0.0, floor_bps=floors, rounds=rounds, tunnels=1) for rounds in (1, 2)
    )
    assert once[0, False] == pytest.approx((5 * G, 0))
    assert once[1, False] == pytest.approx((5 * G,))
    assert twice[0, False] == pytest.approx((0, 10 * G))
    assert twice[1, False] == pytest.approx((10 * G,))


def test_paths_of_one_flow_may_be_listed_in_either_direction() -> None:
    links = [LinkSpec(name=f"p{i}", a="west", b="east", rate_bps=(i + 1) * G, delay_s=0.03) for i in range(2)]
    topology = Topology(
        sites=(Site(name="west"), Site(name="east")),
        links=links,
        paths=[
            Path(name="p0", sites=("west", "east"), links=("p0",)),
            Path(name="p1", sites=("east", "west"), links=("p1",)),
        ],
    )
    one = Want(
        key=(0, False), paths=("p0", "p1"), up=(True, True), back=(False, True), weight=1, demand_bps=inf, lowest=False
    )
    rates = share_out(topology, [one], headroom=0.0, floor_bps=dict.fromkeys(topology.paths, 0.0))
    assert rates[0, False] == pytest.approx((G, 2 * G))
