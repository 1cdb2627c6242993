"""The words of queueing disciplines for a link, and what they cannot express. Syntax: tc-netem(8), tc(8)."""

from dataclasses import replace

import pytest

from bicoastal.emulation.base import UnsupportedError
from bicoastal.emulation.ground.wiring import plan_wiring
from bicoastal.emulation.links.directed_link import DirectedLink
from bicoastal.emulation.real.netem import commands, link_stages, path_stages, stage_counts
from bicoastal.emulation.streams import stream
from bicoastal.wan.loss import Bernoulli, Combined, GilbertElliott, LossSpec, NoLoss, Periodic, TailOfBurst
from bicoastal.wan.recorded_loss import Listed, Trace
from bicoastal.wan.schedule import Outage, RateStep
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

LINK = LinkSpec(name="plane", a="east", b="west", rate_bps=1e9, delay_s=0.03)


def words(link: LinkSpec, *, back: bool = False, **settings: int) -> list[str]:
    return [" ".join(stage) for stage in link_stages(DirectedLink(spec=link, back=back), **settings)]


def test_a_plain_link_is_a_queue_and_a_wire() -> None:
    # 38 bytes of framing, 14 of which the kernel counts itself; a bucket of 20 us; a queue of 60 ms, less half
    # a packet of 1538 bytes; 1 Gbit/s * 30 ms / (28 + 38) bytes = 56,819 of the smallest, and 1,000 to spare
    assert words(LINK) == [
        "stab overhead 24 linklayer ethernet tbf rate 1000000000bit burst 2500 limit 7499231",
        "netem limit 57819 delay 30000us rate 1000000000bit 24",
    ]


def test_rates_are_plain_bits_so_that_tc_cannot_read_bytes() -> None:
    (transmitter, _) = words(replace(LINK, rate_bps=400e9))
    assert " rate 400000000000bit " in transmitter


def test_a_slow_link_has_a_bucket_of_one_packet_and_room_for_one() -> None:
    assert words(replace(LINK, rate_bps=1e6, queue_bytes=2307))[0].endswith("rate 1000000bit burst 1538 limit 1538")


def test_a_queue_that_holds_no_packet_beside_the_one_being_sent_is_refused() -> None:
    """What tbf has at least is one more than the link would: twice the queue."""
    refusal = r"^netem cannot express a queue of less than 1\.5 packets, which link 'plane' has; the relay can$"
    with pytest.raises(UnsupportedError, match=refusal):
        words(replace(LINK, queue_bytes=2306))


def test_encapsulation_counts_on_the_wire() -> None:
    queue, wire = words(LINK, overhead_bytes=50)
    assert queue.startswith("stab overhead 74 ")
    assert wire.endswith(" 74")
    queue, wire = words(replace(LINK, framing_bytes=0))
    assert queue.startswith("stab overhead -14 ")
    assert wire.endswith(" -14")


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (NoLoss(), ""),
        (Bernoulli(probability=0.0), ""),
        (Bernoulli(probability=1e-4), " loss random 0.01%"),
        # p, r, then 1-h (loss when bad) and 1-k (loss when good)
        (
            GilbertElliott(good_to_bad=0.001, bad_to_good=0.1, loss_good=0.002, loss_bad=0.75),
            " loss gemodel 0.1% 10% 75% 0.2%",
        ),
    ],
)
def test_losses_are_written_in_percent(loss: LossSpec, said: str) -> None:
    assert words(replace(LINK, loss=loss))[1] == f"netem limit 57819 delay 30000us rate 1000000000bit 24{said}"


def test_each_direction_has_its_own_loss() -> None:
    link = replace(LINK, loss=Bernoulli(probability=0.01), loss_back=NoLoss())
    assert "loss random 1%" in words(link)[1]
    assert "loss" not in words(link, back=True)[1]


def test_jitter_is_a_uniform_band_above_the_delay_and_keeps_the_order() -> None:
    # [30, 34] ms is 32 ± 2 ms; any rate makes netem keep the order
    _, transmission, wire = words(replace(LINK, jitter_s=0.004))
    assert transmission == "netem limit 1000 rate 1000000000bit 24"
    assert wire == "netem limit 65394 delay 32000us 2000us rate 1000000000000bit"


def test_packets_held_back_are_held_back_in_a_stage_of_their_own() -> None:
    (_, held, wire) = words(replace(LINK, reorder=0.01, reorder_delay_s=0.005))
    assert held == "netem limit 10470 delay 5000us reorder 99%"
    assert wire == "netem limit 57819 delay 30000us rate 1000000000bit 24"


