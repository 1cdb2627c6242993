"""What measured runs say of a deployment's slowest message: a transport's tail model, fitted and put to the test.

A tail of millions cannot be read off a hundred measured messages; `read_off` refuses to. A model can be fitted to
them: path and packets are taken from the records, and what is sought is the loss per packet under which the model makes
the measured completions most likely. The likelihood's ratio gives an interval (Wilks: twice the logarithm is
chi-squared), and the largest distance between the two distributions a test (Dvoretzky, Kiefer, Wolfowitz, with the
constant of Massart, Annals of Probability 18(3), 1990): a model that fails it supports nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log, sqrt

import numpy as np

from emulation.records import FlowRecord
from experiments.compare import TransportResult
from experiments.extrapolation.slowest import Fleet, slowest_s
from experiments.extrapolation.tails import Array, Crossing, TailModel
from experiments.extrapolation.tails_models import MODELS, SAME_ALGORITHM
from experiments.extrapolation.tails_window import Tcp
from experiments.store import Store

LEAST_FLOWS = 20
FEWEST_PER_MESSAGE = 3.0  # independent messages for each of the N whose slowest is read off: 95 % see one as slow
WILKS = 3.84 / 2  # a log-likelihood below the largest that still counts: 95 %
ALARM = 0.01  # probability to reject a model that is right
LEAST_LOSS, MOST_LOSS, PER_DECADE = 1e-9, 0.05, 2
HOPELESS = 12.0  # below the largest log-likelihood: more loss is not tried any more
BINS = 12  # of a round trip each, from the fastest message on
TCP_SAMPLES = 768  # flows: enough for shares of a hundred measured messages
ALIKE = 0.999  # of the largest payload: stripes differ by a byte


class TooFewError(ValueError):
    """Measured messages do not support what is asked of them; the message is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Messages of one transport: one flow's `crossing` (its loss unknown, 0), and each flow's completion, seconds.

    scale: rates and payloads were divided by it. planes: flows of a message. iterations: of a run. connections: that
    carried the messages.
    """

    transport: str
    crossing: Crossing
    planes: int
    scale: float
    iterations: int
    connections: int
    completions_s: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A model fitted: loss per packet with its 95 % interval, and how far the distributions are apart.

    gap: largest difference of the two; allowed_gap: what chance explains. reason: why it supports nothing, or empty.
    """

    measured: Measured
    model: TailModel
    loss: float
    loss_low: float
    loss_high: float
    gap: float
    allowed_gap: float
    reason: str


def read_off(completions_s: Sequence[float], messages: float, share: float = 0.5) -> float:
    """Return the time by which, with probability `share`, the slowest of so many messages is across, from data alone.

    Raises TooFewError where there are not three measured messages for each of them.
    """
    if len(completions_s) < FEWEST_PER_MESSAGE * messages:
        raise TooFewError(
            f"{len(completions_s):,} measured messages do not show the slowest of {messages:,.0f}: "
            f"{FEWEST_PER_MESSAGE * messages:,.0f} would, or a model"
        )
    return float(np.quantile(np.asarray(completions_s), share ** (1 / messages), method="inverted_cdf"))


def measure(store: Store, result: TransportResult) -> Measured:
    """Return a transport's flows as its records have them, without each flow's first iteration.

    Round-trip time: the least that a handshake or a sample shows. Rate: what the bound leaves for the payload.
    Raises TooFewError where that is not enough to go by.
    """
    flows = [flow for flow in result.flows if flow.iteration > 0 and flow.completion_s is not None]
    if len(flows) < LEAST_FLOWS:
        raise TooFewError(f"{len(flows)} messages after the first iteration are fewer than {LEAST_FLOWS}")
    if result.failed:
        raise TooFewError(f"{result.failed} of {result.n} iterations failed, and nothing says how slow they would be")
    rtt_s = _rtt_s(store, result)
    trips = 1 + max(flow.trip for flow in flows)
    one = flows[0]
    same = [f for f in flows if (f.job, f.iteration, f.source) == (one.job, one.iteration, one.source)]
    ours = next(row for row in result.iterations if (row.job, row.iteration) == (one.job, one.iteration))
    busy_s = ours.bound_s - trips * rtt_s / 2
    if busy_s <= 0:
        raise TooFewError("the bound is all delay, so that the records do not tell the rate")
    planes = len({flow.path for flow in same})
    payload = max(flow.payload_bytes for flow in flows)
    rate_bps = 8 * sum(flow.payload_bytes for flow in same) / busy_s / planes
    run = store.runs([result.keys[0]])[0]
    return Measured(
        transport=result.name,
        crossing=Crossing(
            payload_bytes=float(payload),
            rate_bps=rate_bps,
            rtt_s=rtt_s,
            loss=0.0,
            mtu_bytes=_packet_bytes(result.name, flows),
            idle_s=_idle_s(result),
        ),
        planes=planes,
        scale=run.scale,
        connections=len(result.keys) * len({(flow.job, flow.flow) for flow in flows}),
        iterations=1 + max(flow.iteration for flow in flows),
        completions_s=np.array([f.completion_s for f in flows if f.payload_bytes > ALIKE * payload], dtype=float),
    )


