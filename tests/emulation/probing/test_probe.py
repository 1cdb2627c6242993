"""A probe accepts links as specified, and names both figures of those that are not."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from bicoastal.emulation.base import RunFailedError, UnsupportedError
from bicoastal.emulation.ground.namespaces import TwoCoasts
from bicoastal.emulation.probing.probe import ProbeResult, probe, require_measurable
from bicoastal.emulation.probing.trains import PacketTrain, arrival_rate, idle_time_s
from bicoastal.emulation.real import netem
from bicoastal.emulation.relay.process import Relays
from bicoastal.wan.loss import Bernoulli, GilbertElliott
from bicoastal.wan.schedule import Outage
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

pytestmark = pytest.mark.root


def topology(*links: LinkSpec) -> Topology:
    return Topology(
        sites=[Site(name="east"), Site(name="west")],
        links=links,
        paths=[Path(name=link.name, sites=("east", "west"), links=(link.name,)) for link in links],
    )


LINK = LinkSpec(name="plane", a="east", b="west", rate_bps=5e7, delay_s=0.01)
SIMILAR = (
    LINK,
    replace(LINK, name="lossy", loss=Bernoulli(probability=0.02), delay_s=0.03),
    replace(LINK, name="bursty", loss=GilbertElliott.from_means(mean_loss=0.02, mean_burst_packets=8), mtu_bytes=9000),
    replace(LINK, name="jittery", jitter_s=0.004, queue_bytes=20_000),
    replace(LINK, name="near", delay_s=0.001, mtu_bytes=9000),  # a BDP, and so a queue, of 1.4 full packets
    replace(LINK, name="dark", events=(Outage(at_s=0.0, duration_s=60.0),)),
)


@contextmanager
def pretending(real: Topology, pretended: Topology) -> Iterator[TwoCoasts]:
    """Coasts whose relay runs `real` while the specification says `pretended`."""
    with TwoCoasts(real) as coasts, Relays(coasts, seed=3, calm=True):
        coasts.wiring = replace(coasts.wiring, topology=pretended)
        yield coasts


def problems(result: ProbeResult) -> str:
    assert result.problems
    with pytest.raises(RunFailedError, match=r"^the links are not as specified: plane east>west "):
        result.require()
    return "; ".join(result.problems)


def test_links_as_specified_pass() -> None:
    with pretending(topology(*SIMILAR), topology(*SIMILAR)) as coasts:
        result = probe(coasts)
    result.require()
    assert [(each.path, each.direction) for each in result.directions] == [
        (link.name, direction) for link in SIMILAR for direction in ("east>west", "west>east")
    ]
    lossless = [each.measured.lost for each in result.directions if each.expected.loss == 0.0]
    assert lossless == [0] * 8


def test_links_without_impairment_are_detected() -> None:
    """What a kernel without netem does, when nobody looks."""
    with TwoCoasts(topology(LINK), stages={"plane": 1}) as coasts:
        found = problems(probe(coasts, loss_time_s=0.1))
    assert re.search(r"one-way delay: 0\.\d\d ms, wanted 10\.0\d ms", found)
    assert re.search(r"rate: [\d.]+ Mbit/s, wanted 50 Mbit/s", found)


@pytest.mark.parametrize(
    ("real", "said"),
    [
        ({"delay_s": 0.0125}, r"one-way delay: 12\.\d\d ms, wanted 10\.0\d ms"),
        ({"rate_bps": 4e7}, r"rate: (39|40)(\.\d+)? Mbit/s, wanted 50 Mbit/s"),
        ({"loss": Bernoulli(probability=0.01)}, r"loss: \d+ of \d+ packets, wanted a share of 0"),
        ({"loss": Bernoulli(probability=1.0)}, r"one-way delay: nothing arrived, wanted 10\.0\d ms"),
    ],
    ids=["delay", "rate", "loss", "silence"],
)
def test_each_figure_that_is_off_is_named_with_the_wanted_one(real: dict[str, object], said: str) -> None:
    with pretending(topology(replace(LINK, **real)), topology(LINK)) as coasts:
        assert re.search(said, problems(probe(coasts, loss_time_s=0.5)))


def test_too_little_loss_is_a_problem_too() -> None:
    wanted = topology(replace(LINK, loss=Bernoulli(probability=0.05)))
    with pretending(topology(LINK), wanted) as coasts:
        assert re.search(r"loss: 0 of \d+ packets, wanted a share of 0\.05", problems(probe(coasts, loss_time_s=0.5)))


def test_netem_impairs_as_specified_or_says_that_the_kernel_has_none() -> None:
    spec = topology(*SIMILAR[:2])
    with TwoCoasts(spec, stages=netem.stage_counts(spec)) as coasts:
        try:
            netem.apply(coasts, seed=1)
        except UnsupportedError as error:
            assert str(error).startswith("this kernel has no netem: the relay works without it")  # noqa: PT017
        else:
            probe(coasts).require()


@pytest.mark.parametrize(
    ("sent_s", "missing", "idle_s"),
    [
        ([0.0, 0.5, 1.0, 1.5, 10.0, 10.5], (), 6.0),  # four packets of a second each keep the link busy until 4
        ([0.0, 0.5, 1.0, 1.5, 10.0, 10.5], (2,), 7.0),  # three of them
        ([0.0, 0.1, 0.2, 0.3, 10.0, 10.5], (), 6.7),  # no room for more than three packets
        ([0.0, 0.5, 1.0, 1.5, 3.5, 4.0], (), 0.0),  # held up, but the queue outlasts it
        ([0.0, 0.8, 1.7, 2.9], (), 0.0),  # no slower than the pace's own grain
    ],
)
def test_what_a_held_up_sender_left_unused_is_not_the_links_fault(
    sent_s: list[float], missing: tuple[int, ...], idle_s: float
) -> None:
    train = PacketTrain(line=None, packet_bytes=0, count=len(sent_s), interval_s=0.6)  # type: ignore[arg-type]
    train.sent_s = sent_s
    train.arrived_s = {number: 0.0 for number in range(len(sent_s)) if number not in missing}
    assert idle_time_s(train, 1.0, 2.0) == pytest.approx(idle_s)


@pytest.mark.parametrize("rate_bps", [20.0, 25.0, 40.0, 60.0])
def test_the_rate_of_a_train_with_gaps_is_the_links(rate_bps: float) -> None:
    """Packets of 1 bit at 64 bit/s into a queue of 4, held up for a second after every hundredth."""
    train = PacketTrain(line=None, packet_bytes=0, count=1000, interval_s=1 / 64)  # type: ignore[arg-type]
    free_s = 0.0
    for number in range(train.count):
        sent_s = number / 64 + number // 100
        train.sent_s.append(sent_s)
        if free_s <= sent_s + 4 / rate_bps:
            free_s = max(free_s, sent_s) + 1 / rate_bps
            train.arrived_s[number] = free_s
    assert arrival_rate(train, 1.0, 4.0) == pytest.approx(rate_bps, rel=0.01)


def test_links_too_slow_to_measure_are_refused() -> None:
    require_measurable(topology(replace(LINK, rate_bps=1e6)))
    with pytest.raises(UnsupportedError, match=r"^links of 1 kbit/s are too slow to be measured in 60 s$"):
        require_measurable(topology(LINK, replace(LINK, name="slow", rate_bps=1e3)))
