"""The messages of a transport's records, as a tail model is fitted to them: completions, path, and counted losses."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bicoastal.emulation.records import FlowRecord, IterationRecord
from bicoastal.experiments.analysis.comparison import TransportResult
from bicoastal.experiments.basics.value_text import value_text
from bicoastal.experiments.extrapolation.fitting.link_counts import Counted, count
from bicoastal.experiments.extrapolation.tails.model import Array, Crossing
from bicoastal.experiments.extrapolation.tails.models import MODELS, SAME_ALGORITHM
from bicoastal.experiments.extrapolation.tails.paced import FecBlocks, SelectiveRepeat
from bicoastal.experiments.extrapolation.tails.window import Tcp
from bicoastal.experiments.runs.store import RunRow, Store
from bicoastal.wan.units import format_rate, format_size, format_time

LEAST_FLOWS = 20
ALIKE = 0.999  # of the largest payload: stripes differ by a byte
SAME_PATH = 1.2  # rates and round trips that differ by a smaller factor count as one path: a handshake may have waited
MOST_S = 1e9  # of a run


class TooFewError(ValueError):
    """The measured messages are too few, or not of one kind. The error's text is one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Messages of one transport: the `crossing` of one flow, its loss unknown (0), and each flow's completion, seconds.

    scale: rates and payloads were divided by it. planes: flows of a message. iterations: of a run. connections: the
    number that carried the messages. counted: what the links lost; None where no link counted.
    """

    transport: str
    crossing: Crossing
    planes: int
    scale: float
    iterations: int
    connections: int
    completions_s: Array
    counted: Counted | None = None


def measure(store: Store, result: TransportResult) -> Measured:
    """Return a transport's flows as its records have them, without each flow's first iteration.

    Round-trip time: the least that a handshake or a sample shows. Rate: the payload over the bound without its delay.
    Raises TooFewError for too few messages, degraded or failed runs, runs of several set-ups, and paths that differ.
    """
    runs = store.runs(result.keys)
    _check_runs(result, runs)
    flows = [flow for flow in result.flows if flow.iteration > 0 and flow.completion_s is not None]
    if len(flows) < LEAST_FLOWS:
        raise TooFewError(f"{len(flows)} messages after the first iteration are fewer than {LEAST_FLOWS}")
    counted = count(
        [store.links(key) for key in result.keys],
        flows,
        [run.spec.topology for run in runs],
        repairs_per_loss=_repairs_per_loss(result.name),
    )
    _check_paths(store, result, flows, runs, counted)
    rtt_s = _rtt_s(store, result)
    trips = 1 + max(flow.trip for flow in flows)
    one = flows[0]
    ours = next(row for row in result.iterations if (row.job, row.iteration) == (one.job, one.iteration))
    same = [  # of one run: seeds have iterations of the same number
        flow
        for flow in store.flows(result.keys[0])
        if (flow.job, flow.iteration, flow.source) == (one.job, one.iteration, one.source)
    ]
    busy_s = ours.bound_s - trips * rtt_s / 2
    if busy_s <= 0:
        raise TooFewError("the bound is all delay, so that the records do not tell the rate")
    planes = len({flow.path for flow in same})
    payload = max(flow.payload_bytes for flow in flows)
    return Measured(
        transport=result.name,
        crossing=Crossing(
            payload_bytes=float(payload),
            rate_bps=8 * sum(flow.payload_bytes for flow in same) / busy_s / planes,
            rtt_s=rtt_s,
            loss=0.0,
            mtu_bytes=_packet_bytes(result.name, flows),
            idle_s=_idle_s(store.iterations(result.keys[0]), one.job),
        ),
        planes=planes,
        scale=runs[0].scale,
        connections=len(result.keys) * len({(flow.job, flow.flow) for flow in flows}),
        iterations=1 + max(flow.iteration for flow in flows),
        completions_s=np.array([f.completion_s for f in flows if f.payload_bytes > ALIKE * payload], dtype=float),
        counted=counted,
    )


def _check_runs(result: TransportResult, runs: Sequence[RunRow]) -> None:
    if len({(run.setup, run.parameters) for run in runs}) > 1:
        raise TooFewError(
            f"its runs are of several set-ups{_differences(runs)}: run the one that is meant into a directory of its "
            "own (compare --out)"
        )
    if result.status == "unsupported":
        raise TooFewError(f"it did not run: {result.reason}")
    if result.failed:
        raise TooFewError(f"{result.failed} of {result.n} iterations failed, and nothing says how slow they would be")
    if result.status == "degraded":
        why = result.reason.partition(";")[0]
        raise TooFewError(f"its runs are degraded ({why}), so that their completions are not the path's alone")


def _differences(runs: Sequence[RunRow]) -> str:
    values: dict[str, dict[str, None]] = defaultdict(dict)
    for run in runs:
        parameters = {key: value_text(value) for key, value in run.use.parameters}
        for key, value in (*run.setup_conditions.items(), *parameters.items()):
            values[key][value] = None
    listed = [f"{key} {' or '.join(found)}" for key, found in values.items() if len(found) > 1]
    return f" ({', '.join(listed[:3])}{', …' if len(listed) > 3 else ''})" if listed else ""


def _check_paths(
    store: Store, result: TransportResult, flows: Sequence[FlowRecord], runs: Sequence[RunRow], counted: Counted | None
) -> None:
    """Raise TooFewError where paths differ in rate or delay. Stripes depend on both, and a model has one path."""
    paths = sorted({flow.path for flow in flows})
    carried = [max(flow.payload_bytes for flow in flows if flow.path == path) for path in paths]
    shakes: dict[str, float] = {}
    for row in (row for key in result.keys for row in store.summaries(key)):
        if row.handshake_s and row.path in paths:
            shakes[row.path] = min(row.handshake_s, shakes.get(row.path, row.handshake_s))
    rates_bps, rtts_s = [0.0], [0.0]
    topology = runs[0].spec.topology
    if len(paths) == 1 and paths[0] not in topology.paths:
        # one flow over several paths: its own records do not tell them apart
        rates_bps = [link.rate_bps for link in topology.links.values()]
        rtts_s = [2 * link.delay_s for link in topology.links.values()]
    for what, values, formatted, most in (
        ("payloads", carried, format_size, 1 / ALIKE),
        ("round trips", list(shakes.values()), format_time, SAME_PATH),
        ("rates", rates_bps, format_rate, SAME_PATH),
        ("round trips", rtts_s, format_time, SAME_PATH),
    ):
        if values and max(values) > most * min(values):
            ends = f"{formatted(min(values))} to {formatted(max(values))}"
            lost = f"; its links counted {counted.said}, {counted.loss:.2g}" if counted else ""
            raise TooFewError(f"its paths differ ({what} of {ends}), and its model has one kind of path{lost}")


def _repairs_per_loss(name: str) -> int:
    """Return how many repairs a loss shows as; 0 where repairs do not tell losses."""
    match MODELS.get(name, SAME_ALGORITHM.get(name)):
        case FecBlocks():
            return 0
        case SelectiveRepeat(copies=copies):
            return copies
        case Tcp():
            return 1
    return 0


def _rtt_s(store: Store, result: TransportResult) -> float:
    shakes = [row.handshake_s for key in result.keys for row in store.summaries(key) if row.handshake_s]
    sampled = (store.samples(key, 0.0, MOST_S) for key in result.keys)  # of several seeds only one run is
    seen = [row.srtt_s for row in next(filter(None, sampled), []) if row.srtt_s]
    if not shakes and not seen:
        raise TooFewError("no handshake and no sample shows the round-trip time")
    return min([*shakes, *seen])


def _idle_s(iterations: Sequence[IterationRecord], job: str) -> float:
    """Return the median time from the end of an iteration to the beginning of the next one, in one run."""
    rows = sorted((row.start_s, row.completion_s or 0.0) for row in iterations if row.job == job)
    gaps = [after - start - took for (start, took), (after, _) in pairwise(rows)]
    return max(float(np.median(gaps)), 0.0) if gaps else 0.0


def _packet_bytes(name: str, flows: Sequence[FlowRecord]) -> int:
    """Return the size of full packets, from the number of packets of a flow that sent nothing twice.

    Where there are several trips, the record of the last one has the packets of all.
    """
    trips = 1 + max(flow.trip for flow in flows)
    sent = [flow for flow in flows if flow.packets] or list(flows)
    clean = [flow for flow in sent if not flow.repairs and not flow.probes] or sent
    one = min(clean, key=lambda each: each.packets)
    header = getattr(MODELS.get(name, SAME_ALGORITHM.get(name)), "header_bytes", 0)
    return round(trips * one.payload_bytes / max(one.packets - one.repairs, 1)) + header
