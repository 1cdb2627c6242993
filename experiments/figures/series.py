"""The time series of a comparison: window, rate and queue of two iterations of each transport."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from bicoastal.emulation.records import FlowRecord, FlowSample, IterationRecord, QueueSample
from bicoastal.experiments.analysis.comparison import Comparison, TransportResult
from bicoastal.experiments.figures.style import LOG_FROM_RATIO, STYLE, Look, StyledFigure, add_legend, looks_of
from bicoastal.experiments.runs.store import Store
from bicoastal.transports.registry import Registry

CWND_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
RATE_UNITS = ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))
_LOG_WHERE = "#f3f3f3"
_WIDE_RATIO = 300.0  # largest over least value: from here on each decade has one tick
_MOST_NAMED = 60  # letters of the flows' names in one line

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Window:
    """One iteration of one transport, and its flow that ended last: the iteration waits for that one."""

    result: TransportResult
    iteration: IterationRecord
    flow: FlowRecord
    samples: Sequence[FlowSample]
    queues: Sequence[QueueSample]

    @property
    def end_ms(self) -> float:
        """The duration of the iteration, ms."""
        return 1e3 * max(self.iteration.completion_s or 0.0, 1e-6)

    @property
    def name(self) -> str:
        """The transport and the flow's path."""
        return f"{self.result.name} on {self.flow.path}"

    def _since_ms(self, at_s: float) -> float:
        return 1e3 * (at_s - self.iteration.start_s)

    def cwnds(self) -> Points:
        """Return the window over time, bytes. The last value is kept until the end of the iteration."""
        return self._kept([(self._since_ms(s.at_s), s.cwnd_bytes) for s in self.samples])

    def rates(self) -> Points:
        """Return the allowed sending rate over time, bit/s, until the end of the iteration."""
        return self._kept([(self._since_ms(s.at_s), _rate_bps(s)) for s in self.samples])

    def backlogs(self) -> Points:
        """Return the queue on the flow's path over time, bytes."""
        return [(self._since_ms(point.at_s), point.backlog_bytes) for point in self.queues]

    def _kept(self, points: Sequence[tuple[float, float | None]]) -> Points:
        known = [(at_ms, value) for at_ms, value in points if value is not None]
        return [*known, (self.end_ms, known[-1][1])] if known else []


def series_figure(store: Store, comparison: Comparison, registry: Registry) -> Figure | None:
    """Return the figure of a comparison's time series; None if its runs have none in the store.

    One column shows the second iteration, the other one the slowest from the second on. Each transport is shown by its
    flow that ended last. registry: has each transport's colour and marker.
    """
    ran = [result for result in comparison.transports if any(result.completions_s)]
    looks = looks_of([result.name for result in ran], registry)
    with mpl.rc_context(STYLE):
        return _series(store, comparison, ran, looks)


def _series(
    store: Store, comparison: Comparison, ran: Sequence[TransportResult], looks: Mapping[str, Look]
) -> Figure | None:
    columns = [
        ("Second iteration", [_window(store, result, _second) for result in ran]),
        ("Slowest iteration from the second on", [_window(store, result, _slowest) for result in ran]),
    ]
    shown = [(title, [window for window in windows if window is not None]) for title, windows in columns]
    shown = [(title, windows) for title, windows in shown if windows]
    if not shown:
        return None
    every = [window for _, windows in shown for window in windows]
    figure = StyledFigure(figsize=(11, 7.5), layout="constrained")
    grid = figure.subplots(3, len(shown), sharex="col", sharey="row", squeeze=False)
    rows: Sequence[tuple[str, Callable[[_Window], Points], Sequence[tuple[float, str]]]] = (
        ("cwnd", _Window.cwnds, CWND_UNITS),
        ("rate that cwnd and\npacing allow", _Window.rates, RATE_UNITS),
        ("queue", _Window.backlogs, CWND_UNITS),
    )
    for row, (label, points_of, units) in zip(grid, rows, strict=True):
        values = [value for window in every for _, value in points_of(window)]
        positive = [value for value in values if value > 0] or [1.0]
        logarithmic = points_of is not _Window.backlogs and max(positive) >= LOG_FROM_RATIO * min(positive)
        typical = math.sqrt(max(positive) * min(positive)) if logarithmic else max(positive)
        factor, unit = unit_for(typical, units)
        for axes, (_, windows) in zip(row, shown, strict=True):
            for window in windows:
                _draw_line(axes, points_of(window), factor, looks[window.result.name], window.result.name)
        row[0].set_ylabel(f"{label}, {unit}")
        _value_axis(row[0], min(positive) / factor, max(positive) / factor, logarithmic=logarithmic)
    for column, (title, windows) in enumerate(shown):
        grid[0][column].set_title(
            f"{title}\n{_enumerated([window.name for window in windows])}", loc="left", fontsize=9
        )
        _since_axis([row[column] for row in grid], [window.end_ms for window in windows])
    if any("+" in window.flow.path for window in every):
        what = "Over several paths: the sums of their cwnd and rate, and the longest of their queues."
        figure.supxlabel(what, fontsize=9, color="#555555")
    add_legend(figure, grid[0][0])
    figure.suptitle(f"{comparison.title}: the flow that ended last", x=0.01, ha="left", fontweight="bold")
    return figure


