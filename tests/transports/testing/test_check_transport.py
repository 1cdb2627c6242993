"""What a check reports, where it ends, and what it refuses."""

from dataclasses import replace
from random import Random

import pytest

from bicoastal.transports.testing import check_transport, make_schedule
from helpers.broken_transports import GivesUpAtOnce, NeverRepairs, TakesAnyIdentifier
from helpers.example_transports import NATIVE, STRIPER


def test_a_violation_says_which_schedule_when_and_what() -> None:
    broken = replace(STRIPER, make_endpoint=NeverRepairs)
    violation = check_transport(broken, rng_factory=Random, schedules=50, stop_after=1).violations[0]
    assert violation.sentence.startswith(f"schedule {violation.schedule} of seed 0 (")
    assert f"at {violation.at_s:.6f} s: " in violation.sentence


def test_a_check_ends_after_the_violations_asked_for() -> None:
    broken = replace(STRIPER, make_endpoint=TakesAnyIdentifier)
    report = check_transport(broken, rng_factory=Random, schedules=50, stop_after=3)
    assert (report.schedules, len(report.violations)) == (3, 3)


def test_giving_up_with_a_reason_is_allowed_in_an_outage_and_counted() -> None:
    resigned = replace(STRIPER, make_endpoint=GivesUpAtOnce)
    numbers = [n for n in range(200) if make_schedule(n, seed=0, paths="many", rng_factory=Random).weather == "outage"]
    reports = [check_transport(resigned, rng_factory=Random, only=number) for number in numbers]
    assert any(report.ok and report.gave_up == 1 for report in reports)


def test_parameters_reach_the_endpoints() -> None:
    with pytest.raises(ValueError, match=r"^gain: toy-striper has no such parameter"):
        check_transport(STRIPER, rng_factory=Random, parameters={"gain": 1})
    stop_and_wait = check_transport(STRIPER, rng_factory=Random, schedules=20, parameters={"max_window_packets": 1})
    assert stop_and_wait.ok


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^kind: toy-native is native, and only a sans-io transport can be checked$"):
        check_transport(NATIVE, rng_factory=Random)
    with pytest.raises(ValueError, match=r"^schedules: 0 is less than 1$"):
        check_transport(STRIPER, rng_factory=Random, schedules=0)
    with pytest.raises(ValueError, match=r"^replay_every: 0 is less than 1$"):
        check_transport(STRIPER, rng_factory=Random, replay_every=0)
    with pytest.raises(ValueError, match=r"^number: -1 is negative$"):
        check_transport(STRIPER, rng_factory=Random, only=-1)
