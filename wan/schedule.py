"""The changes of a link during a run: capacity steps, outages and recorded capacity traces."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from bicoastal.wan.capacity_trace import CapacityTrace
from bicoastal.wan.checks import FieldError, check_not_negative, check_positive, check_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class RateStep:
    """From `at_s` on, the link transmits at `rate_bps`. That holds for packets in its queue too.

    at_s counts from the beginning of the run or, when `iteration` is given, from the beginning of that iteration
    (counted from 0) of the first job. Raises FieldError.
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
    """For `duration_s` from `at_s` on, the link is dark. Packets in its queue or on it are lost, in both directions.

    at_s and iteration as in `RateStep`. Raises FieldError.
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


LinkEvent = RateStep | Outage | CapacityTrace


def check_events(events: Sequence[LinkEvent]) -> None:
    """Check that the events of one link fit together.

    Raises FieldError when two outages with the same anchor overlap, when two steps with the same anchor coincide, or
    when a capacity trace has a step or another trace beside it.
    """
    single: list[RateStep | Outage] = []
    for event in events:
        if isinstance(event, RateStep | Outage):
            single.append(event)
        elif not isinstance(event, CapacityTrace):
            raise FieldError("events", f"{event!r} is neither a capacity step, nor an outage, nor a capacity trace")
    traces = len(events) - len(single)
    if traces > 1 or (traces and any(isinstance(event, RateStep) for event in single)):
        raise FieldError("events", "a capacity trace cannot stand beside another one, or beside a capacity step")
    for anchor in {event.iteration for event in single}:
        anchored = sorted((event for event in single if event.iteration == anchor), key=lambda event: event.at_s)
        steps = [event for event in anchored if isinstance(event, RateStep)]
        for step, following in pairwise(steps):
            if step.at_s == following.at_s:
                raise FieldError("events", f"two capacity steps at {step.at_s!r} s")
        outages = [event for event in anchored if isinstance(event, Outage)]
        for outage, later in pairwise(outages):
            if outage.at_s + outage.duration_s > later.at_s:
                raise FieldError("events", f"the outages at {outage.at_s!r} s and {later.at_s!r} s overlap")