def test_duplicates_corruption_and_seed() -> None:
    link = replace(LINK, duplicate=0.001, corrupt=1e-5)
    assert (
        words(link, seed=7)[1] == "netem limit 57819 delay 30000us rate 1000000000bit 24 duplicate 0.1% corrupt 0.001% "
        f"seed {stream(7, 'netem/plane/forth').getrandbits(63)}"
    )


@pytest.mark.parametrize(
    ("loss", "named"),
    [
        (Periodic(every=100), "periodic loss"),
        (TailOfBurst(), "the loss of a burst's tail"),
        (Listed(indices=(3,)), "the loss of listed packets"),
        (Trace(outcomes=(True, False)), "a recorded loss trace"),
        (Combined(parts=(Bernoulli(probability=0.1),)), "combined losses"),
    ],
)
def test_what_netem_cannot_express_is_named(loss: LossSpec, named: str) -> None:
    with pytest.raises(
        UnsupportedError, match=f"^netem cannot express {named}, which link 'plane' has; the relay can$"
    ):
        words(replace(LINK, loss=loss))


@pytest.mark.parametrize(
    "event", [RateStep(at_s=1.0, rate_bps=1e6), Outage(at_s=0.01, duration_s=0.5, iteration=5)], ids=["step", "outage"]
)
def test_a_schedule_is_refused(event: RateStep | Outage) -> None:
    refusal = r"^netem cannot change link 'plane' while a run goes on; the relay can$"
    with pytest.raises(UnsupportedError, match=refusal):
        words(replace(LINK, events=(event,)))


def two_hops() -> Topology:
    return Topology(
        sites=[Site(name=name) for name in ("east", "hub", "west")],
        links=[
            LinkSpec(name="short", a="east", b="hub", rate_bps=1e8, delay_s=0.01, loss=Bernoulli(probability=0.1)),
            LinkSpec(name="long", a="west", b="hub", rate_bps=2e8, delay_s=0.02, loss_back=Bernoulli(probability=0.2)),
            LinkSpec(name="direct", a="east", b="west", rate_bps=1e8, delay_s=0.03),
        ],
        paths=[
            Path(name="via", sites=("east", "hub", "west"), links=("short", "long")),
            Path(name="direct", sites=("east", "west"), links=("direct",)),
        ],
    )


def test_links_are_met_in_the_order_of_travel_each_in_its_direction() -> None:
    forth, back = path_stages(two_hops(), "via")
    assert [stage[-1] for stage in forth[1::2]] == ["10%", "20%"]
    assert [stage[4] for stage in back[1::2]] == ["20000us", "10000us"]
    assert [stage[7] for stage in forth[::2]] == ["100000000bit", "200000000bit"]
    assert [stage[7] for stage in back[::2]] == ["200000000bit", "100000000bit"]


def test_every_stage_sits_where_packets_leave_a_bridge() -> None:
    topology = two_hops()
    assert stage_counts(topology) == {"via": 4, "direct": 2}
    wiring = plan_wiring(topology, tag="bc000000", stages=stage_counts(topology))
    lines = [line for line in commands(wiring) if line[4].startswith("bc0000000")]
    assert [line[4].removeprefix("bc0000000") for line in lines] == ["x0", "x1", "x2", "r", "y2", "y1", "y0", "l"]
    assert all(line[:4] == ["tc", "qdisc", "add", "dev"] and line[5:8] == ["root", "handle", "1:"] for line in lines)


def test_each_direction_of_each_link_is_seeded_by_its_name() -> None:
    names = [["short/forth", "long/back"], ["long/forth", "short/back"]]
    drawn = [[str(stream(5, f"netem/{name}").getrandbits(63)) for name in way] for way in names]
    stages = path_stages(two_hops(), "via", 5)
    assert [[stage[-1] for stage in way if "seed" in stage] for way in stages] == drawn


def test_paths_that_share_a_link_are_refused() -> None:
    topology = Topology(
        sites=[Site(name="east"), Site(name="west")],
        links=[LINK],
        paths=[Path(name=name, sites=("east", "west"), links=("plane",)) for name in ("one", "two")],
    )
    with pytest.raises(UnsupportedError, match=r"^netem cannot let 'one' and 'two' share 'plane'; the relay can$"):
        stage_counts(topology)
