"""Schedules come from seed and number alone, and reach every corner that they are for."""

from random import Random

from bicoastal.transports.testing import make_schedule


def test_schedules_are_functions_of_seed_and_number() -> None:
    def make(number: int, seed: int) -> object:
        return make_schedule(number, seed=seed, paths="many", rng_factory=Random)

    assert make(3, 0) == make(3, 0)
    assert len({str(make(number, seed)) for number in range(20) for seed in range(5)}) == 100


def test_schedules_reach_what_they_are_for() -> None:
    schedules = [make_schedule(number, seed=0, paths="many", rng_factory=Random) for number in range(1000)]
    offers = [offer for schedule in schedules for offer in schedule.offers]
    sizes = {offer.size_bytes for offer in offers}
    assert {0, 1} <= sizes
    assert max(sizes) > 300_000
    assert {offer.role for offer in offers} == {"client", "server"}
    assert {0, 2**64 - 1} <= {offer.message_id for offer in offers}
    assert {len(schedule.links) for schedule in schedules} == {1, 2, 3, 4}
    assert max(schedule.iterations for schedule in schedules) >= 4
    assert {garbage.kind for schedule in schedules for garbage in schedule.garbage} == {
        "random", "flipped", "truncated", "stale",
    }  # fmt: skip
    assert any(schedule.gentle for schedule in schedules)
    assert not all(schedule.gentle for schedule in schedules)


def test_a_one_path_transport_gets_one_path() -> None:
    assert all(len(make_schedule(number, seed=0, paths="one", rng_factory=Random).links) == 1 for number in range(50))
