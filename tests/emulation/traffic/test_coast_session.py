"""Two coasts whose stripes the test carries, in any order."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.emulation.base import RunSpec
from bicoastal.emulation.traffic.coast_session import CoastSession, Send
from bicoastal.emulation.traffic.flows import Flow, message_id, plan_flows
from bicoastal.transports.events import Buffer
from bicoastal.transports.registry import Registry
from bicoastal.wan.allreduce import Pattern
from helpers.example_transports import STRIPER
from helpers.small_runs import job, plane, planes, run_spec

RATES = (1e9, 2e9, 5e8)


def spec_of(pattern: Pattern, shard_bytes: int, links: int, array_bytes: int | None = None) -> RunSpec:
    topology = planes(*(plane(f"plane{index}", rate_bps=rate) for index, rate in enumerate(RATES[:links])))
    return run_spec(
        topology, job(pattern=pattern, shard_bytes=shard_bytes, array_bytes=array_bytes, paths=tuple(topology.paths))
    )


def sessions(spec: RunSpec) -> tuple[dict[str, CoastSession], dict[str, Flow]]:
    flows = plan_flows(spec, Registry.installed())
    allreduce = spec.jobs[0].allreduce
    return {
        site: CoastSession(
            allreduce,
            site,
            outgoing=[flow for flow in flows if flow.source == site],
            incoming=[flow for flow in flows if flow.destination == site],
        )
        for site in allreduce.sites
    }, {flow.name: flow for flow in flows}


def carry(coasts: dict[str, CoastSession], iteration: int, rng: Random, damage: int | None = None) -> int:
    """Run an iteration, taking what is on its way in random order; `damage` is which message has a bit flipped."""
    flying: list[Send] = [send for coast in coasts.values() for send in coast.begin(iteration)]
    carried = 0
    while flying:
        send = flying.pop(rng.randrange(len(flying)))
        data: Buffer = bytes(send.data)
        if carried == damage and data:
            data = data[:-1] + bytes([data[-1] ^ 0x80])
        carried += 1
        flying += coasts[send.flow.destination].receive(send.flow.name, send.message_id, data)
    return carried


@given(
    st.sampled_from(["exchange", "reduce-scatter"]),
    st.integers(8, 3000),
    st.integers(1, 3),
    st.none() | st.floats(0, 1),
    st.integers(0, 2**32),
)
def test_stripes_may_arrive_in_any_order_and_the_sum_is_right_again_and_again(
    pattern: Pattern, shard_bytes: int, links: int, array: float | None, seed: int
) -> None:
    array_bytes = None if array is None else 8 + round(array * (shard_bytes - 8))
    coasts, _ = sessions(spec_of(pattern, shard_bytes, links, array_bytes))
    rng = Random(seed)
    for iteration in range(3):
        trips = 1 if pattern == "exchange" else 2
        assert carry(coasts, iteration, rng) == 2 * links * trips
        for coast in coasts.values():
            assert coast.finished
            assert coast.verify()


@pytest.mark.parametrize("array_bytes", [None, 500, 8])
@pytest.mark.parametrize(("pattern", "messages"), [("exchange", 6), ("reduce-scatter", 12)])
def test_one_bit_in_any_stripe_spoils_the_sum(pattern: Pattern, messages: int, array_bytes: int | None) -> None:
    for damage in range(messages):
        coasts, _ = sessions(spec_of(pattern, 1200, 3, array_bytes))
        assert carry(coasts, 0, Random(damage), damage) == messages
        assert not all(coast.verify() for coast in coasts.values())


def test_stripes_are_as_large_as_their_planes_are_fast() -> None:
    coasts, _ = sessions(spec_of("exchange", 7000, 3))
    assert [len(send.data) for send in coasts["west"].begin(0)] == [2000, 4000, 1000]


def test_a_transport_over_many_paths_gets_the_message_whole() -> None:
    spec = spec_of("exchange", 7000, 3)
    flows = plan_flows(
        run_spec(spec.topology, job("toy-striper", paths=spec.jobs[0].paths, shard_bytes=7000)), Registry([STRIPER])
    )
    west = CoastSession(spec.jobs[0].allreduce, "west", outgoing=flows[:1], incoming=flows[1:])
    assert [len(send.data) for send in west.begin(0)] == [7000]


def test_an_unexpected_message_is_refused_in_a_sentence() -> None:
    coasts, flows = sessions(spec_of("exchange", 7000, 3))
    west, east = coasts["west"], coasts["east"]
    name = next(flow.name for flow in flows.values() if flow.destination == "east" and flow.index == 2)
    sends = {send.flow.name: send for send in west.begin(4)}
    east.begin(4)
    good = sends[name]
    with pytest.raises(ValueError, match=rf"^{name} delivered message 1280 in iteration 4, which is not expected$"):
        east.receive(name, message_id(5, 0), good.data)
    with pytest.raises(ValueError, match=r"which is not expected$"):
        east.receive(name, message_id(4, 1), good.data)  # an exchange has no second trip
    with pytest.raises(ValueError, match=rf"^{name} delivered 999 bytes as message 1024 instead of 1000$"):
        east.receive(name, good.message_id, good.data[1:])
    assert east.receive(name, good.message_id, good.data) == []
    with pytest.raises(ValueError, match=r"which is not expected$"):
        east.receive(name, good.message_id, good.data)


def test_a_plane_with_too_long_a_delay_carries_nothing_and_is_not_awaited() -> None:
    topology = planes(plane("near", rate_bps=1e9, delay_s=0.01), plane("far", rate_bps=1e9, delay_s=0.02))
    job_of = job(shard_bytes=1_000_000, paths=tuple(topology.paths))  # lands after 18 ms
    coasts, _ = sessions(run_spec(topology, job_of))
    flying = {site: coast.begin(0) for site, coast in coasts.items()}
    assert [[(send.flow.paths, len(send.data)) for send in sends] for sends in flying.values()] == [
        [(("near",), 1_000_000)]
    ] * 2
    for (send,) in flying.values():
        coasts[send.flow.destination].receive(send.flow.name, send.message_id, send.data)
    assert all(coast.finished and coast.verify() for coast in coasts.values())
