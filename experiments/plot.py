"""The pictures of a comparison, drawn from the store alone: who is how fast, why, and what loss does to it."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import is_color_like
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from emulation.records import FlowRecord, FlowSample, IterationRecord, QueueSample
from experiments.compare import Comparison, TransportResult
from experiments.pictures import OVERVIEW, SERIES
from experiments.store import Store
from experiments.whole_files import written_whole
from transports.registry import Registry, UnknownTransportError

STYLE: dict[Any, Any] = {  # of every picture; matplotlib's stubs want its 300 keys as literals
    "font.size": 10,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
}
BOUND_COLOUR = "#444444"
_SPARE_COLOURS = ("#cc79a7", "#56b4e9", "#e69f00", "#000000")  # of Okabe and Ito's, told apart by everyone
_SPARE_MARKERS = ("D", "v", "P", "X")
_LOG_FROM_RATIO = 4.0  # slowest over fastest: from here on a linear axis hides the fast ones


class Look(NamedTuple):
    """How a transport is drawn."""

    colour: str
    marker: str


_PLAIN = Look("#666666", "o")


def looks_of(names: Iterable[str], registry: Registry) -> dict[str, Look]:
    """Return each transport's colour and marker: what its specification says, or another where that is taken.

    A colour or marker that matplotlib does not know, or a transport that is not installed any more, is no reason to
    lose a picture: the plain one stands in for it.
    """
    looks: dict[str, Look] = {}
    for name in names:
        wanted = _wanted_look(name, registry)
        colours, markers = ({look[part] for look in looks.values()} for part in (0, 1))
        # a third party's transports may all have the default look
        own_colour = wanted.colour if is_color_like(wanted.colour) else _PLAIN.colour
        own_marker = wanted.marker if wanted.marker in MarkerStyle.markers else _PLAIN.marker
        colour = next((c for c in (own_colour, *_SPARE_COLOURS) if c not in colours), own_colour)
        marker = next((m for m in (own_marker, *_SPARE_MARKERS) if m not in markers), own_marker)
        looks[name] = Look(colour, marker)
    return looks


def _wanted_look(name: str, registry: Registry) -> Look:
    try:
        spec = registry.resolve(name)
    except UnknownTransportError:
        return _PLAIN
    return Look(spec.colour, spec.marker)


def draw_comparison(store: Store, comparison: Comparison, registry: Registry, directory: Path) -> list[Path]:
    """Draw what there is to draw into `directory` and return the files. Raises StoreError for one it cannot write."""
    ran = [result for result in comparison.transports if any(result.completions_s)]
    if not ran:
        return []
    looks = looks_of([result.name for result in ran], registry)
    with mpl.rc_context(STYLE):
        files = [save_picture(_overview(comparison, ran, looks), directory / OVERVIEW)]
        series = _series(store, comparison, ran, looks)
        if series is not None:
            files.append(save_picture(series, directory / SERIES))
    return files


def save_picture(figure: Figure, path: Path) -> Path:
    """Write a picture, whole or not at all; return its path. Raises StoreError where it cannot be written."""
    FigureCanvasAgg(figure)
    with written_whole(path) as unfinished:
        # no program version and no time in the file: the same results give the same bytes
        figure.savefig(unfinished, format="png", dpi=130, metadata={"Software": None})
    return path


# -- overview ---------------------------------------------------------------------------------------------------------


def _overview(comparison: Comparison, ran: Sequence[TransportResult], looks: Mapping[str, Look]) -> Figure:
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_completions(left, comparison, ran, looks)
    _draw_efficiencies(right, ran, looks)
    figure.suptitle(f"{comparison.scenario} ({comparison.backend})", x=0.01, ha="left", fontweight="bold")
    add_legend(figure, left)
    return figure


def add_legend(figure: Figure, axes: Axes) -> None:
    """Put the legend beside the title, where it can hide nothing."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=len(labels))


