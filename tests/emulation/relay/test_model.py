"""The relay's model uses the simulator's links and streams, with times that are calculated by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from bicoastal.emulation.relay.frames import DscpBursts, burst_to_tos
from bicoastal.emulation.relay.model import Departure, RelayModel
from bicoastal.emulation.streams import stream
from bicoastal.wan.link import Link
from bicoastal.wan.loss import Bernoulli, GilbertElliott, LossSpec, NoLoss, TailOfBurst
from bicoastal.wan.schedule import Outage, RateStep
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

EVERYTHING = 1 << 30


def frame(ip_bytes: int, *, mark: int = 0, tos: int = 0) -> bytes:
    """A frame whose IP packet has `ip_bytes`; its UDP source port tells it from others."""
    packet = IP(src="10.64.0.1", dst="10.64.0.2", tos=tos) / UDP(sport=mark, dport=9) / Raw(bytes(ip_bytes - 28))
    return bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / packet)


def mark_of(carried: bytes) -> int:
    return int.from_bytes(carried[34:36], "big")


LINK = LinkSpec(name="plane", a="east", b="west", rate_bps=8e6, delay_s=0.03)  # 1 byte per microsecond


def one_path(link: LinkSpec, *, overhead_bytes: int = 0) -> Topology:
    return Topology(
        sites=[Site(name="east"), Site(name="west")],
        links=[link],
        paths=[Path(name="path", sites=("east", "west"), links=("plane",), overhead_bytes=overhead_bytes)],
    )


def model(link: LinkSpec, *, seed: int = 1, overhead_bytes: int = 0) -> RelayModel:
    return RelayModel(one_path(link, overhead_bytes=overhead_bytes), ["path"], seed=seed)


def drain(its: RelayModel, now: float = 1e9) -> Sequence[Departure]:
    return its.departures(now, EVERYTHING)


def test_a_frame_leaves_after_transmission_and_propagation() -> None:
    its = model(LINK, overhead_bytes=12)
    its.submit(0, frame(950), 1.0)
    due_s = 1.0 + (950 + 12 + 38) * 1e-6 + 0.03
    assert its.next_due_s() == pytest.approx(due_s)
    assert its.departures(due_s - 1e-6, EVERYTHING) == []
    (left,) = its.departures(due_s + 1e-9, EVERYTHING)
    assert left == (pytest.approx(due_s), 0, frame(950))
    assert its.next_due_s() == float("inf")


def test_frames_queue_for_the_transmitter_and_overflow_is_dropped() -> None:
    its = model(replace(LINK, queue_bytes=3000))
    for number in range(5):
        its.submit(0, frame(962, mark=number), 0.0)
    left = drain(its)
    assert [mark_of(each.frame) for each in left] == [0, 1, 2]
    assert [each.due_s for each in left] == pytest.approx([0.031, 0.032, 0.033])
    forth, back = its.link_records()
    assert (forth.direction, forth.packets, forth.dropped_queue) == ("east>west", 5, 2)
    assert (back.direction, back.packets) == ("west>east", 0)


def test_directions_do_not_disturb_each_other() -> None:
    its = model(LINK)
    its.submit(0, frame(962), 0.0)
    its.submit(1, frame(962), 0.0)
    assert [(each.way, pytest.approx(each.due_s)) for each in drain(its)] == [(0, 0.031), (1, 0.031)]


@pytest.mark.parametrize(
    "loss",
    [Bernoulli(probability=0.05), GilbertElliott.from_means(mean_loss=0.05, mean_burst_packets=5)],
    ids=["bernoulli", "gilbert-elliott"],
)
def test_the_frames_lost_are_those_that_the_simulators_link_loses(loss: LossSpec) -> None:
    spec = replace(LINK, loss=loss, queue_bytes=10**9)
    its = model(spec, seed=42)
    for number in range(3000):
        its.submit(1, frame(100, mark=number), number * 1e-3)

    @dataclass
    class Seen:
        wire_bytes: int
        burst_left: int | None = None

    # The stream's name is written out here, so that this test is independent of `DirectedLink`.
    link = Link(spec, back=True, stream=lambda process: stream(42, f"link/plane/back/{process}"))
    wanted = [(number, arrival.at_s) for number in range(3000) for arrival in link.submit(Seen(100), number * 1e-3)]
    assert [(mark_of(each.frame), each.due_s) for each in drain(its)] == wanted
    assert 0 < len(wanted) < 3000


def test_time_does_not_go_back_on_a_link() -> None:
    its = model(LINK)
    its.submit(0, frame(962, mark=1), 0.5)
    its.submit(0, frame(962, mark=2), 0.4)  # stamped by another processor
    assert [each.due_s for each in drain(its)] == pytest.approx([0.531, 0.532])


def test_a_held_back_frame_is_overtaken() -> None:
    its = model(replace(LINK, reorder=0.2, reorder_delay_s=0.5, queue_bytes=10**6))
    for number in range(50):
        its.submit(0, frame(100, mark=number), number * 1e-3)
    prompt = its.departures(0.2, EVERYTHING)
    late = drain(its)
    assert [mark_of(each.frame) for each in prompt] == sorted(mark_of(each.frame) for each in prompt)
    assert len(late) == its.link_records()[0].reordered > 0
    assert all(each.due_s == pytest.approx(mark_of(each.frame) * 1e-3 + 138e-6 + 0.53) for each in late)


def test_duplicates_come_twice_and_corruption_flips_one_bit() -> None:
    its = model(replace(LINK, duplicate=1.0, corrupt=1.0))
    its.submit(0, frame(100), 0.0)
    first, second = drain(its)
    assert first.frame == second.frame != frame(100)
    assert sum((a ^ b).bit_count() for a, b in zip(first.frame, frame(100), strict=True)) == 1


def test_only_the_marked_tail_of_a_burst_is_lost() -> None:
    topology = one_path(replace(LINK, loss=TailOfBurst(packets=2)))
    its = RelayModel(topology, ["path"], seed=1, bursts={"path": DscpBursts()})
    for number in range(5):
        its.submit(0, frame(100, mark=number, tos=burst_to_tos(4 - number, 0)), 0.0)
    its.submit(0, frame(100, mark=9), 0.0)  # no part of a burst
    assert [mark_of(each.frame) for each in drain(its)] == [0, 1, 2, 9]


def test_an_outage_takes_what_waits_and_what_is_on_its_way() -> None:
    its = model(replace(LINK, events=(Outage(at_s=0.02, duration_s=0.1),)))
    for number, at_s in enumerate((0.0, 0.05, 0.15)):
        its.submit(0, frame(962, mark=number), at_s)
    assert [mark_of(each.frame) for each in drain(its)] == [2]
    assert its.link_records()[0].dropped_outage == 2


def test_events_may_be_anchored_at_an_iteration_or_kept_still() -> None:
    event = RateStep(at_s=0.5, rate_bps=4e6, iteration=3)
    stepping = model(replace(LINK, events=(event,)))
    stepping.begin_iteration(3, 10.0)
    stepping.submit(0, frame(962), 10.4)
    stepping.submit(0, frame(962), 10.6)
    assert [each.due_s for each in drain(stepping)] == pytest.approx([10.431, 10.632])
    calm = RelayModel(one_path(replace(LINK, events=(Outage(at_s=0.0, duration_s=9.0),))), ["path"], seed=1, calm=True)
    calm.submit(0, frame(962), 1.0)
    assert len(drain(calm)) == 1


def two_paths_over_one_trunk() -> Topology:
    return Topology(
        sites=[Site(name=name) for name in ("east", "hub", "west")],
        links=[
            LinkSpec(name="red", a="east", b="hub", rate_bps=8e6, delay_s=0.01),
            LinkSpec(name="blue", a="hub", b="east", rate_bps=8e6, delay_s=0.02),
            LinkSpec(name="trunk", a="hub", b="west", rate_bps=8e5, delay_s=0.03, loss_back=NoLoss()),
        ],
        paths=[
            Path(name="via red", sites=("east", "hub", "west"), links=("red", "trunk")),
            Path(name="via blue", sites=("west", "hub", "east"), links=("trunk", "blue")),
        ],
    )


def test_links_in_a_row_add_up_in_both_directions() -> None:
    its = RelayModel(two_paths_over_one_trunk(), ["via red"], seed=1)
    its.submit(0, frame(962), 0.0)
    its.submit(1, frame(962), 0.0)
    found = {each.way: each.due_s for each in drain(its)}
    assert found == {0: pytest.approx(0.001 + 0.01 + 0.01 + 0.03), 1: pytest.approx(0.001 + 0.01 + 0.01 + 0.03)}


def test_paths_share_the_queue_of_a_common_link() -> None:
    its = RelayModel(two_paths_over_one_trunk(), ["via red", "via blue"], seed=1)
    its.submit(0, frame(962), 0.0)  # red, from east: at the hub at 11 ms
    its.submit(3, frame(962), 0.0)  # blue, from east as well, being the second path's way back: at 21 ms
    found = {each.way: each.due_s for each in drain(its)}
    # the trunk takes 10 ms for each: the second finds it idle just then
    assert found == {0: pytest.approx(0.011 + 0.01 + 0.03), 3: pytest.approx(0.021 + 0.01 + 0.03)}
    its.submit(0, frame(962), 1.0)
    its.submit(3, frame(962), 0.995)  # at the hub at 1.016, 5 ms into the other's transmission
    found = {each.way: each.due_s for each in drain(its)}
    assert found == {0: pytest.approx(1.011 + 0.01 + 0.03), 3: pytest.approx(1.021 + 0.01 + 0.03)}


def test_frames_of_one_way_do_not_delay_another() -> None:
    its = model(LINK)
    for _ in range(10):
        its.submit(0, frame(100), 0.0)
    its.submit(1, frame(100), 0.0)
    assert [each.way for each in its.departures(1.0, 4)] == [0, 0, 0, 0, 1]
    assert [each.way for each in its.departures(1.0, 4)] == [0, 0, 0, 0]
    assert [each.way for each in its.departures(1.0, 4)] == [0, 0]


def test_backlogs_are_recorded_for_each_direction() -> None:
    its = model(LINK)
    for _ in range(2):
        its.submit(0, frame(962), 0.0)
    assert [(each.link, each.direction, each.at_s, each.backlog_bytes) for each in its.queue_samples(0.0005)] == [
        ("plane", "east>west", 0.0005, pytest.approx(1500)),
        ("plane", "west>east", 0.0005, pytest.approx(0)),
    ]


def test_the_shortest_delay_is_that_of_the_first_link() -> None:
    assert RelayModel(two_paths_over_one_trunk(), ["via red"], seed=1).shortest_delay_s == 0.01
