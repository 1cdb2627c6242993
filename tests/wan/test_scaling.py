"""Scaled links are slower and otherwise the same; divisors are round."""

from dataclasses import replace

import pytest

from bicoastal.wan.loss import Bernoulli
from bicoastal.wan.scaling import round_divisor, scaled_topology
from bicoastal.wan.schedule import Outage, RateStep
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

LINK = LinkSpec(
    name="plane",
    a="west",
    b="east",
    rate_bps=5e9,
    delay_s=0.03,
    queue_bytes=4_000_000,
    mtu_bytes=9000,
    loss=Bernoulli(probability=1e-4),
    events=(RateStep(at_s=1.0, rate_bps=2e9), Outage(at_s=2.0, duration_s=0.5)),
)


def one(link: LinkSpec) -> Topology:
    return Topology(
        sites=[Site(name="west"), Site(name="east")],
        links=[link],
        paths=[Path(name="path", sites=("west", "east"), links=("plane",), overhead_bytes=50)],
    )


def test_rates_queues_and_steps_are_divided_and_nothing_else() -> None:
    scaled = scaled_topology(one(LINK), 100)
    events = (RateStep(at_s=1.0, rate_bps=2e7), Outage(at_s=2.0, duration_s=0.5))
    assert scaled == one(replace(LINK, rate_bps=5e7, queue_bytes=40_000, events=events))


def test_the_queue_keeps_its_share_of_the_bandwidth_delay_product() -> None:
    for queue_bytes in (None, 4_000_000):
        link = replace(LINK, queue_bytes=queue_bytes)
        (scaled,) = scaled_topology(one(link), 50).links.values()
        assert scaled.queue_limit_bytes / scaled.bdp_bytes == pytest.approx(link.queue_limit_bytes / link.bdp_bytes)


@pytest.mark.parametrize(("given", "scaled"), [(100_000, 9038), (9038, 9038), (5000, 5000)])
def test_a_queue_does_not_become_too_small_for_a_packet(given: int, scaled: int) -> None:
    (link,) = scaled_topology(one(replace(LINK, queue_bytes=given)), 1000).links.values()
    assert link.queue_bytes == scaled


@pytest.mark.parametrize(
    ("least", "divisor"), [(1e-9, 1), (1, 1), (1.01, 2), (2, 2), (3, 5), (5.1, 10), (10, 10), (77, 100), (1e6 + 1, 2e6)]
)
def test_divisors_are_round(least: float, divisor: int) -> None:
    assert round_divisor(least) == divisor


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan")])
def test_an_invalid_divisor_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match=r"^divisor: "):
        scaled_topology(one(LINK), wrong)
    with pytest.raises(ValueError, match=r"^least: "):
        round_divisor(wrong)
