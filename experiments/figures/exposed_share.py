"""The figures of a sizing: the exposed share with each transport against rate, RTT and loss; and the stages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import is_color_like
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullLocator

from bicoastal.experiments.extrapolation.bandwidth_need import (
    Question,
    at,
    gradient_exposed_s,
    least_bps,
    lost_s,
    step_share,
)
from bicoastal.experiments.extrapolation.exposure import cover_s
from bicoastal.experiments.extrapolation.stages import gradient_stages
from bicoastal.experiments.extrapolation.tails.model import Array, TailModel
from bicoastal.experiments.extrapolation.tails.pointwise import PointwiseModel
from bicoastal.experiments.extrapolation.tails.window import Tcp
from bicoastal.experiments.figures.style import STYLE, Look, StyledFigure, short_probability
from bicoastal.transports.registry import Registry, UnknownTransportError
from bicoastal.wan.units import format_rate, format_time

LOSSES = (1e-8, 1e-2)
TAIL_LOSSES = (1e-10, 1e-1)
RTTS_MS = (2.0, 120.0)
RATES_BPS = (1e9, 1e12)
POINTS, POINTWISE_POINTS = 121, 13
LEGEND_COLUMNS = 5
MARGIN = 1.12  # of the stages' axis, beyond the longest bar that is shown whole
TCP_FLOWS = 1024  # fewer than for a printed number: enough for a line in a picture
_UNKNOWN = ("#882255", "#117733", "#999933", "#332288")
_UNKNOWN_MARKERS = ("P", "*", "h", "d")
_WIDEST, _THINNEST = 3.0, 1.2  # line widths: if lines overlap, both stay visible
_COVER, _LOST = "#444444", "#bbbbbb"
_NETWORKS = {"scale-up": "#56b4e9", "scale-out": "#0072b2", "WAN": "#d55e00"}


def looks(names: Sequence[str], registry: Registry) -> dict[str, Look]:
    """Return each model's colour and marker: the transport's, or spare ones if no transport has that name."""
    found: dict[str, Look] = {}
    spare = iter(zip(_UNKNOWN, _UNKNOWN_MARKERS, strict=True))
    for name in names:
        try:
            spec = registry.resolve(name)
        except UnknownTransportError:
            found[name] = Look(*next(spare))
        else:
            found[name] = Look(spec.colour if is_color_like(spec.colour) else _COVER, spec.marker)
    return found


def exposed_figure(question: Question, models: Sequence[TailModel], target: float | None, registry: Registry) -> Figure:
    """Return the exposed share of a step with each model, against rate, round-trip time, loss, and loss of the tail.

    target: the share aimed at; None: that of a step whose gradients are hidden. registry: has each
    transport's colour and marker.
    """
    named = looks([model.name for model in models], registry)
    with mpl.rc_context(STYLE):
        return _exposed(question, _of_few_flows(models), target, named)


def stages_figure(question: Question, models: Sequence[TailModel]) -> Figure:
    """Return the stages of the gradient all-reduce, a bar for each model, and the computation that can hide them.

    A bar that is much longer than the others is cut at the right edge, where a break marks it.
    """
    with mpl.rc_context(STYLE):
        return _stages(question, _of_few_flows(models))


def _of_few_flows(models: Sequence[TailModel]) -> list[TailModel]:
    return [replace(model, samples=TCP_FLOWS) if isinstance(model, Tcp) else model for model in models]


def _exposed(
    question: Question, models: Sequence[TailModel], target: float | None, named: Mapping[str, Look]
) -> Figure:
    deployment = question.deployment
    rate_bps, whose = _usual_rate(question, models)
    figure = StyledFigure(figsize=(11, 8), layout="constrained")
    (rate, distance), (loss, tail) = figure.subplots(2, 2, sharey=True)
    least = float(step_share(question, 0.0)) if target is None else target

    def share(model: TailModel, asked: Question, bps: Array | float, rtt_s: Array | float) -> Array:
        return 100 * step_share(asked, gradient_exposed_s(asked, model, bps, rtt_s))

    rtt_s = deployment.wan_rtt_s
    rates_gbps = (RATES_BPS[0] / 1e9, RATES_BPS[1] / 1e9)
    _lines(rate, models, named, rates_gbps, lambda model, x: share(model, question, 1e9 * x, rtt_s))
    _lines(distance, models, named, RTTS_MS, lambda model, x: share(model, question, rate_bps, 1e-3 * x))
    _lines(loss, models, named, LOSSES, lambda model, x: share(model, at(question, loss=x), rate_bps, rtt_s))
    _lines(
        tail,
        models,
        named,
        TAIL_LOSSES,
        lambda model, x: share(model, at(question, loss=0.0, tail_loss=x), rate_bps, rtt_s),
    )
    at_rate, at_rtt = f"at {format_rate(rate_bps)} per GPU", f"RTT {format_time(rtt_s)}"
    at_loss = f"loss {short_probability(float(np.max(question.path.loss)))}"
    _label(rate, "WAN bandwidth per GPU, Gbit/s", f"{at_rtt}, {at_loss}")
    _label(distance, "round-trip time, ms", f"{at_rate}, {at_loss}")
    _label(loss, "loss per packet", f"{at_rate}, {at_rtt}")
    _label(tail, "loss of a message's last packet", f"{at_rate}, {at_rtt}, nothing else is lost")
    for axes in (rate, distance):
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    meaning = "all gradients hidden" if target is None else "target"
    for axes in (rate, distance, loss, tail):
        axes.axhline(100 * least, color=_COVER, linestyle="--", linewidth=1.2, label=f"{meaning}: {100 * least:.3g} %")
    for axes in (rate, loss):
        axes.set_ylabel("exposed share of a step, %")
    rate.set_yscale("log")
    top = rate.get_ylim()[1]
    ticks = [value for value in (2, 3, 4, 5, 6, 7, 8, 10, 15, 20, 30, 50, 100) if rate.get_ylim()[0] <= value <= top]
    rate.set_yticks(ticks, [str(value) for value in ticks])
    rate.yaxis.set_minor_locator(NullLocator())
    fleet = round(question.fleet.messages)
    waits = f"slowest of {fleet:,} messages, {100 * question.share:g} % of steps"
    title = f"{deployment.name}: {waits}\n{format_rate(rate_bps)} per GPU: {whose}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    handles, labels = rate.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), LEGEND_COLUMNS))
    return figure


def _usual_rate(question: Question, models: Sequence[TailModel]) -> tuple[float, str]:
    """Return the rate at which the figures against RTT and loss are drawn, and its origin in words.

    It is the deployment's rate; else the least one needed without loss; else, if none suffices, the largest drawn.
    """
    if question.deployment.wan_bps is not None:
        return question.deployment.wan_bps, "the deployment's own rate"
    clean = at(question, loss=0.0)
    rates = [float(least_bps(clean, model)) for model in models]
    if finite := [rate for rate in rates if np.isfinite(rate)]:
        return min(finite), "the least that hides all gradients where nothing is lost"
    return RATES_BPS[1], "the most drawn; no rate hides all gradients, even where nothing is lost"


def _lines(
    axes: Axes,
    models: Sequence[TailModel],
    named: Mapping[str, Look],
    span: tuple[float, float],
    answer: Callable[[TailModel, Array], Array],
) -> None:
    """Draw a line for each model over a logarithmic axis."""
    for number, model in enumerate(models):
        points = POINTWISE_POINTS if isinstance(model, PointwiseModel) else POINTS
        computed = np.geomspace(*span, points)
        values = np.geomspace(*span, POINTS)
        shares = np.interp(np.log(values), np.log(computed), answer(model, computed))
        look = named[model.name]
        every = POINTS // 6  # at different places, because lines may overlap
        first = number * every // len(models)
        thinner = number / max(len(models) - 1, 1)
        axes.plot(
            values,
            shares,
            color=look.colour,
            marker=look.marker,
            markevery=(first, every),
            markersize=5,
            linewidth=_WIDEST + (_THINNEST - _WIDEST) * thinner,
            label=model.name,
        )
    axes.set_xscale("log")


def _label(axes: Axes, along: str, where: str) -> None:
    axes.set_xlabel(along)
    axes.set_title(where, loc="left", fontsize=10)


def _stages(question: Question, models: Sequence[TailModel]) -> Figure:
    deployment, (rate_bps, whose) = question.deployment, _usual_rate(question, models)
    plain = replace(question.assumptions, chunks=1)
    stages = gradient_stages(deployment, plain, rate_bps)
    lost = {model.name: float(lost_s(question, model, rate_bps)) for model in models}
    figure = StyledFigure(figsize=(11, 2.0 + 0.42 * (len(models) + 1)), layout="constrained")
    axes = figure.subplots()
    names = ["no transport", *lost]
    reach = 1e3 * (sum(stage.time_s for stage in stages) + sorted(lost.values())[len(lost) // 2])
    reach = max(reach, 1.6e3 * cover_s(deployment, plain))
    edge = MARGIN * reach
    for row, name in enumerate(names):
        start = 0.0
        for stage in stages:
            width = 1e3 * stage.time_s
            axes.barh(row, width, left=start, color=_NETWORKS[stage.network], edgecolor="white", height=0.7)
            if row == 0:
                axes.annotate(stage.name, (start + width / 2, -0.45), rotation=35, fontsize=8, va="bottom")
            start += width
            if stage.network == "WAN" and name in lost:
                width = 1e3 * lost[name]
                axes.barh(row, width, left=start, color=_LOST, hatch="//", edgecolor="white", height=0.7)
                start += width
        _total(axes, row, start, edge)
    axes.axvline(
        1e3 * cover_s(deployment, plain), color=_COVER, linestyle="--", linewidth=1.2, label="computation hides"
    )
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlim=(0, edge), xlabel="gradient all-reduce of a step, ms")
    axes.grid(visible=False, axis="y")
    title = f"{deployment.name}: stages one after another, at {format_rate(rate_bps)} per GPU ({whose})"
    axes.set_title(title, loc="left", fontsize=10, pad=40)
    used = {stage.network for stage in stages}
    patches = [Patch(color=colour, label=network) for network, colour in _NETWORKS.items() if network in used]
    patches.append(
        Patch(facecolor=_LOST, hatch="//", edgecolor="white", label="slowest message's loss to its transport")
    )
    lines, _ = axes.get_legend_handles_labels()
    figure.legend(handles=[*patches, *lines], loc="outside lower center", ncols=len(patches) + len(lines))
    return figure


def _total(axes: Axes, row: int, end: float, edge: float) -> None:
    """Write a bar's length beside it or, without room, inside it. Mark a bar that is cut at the edge."""
    inside = end > edge / MARGIN
    place = min(end, 0.965 * edge) if inside else end
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5} if inside else None
    axes.annotate(
        f"{end:,.0f} ms",
        (place, row),
        xytext=(-5 if inside else 4, 0),
        textcoords="offset points",
        ha="right" if inside else "left",
        va="center",
        fontsize=9,
        bbox=box,
        zorder=3,
    )
    if end > edge:
        slant = 0.004 * edge
        for left in (0.972 * edge, 0.982 * edge):
            axes.plot([left - slant, left + slant], [row + 0.42, row - 0.42], color="white", linewidth=3, zorder=4)
