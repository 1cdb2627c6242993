"""What changes about a link while a run goes on: capacity steps, outages, recorded capacity traces."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bicoastal.wan.checks import FieldError, check_not_negative, check_positive, check_whole
from bicoastal.wan.units import parse_rate, parse_time


@dataclass(frozen=True, slots=True, kw_only=True)
class RateStep:
    """From `at_s` on, the link transmits at `rate_bps`: also what is already in its queue.

    at_s counts from the beginning of the run or, when `iteration` is given, from the beginning of that iteration
    (counted from 0) of the first job. Raises ValueError naming the field.
    """

    at_s: float
    rate_bps: float
    iteration: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_not_negative("at_s", self.at_s)
        check_positive("rate_bps", self.rate_bps)
        if self.iteration is not None:
            check_whole("iteration", self.iteration, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """For `duration_s` from `at_s` on, the link is dark: what waits for it or is on it is gone, in both directions.

    at_s and iteration as in `RateStep`. Raises ValueError naming the field.
    """

    at_s: float
    duration_s: float
    iteration: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_not_negative("at_s", self.at_s)
        check_positive("duration_s", self.duration_s)
        if self.iteration is not None:
            check_whole("iteration", self.iteration, 0)


LinkEvent = RateStep | Outage


def check_events(events: Sequence[LinkEvent]) -> None:
    """Check that the events of one link fit together.

    Raises ValueError when two outages with the same anchor overlap, or two steps with the same anchor coincide.
    """
    for event in events:
        if not isinstance(event, RateStep | Outage):
            raise FieldError("events", f"{event!r} is neither a capacity step nor an outage")
    for anchor in {event.iteration for event in events}:
        anchored = sorted((event for event in events if event.iteration == anchor), key=lambda event: event.at_s)
        steps = [event for event in anchored if isinstance(event, RateStep)]
        for step, following in pairwise(steps):
            if step.at_s == following.at_s:
                raise FieldError("events", f"two capacity steps at {step.at_s!r} s")
        outages = [event for event in anchored if isinstance(event, Outage)]
        for outage, later in pairwise(outages):
            if outage.at_s + outage.duration_s > later.at_s:
                raise FieldError("events", f"the outages at {outage.at_s!r} s and {later.at_s!r} s overlap")


def capacity_trace(samples: Iterable[tuple[float, float]], *, iteration: int | None = None) -> tuple[RateStep, ...]:
    """Return the steps of a recorded capacity: (seconds, bit/s) samples, each valid until the next.

    Samples that repeat the rate before them make no step. Raises ValueError when times do not increase.
    """
    steps: list[RateStep] = []
    before = -1.0
    for at_s, rate_bps in samples:
        step = RateStep(at_s=at_s, rate_bps=rate_bps, iteration=iteration)
        if at_s <= before:
            raise FieldError("at_s", f"{at_s!r} does not come after {before!r}")
        before = at_s
        if not steps or steps[-1].rate_bps != rate_bps:
            steps.append(step)
    return tuple(steps)


def capacity_trace_from_text(text: str, *, iteration: int | None = None) -> tuple[RateStep, ...]:
    """Read a trace of lines such as `250 ms, 2.5 Gbit/s`; empty lines and `#` comments are skipped.

    Raises ValueError with the line's number.
    """
    samples: list[tuple[float, float]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.partition("#")[0].strip()
        if not fields:
            continue
        time_text, comma, rate_text = fields.partition(",")
        if not comma:
            raise FieldError("events", f"line {number} is not a time and a rate with a comma between them")
        try:
            samples.append((parse_time(time_text), parse_rate(rate_text)))
        except ValueError as error:
            raise FieldError("events", f"line {number}: {error}") from None
    return capacity_trace(samples, iteration=iteration)
