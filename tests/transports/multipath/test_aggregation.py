"""Several paths carry nearly their sum, whether they are alike or not.

Goodput is a message's octets over the time they took, the propagation of the one trip taken out: more paths do not
shorten it. `mpquic-fec` sounds its paths before the first message, which therefore counts. `mpquic` begins with the
largest path's window, since finding it is its congestion controllers' matter, and the second message counts.
"""

import pytest

from bicoastal.emulation.base import JobSpec, RunSpec, TransportUse
from bicoastal.emulation.records import RunRecord
from bicoastal.emulation.simulator import SimulatorBackend
from bicoastal.transports.registry import Registry
from bicoastal.wan.allreduce import AllReduceSpec
from bicoastal.wan.topology import LinkSpec, Path, Site, Topology

MESSAGES = {"mpquic": 2, "mpquic-fec": 1}


def run(
    transport: str, rates_bps: tuple[float, ...], rtts_s: tuple[float, ...], message_bytes: int, *, iterations: int
) -> RunRecord:
    links = [
        LinkSpec(name=f"plane{i}", a="east", b="west", rate_bps=rate_bps, delay_s=rtt_s / 2, mtu_bytes=9000)
        for i, (rate_bps, rtt_s) in enumerate(zip(rates_bps, rtts_s, strict=True))
    ]
    topology = Topology(
        sites=(Site(name="east"), Site(name="west")),
        links=links,
        paths=[Path(name=link.name, sites=("east", "west"), links=(link.name,)) for link in links],
    )
    window = round(1.2 * max(rates_bps) * rtts_s[0] / 8 / 9000)
    parameters = (("initial_window_segments", window),) if transport == "mpquic" else ()
    job = JobSpec(
        name="job",
        transport=TransportUse(name=transport, parameters=parameters),
        paths=tuple(topology.paths),
        allreduce=AllReduceSpec(sites=("east", "west"), shard_bytes=message_bytes, ranks_per_site=1),
        iterations=iterations,
        gap_s=1.0,
    )
    record = SimulatorBackend(Registry.installed()).run(RunSpec(name="goodput", topology=topology, jobs=(job,)))
    assert record.status == "ok", record.reason
    return record


def goodput_bps(transport: str, rates_bps: tuple[float, ...], rtts_s: tuple[float, ...], message_bytes: int) -> float:
    record = run(transport, rates_bps, rtts_s, message_bytes, iterations=MESSAGES[transport])
    took_s = record.iterations[-1].completion_s
    assert took_s is not None
    return 8 * message_bytes / (took_s - min(rtts_s) / 2)


@pytest.mark.parametrize("transport", MESSAGES)
@pytest.mark.parametrize(
    ("rate_bps", "message_bytes"), [(250e6, 40_000_000), pytest.param(5e9, 1_000_000_000, marks=pytest.mark.long)]
)
def test_four_equal_paths_carry_nearly_four_times_as_much_as_one(
    transport: str, rate_bps: float, message_bytes: int
) -> None:
    one = goodput_bps(transport, (rate_bps,), (0.060,), message_bytes // 4)
    four = goodput_bps(transport, (rate_bps,) * 4, (0.060,) * 4, message_bytes)
    assert four > 3.8 * one, f"{four / one:.3f} times one path's"


@pytest.mark.parametrize("transport", MESSAGES)
@pytest.mark.parametrize(
    ("rates_bps", "message_bytes"),
    [((250e6, 250e6, 100e6), 60_000_000), pytest.param((5e9, 5e9, 2e9), 1_000_000_000, marks=pytest.mark.long)],
)
def test_unequal_paths_carry_nearly_their_sum(transport: str, rates_bps: tuple[float, ...], message_bytes: int) -> None:
    goodput = goodput_bps(transport, rates_bps, (0.058, 0.060, 0.075), message_bytes)
    assert goodput > 0.95 * sum(rates_bps), f"{goodput / sum(rates_bps):.4f} of the sum"


@pytest.mark.slow
def test_long_messages_teach_no_rate_that_a_path_does_not_have() -> None:
    """Acknowledgements wait behind the data of the other direction, and may make a probe seem to find more."""
    record = run("mpquic-fec", (500e6, 500e6, 200e6), (0.058, 0.060, 0.075), 100_000_000, iterations=3)
    assert not [notice for notice in record.notices if notice.kind == "fec-path-silent"]
    for row in record.iterations[1:]:
        assert row.completion_s is not None
        assert 8 * row.payload_bytes / 2 / (row.completion_s - 0.058 / 2) > 0.97 * 1.2e9
        assert row.wire_bytes < 1.04 * row.payload_bytes
