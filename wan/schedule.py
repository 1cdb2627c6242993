"""The changes of a link during a run: capacity steps, outages and recorded capacity traces.

A capacity trace is the recorded rate of a link over time, read from a file.

Two formats are read. Mahimahi's (Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015)
has one line for each opportunity to deliver 1504 bytes: the whole millisecond of the opportunity. At its end, the
trace begins again, so that its last millisecond is its period. The other format has lines of a time and a rate with a
comma between them; each rate is valid until the next time, and the last one to the end of the run.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from bicoastal.wan.checks import FieldError, check_not_negative, check_positive, check_whole, cut
from bicoastal.wan.units import INFINITY, parse_rate, parse_time

MOST_STEPS = 200_000
OPPORTUNITY_BYTES = 1504


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityTrace:
    """The rates of a link over time, in both directions: `steps` of (seconds, bit/s), each valid until the next.

    Bits count as `LinkSpec.rate_bps` counts them, framing included. Times count from the beginning of the run and rise.
    Before the first step, the rate is `LinkSpec.rate_bps`. period_s: after this time the steps begin again; None if
    they do not.
    Raises FieldError.
    """

    steps: tuple[tuple[float, float], ...]
    period_s: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 0 < len(self.steps) <= MOST_STEPS:
            raise FieldError("steps", f"{len(self.steps)} are not between 1 and {MOST_STEPS}")
        for at_s, rate_bps in self.steps:
            check_not_negative("steps", at_s)
            check_positive("steps", rate_bps)
        for (at_s, _), (following_s, _) in pairwise(self.steps):
            if following_s <= at_s:
                raise FieldError("steps", f"{following_s!r} s does not come after {at_s!r} s")
        if self.period_s is not None:
            check_positive("period_s", self.period_s)
            if self.steps[0][0] or self.steps[-1][0] >= self.period_s:
                raise FieldError("period_s", "the steps do not begin at 0 s, or do not end before the period does")

    @property
    def iteration(self) -> None:
        """None: times count from the beginning of the run, and not of an iteration."""
        return

    @property
    def peak_rate_bps(self) -> float:
        """The highest rate, bit/s."""
        return max(rate_bps for _, rate_bps in self.steps)

    @property
    def mean_rate_bps(self) -> float:
        """The mean rate over the period, bit/s. Without a period: from the first step to the last."""
        ends_s = [at_s for at_s, _ in self.steps[1:]] + [self.steps[-1][0] if self.period_s is None else self.period_s]
        length_s = ends_s[-1] - self.steps[0][0]
        if not length_s:
            return self.steps[0][1]
        return sum((end_s - at_s) * rate for (at_s, rate), end_s in zip(self.steps, ends_s, strict=True)) / length_s

    def scaled(self, divisor: float) -> "CapacityTrace":
        """Return the trace with its rates divided."""
        return replace(self, steps=tuple((at_s, rate_bps / divisor) for at_s, rate_bps in self.steps))

    def changes(self) -> Iterator[tuple[float, float]]:
        """Yield (seconds, bit/s) of every step, without an end if the trace has a period."""
        yield from self.steps
        if self.period_s is not None:
            number = 1
            while True:
                for at_s, rate_bps in self.steps:
                    yield number * self.period_s + at_s, rate_bps
                number += 1

    @classmethod
    def from_text(cls, text: str) -> "CapacityTrace":
        """Return the trace in a file's text. Empty lines, and the text after a "#", are skipped.

        The format has times and rates if the first remaining line has a comma. This line may be a heading "time,rate".
        Times and rates have units ("250 ms, 2.5 Gbit/s") or are seconds and bit/s. In mahimahi's format
        the opportunities of a millisecond are spread over the time since the one before them, so that the bytes
        delivered are exact at every millisecond that the file names. Raises FieldError with the line's number.
        """
        lines = [(number, line.partition("#")[0].strip()) for number, line in enumerate(text.splitlines(), start=1)]
        lines = [(number, line) for number, line in lines if line]
        if not lines:
            raise FieldError("capacity_trace", "it is empty; expected lines of milliseconds, or of a time and a rate")
        return _from_samples(lines) if "," in lines[0][1] else _from_opportunities(lines)


def _from_samples(lines: list[tuple[int, str]]) -> CapacityTrace:
    if "".join(lines[0][1].split()).lower() == "time,rate":
        lines = lines[1:]
    steps: list[tuple[float, float]] = []
    before_s = -1.0
    for number, line in lines:
        time_text, comma, rate_text = (part.strip() for part in line.partition(","))
        if not comma:
            raise _bad(number, line, "a time and a rate with a comma between them")
        try:
            at_s = _quantity(time_text, parse_time)
            rate_bps = _quantity(rate_text, parse_rate)
        except (ValueError, OverflowError):
            raise _bad(number, line, 'a time and a rate, such as "250 ms, 2.5 Gbit/s" or "0.25, 2.5e9"') from None
        if not before_s < at_s < INFINITY:
            raise _bad(number, time_text, "a time of at least 0 s, after the one before it")
        if not 0 < rate_bps < INFINITY:
            raise _bad(number, rate_text, "a rate above zero; an outage is an event of the link")
        before_s = at_s
        if not steps or steps[-1][1] != rate_bps:
            steps.append((at_s, rate_bps))
    return _made(steps, None)


def _from_opportunities(lines: list[tuple[int, str]]) -> CapacityTrace:
    counts: dict[int, int] = {}
    before = 0
    for number, line in lines:
        if not (line.isascii() and line.isdigit() and len(line) <= 12):
            raise _bad(number, line, "a whole number of milliseconds")
        at = int(line)
        if at < before:
            raise _bad(number, line, f"a millisecond that is not before {before}")
        before = at
        counts[at] = counts.get(at, 0) + 1
    if not before:
        raise _bad(lines[-1][0], lines[-1][1], "a last millisecond above 0, at which the trace begins again")
    # An opportunity at 0 comes when the trace begins again: at the end of its period.
    counts[before] += counts.pop(0, 0)
    steps: list[tuple[float, float]] = []
    since = 0
    for at, count in counts.items():
        rate_bps = count * OPPORTUNITY_BYTES * 8 * 1000 / (at - since)
        if not steps or steps[-1][1] != rate_bps:
            steps.append((since / 1000, rate_bps))
        since = at
    return _made(steps, before / 1000)


def _made(steps: list[tuple[float, float]], period_s: float | None) -> CapacityTrace:
    if not 0 < len(steps) <= MOST_STEPS:
        raise FieldError("capacity_trace", f"it has {len(steps)} changes of the rate; expected 1 to {MOST_STEPS}")
    return CapacityTrace(steps=tuple(steps), period_s=period_s)


def _bad(number: int, text: str, expected: str) -> FieldError:
    return FieldError("capacity_trace", f"line {number}: {cut(repr(text))} is not {expected}")


def _quantity(text: str, parse: Callable[[str], float]) -> float:
    """Return a bare number as it is, and any other text as `parse` reads it."""
    try:
        return float(text)
    except ValueError:
        return parse(text)


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
