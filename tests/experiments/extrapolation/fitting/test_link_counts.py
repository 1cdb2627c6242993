from dataclasses import replace

import numpy as np
import pytest

from bicoastal.emulation.records import FlowRecord, LinkRecord
from bicoastal.experiments.extrapolation.fitting.link_counts import Counted, count, poisson_interval, processes_of
from bicoastal.wan.loss import Bernoulli, GilbertElliott, NoLoss, TailOfBurst
from bicoastal.wan.topology import LinkSpec, Site, Topology
from helpers.small_runs import link_record, plane, planes

LINK = link_record(packets=10_000, bytes=90_000_000, delivered=10_000)
FLOW = FlowRecord(
    job="job",
    flow="job/west>east/plane0",
    iteration=1,
    trip=0,
    source="west",
    destination="east",
    path="plane0",
    payload_bytes=9_000_000,
    start_s=0.0,
    completion_s=0.05,
    wire_bytes=9_100_000,
    packets=1000,
    repairs=0,
    probes=0,
    timeouts=0,
    spurious=0,
    rejected=0,
)
BACK = replace(LINK, direction="east>west")
TOPOLOGY = planes(plane())
BURSTS = GilbertElliott(good_to_bad=5e-5, bad_to_good=0.1)


def counted(
    links: list[LinkRecord],
    flows: list[FlowRecord] | None = None,
    repairs_per_loss: int = 1,
    topology: Topology = TOPOLOGY,
) -> Counted:
    found = count([links], flows or [FLOW] * 10, [topology], repairs_per_loss=repairs_per_loss)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("seen", "low", "high"),  # exact limits, Garwood 1936
    [(0, 0.0, 3.689), (1, 0.0253, 5.572), (4, 1.090, 10.24), (10, 4.795, 18.39), (100, 81.36, 121.6)],
)
def test_the_interval_of_a_count_is_the_exact_one(seen: int, low: float, high: float) -> None:
    found = poisson_interval(seen)
    assert found[1] == pytest.approx(high, rel=0.01)
    assert found[0] == pytest.approx(low, rel=0.02) if seen >= 4 else found[0] <= low


def test_what_no_packet_of_thousands_lost_has_an_upper_end() -> None:
    found = counted([LINK, BACK])
    assert (found.packets, found.lost, found.loss) == (20_000, 0, 0.0)
    low, high = found.interval
    assert low == 0.0
    assert high == pytest.approx(3.689 / 20_000, rel=0.01)  # 95 %, two-sided
    assert found.said == "0 losses of 20,000 packets"


def test_full_queues_may_or_may_not_be_the_paths_own_loss() -> None:
    found = counted([replace(LINK, lost=10, corrupted=2, dropped_queue=80, dropped_outage=8), BACK])
    assert (found.lost, found.dropped) == (12, 88)
    assert found.loss == 12 / 20_000
    low, high = found.interval
    assert low < 12 / 20_000 < 100 / 20_000 < high


def test_a_packet_over_two_links_counts_once_and_its_losses_add_up() -> None:
    ends = {"near": ("west", "middle"), "far": ("middle", "east")}
    topology = Topology(
        sites=[Site(name=name) for name in ("west", "middle", "east")],
        links=[LinkSpec(name=name, a=a, b=b, rate_bps=1e9, delay_s=0.01) for name, (a, b) in ends.items()],
        paths=[],
    )
    ways = [(name, way) for name, (a, b) in ends.items() for way in (f"{a}>{b}", f"{b}>{a}")]
    found = counted([replace(LINK, link=name, direction=way, lost=5) for name, way in ways], topology=topology)
    assert (found.packets, found.lost) == (20_000, 20)


def test_nothing_is_known_where_nothing_counted() -> None:
    assert count([[]], [FLOW], [TOPOLOGY], repairs_per_loss=1) is None


def flows_of(losses: list[int], repairs_per_loss: int) -> list[FlowRecord]:
    return [replace(FLOW, repairs=repairs_per_loss * lost) for lost in losses]


@pytest.mark.parametrize("repairs_per_loss", [1, 2])
def test_bursts_show_in_the_repairs_of_messages(repairs_per_loss: int) -> None:
    bursts = [10 if number % 20 == 0 else 0 for number in range(200)]
    found = counted([LINK, BACK], flows_of(bursts, repairs_per_loss), repairs_per_loss)
    # 10 bursts of 10 over 200 messages: chi-squared over its degrees of freedom is 100 * (20 - 1) / 199
    assert found.unevenness == pytest.approx(100 * 19 / 199)
    assert found.in_bursts
    assert found.said_of_bursts == "spread 9.5 times as unevenly as independent ones"
    assert counted([LINK, BACK], flows_of(bursts, repairs_per_loss), 0).unevenness == 1.0


def test_independent_losses_are_no_bursts() -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        alone = [int(lost) for lost in rng.poisson(0.05, 200)]
        assert not counted([LINK, BACK], flows_of(alone, 1)).in_bursts


def test_bursts_show_in_what_the_two_directions_of_a_link_lost() -> None:
    found = counted([replace(LINK, lost=56), replace(BACK, lost=5)])
    assert found.unevenness == pytest.approx((56 - 5) ** 2 / (56 + 5))
    # as if there were so many times fewer losses
    wide, narrow = found.interval, replace(found, unevenness=1.0).interval
    assert wide[0] < narrow[0] < narrow[1] < wide[1]
    assert not counted([replace(LINK, lost=30), replace(BACK, lost=25)]).in_bursts


def test_a_kind_of_loss_that_is_not_independent_is_named() -> None:
    topology = planes(
        plane("plane0", loss=BURSTS),
        plane("plane1", loss=Bernoulli(probability=1e-4)),
        plane("plane2", loss=NoLoss(), loss_back=TailOfBurst(packets=1)),
    )
    assert processes_of([topology]) == ("GilbertElliott", "TailOfBurst")
    found = counted([LINK, BACK], [FLOW], 0, topology)
    assert found.in_bursts
    assert found.said_of_bursts == "by GilbertElliott, TailOfBurst"


def test_bursts_are_seen_on_the_last_of_many_links() -> None:
    links = [plane(f"plane{number}", loss=Bernoulli(probability=1e-4)) for number in range(249)]
    topology = planes(*links, plane("plane249", loss=BURSTS))
    assert counted([LINK, BACK], [FLOW], 0, topology).processes == ("GilbertElliott",)