def _rtt_s(store: Store, result: TransportResult) -> float:
    shakes = [row.handshake_s for key in result.keys for row in store.summaries(key) if row.handshake_s]
    seen = [row.srtt_s for key in result.keys[:1] for row in store.samples(key, 0.0, 1e9) if row.srtt_s]
    if not shakes and not seen:
        raise TooFewError("no handshake and no sample shows the round-trip time")
    return min([*shakes, *seen])


def _idle_s(result: TransportResult) -> float:
    rows = sorted(
        (row.start_s, row.completion_s or 0.0) for row in result.iterations if row.job == result.iterations[0].job
    )
    gaps = [after - start - took for (start, took), (after, _) in pairwise(rows)]
    return max(float(np.median(gaps)), 0.0) if gaps else 0.0


def _packet_bytes(name: str, flows: Sequence[FlowRecord]) -> int:
    """Return the size of full packets, from how many a flow needed that sent nothing twice."""
    clean = [flow for flow in flows if not flow.repairs and not flow.probes and flow.packets] or list(flows)
    flow = min(clean, key=lambda each: each.packets)
    header = getattr(MODELS.get(name, SAME_ALGORITHM.get(name)), "header_bytes", 0)
    return round(flow.payload_bytes / max(flow.packets - flow.repairs, 1)) + header


def fit(measured: Measured, model: TailModel) -> Fit:
    """Return the loss per packet under which `model` explains the measured completions best.

    A TCP's connections are as old in that as they were; what is predicted for a training is of settled ones. What one
    of them has lost shows in many of its messages, so no more of those are independent than there are connections.
    """
    asked, independent = model, len(measured.completions_s)
    if isinstance(model, Tcp):
        model = replace(model, samples=TCP_SAMPLES, settled=False, history=measured.iterations - 1)
        independent = measured.connections
    values = np.sort(measured.completions_s)
    edges = values[0] + float(measured.crossing.rtt_s) * (np.arange(BINS) + 0.5)
    below = np.searchsorted(values, edges, side="right")
    counts = np.diff(np.concatenate(([0], below, [len(values)])))

    def shares(loss: float) -> Array:
        return np.exp(model.log_cdf(replace(measured.crossing, loss=loss), edges))

    def likelihood(loss: float) -> float:
        inside = np.diff(np.concatenate(([0.0], shares(loss), [1.0])))
        return float(np.mean(np.repeat(np.log(np.maximum(inside, 1e-12)), counts)) * independent)

    loss, best = _most_likely(likelihood)
    low = _edge(likelihood, loss, LEAST_LOSS, best - WILKS)
    gap = float(np.max(np.abs(shares(loss) - below / len(values))))
    allowed = sqrt(log(2 / ALARM) / (2 * independent))
    reason = "" if gap <= allowed else f"the model is {gap:.2f} off where chance explains {allowed:.2f}"
    return Fit(
        measured=measured,
        model=asked,
        loss=loss,
        loss_low=0.0 if low <= LEAST_LOSS else low,
        loss_high=_edge(likelihood, loss, MOST_LOSS, best - WILKS),
        gap=gap,
        allowed_gap=allowed,
        reason=reason,
    )


def _most_likely(likelihood: Callable[[float], float]) -> tuple[float, float]:
    """Return the loss of the largest likelihood, and that: a scan by half decades, then a search between them."""
    decades = log(MOST_LOSS / LEAST_LOSS) / log(10)
    tried: list[tuple[float, float]] = []
    for loss in np.geomspace(LEAST_LOSS, MOST_LOSS, int(decades * PER_DECADE) + 1):
        tried.append((likelihood(float(loss)), float(loss)))
        if tried[-1][0] < max(tried)[0] - HOPELESS:
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


def slowest_interval_s(
    fitted: Fit, messages: float, *, share: float = 0.5, scaled_back: bool = True
) -> tuple[float, float, float]:
    """Return the slowest of so many messages with the fitted loss, and with both ends of its interval, seconds.

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
    fleet = Fleet(messages=messages, planes=planes)
    middle, low, high = (
        float(slowest_s(fitted.model, replace(crossing, loss=loss), fleet, share=share))
        for loss in (fitted.loss, fitted.loss_low, fitted.loss_high)
    )
    return middle, min(low, middle), max(high, middle)  # a TCP's are sampled, and may differ by a round trip
