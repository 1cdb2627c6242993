"""Recorded capacities: both formats of file, and what is no trace."""

import pytest

from bicoastal.wan.checks import FieldError
from bicoastal.wan.scaling import scaled_topology
from bicoastal.wan.schedule import CapacityTrace
from helpers.small_runs import plane, planes


def delivered_bytes(trace: CapacityTrace, until_s: float) -> float:
    """Integrate the rate from 0 on, over as many periods as it takes."""
    total, since_s, rate_bps = 0.0, 0.0, 0.0
    for at_s, following_bps in trace.changes():
        if at_s >= until_s:
            break
        total += (at_s - since_s) * rate_bps / 8
        since_s, rate_bps = at_s, following_bps
    return total + (until_s - since_s) * rate_bps / 8


def test_times_and_rates_are_read_with_units_or_without() -> None:
    text = "time, rate\n0, 5 Gbit/s\n250 ms, 2.5 Gbps  # half\n\n0.5, 2.5e9\n1 s, 1 GB/s\n"
    trace = CapacityTrace.from_text(text)
    assert trace == CapacityTrace(steps=((0, 5e9), (0.25, 2.5e9), (1, 8e9)))
    assert trace.mean_rate_bps == pytest.approx(0.25 * 5e9 + 0.75 * 2.5e9)
    assert trace.peak_rate_bps == 8e9


def test_opportunities_are_delivered_by_their_milliseconds() -> None:
    milliseconds = [1, 1, 2, 5, 5, 5, 9, 10]
    trace = CapacityTrace.from_text("\n".join(map(str, milliseconds)))
    assert trace.period_s == 0.010
    for at in range(1, 31):  # three periods
        whole, part = divmod(at, 10)
        if part in (0, *milliseconds):
            due = whole * len(milliseconds) + sum(each <= part for each in milliseconds)
            assert delivered_bytes(trace, at / 1000) == pytest.approx(1504 * due)
    assert trace.mean_rate_bps == pytest.approx(8 * 1504 * 8 / 0.010)


def test_an_opportunity_at_0_comes_at_the_end_of_the_period() -> None:
    assert CapacityTrace.from_text("0\n1\n2\n") == CapacityTrace.from_text("1\n2\n2\n")


def test_a_scaled_topology_divides_the_trace() -> None:
    topology = planes(plane(events=(CapacityTrace(steps=((0.0, 8e6), (1.0, 4e6))),)))
    (event,) = scaled_topology(topology, 4).links["plane0"].events
    assert event == CapacityTrace(steps=((0.0, 2e6), (1.0, 1e6)))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "it is empty; expected lines of milliseconds, or of a time and a rate"),
        ("# nothing\n\n", "it is empty; expected lines of milliseconds, or of a time and a rate"),
        ("time,rate\n", "it has 0 changes of the rate; expected 1 to 200000"),
        ("1\n# x\n2.5\n", "line 3: '2.5' is not a whole number of milliseconds"),
        ("1\n-2\n", "line 2: '-2' is not a whole number of milliseconds"),
        ("5\n4\n", "line 2: '4' is not a millisecond that is not before 5"),
        ("0\n0\n", "line 2: '0' is not a last millisecond above 0, at which the trace begins again"),
        ("0, 1 Gbit/s\n7\n", "line 2: '7' is not a time and a rate with a comma between them"),
        ("0, fast\n", "line 1: '0, fast' is not a time and a rate, such as"),
        ("1, 1e9\n1, 2e9\n", "line 2: '1' is not a time of at least 0 s, after the one before it"),
        ("nan, 1e9\n", "line 1: 'nan' is not a time of at least 0 s"),
        ("0, 0\n", "line 1: '0' is not a rate above zero; an outage is an event of the link"),
        ("0, inf\n", "line 1: 'inf' is not a rate above zero"),
        (f"{'9' * 5000}\n", "is not a whole number of milliseconds"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(FieldError) as refusal:
        CapacityTrace.from_text(text)
    assert refusal.value.field == "capacity_trace"
    assert sentence in refusal.value.message
    assert "\n" not in refusal.value.message


def test_a_file_that_changes_too_often_is_refused() -> None:
    text = "\n".join(f"{at}, {1 + at % 2}e9" for at in range(200_001))
    with pytest.raises(FieldError, match="it has 200001 changes of the rate; expected 1 to 200000"):
        CapacityTrace.from_text(text)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"steps": ()}, "steps"),
        ({"steps": ((0.0, 1e9), (0.0, 2e9))}, "steps"),
        ({"steps": ((0.0, 0.0),)}, "steps"),
        ({"steps": ((-1.0, 1e9),)}, "steps"),
        ({"steps": ((0.5, 1e9),), "period_s": 1.0}, "period_s"),
        ({"steps": ((0.0, 1e9),), "period_s": 0.0}, "period_s"),
        ({"steps": ((0.0, 1e9), (2.0, 2e9)), "period_s": 2.0}, "period_s"),
    ],
)
def test_bad_traces_are_refused(values: dict[str, object], field: str) -> None:
    with pytest.raises(FieldError) as refusal:
        CapacityTrace(**values)  # type: ignore[arg-type]
    assert refusal.value.field == field
