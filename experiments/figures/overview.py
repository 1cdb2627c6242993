"""The overview of a comparison: the distribution of completions, and the median efficiency of each transport."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from bicoastal.experiments.analysis.comparison import Comparison, TransportResult
from bicoastal.experiments.figures.style import (
    BOUND_COLOUR,
    LOG_FROM_RATIO,
    STYLE,
    Look,
    StyledFigure,
    add_legend,
    looks_of,
)
from bicoastal.transports.registry import Registry

_UNDER_BOUND = 0.85  # above this a number would cross the line of the bound


def overview_figure(comparison: Comparison, registry: Registry) -> Figure | None:
    """Return the figure of a comparison; None if no iteration of any transport completed.

    registry: has each transport's colour and marker.
    """
    ran = [result for result in comparison.transports if any(result.completions_s)]
    if not ran:
        return None
    looks = looks_of([result.name for result in ran], registry)
    with mpl.rc_context(STYLE):
        return _overview(comparison, ran, looks)


def _overview(comparison: Comparison, ran: Sequence[TransportResult], looks: Mapping[str, Look]) -> Figure:
    figure = StyledFigure(figsize=(11, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_completions(left, comparison, ran, looks)
    _draw_efficiencies(right, ran, looks)
    figure.suptitle(comparison.title, x=0.01, ha="left", fontweight="bold")
    add_legend(figure, left)
    return figure


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
    if longest < LOG_FROM_RATIO * shortest:
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
        end = max(high, middle)
        axes.annotate(
            f"{middle:.2f}",
            (1.0 if _UNDER_BOUND < end < 1.0 else end, place),
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
