"""The curves of a study: efficiency and completion of each transport against what the study varies."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from bicoastal.experiments.analysis.comparison import TransportResult, percentile
from bicoastal.experiments.analysis.groups import Group, quantity, varied
from bicoastal.experiments.figures.style import BOUND_COLOUR, STYLE, Look, StyledFigure, add_legend, looks_of
from bicoastal.transports.registry import Registry

MOST_PANELS = 12
_RATIO_FOR_LOG = 20.0  # largest over least positive value
_BAND = (0.1, 0.5, 0.9)
_SHOWN = "Median of all iterations, the first one included; band: 10th to 90th percentile"

Scale = Literal["linear", "log"]


def curve_figures(
    groups: Sequence[Group], registry: Registry, *, labels: Mapping[str, str] | None = None
) -> dict[str, Figure]:
    """Return efficiency and completion over the key that has most values, a panel for each combination of the others.

    The figures are keyed by a name for a file, such as "efficiency-against-loss". labels: a key's name for people.
    There is no figure if nothing is varied, or if more than `MOST_PANELS` panels were needed.
    """
    keys = varied(groups)
    ran = [group for group in groups if any(result.n for result in group.comparison.transports)]
    if not keys or not ran:
        return {}
    along = max(keys, key=lambda key: len(keys[key]))
    others = [key for key in keys if key != along]
    panels = list(product(*(keys[key] for key in others)))
    if len(panels) > MOST_PANELS:
        return {}
    known = labels or {}
    shown = [
        (
            ", ".join(f"{known.get(key, key)}: {value}" for key, value in zip(others, panel, strict=True)),
            members,
        )
        for panel in panels
        if (members := [group for group in ran if panel == tuple(group.settings.get(key, "") for key in others)])
    ]
    names = dict.fromkeys(result.name for group in ran for result in group.comparison.transports if result.n)
    looks = looks_of(names, registry)
    with mpl.rc_context(STYLE):
        return {
            f"{what}-against-{file_word(along)}": _figure(shown, along, known.get(along, along), looks, draw)
            for what, draw in DRAWN.items()
        }


def file_word(key: str) -> str:
    """Return a key as a part of a file's name: "links.loss" is "loss", "links[1].loss" is "links-1-loss"."""
    word = key.removeprefix("links.").removeprefix("scenario.")
    return re.sub(r"[^A-Za-z0-9]+", "-", word).strip("-")


Draw = Callable[[Axes, Sequence[tuple[float, TransportResult]], Look, str], None]


def _figure(
    panels: Sequence[tuple[str, Sequence[Group]]], along: str, label: str, looks: Mapping[str, Look], draw: Draw
) -> Figure:
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = StyledFigure(
        figsize=(7 if columns == 1 else 4.6 * columns, 4.6 if rows == 1 else 3.8 * rows), layout="constrained"
    )
    places = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    values = list(dict.fromkeys(group.settings.get(along, "") for _, members in panels for group in members))
    positions, scale = axis_positions(values)
    at = dict(zip(values, positions, strict=True))
    for place, (axes, (title, members)) in enumerate(zip(places, panels, strict=False)):
        for name, look in looks.items():
            points = sorted(
                (
                    (at[group.settings.get(along, "")], result)
                    for group in members
                    for result in group.comparison.transports
                    if result.name == name and result.n
                ),
                key=lambda point: point[0],
            )
            if points:
                draw(axes, points, look, name)
        axes.set_xscale(scale)
        axes.set_xticks(positions, values)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(label)
        axes.set_title(title, loc="left", fontsize=10)
        if place % columns:
            axes.set_ylabel("")  # only the first panel has it
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    first = panels[0][1][0]
    title = f"{first.study}: {first.comparison.title}" if first.study else first.comparison.title
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    figure.supxlabel(_SHOWN, fontsize=9, color="#555555")
    add_legend(figure, places[0])
    return figure


def axis_positions(values: Sequence[str]) -> tuple[list[float], Scale]:
    """Return the places of a key's values on an axis, and the axis's scale, "linear" or a logarithmic one.

    Numbers, times, rates and sizes are placed by their value. If they span a factor of 20, the axis is logarithmic, and
    0 is placed a decade below the least other value. Values that are no quantities are evenly spaced, in their order.
    """
    numbers = [quantity(value) for value in values]
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers) or min(known) < 0:
        return [float(place) for place in range(len(values))], "linear"
    positive = [number for number in known if number > 0]
    if not positive or max(positive) < _RATIO_FOR_LOG * min(positive):
        return known, "linear"
    return [number or min(positive) / 10 for number in known], "log"


def _draw_efficiency(axes: Axes, points: Sequence[tuple[float, TransportResult]], look: Look, name: str) -> None:
    """Draw the efficiency of a transport. A failed iteration has an efficiency of 0."""
    rows = [(at, *(result.efficiency_of(share) or 0.0 for share in _BAND)) for at, result in points]
    places, lows, middles, highs = zip(*rows, strict=True)
    axes.fill_between(places, lows, highs, color=look.colour, alpha=0.15, linewidth=0)
    axes.plot(places, middles, color=look.colour, marker=look.marker, label=name)
    axes.axhline(1.0, color=BOUND_COLOUR, linestyle="--", linewidth=1.2)
    axes.set(ylim=(0, 1.05), ylabel="efficiency = bound / completion")


def _draw_completion(axes: Axes, points: Sequence[tuple[float, TransportResult]], look: Look, name: str) -> None:
    """Draw the completions of a transport. The curve has a gap where a percentile falls on a failed iteration."""
    rows = [(at, *(_milliseconds(percentile(result.completions_s, share)) for share in _BAND)) for at, result in points]
    places, lows, middles, highs = zip(*rows, strict=True)
    axes.fill_between(places, lows, highs, color=look.colour, alpha=0.15, linewidth=0)
    axes.plot(places, middles, color=look.colour, marker=look.marker, label=name)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("completion, ms")


def _milliseconds(time_s: float | None) -> float:
    return float("nan") if time_s is None else 1e3 * time_s


DRAWN: Mapping[str, Draw] = {"efficiency": _draw_efficiency, "completion": _draw_completion}
"""The quantities that are drawn against the varied key, one figure each."""