def _draw_completions(
    axes: Axes, comparison: Comparison, ran: Sequence[TransportResult], looks: Mapping[str, Look]
) -> None:
    longest = shortest = 1e3 * (comparison.bound_s or 0.0)
    for result in ran:
        times = sorted(1e3 * time for time in result.completions_s if time is not None)
        longest = max(longest, times[-1])
        shares = [(index + 1) / result.n for index in range(len(times))]
        look = looks[result.name]
        axes.step(
            [times[0], *times],
            [0.0, *shares],
            where="post",
            color=look.colour,
            marker=look.marker,
            markersize=4,
            markevery=slice(1, None, max(1, len(times) // 25)),
            label=result.name,
        )
    if comparison.bound_s is not None:
        axes.axvline(shortest, color=BOUND_COLOUR, linestyle="--", linewidth=1.2)
        axes.annotate(
            f"bound {shortest:.3g} ms",
            (shortest, 1.0),
            xytext=(-3, -2),
            textcoords="offset points",
            rotation=90,
            ha="right",
            va="top",
            color=BOUND_COLOUR,
            fontsize=9,
        )
    _time_axis(axes, shortest, longest)
    axes.set(xlabel="completion of an iteration, ms", ylabel="share of iterations", ylim=(0, 1.02))
    axes.set_title("Completion", loc="left", fontsize=11)


def _time_axis(axes: Axes, shortest: float, longest: float) -> None:
    if longest < _LOG_FROM_RATIO * shortest:
        span = max(longest - shortest, 0.1 * shortest)
        axes.set_xlim(shortest - 0.12 * span, longest + 0.05 * span)
        return
    axes.set_xscale("log")
    axes.set_xlim(shortest / 1.35, longest * 1.15)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw_efficiencies(axes: Axes, ran: Sequence[TransportResult], looks: Mapping[str, Look]) -> None:
    for place, result in enumerate(ran):
        look = looks[result.name]
        middle = result.efficiency_p50 or 0.0
        low, high = (result.efficiency_of(share) or 0.0 for share in (0.9, 0.1))
        axes.barh(place, middle, color=look.colour, height=0.6, alpha=0.85)
        axes.plot([low, high], [place, place], color="black", linewidth=1.4, marker="|", markersize=9)
        axes.annotate(
            f"{middle:.2f}",
            (max(high, middle), place),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontweight="bold",
        )
    axes.axvline(1.0, color=BOUND_COLOUR, linestyle="--", linewidth=1.2)
    axes.set_yticks(range(len(ran)), [result.name for result in ran])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(xlim=(0, 1.15), xlabel="bound / completion (line: 10th to 90th percentile)")
    axes.set_title("Efficiency, median", loc="left", fontsize=11)


# -- time series ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Window:
    """One iteration of one transport, and of its flows the one that ended last: that is the one all wait for."""

    result: TransportResult
    iteration: IterationRecord
    flow: FlowRecord
    samples: Sequence[FlowSample]
    queues: Sequence[QueueSample]

    @property
    def last_s(self) -> float:
        """When the last sample was taken, seconds since the iteration began."""
        return max(self.samples[-1].at_s - self.iteration.start_s, 1e-6)

    def times_ms(self, points: Sequence[FlowSample] | Sequence[QueueSample]) -> list[float]:
        return [1e3 * (point.at_s - self.iteration.start_s) for point in points]


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
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    grid = figure.subplots(3, len(shown), sharex="col", sharey="row", squeeze=False)
    for column, (title, windows) in enumerate(shown):
        cwnd, rate, queue = (grid[row][column] for row in range(3))
        for window in windows:
            _draw_window(window, looks[window.result.name], cwnd, rate, queue)
        cwnd.set_title(title, loc="left", fontsize=11)
        queue.set_xlabel("since the iteration began, ms")
        for axes in (cwnd, rate):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        _since_axis(queue, [1e3 * window.last_s for window in windows])
    for row, label in enumerate(("cwnd, MB", "rate that cwnd and\npacing allow, Gbit/s", "queue, MB")):
        grid[row][0].set_ylabel(label)
    grid[2][0].set_ylim(0, None)  # after everything is drawn: it fixes the upper end too
    add_legend(figure, grid[0][0])
    figure.suptitle(
        f"{comparison.scenario} ({comparison.backend}): the flow that ended last in each of these iterations",
        x=0.01,
        ha="left",
        fontweight="bold",
    )
    return figure


def _draw_window(window: _Window, look: Look, cwnd: Axes, rate: Axes, queue: Axes) -> None:
    times = window.times_ms(window.samples)
    windows = [None if s.cwnd_bytes is None else s.cwnd_bytes / 1e6 for s in window.samples]
    rates = [_rate_gbps(s) for s in window.samples]
    backlogs = [point.backlog_bytes / 1e6 for point in window.queues]
    for axes, xs, ys in (
        (cwnd, times, windows),
        (rate, times, rates),
        (queue, window.times_ms(window.queues), backlogs),
    ):
        points = [(x, y) for x, y in zip(xs, ys, strict=True) if y is not None]
        if not points:
            continue
        axes.plot(
            *zip(*points, strict=True), color=look.colour, marker=look.marker, markevery=[-1], label=window.result.name
        )


def _rate_gbps(sample: FlowSample) -> float | None:
    """Return what the sender allows itself, Gbit/s: cwnd per RTT or the pacing rate, whichever is less."""
    rates = []
    if sample.cwnd_bytes is not None and sample.srtt_s:
        rates.append(8e-9 * sample.cwnd_bytes / sample.srtt_s)
    if sample.pacing_rate_bps is not None:
        rates.append(1e-9 * sample.pacing_rate_bps)
    return min(rates, default=None)


def _since_axis(axes: Axes, ends_ms: Sequence[float]) -> None:
    """Scale the time since the beginning: linear up to the fastest end and, if others are far slower, then by logs."""
    fastest, slowest = min(ends_ms), max(ends_ms)
    axes.set_xlim(0, 1.04 * slowest)
    if slowest <= _LOG_FROM_RATIO * fastest:
        return
    axes.set_xscale("symlog", linthresh=fastest, linscale=1.0)
    axes.set_xlim(0, 1.15 * slowest)
    step = 10.0 ** math.floor(math.log10(fastest / 2))
    step *= 5 if fastest / step > 10 else 2 if fastest / step > 4 else 1
    linear = [step * number for number in range(int(fastest / step) + 1)]
    decades = range(math.floor(math.log10(fastest)), math.ceil(math.log10(slowest)) + 1)
    logs = [lead * 10.0**decade for decade in decades for lead in (1, 2, 5)]
    axes.set_xticks([*linear, *(tick for tick in logs if 1.5 * fastest < tick <= slowest)], minor=False)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _second(iterations: Sequence[IterationRecord]) -> IterationRecord:
    return iterations[min(1, len(iterations) - 1)]


def _slowest(iterations: Sequence[IterationRecord]) -> IterationRecord:
    later = iterations[1:] or iterations
    return max(later, key=lambda row: (row.completion_s or 0.0, -row.iteration))


def _window(
    store: Store, result: TransportResult, choose: Callable[[Sequence[IterationRecord]], IterationRecord]
) -> _Window | None:
    """Return the chosen iteration of the transport's first run, the one that has time series; None without any."""
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
    """Return the queue in the flow's way: of the link that its path is called after, else the longest at each time."""
    direct = [
        point for point in points if point.link == flow.path and point.direction == f"{flow.source}>{flow.destination}"
    ]
    if direct:
        return direct
    longest: dict[float, QueueSample] = {}
    for point in points:
        if point.at_s not in longest or point.backlog_bytes > longest[point.at_s].backlog_bytes:
            longest[point.at_s] = point
    return [longest[at_s] for at_s in sorted(longest)]


def short_probability(loss: float) -> str:
    """Return a probability as people write it: 1e-5, not 1e-05."""
    return re.sub(r"\.?0*e-0?", "e-", f"{loss:.2e}") if 0 < loss < 0.01 else f"{loss:g}"
