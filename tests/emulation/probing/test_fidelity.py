"""A path under load is as specified, and a path that is not is detected."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from bicoastal.emulation.base import RunFailedError
from bicoastal.emulation.ground.namespaces import TwoCoasts
from bicoastal.emulation.probing.fidelity import Loaded, measure_loaded
from bicoastal.emulation.relay.process import Relays
from bicoastal.wan.loss import Bernoulli
from bicoastal.wan.schedule import Outage
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

pytestmark = pytest.mark.root

LINK = LinkSpec(name="link", a="east", b="west", rate_bps=1e8, delay_s=0.01, loss=Bernoulli(probability=0.01))


def topology(link: LinkSpec) -> Topology:
    return Topology(
        sites=[Site(name="east"), Site(name="west")],
        links=[link],
        paths=[Path(name="path", sites=("east", "west"), links=("link",))],
    )


@contextmanager
def coasts_of(link: LinkSpec, *, calm: bool = True) -> Iterator[TwoCoasts]:
    with TwoCoasts(topology(link)) as coasts, Relays(coasts, seed=5, calm=calm):
        yield coasts


def loaded(coasts: TwoCoasts, load: float, duration_s: float = 2.0) -> Loaded:
    return measure_loaded(coasts, "path", load=load, duration_s=duration_s, packet_bytes=1500)


def test_a_loaded_path_keeps_its_round_trip_and_loses_what_chance_says() -> None:
    with coasts_of(LINK) as coasts:
        idle, half = loaded(coasts, 0.0), loaded(coasts, 0.5)
    assert idle.sent == 0
    assert idle.round_trips.wanted_s == pytest.approx(0.02 + 2 * 8 * (84 + LINK.framing_bytes) / 1e8)
    for row in (idle, half):
        assert row.round_trips.count == pytest.approx(180 * 0.98, abs=15)  # both directions lose one in a hundred
        assert row.round_trips.mean_s == pytest.approx(row.round_trips.wanted_s, abs=2e-3)
    assert half.sent == pytest.approx(2.0 * 0.5e8 / 8 / (1500 + LINK.framing_bytes), abs=1)
    assert half.expected_lost == pytest.approx(0.01 * half.sent)
    assert half.improbability > 1e-6
    assert abs(half.lost - half.expected_lost) < 6 * half.deviation


def test_an_overloaded_link_carries_its_rate_behind_a_full_queue() -> None:
    with coasts_of(LINK) as coasts:
        row = loaded(coasts, 1.3)
    assert row.rate_bps == pytest.approx(row.wanted_bps, rel=0.03)
    assert row.round_trips.wanted_s == pytest.approx(0.04, abs=1e-3)  # the queue holds one BDP
    assert 0.03 < row.round_trips.mean_s < 0.042  # a sender that is held up on a busy machine lets it run dry at times
    assert row.lost > 0.1 * row.sent


def test_a_link_that_is_not_as_specified_is_detected() -> None:
    with coasts_of(replace(LINK, delay_s=0.014, rate_bps=0.8e8, loss=Bernoulli(probability=0.05))) as coasts:
        coasts.wiring = replace(coasts.wiring, topology=topology(LINK))
        half, over = loaded(coasts, 0.5), loaded(coasts, 1.3)
    assert half.round_trips.mean_s - half.round_trips.wanted_s > 6e-3
    assert half.improbability < 1e-6
    assert over.rate_bps == pytest.approx(0.8 * 0.95 / 0.99 * over.wanted_bps, rel=0.03)


def test_a_path_without_replies_is_a_failure() -> None:
    with (
        coasts_of(replace(LINK, events=(Outage(at_s=0.0, duration_s=60.0),)), calm=False) as coasts,
        pytest.raises(RunFailedError, match="ping measured no round trip"),
    ):
        loaded(coasts, 0.0, duration_s=0.3)
