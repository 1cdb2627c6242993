import pytest

from bicoastal.wan.schedule import CapacityTrace, LinkEvent, Outage, RateStep, check_events


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


TRACE = CapacityTrace(steps=((0.0, 1e9),))


@pytest.mark.parametrize("other", [TRACE, RateStep(at_s=1, rate_bps=1e9)])
def test_a_capacity_trace_stands_alone_but_for_outages(other: LinkEvent) -> None:
    check_events([TRACE, Outage(at_s=0, duration_s=1)])
    with pytest.raises(ValueError, match=r"^events: a capacity trace cannot stand beside"):
        check_events([TRACE, other])
