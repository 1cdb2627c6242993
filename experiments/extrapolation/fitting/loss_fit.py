"""A transport's tail model, fitted to measured messages and tested against them.

A hundred measured messages do not show the slowest of millions, so a model has to. Path and packets are taken from the
records. The fit seeks the loss per packet under which the model makes the measured completions most likely. The ratio
of likelihoods gives an interval (Wilks: twice the logarithm is chi-squared).

Two tests follow. A model that fails one of them supports nothing. The first is the largest distance between the two
distributions of completions, measured and modelled (Dvoretzky, Kiefer, Wolfowitz, with the constant of Massart, Annals
of Probability 18(3), 1990). The second is the slowest message. For any dependence, one of n is later than the model's
quantile of 1 - p / n with probability p at most (the union bound). Both tests allow each of the model's times an error
of `TIME_APART`, as the model's own trials do.

Where the links counted what they lost, the counts come first (`link_counts`). Completions that need more loss than was
counted have another cause, such as a late machine, and support nothing. Independent losses are taken from the counts,
or from the completions where their interval is narrower. For losses in bursts the model takes the independent loss that
delays as many messages. It is less than what was counted, because a burst is repaired at once.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, log, sqrt
from typing import Literal, NamedTuple

import numpy as np

from bicoastal.experiments.extrapolation.fitting.link_counts import Counted
from bicoastal.experiments.extrapolation.fitting.messages import Measured, TooFewError
from bicoastal.experiments.extrapolation.tails.model import Array, Crossing, TailModel
from bicoastal.experiments.extrapolation.tails.slowest import Dependence, Fleet, slowest_s
from bicoastal.experiments.extrapolation.tails.trials import TIME_APART
from bicoastal.experiments.extrapolation.tails.window import Tcp
from bicoastal.wan.units import format_time

WILKS = 3.84 / 2  # a log-likelihood below the largest that still counts: 95 %
ALARM = 0.01  # probability to reject a model that is right
FINE_GAP = 0.1  # between two distributions: what a good test of a model tells apart
APART = 1.5  # a model's own error: up to so many times the counted loss its fit may be off
LEAST_LOSS, MOST_LOSS, PER_DECADE = 1e-9, 0.05, 2
HOPELESS = 12.0  # below the largest log-likelihood: more loss is not tried any more
BINS, MOST_SOONER = 12, 48  # of a round trip each: after the fastest message, and between the bound and that message
AT_ONCE = 512  # completions whose shares are looked up together; the array has them by the model's knots
TCP_SAMPLES = 768  # flows: enough for shares of a hundred measured messages

Source = Literal["counted", "completions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A model fitted: loss per packet with its 95 % interval, and how far the distributions are apart.

    source: where that loss is from, the links' counts or the completions. independent: how many messages, or
    connections of a TCP, are independent of one another. gap: the largest difference of the two distributions, with an
    error of `TIME_APART` allowed. allowed_gap: what chance explains. reason: why the fit supports nothing, or empty.
    """

    measured: Measured
    model: TailModel
    loss: float
    loss_low: float
    loss_high: float
    source: Source
    independent: int
    gap: float
    allowed_gap: float
    reason: str

    @property
    def enough(self) -> int:
        """The number of independent messages, or connections, that shows an error of `FINE_GAP` in a model."""
        return ceil(log(2 / ALARM) / (2 * FINE_GAP**2))


