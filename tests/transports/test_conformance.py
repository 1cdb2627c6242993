"""Every transport here keeps the promises of the verbs."""

from random import Random

import pytest

from bicoastal.transports.registry import Registry
from bicoastal.transports.testing import check_transport
from helpers.example_transports import STEERED, STRIPER

SCHEDULES = 1200
CHUNKS = 6  # so that parallel workers share the work
TOYS = {"toy-striper": STRIPER, "toy-steered": STEERED}
INSTALLED = {
    name: spec
    for name in Registry.installed().names()
    if (spec := Registry.installed().resolve(name)).kind == "sans-io"  # programs have no verbs to check
}
SPECS = TOYS | INSTALLED
COSTLY = {"quic", "mpquic", "quic-fec", "mpquic-fec"}  # real TLS, packet by packet: most of their schedules are slow


def _chunks(*, slow: bool) -> list[tuple[str, int]]:
    return [(name, chunk) for name in SPECS for chunk in range(CHUNKS) if (name in COSTLY and chunk > 0) == slow]


def _check(name: str, chunk: int) -> None:
    size = SCHEDULES // CHUNKS
    report = check_transport(SPECS[name], rng_factory=Random, first=chunk * size, schedules=size)
    report.raise_on_failure()
    assert report.schedules == size
    assert report.messages > size
    assert all(report.impairments[name] > 0 for name in ("lost", "dropped_outage", "reordered", "duplicated"))
    assert report.impairments["corrupted"] > 0
    assert report.garbage > size
    assert report.gave_up <= size // 50


@pytest.mark.parametrize(("name", "chunk"), _chunks(slow=False))
def test_a_transport_keeps_its_promises(name: str, chunk: int) -> None:
    _check(name, chunk)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "chunk"), _chunks(slow=True))
def test_a_costly_transport_keeps_its_promises(name: str, chunk: int) -> None:
    _check(name, chunk)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("name", [name for name in SPECS if name not in COSTLY])
def test_a_transport_keeps_its_promises_under_other_seeds(name: str, seed: int) -> None:
    check_transport(SPECS[name], rng_factory=Random, seed=seed, schedules=700).raise_on_failure()


@pytest.mark.parametrize(
    ("name", "seed", "schedule"),
    [
        ("b4", 5, 622),  # reordering forgotten while a packet was waited for: the sender stood still
        ("rdma-gbn", 1, 437),  # every other packet lost: all of the stream again for each that got through
        ("rdma-gbn", 3, 314),
        ("rdma-gbn", 6, 356),
        ("mpquic", 0, 852),  # each of two idle paths deferred to the other, which it took for the sooner
    ],
)
def test_a_schedule_that_once_broke_a_transport_no_longer_does(name: str, seed: int, schedule: int) -> None:
    spec = Registry.installed().resolve(name)
    check_transport(spec, rng_factory=Random, seed=seed, only=schedule).raise_on_failure()
