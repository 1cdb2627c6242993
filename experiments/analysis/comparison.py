"""The comparison of transports, computed from stored runs: as records, as texts and as JSON.

Percentiles are by nearest rank. So p50 is the completion of a real iteration: the least one that half of the iterations
do not exceed. A failed iteration counts as infinitely slow: a percentile that falls on it has no value.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bicoastal.emulation.records import FlowRecord, IterationRecord
from bicoastal.experiments.analysis.rounding import rounded
from bicoastal.experiments.runs.store import RunRow, RunStatus, Store
from bicoastal.wan.units import format_time

MIN_ITERATIONS_FOR_P99 = 100
_GRAVITY: tuple[RunStatus, ...] = ("ok", "degraded", "unsupported", "failed")


def percentile(values: Iterable[float | None], share: float) -> float | None:
    """Return the nearest-rank percentile, `share` from 0 to 1; None counts as infinite. None where there is no value.

    Source: the smallest value whose cumulative frequency reaches `share` (Hyndman and Fan, "Sample quantiles in
    statistical packages", 1996, definition 1).
    """
    ordered = sorted(math.inf if value is None else value for value in values)
    if not ordered:
        return None
    rank = max(1, math.ceil(share * len(ordered) - 1e-9))  # 0.99 * 100 is a little more than 99 in floats
    found = ordered[rank - 1]
    return None if math.isinf(found) else found


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportResult:
    """The results of all runs of one transport, over all seeds.

    iterations, flows: of the compared jobs, seed by seed. keys: of the runs in the store.
    """

    name: str
    status: RunStatus
    reason: str
    keys: tuple[str, ...]
    iterations: tuple[IterationRecord, ...]
    flows: tuple[FlowRecord, ...]

    @property
    def n(self) -> int:
        """Iterations begun, failed ones included."""
        return len(self.iterations)

    @property
    def failed(self) -> int:
        """Iterations that did not complete, or whose result was wrong."""
        return sum(iteration.status == "failed" for iteration in self.iterations)

    @property
    def completions_s(self) -> tuple[float | None, ...]:
        """Completion of each iteration, seconds; None for a failed one."""
        return tuple(None if row.status == "failed" else row.completion_s for row in self.iterations)

    @property
    def first_s(self) -> float | None:
        """Median completion of each run's first iteration, before a transport has learned anything."""
        pairs = zip(self.iterations, self.completions_s, strict=True)
        return percentile((completion for row, completion in pairs if row.iteration == 0), 0.5)

    @property
    def p99_s(self) -> float | None:
        """99th percentile of the completions; None below 100 iterations, which are too few for it."""
        return percentile(self.completions_s, 0.99) if self.n >= MIN_ITERATIONS_FOR_P99 else None

    @property
    def efficiencies(self) -> tuple[float, ...]:
        """Bound over completion of each iteration; 0 for a failed one."""
        pairs = zip(self.iterations, self.completions_s, strict=True)
        return tuple(0.0 if not completion else row.bound_s / completion for row, completion in pairs)

    @property
    def efficiency_p50(self) -> float | None:
        """The efficiency that half of the iterations reach; None if more than half failed."""
        return self.efficiency_of(0.5) or None

    def efficiency_of(self, share: float) -> float | None:
        """Return the efficiency that `share` of the iterations reach: that of the completion at this percentile."""
        best_first = percentile((-value for value in self.efficiencies), share)
        return None if best_first is None else abs(best_first)

    @property
    def overhead(self) -> float | None:
        """Bytes put on the wire, both directions, over payload delivered, minus one; None if nothing arrived."""
        delivered = sum(flow.payload_bytes for flow in self.flows if flow.completion_s is not None)
        return sum(row.wire_bytes for row in self.iterations) / delivered - 1 if delivered else None

    @property
    def repairs(self) -> int:
        """Packets that carried data sent before."""
        return sum(flow.repairs for flow in self.flows)

    @property
    def timeouts(self) -> int:
        """Expiries of a retransmission timer."""
        return sum(flow.timeouts for flow in self.flows)

    @property
    def trouble(self) -> str:
        """The status and its reason as a text, if there is a reason; else empty."""
        return f"{self.name} {self.status}: {self.reason}" if self.reason else ""

    def cells(self) -> dict[str, str]:
        """Return the figures as tables show them, by heading: times in ms, a dash for a missing value."""
        ran, efficiency, overhead = self.n > 0, self.efficiency_p50, self.overhead
        times = {
            "first": self.first_s,
            "min": percentile(self.completions_s, 0.0),
            "p50": percentile(self.completions_s, 0.5),
            "p99": self.p99_s,
            "max": percentile(self.completions_s, 1.0),
        }
        return {
            "n": str(self.n),
            **{heading: format_milliseconds(time_s) for heading, time_s in times.items()},
            "efficiency": "–" if efficiency is None else f"{efficiency:.3f}",
            "overhead": "–" if overhead is None else f"{100 * overhead:.2f} %",
            "repairs": str(self.repairs) if ran else "–",
            "timeouts": str(self.timeouts) if ran else "–",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Transports side by side. bound_s, local_s: of the compared job where it is largest; None when nothing ran."""

    scenario: str
    backend: str
    scale: float
    bound_s: float | None
    local_s: float | None
    array_note: str
    transports: tuple[TransportResult, ...]

    @property
    def title(self) -> str:
        """The title of figures: the scenario, the world and its scale."""
        return f"{self.scenario} ({self.backend}{'' if self.scale == 1 else f', rates and payloads ÷ {self.scale:g}'})"


def compare(store: Store, keys: Sequence[str]) -> Comparison:
    """Return the comparison of the runs with these keys, which are all of one scenario and one world.

    Raises ValueError if there is none. Transports are in the order of their first key.
    """
    return compare_runs(store, store.runs(keys))


def compare_runs(store: Store, runs: Sequence[RunRow]) -> Comparison:
    """Return the comparison of these runs of the store, as `compare` does."""
    if not runs:
        raise ValueError("keys: none of these runs is in the store")
    names = dict.fromkeys(run.transport for run in runs)
    results = tuple(_result(store, name, [run for run in runs if run.transport == name]) for name in names)
    bounds = [row.bound_s for result in results for row in result.iterations]
    return Comparison(
        scenario=runs[0].scenario,
        backend=runs[0].backend,
        scale=max(run.scale for run in runs),
        bound_s=max(bounds, default=None),
        local_s=max((row.local_s for result in results for row in result.iterations), default=None),
        array_note=next((run.array_note for run in runs if run.array_note), ""),
        transports=results,
    )


def _result(store: Store, name: str, runs: Sequence[RunRow]) -> TransportResult:
    worst = max(runs, key=lambda run: _GRAVITY.index(run.status))
    reason = worst.reason
    if reason and len(runs) > 1 and worst.status != "unsupported":
        reason = f"seed {worst.seed}: {reason}"
    return TransportResult(
        name=name,
        status=worst.status,
        reason=reason,
        keys=tuple(run.key for run in runs),
        iterations=tuple(row for run in runs for row in store.iterations(run.key) if row.job in run.jobs),
        flows=tuple(row for run in runs for row in store.flows(run.key) if row.job in run.jobs),
    )


# -- JSON -------------------------------------------------------------------------------------------------------------


def comparison_document(
    comparison: Comparison, at_scale: Mapping[str, Mapping[str, float]] | None = None
) -> dict[str, Any]:
    """Return the JSON document of `compare --json`; its keys are in a fixed order, its floats have 12 digits.

    at_scale: by transport, the result for a whole deployment.
    """
    scaled = {name: rounded(dict(values)) for name, values in (at_scale or {}).items()}
    return {
        "scenario": comparison.scenario,
        "backend": comparison.backend,
        "scale": rounded(comparison.scale),
        "bound_s": rounded(comparison.bound_s),
        "transports": [
            {
                "name": result.name,
                "status": result.status,
                "reason": result.reason,
                "n": result.n,
                "first_s": rounded(result.first_s),
                "completion_s": {
                    "min": rounded(percentile(result.completions_s, 0.0)),
                    "p50": rounded(percentile(result.completions_s, 0.5)),
                    "p99": rounded(result.p99_s),
                    "max": rounded(percentile(result.completions_s, 1.0)),
                },
                "efficiency_p50": rounded(result.efficiency_p50),
                "overhead": rounded(result.overhead),
                "repairs": result.repairs if result.n else None,
                "timeouts": result.timeouts if result.n else None,
                "failed": result.failed,
                "at_scale": scaled.get(result.name),
            }
            for result in comparison.transports
        ],
    }


# -- texts -------------------------------------------------------------------------------------------------------------


def format_milliseconds(time_s: float | None) -> str:
    """Return a time as tables show it, in ms with three to five digits; a dash for None."""
    if time_s is None:
        return "–"
    return f"{1e3 * time_s:.2f}" if time_s < 0.1 else f"{1e3 * time_s:.1f}" if time_s < 1 else f"{1e3 * time_s:.0f}"


def meaning_of(comparison: Comparison, *, wide: bool = True) -> list[str]:
    """Return the meaning of a table's columns, each as "term: meaning". wide: the table has the column "first"."""
    if comparison.bound_s is None:
        return []
    lines = [
        f"bound: {format_time(comparison.bound_s)} = one-way propagation + payload / bottleneck rate, per trip.",
        "efficiency: bound / completion; the median.",
    ]
    lines.append(
        "completion: from the first byte offered to the last byte verified at the receiver, slowest message, both "
        "directions; over all iterations, the first one (nothing learned yet) included"
        + ("; that one alone under first." if wide else ".")
    )
    if comparison.local_s:
        lines.append(
            f"local: {format_time(comparison.local_s)} inside each coast, before and after; no part of completion."
        )
    if any(result.n and result.p99_s is None and not result.failed for result in comparison.transports):
        lines.append(f"p99: needs {MIN_ITERATIONS_FOR_P99} iterations (--seeds adds some).")
    if any(result.failed for result in comparison.transports):
        lines.append("–: falls on an iteration that failed, which counts as infinitely slow.")
    lines += [
        "overhead: all bytes on the wire, both directions, over payload delivered, minus one.",
        "repairs: packets that carry data sent before, all iterations.",
        "timeouts: expiries of a retransmission timer, all iterations.",
    ]
    if comparison.scale != 1:
        lines.append(f"scale: rates and payloads were divided by {comparison.scale:g}; the RTT was kept.")
    if comparison.array_note:
        lines.append(f"arrays: {comparison.array_note}")
    return lines