def unit_for(value: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """Return the largest of `units` (size, name) that is not above `value`; else the last one."""
    return next((each for each in units if value >= each[0]), units[-1])


def _enumerated(names: Sequence[str]) -> str:
    """Return names in lines of limited length."""
    lines = [names[0]]
    for name in names[1:]:
        if len(lines[-1]) + len(name) > _MOST_NAMED:
            lines.append(name)
        else:
            lines[-1] += f", {name}"
    return ",\n".join(lines)


def _draw_line(axes: Axes, points: Points, factor: float, look: Look, name: str) -> None:
    if points:
        times, values = zip(*points, strict=True)
        scaled = [value / factor for value in values]
        axes.plot(times, scaled, color=look.colour, marker=look.marker, markevery=[-1], label=name)


def _value_axis(axes: Axes, least: float, most: float, *, logarithmic: bool) -> None:
    if not logarithmic:
        axes.set_ylim(0, 1.08 * most)
        return
    axes.set_yscale("log")
    few = most < _WIDE_RATIO * least
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _rate_bps(sample: FlowSample) -> float | None:
    """Return the allowed sending rate, bit/s: the lesser of cwnd / RTT and the pacing rate."""
    rates = []
    if sample.cwnd_bytes is not None and sample.srtt_s:
        rates.append(8 * sample.cwnd_bytes / sample.srtt_s)
    if sample.pacing_rate_bps is not None:
        rates.append(sample.pacing_rate_bps)
    return min(rates, default=None)


def _since_axis(column: Sequence[Axes], ends_ms: Sequence[float]) -> None:
    """Scale the time axis: linear up to about the fastest end, then logarithmic if others are far slower."""
    fastest, slowest = min(ends_ms), max(ends_ms)
    lowest, label = column[-1], "since the iteration began, ms"
    lowest.set_xlabel(label)
    lowest.set_xlim(0, 1.04 * slowest)
    if slowest <= LOG_FROM_RATIO * fastest:
        return
    step = 10.0 ** math.floor(math.log10(fastest / 2))
    step *= 5 if fastest / step > 10 else 2 if fastest / step > 4 else 1
    linear = [step * number for number in range(1, int(fastest / step) + 1)]
    last = linear[-1]
    lowest.set_xscale("symlog", linthresh=last, linscale=1.0)
    lowest.set_xlim(0, 1.15 * slowest)
    decades = range(math.floor(math.log10(last)), math.ceil(math.log10(slowest)) + 1)
    logs = [lead * 10.0**decade for decade in decades for lead in (1, 2, 5)]
    lowest.set_xticks([0.0, *linear, *(tick for tick in logs if 1.3 * last < tick <= 1.15 * slowest)], minor=False)
    lowest.xaxis.set_minor_locator(NullLocator())
    lowest.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    lowest.set_xlabel(f"{label}; shaded, from {last:g} on: logarithmic")
    for axes in column:
        axes.axvspan(last, 1.15 * slowest, color=_LOG_WHERE, linewidth=0, zorder=-1)


def _second(iterations: Sequence[IterationRecord]) -> IterationRecord:
    return iterations[min(1, len(iterations) - 1)]


def _slowest(iterations: Sequence[IterationRecord]) -> IterationRecord:
    later = iterations[1:] or iterations
    return max(later, key=lambda row: (row.completion_s or 0.0, -row.iteration))


def _window(
    store: Store, result: TransportResult, choose: Callable[[Sequence[IterationRecord]], IterationRecord]
) -> _Window | None:
    """Return the chosen iteration of the transport's first run, which has the time series; None without any."""
    key = result.keys[0]
    job = next((row.job for row in result.iterations), None)
    complete = [row for row in store.iterations(key) if row.job == job and row.completion_s is not None]
    if not complete:
        return None
    iteration = choose(complete)
    flows = [row for row in store.flows(key) if row.job == job and row.iteration == iteration.iteration]
    flow = max(flows, key=lambda row: (row.start_s + (row.completion_s or 0.0), row.flow))
    stop_s = iteration.start_s + (iteration.completion_s or 0.0)
    samples = [s for s in store.samples(key, iteration.start_s, stop_s) if s.flow == flow.flow]
    if not samples:
        return None
    queues = _queues(store.queues(key, iteration.start_s, stop_s), flow)
    return _Window(result, iteration, flow, samples, queues)


def _queues(points: Sequence[QueueSample], flow: FlowRecord) -> list[QueueSample]:
    """Return the longest queue at each time, of the links that the flow's path names; else of all links."""
    names, direction = flow.path.split("+"), f"{flow.source}>{flow.destination}"
    direct = [point for point in points if point.link in names and point.direction == direction]
    longest: dict[float, QueueSample] = {}
    for point in direct or points:
        if point.at_s not in longest or point.backlog_bytes > longest[point.at_s].backlog_bytes:
            longest[point.at_s] = point
    return [longest[at_s] for at_s in sorted(longest)]