def fit(measured: Measured, model: TailModel) -> Fit:
    """Return the loss per packet under which `model` explains the measured completions best.

    The model's TCP connections are as old as the measured ones; predictions for a training are for settled ones. A loss
    shows in many later messages of its connection, so only as many messages are independent as there are connections.
    """
    asked, independent, least = model, len(measured.completions_s), 1e-12
    if isinstance(model, Tcp):
        least = 1 / (2 * TCP_SAMPLES)  # what no sample shows may still happen
        model = replace(model, samples=TCP_SAMPLES, settled=False, history=measured.iterations - 1)
        independent = measured.connections
    values = np.sort(measured.completions_s)
    rtt_s, bound_s = float(measured.crossing.rtt_s), float(measured.crossing.bound_s())
    sooner = ceil(min(max(values[0] - bound_s, 0.0) / rtt_s, MOST_SOONER))
    edges = values[0] + rtt_s * (np.arange(-sooner, BINS) + 0.5)
    below = np.searchsorted(values, edges, side="right")
    counts = np.diff(np.concatenate(([0], below, [len(values)])))

    def shares(loss: float) -> Array:
        return np.exp(model.log_cdf(replace(measured.crossing, loss=loss), edges))

    def likelihood(loss: float) -> float:
        inside = np.diff(np.concatenate(([0.0], shares(loss), [1.0])))
        return float(np.mean(np.repeat(np.log(np.maximum(inside, least)), counts)) * independent)

    loss, best = _most_likely(likelihood, measured.counted.loss if measured.counted else 0.0)
    low = _edge(likelihood, loss, LEAST_LOSS, best - WILKS)
    if low <= LEAST_LOSS and likelihood(0.0) >= best:
        loss = 0.0  # no message was late
    high = _edge(likelihood, max(loss, LEAST_LOSS), MOST_LOSS, best - WILKS)
    shown = _Shown(loss, 0.0 if low <= LEAST_LOSS else low, high)
    taken, tested, source = _weighed(shown, measured.counted)
    gap = _apart(model, replace(measured.crossing, loss=tested), values)
    allowed = sqrt(log(2 / ALARM) / (2 * independent))
    return Fit(
        measured=measured,
        model=asked,
        loss=taken.loss,
        loss_low=taken.low,
        loss_high=taken.high,
        source=source,
        independent=independent,
        gap=gap,
        allowed_gap=allowed,
        reason=_reason(shown, measured.counted, gap, allowed)
        or _too_late(model, replace(measured.crossing, loss=taken.high), values),
    )


def _apart(model: TailModel, crossing: Crossing, values: Array) -> float:
    """Return the largest difference of shares between sorted completions and a model's, times up to `TIME_APART` off.

    On either side of every completion, where the measured distribution steps.
    """

    def shares(at_s: Array) -> Array:
        parts = np.split(at_s, range(AT_ONCE, len(at_s), AT_ONCE))
        return np.asarray(np.exp(np.concatenate([model.log_cdf(crossing, part) for part in parts])))

    steps = np.arange(len(values) + 1) / len(values)
    sooner = steps[1:] - shares(values * (1 + TIME_APART))
    later = shares(np.nextafter(values / (1 + TIME_APART), 0.0)) - steps[:-1]
    return float(max(np.max(sooner), np.max(later), 0.0))


def _too_late(model: TailModel, crossing: Crossing, values: Array) -> str:
    """Return that the slowest of sorted completions is later than the model allows so many, or nothing."""
    allowed_s = float(model.quantile_s(crossing, np.log1p(-ALARM / len(values))))
    if values[-1] <= (1 + TIME_APART) * allowed_s:
        return ""
    return (
        f"its slowest message took {format_time(float(values[-1]))}, and of {len(values):,} the model allows none more "
        f"than {format_time(allowed_s)}, at a loss of up to {float(crossing.loss):.2g}"
    )


class _Shown(NamedTuple):
    """A loss per packet, and its 95 % interval."""

    loss: float
    low: float
    high: float


def _weighed(shown: _Shown, counted: Counted | None) -> tuple[_Shown, float, Source]:
    """Return the loss to go by, the one to hold against the completions, and which of the two it is.

    shown: by the completions. What was counted is held against them where it comes closest to what they show.
    """
    if counted is None or counted.in_bursts:
        return shown, shown.loss, "completions"
    low, high = counted.interval
    tested = min(max(shown.loss, low), high)
    if high - low <= shown.high - shown.low:
        return _Shown(counted.loss, low, high), tested, "counted"
    return shown, tested, "completions"


