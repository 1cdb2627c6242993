"""Padding sent before the first burst tells the rate; from both ends, in whole runs, and arrival by arrival."""

from dataclasses import replace

import pytest

from bicoastal.emulation.records import RunRecord
from bicoastal.transports.multipath.fec_wire import Spread
from bicoastal.transports.multipath.sounding import MOST_PACKETS, PACKETS, WINDOW, SpreadMeter
from bicoastal.wan.loss import Bernoulli, NoLoss
from bicoastal.wan.recorded_loss import Listed
from bicoastal.wan.topology import LinkSpec
from helpers.small_runs import iterations, job, plane, planes, run_spec, simulate

RTT_S = 0.060
MTU_BYTES = 9000


def spreads(arrivals: list[tuple[int, float]]) -> list[Spread]:
    meter = SpreadMeter()
    return [spread for index, at_s in arrivals if (spread := meter.on_sounding(index, at_s, RTT_S)) is not None]


def trains(interval_s: float) -> list[tuple[int, float]]:
    """Return the arrivals of three rounds of 10, 20 and 40 packets, a round trip apart."""
    first = [0] * 10 + [10] * 20 + [30] * 40
    rounds = [0] * 10 + [1] * 20 + [2] * 40
    return [(at, rounds[at] * RTT_S + (at - first[at]) * interval_s) for at in range(PACKETS)]


def test_the_spread_is_that_of_packets_of_one_round() -> None:
    assert spreads(trains(14.4e-6)) == [Spread(14_400_000)]


def test_the_spread_is_told_whichever_packets_are_lost() -> None:
    for lost in range(30, PACKETS):
        found = spreads([arrival for arrival in trains(14.4e-6) if arrival[0] != lost])
        assert found[-1:] == [Spread(14_400_000)]


def test_a_hole_in_a_train_does_not_hide_the_rate_and_a_late_copy_does_not_raise_it() -> None:
    late = [(index, at_s + (5e-3 if index >= 30 + PACKETS // 5 else 0)) for index, at_s in trains(10e-6)]
    repeated = sorted([*late, *((index, at_s + 1e-6) for index, at_s in late)], key=lambda arrival: arrival[1])
    assert spreads(repeated)[-1] == Spread(10_000_000)


def test_without_a_train_nothing_is_told() -> None:
    assert spreads(trains(14.4e-6)[: WINDOW - 1]) == []
    assert spreads([(index, 0.0) for index in range(PACKETS)]) == [], "all at once is no rate"
    assert spreads([(MOST_PACKETS + index, index * 1e-6) for index in range(100)]) == [], "no part of a sounding"


def test_meagre_rounds_are_no_train() -> None:
    rounds = [(at, at // 6 * RTT_S + at % 6 * 10e-6) for at in range(PACKETS)]
    assert spreads(rounds) == [], "six packets for each of twelve round trips, which losses have left"
    assert spreads([*rounds, *((at, 12 * RTT_S + at * 10e-6) for at in range(PACKETS, MOST_PACKETS))])[-1:] == [
        Spread(10_000_000)
    ]


def run(
    *links: LinkSpec,
    transport: str = "mpquic-fec",
    shard_bytes: int = 30_000_000,
    seed: int = 0,
    **of_job: float,
) -> RunRecord:
    names = [link.name for link in links]
    spec = run_spec(
        planes(*links),
        job(
            transport,
            paths=names,
            shard_bytes=shard_bytes,
            array_bytes=min(shard_bytes, 1 << 20),
            **{"iterations": 1, **of_job},
        ),
        seed=seed,
    )
    return simulate(spec)


def fast(name: str, rate_bps: float = 5e9, delay_s: float = RTT_S / 2) -> LinkSpec:
    return plane(name, rate_bps=rate_bps, delay_s=delay_s, mtu_bytes=MTU_BYTES)


def slowness(record: RunRecord) -> float:
    (row,) = iterations(record)
    assert row.completion_s is not None
    return row.completion_s / row.bound_s


@pytest.mark.parametrize("rate_bps", [50e6, 1e9, 10e9])
def test_the_first_burst_opens_at_the_rate_that_was_sounded(rate_bps: float) -> None:
    record = run(fast("plane0", rate_bps), fast("plane1", rate_bps), shard_bytes=int(rate_bps * RTT_S / 8) & ~7)
    assert slowness(record) < 1.05


def test_unequal_paths_carry_nearly_their_sum_from_the_first_burst_on() -> None:
    """Without the propagation. The first burst spends 3.5 % on what paths of which nothing is known might lose."""
    links = fast("plane0", delay_s=0.029), fast("plane1", delay_s=0.030), fast("plane2", 2e9, 0.0375)
    record = run(*links, shard_bytes=120_000_000, start_s=0.1, iterations=2)
    least_s = min(link.delay_s for link in links)
    took_s = [row.completion_s - least_s for row in iterations(record) if row.completion_s is not None]
    first, second = (8 * 120_000_000 / each_s / sum(link.rate_bps for link in links) for each_s in took_s)
    assert first > 0.92
    assert second > 0.95


def test_sounding_costs_three_round_trips_before_the_first_burst_and_no_more_than_its_packets() -> None:
    record = run(fast("plane0"), shard_bytes=1000)
    quick = run(fast("plane0"), shard_bytes=1000, transport="mpquic")
    sounded_s, plain_s = (max(flow.handshake_s or 0.0 for flow in each.summaries) for each in (record, quick))
    assert 3 * RTT_S < sounded_s - plain_s < 4.2 * RTT_S
    pairs = zip(record.links, quick.links, strict=True)
    assert all(0.99 < (link.bytes - other.bytes) / (PACKETS * MTU_BYTES) < 1.03 for link, other in pairs)


@pytest.mark.parametrize("seed", range(4))
def test_losses_among_what_sounds_a_path_do_not_spoil_the_first_burst(seed: int) -> None:
    links = [replace(fast(f"plane{at}"), loss=Bernoulli(probability=0.01)) for at in range(2)]
    assert slowness(run(*links, seed=seed)) < 1.1


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("first", [3, 12, 48])
def test_a_burst_of_losses_among_what_sounds_a_path_leaves_the_rate_to_be_found(first: int, back: bool) -> None:
    """Of its packets (the first three are the handshake's), or of their acknowledgements, which are fewer."""
    lost = Listed(indices=tuple(range(first // (1 + back), first // (1 + back) + 14)))
    spoilt = replace(fast("plane0"), loss=NoLoss() if back else lost, loss_back=lost if back else NoLoss())
    assert slowness(run(spoilt, fast("plane1"))) < 1.05
