import pytest

from bicoastal.wan.schedule import Outage, RateStep, capacity_trace, capacity_trace_from_text, check_events


def test_a_trace_becomes_one_step_per_change() -> None:
    steps = capacity_trace([(0.0, 1e9), (0.1, 1e9), (0.2, 2e9), (0.5, 1e9)], iteration=3)
    assert [(step.at_s, step.rate_bps, step.iteration) for step in steps] == [(0, 1e9, 3), (0.2, 2e9, 3), (0.5, 1e9, 3)]


def test_a_trace_is_read_with_its_units() -> None:
    steps = capacity_trace_from_text("# time, rate\n0, 5 Gbit/s\n250 ms, 2.5 Gbps  # half\n\n1 s, 1 GB/s\n")
    assert [(step.at_s, step.rate_bps) for step in steps] == [(0, 5e9), (0.25, 2.5e9), (1, 8e9)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0, 5 Gbit/s\n0.5, 1 Gbit/s", "events: line 2: '0.5' has no unit"),
        ("0 5 Gbit/s", "events: line 1 is not a time and a rate"),
        ("1 s, 1 Gbit/s\n1 s, 2 Gbit/s", "at_s: 1.0 does not come after 1.0"),
        ("1 s, 0", "rate_bps: 0.0 is not a finite number above zero"),
    ],
)
def test_a_trace_that_cannot_be_followed_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        capacity_trace_from_text(text)


def test_outages_with_one_anchor_may_touch_but_not_overlap() -> None:
    check_events([Outage(at_s=0, duration_s=1), Outage(at_s=1, duration_s=1)])
    check_events([Outage(at_s=0, duration_s=2), Outage(at_s=1, duration_s=1, iteration=0)])
    with pytest.raises(ValueError, match=r"^events: the outages at 0 s and 1 s overlap"):
        check_events([Outage(at_s=1, duration_s=1), Outage(at_s=0, duration_s=2)])
    with pytest.raises(ValueError, match=r"^events: the outages at 0 s and 1 s overlap"):
        check_events([Outage(at_s=0, duration_s=2, iteration=4), Outage(at_s=1, duration_s=1, iteration=4)])


def test_two_steps_at_one_moment_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^events: two capacity steps at 1 s"):
        check_events([RateStep(at_s=1, rate_bps=1e9), RateStep(at_s=1, rate_bps=2e9)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RateStep(at_s=-1, rate_bps=1e9), "at_s: -1"),
        (lambda: RateStep(at_s=0, rate_bps=0), "rate_bps: 0"),
        (lambda: RateStep(at_s=0, rate_bps=float("inf")), "rate_bps: inf"),
        (lambda: RateStep(at_s=0, rate_bps=1e9, iteration=-1), "iteration: -1"),
        (lambda: Outage(at_s=0, duration_s=0), "duration_s: 0"),
        (lambda: Outage(at_s=float("nan"), duration_s=1), "at_s: nan"),
        (lambda: Outage(at_s=0, duration_s=1, iteration=0.5), "iteration: 0.5"),
        (lambda: check_events(["outage"]), "events: 'outage'"),
    ],
)
def test_an_event_that_makes_no_sense_is_refused(make, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        make()