def _reason(shown: _Shown, counted: Counted | None, gap: float, allowed: float) -> str:
    """Return why a fit supports nothing, or nothing."""
    off = f"the model is {gap:.2f} off where chance explains {allowed:.2f}"
    if counted is None:
        return off if gap > allowed else ""
    _, high = counted.interval
    if shown.low > APART * high or (gap > allowed and shown.loss > high):
        bursts = f", in bursts ({counted.said_of_bursts})," if counted.in_bursts else ""
        return (
            f"its completions are slower than its {counted.said}{bursts} explain: those allow a loss of up to "
            f"{high:.2g}, and it takes {shown.loss:.2g} (95 %: {shown.low:.2g} to {shown.high:.2g})"
        )
    if gap > allowed:
        return f"{off}, with the loss of its {counted.said}" if not counted.in_bursts else off
    if counted.in_bursts and shown.low == 0 and shown.high >= MOST_LOSS:
        return (
            f"its {counted.said} came in bursts ({counted.said_of_bursts}), and its completions do not show which "
            "independent loss would do the same"
        )
    return ""


def _most_likely(likelihood: Callable[[float], float], counted: float) -> tuple[float, float]:
    """Return the loss of the largest likelihood, and that: a scan by half decades, then a search between them.

    counted: a loss that is tried besides, so that the scan does not end before it.
    """
    decades = log(MOST_LOSS / LEAST_LOSS) / log(10)
    tried = [(likelihood(counted), counted)] if LEAST_LOSS <= counted <= MOST_LOSS else []
    for loss in np.geomspace(LEAST_LOSS, MOST_LOSS, int(decades * PER_DECADE) + 1):
        tried.append((likelihood(float(loss)), float(loss)))
        if tried[-1][0] < max(tried)[0] - HOPELESS and loss > max(tried)[1]:
            break
    best, loss = max(tried)
    for step in (1 / 4, 1 / 8, 1 / 16, 1 / 32):
        near = [(likelihood(each), each) for each in (loss * 10**-step, loss * 10**step) if each <= MOST_LOSS]
        best, loss = max([(best, loss), *near])
    return loss, best


def _edge(likelihood: Callable[[float], float], loss: float, limit: float, least: float) -> float:
    """Return how far towards `limit` the likelihood stays at least `least`."""
    factor = 2.0 if limit > loss else 0.5
    inside, outside = loss, loss
    while likelihood(outside) >= least:
        if outside == limit:
            return limit
        inside, outside = outside, min(outside * factor, limit) if limit > loss else max(outside * factor, limit)
    for _ in range(4):
        middle = sqrt(inside * outside)
        inside, outside = (middle, outside) if likelihood(middle) >= least else (inside, middle)
    return inside


class SlowestSpan(NamedTuple):
    """The slowest of many messages, of one trip, seconds: independent, and at both ends of its loss's interval.

    correlated_s, any_s: at the fitted loss the least there can be, where all lose the same packets, and the most,
    whatever the dependence.
    """

    middle_s: float
    low_s: float
    high_s: float
    correlated_s: float
    any_s: float


def slowest_span(
    fitted: Fit, messages: float, *, trips: int = 1, share: float = 0.5, scaled_back: bool = True
) -> SlowestSpan:
    """Return by when the slowest of so many messages is across in each of `trips` trips, with probability `share`.

    scaled_back: on the path as it was before rates and payloads were divided. Raises TooFewError where the model was
    found not to explain what was measured.
    """
    if fitted.reason:
        raise TooFewError(fitted.reason)
    measured = fitted.measured
    factor = measured.scale if scaled_back else 1.0
    planes = 1 if fitted.model.spreads else measured.planes
    crossing = replace(
        measured.crossing,
        payload_bytes=np.asarray(measured.crossing.payload_bytes) * factor * planes,
        rate_bps=np.asarray(measured.crossing.rate_bps) * factor * planes,
    )
    fleet = Fleet(messages=messages, planes=planes, trips=trips)

    def at(loss: float, dependence: Dependence = "independent") -> float:
        point = replace(crossing, loss=loss)
        return float(slowest_s(fitted.model, point, fleet, share=share, dependence=dependence))

    middle = at(fitted.loss)
    return SlowestSpan(
        middle_s=middle,
        low_s=min(at(fitted.loss_low), middle),  # a TCP's are sampled, and may differ by a round trip
        high_s=max(at(fitted.loss_high), middle),
        correlated_s=at(fitted.loss, "correlated"),
        any_s=at(fitted.loss, "any"),
    )
