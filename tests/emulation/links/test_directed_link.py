"""One direction of a link has one name, one text and one set of random streams, whatever world it is used in."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from bicoastal.emulation.links.directed_link import DirectedLink
from bicoastal.emulation.relay.frames import ETHERNET_BYTES
from bicoastal.emulation.relay.model import RelayModel
from bicoastal.emulation.streams import stream
from bicoastal.wan.link import Arrival, Link
from bicoastal.wan.loss import Bernoulli, NoLoss, Packet
from bicoastal.wan.schedule import Outage
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology
from helpers.small_runs import job, plane, planes, run_spec, simulate


def two_hops() -> Topology:
    """A path whose second link is declared against the direction of travel."""
    return Topology(
        sites=[Site(name=name) for name in ("east", "hub", "west")],
        links=[
            LinkSpec(name="near", a="east", b="hub", rate_bps=1e8, delay_s=0.01),
            LinkSpec(name="far", a="west", b="hub", rate_bps=1e8, delay_s=0.02, loss_back=Bernoulli(probability=0.5)),
        ],
        paths=[Path(name="path", sites=("east", "hub", "west"), links=("near", "far"))],
    )


def test_a_path_is_walked_in_the_order_of_travel_from_either_end() -> None:
    there = DirectedLink.along(two_hops(), "path", from_site="east")
    home = DirectedLink.along(two_hops(), "path", from_site="west")
    assert [each.text for each in there] == ["east>hub", "hub>west"]
    assert [each.text for each in home] == ["west>hub", "hub>east"]
    assert [each.key for each in there] == [("near", False), ("far", True)]
    assert [each.key for each in home] == [("far", False), ("near", True)]


def test_a_path_is_not_walked_from_its_middle() -> None:
    with pytest.raises(ValueError, match=r"^path 'path' has no end at 'hub'$"):
        DirectedLink.along(two_hops(), "path", from_site="hub")


def test_each_direction_has_its_own_loss_process() -> None:
    losses = [each.loss for each in DirectedLink.all_of(two_hops().links.values())]
    assert losses == [NoLoss(), NoLoss(), NoLoss(), Bernoulli(probability=0.5)]


def test_stream_names_are_those_of_every_result_published_so_far() -> None:
    forth, back = DirectedLink.all_of([plane("plane0")])
    assert forth.random_stream(3, "loss").random() == stream(3, "link/plane0/forth/loss").random()
    assert back.random_stream(3, "jitter").random() == stream(3, "link/plane0/back/jitter").random()
    assert back.netem_seed(3) == stream(3, "netem/plane0/back").getrandbits(63)


def test_events_can_be_left_out() -> None:
    dark = DirectedLink(spec=replace(plane("plane0"), events=(Outage(at_s=1.0, duration_s=1.0),)), back=True)
    assert dark.has_outages
    assert not dark.without_events().has_outages
    assert dark.without_events().key == dark.key


Submitted = tuple[float, int, bool]  # when, bytes of the IP packet, whether it arrived


def packets_of_a_simulation(
    monkeypatch: pytest.MonkeyPatch, topology: Topology, seed: int
) -> dict[str, list[Submitted]]:
    """Run a job in the simulator; return what was submitted to each direction of its only link, by "a>b"."""
    seen: dict[str, list[Submitted]] = {}
    directions: dict[Link, str] = {}
    model, submit = DirectedLink.model, Link.submit

    def remembered(directed: DirectedLink, seed: int) -> Link:
        link = model(directed, seed)
        directions[link] = directed.text
        return link

    def observed(link: Link, packet: Packet, now: float) -> Sequence[Arrival]:
        arrivals = submit(link, packet, now)
        seen.setdefault(directions[link], []).append((now, packet.wire_bytes, bool(arrivals)))
        return arrivals

    with monkeypatch.context() as patch:
        patch.setattr(DirectedLink, "model", remembered)
        patch.setattr(Link, "submit", observed)
        record = simulate(run_spec(topology, job("reno", paths=("plane0",), shard_bytes=1_000_000), seed=seed))
    assert record.status == "ok", record.reason
    return {row.direction: seen[row.direction] for row in record.links}


def outcomes_in_the_relay(topology: Topology, seed: int, packets: Sequence[Submitted], way: int) -> list[bool]:
    """Submit the same packets at the same times to the relay's model; return which arrived."""
    model = RelayModel(topology, ["plane0"], seed=seed)
    arrived = []
    for at_s, ip_bytes, _ in packets:
        before = model.link_records()[way].delivered
        model.submit(way, bytes(ip_bytes + ETHERNET_BYTES), at_s)
        arrived.append(model.link_records()[way].delivered > before)
    return arrived


def test_the_simulator_and_the_relay_lose_the_same_packets_for_the_same_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = planes(plane("plane0", loss=Bernoulli(probability=0.02)))
    lost = []
    for _ in range(2):
        simulated = packets_of_a_simulation(monkeypatch, topology, seed=7)
        for way, packets in enumerate(simulated.values()):
            arrived = [arrives for _, _, arrives in packets]
            assert outcomes_in_the_relay(topology, 7, packets, way) == arrived
        lost.append([number for number, (_, _, arrives) in enumerate(next(iter(simulated.values()))) if not arrives])
        assert lost[-1]

        def other_names(link: DirectedLink, seed: int, process: str) -> Random:
            return stream(seed, f"elsewhere/{link.key}/{process}")

        monkeypatch.setattr(DirectedLink, "random_stream", other_names)  # both worlds have to follow
    assert lost[0] != lost[1]
