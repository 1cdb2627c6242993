"""`bicoastal size`: how much WAN bandwidth per GPU hides the all-reduce, with each transport's slowest message."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from experiments.arguments import directory
from experiments.compare import compare
from experiments.console import DONE, UNSUPPORTED
from experiments.documents import rounded, say_document
from experiments.extrapolate import add_case_options, read_case
from experiments.extrapolation.fit import Fit, TooFewError, fit, measure
from experiments.extrapolation.sizing import Need, Question, allowed_s, at, least_bps, need, step_share
from experiments.extrapolation.sizing import Path as WanPath
from experiments.extrapolation.slowest import SCOPES, Scope
from experiments.extrapolation.tails_models import (
    MODELS,
    NO_TRANSPORT,
    SAME_ALGORITHM,
    WITHOUT_MODEL,
    NoModelError,
    model_of,
)
from experiments.pictures import EXPOSED, STAGES, make_place, prepare_matplotlib
from experiments.reading import ScenarioError, shown
from experiments.showing import show
from experiments.store import Store
from transports.registry import Registry
from wan.units import format_rate, format_time, parse_probability

DEFAULT_LOSS = 1e-4
DEFAULT_SHARE = 0.99
MOST_LOSS = 0.1  # more than a path that anybody would train over


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The loss per packet that explains what was measured of a transport, and its 95 % interval."""

    loss: float
    loss_low: float
    loss_high: float
    messages: int
    gap: float
    allowed_gap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One transport's answer. measured: None where the loss was given. low, high: least_bps at the interval's ends.

    found is None where the measurements support nothing, for `refused`.
    """

    transport: str
    found: Need | None
    refused: str
    measured: Measurement | None
    low_bps: float | None
    high_bps: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """All transports' answers to one question. of_runs: the losses were measured, not given."""

    question: Question
    target: float | None
    rows: tuple[Row, ...]
    of_runs: bool = False

    @property
    def dearest_bps(self) -> float | None:
        """The largest cross-country capacity that one of the transports needs, of those that any suffices for."""
        return max(
            (row.found.aggregate_bps for row in self.rows if row.found and row.found.aggregate_bps), default=None
        )


def size(question: Question, names: Sequence[str], target: float | None) -> Sizing:
    """Answer the question for transports on a path whose loss is given. Raises ValueError for an unknown one."""
    rows = []
    for name in names:
        try:
            rows.append(_row(name, need(question, model_of(name), target)))
        except NoModelError as error:
            rows.append(_refused(name, str(error)))
    return Sizing(question=question, target=target, rows=tuple(rows))


def _row(name: str, found: Need) -> Row:
    return Row(transport=name, found=found, refused="", measured=None, low_bps=None, high_bps=None)


def size_measured(question: Question, directory: Path, names: Sequence[str] | None, target: float | None) -> Sizing:
    """Answer the question with the loss that each transport's results in a directory show.

    Raises StoreError where there are none, ScenarioError for a transport that is not among them.
    """
    rows = []
    with Store.existing(directory) as store:
        runs = store.runs()
        if not runs:
            raise ScenarioError(f"--from {directory}: holds no runs")
        if len({(run.scenario, run.backend) for run in runs}) > 1:
            raise ScenarioError(
                f"--from {directory}: holds runs of several scenarios or backends; give one's directory"
            )
        results = {result.name: result for result in compare(store, [run.key for run in runs]).transports}
        for name in names or sorted(results, key=_place):
            if name not in results:
                raise ScenarioError(
                    f"--transport: {shown(name)} is not among the results; there are {', '.join(results)}"
                )
            try:
                model = model_of(name)
                fitted = fit(measure(store, results[name]), model)
            except (TooFewError, ValueError) as error:
                rows.append(_refused(name, str(error)))
                continue
            rows.append(_measured_row(question, fitted, target))
    return Sizing(question=question, target=target, rows=tuple(rows), of_runs=True)


def _place(name: str) -> tuple[int, str]:
    """Return where a transport stands in the table: models in their order, and after them what has none."""
    model = SAME_ALGORITHM[name].name if name in SAME_ALGORITHM else name
    return (list(MODELS).index(model) if model in MODELS else len(MODELS), name)


def _refused(name: str, reason: str, measured: Measurement | None = None) -> Row:
    return Row(transport=name, found=None, refused=reason, measured=measured, low_bps=None, high_bps=None)


def _measured_row(question: Question, fitted: Fit, target: float | None) -> Row:
    name = fitted.measured.transport
    measured = Measurement(
        loss=fitted.loss,
        loss_low=fitted.loss_low,
        loss_high=fitted.loss_high,
        messages=len(fitted.measured.completions_s),
        gap=fitted.gap,
        allowed_gap=fitted.allowed_gap,
    )
    if fitted.reason:
        return _refused(name, fitted.reason, measured)
    room_s = 0.0 if target is None else allowed_s(question, target)
    ends = [
        float(least_bps(at(question, loss=loss), fitted.model, exposed_s=room_s)) if room_s >= 0 else float("inf")
        for loss in (fitted.loss_low, fitted.loss_high)
    ]
    low, high = (None if end == float("inf") else end for end in ends)
    found = need(at(question, loss=fitted.loss), fitted.model, target)
    return Row(transport=name, found=found, refused="", measured=measured, low_bps=low, high_bps=high)


def about(name: str) -> str:
    """Return what the table's reader cannot know of a name, or nothing: that it is no transport, or counts as one."""
    same = SAME_ALGORITHM.get(name)
    return f"the model of {same.name}, whose algorithm it is" if same else NO_TRANSPORT.get(name, "")


# -- JSON -------------------------------------------------------------------------------------------------------------


def to_document(sizing: Sizing, files: Sequence[str]) -> dict[str, Any]:
    """Return the JSON document; seconds and bit/s, floats with 12 digits. What no rate is enough for is null."""
    question = sizing.question
    deployment = question.deployment
    dearest = sizing.dearest_bps
    document = {
        "deployment": deployment.name,
        "scope": question.scope,
        "messages": round(question.fleet.messages),
        "share_of_steps": question.share,
        "target_share": float(step_share(question, 0.0)) if sizing.target is None else sizing.target,
        "wan_rtt_s": deployment.wan_rtt_s,
        "wan_bps": deployment.wan_bps,
        "loss": None if sizing.of_runs else float(question.path.loss),
        "tail_loss": float(question.path.tail_loss),
        "assumptions": asdict(question.assumptions),
        "transports": [
            {
                "name": row.transport,
                "about": about(row.transport),
                "refused": row.refused,
                "measured": None if row.measured is None else asdict(row.measured),
                **(_need_document(row.found, dearest) if row.found else {}),
                "least_bps_low": row.low_bps,
                "least_bps_high": row.high_bps,
            }
            for row in sizing.rows
        ],
        "files": list(files),
    }
    found: dict[str, Any] = rounded(document)
    return found


def _need_document(found: Need, dearest: float | None) -> dict[str, Any]:
    values = asdict(found)
    values.pop("transport")
    saves = None if dearest is None or found.aggregate_bps is None else dearest - found.aggregate_bps
    return {**values, "saves_bps": saves}


# -- table ------------------------------------------------------------------------------------------------------------


def to_table(sizing: Sizing, notes: Sequence[str]) -> Group:
    """Return what people read."""
    question = sizing.question
    deployment, own = question.deployment, question.deployment.wan_bps
    hidden = float(step_share(question, 0.0))
    aim = "hide the gradients" if sizing.target is None else f"expose at most {100 * sizing.target:g} % of a step"
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("transport", no_wrap=True)
    for heading in ("Gbit/s\nper GPU", "per\nflow", "Pbit/s\neach way", "slowest\nms", "loses\nms"):
        table.add_column(heading, justify="right", no_wrap=True)
    if own is not None:
        table.add_column(f"exposed at\n{format_rate(own)}", justify="right", no_wrap=True)
    for row in sizing.rows:
        table.add_row(Text(row.transport), *map(Text, _cells(row, own)))
    reasons = []
    for row in sizing.rows:
        if row.measured:
            reasons.append(Text(f"{row.transport}: {_evidence(row)}."))
        if row.refused:
            word = "no figure" if row.transport in WITHOUT_MODEL else "refused"
            reasons.append(Text(f"{row.transport}: {word}: {row.refused}.", style="yellow"))
        elif row.found and row.found.least_bps is None:
            reasons.append(Text(f"{row.transport}: no bandwidth suffices: {row.found.reason}."))
    path = "measured loss" if sizing.of_runs else f"loss {float(question.path.loss):g}"
    steps = f"in {100 * question.share:g} % of steps"
    title = f"{deployment.name}: WAN to {aim} {steps}, RTT {format_time(deployment.wan_rtt_s)}, {path}"
    lines = [
        f"slowest: the last of {round(question.fleet.messages):,} messages of a trip (scope: {question.scope}), losses "
        "independent; loses: what all trips take beyond delay and payload / rate, at that bandwidth or, where none "
        "suffices, at any.",
        f"{100 * hidden:.2f} % of a step are exposed with all gradients hidden. --set assumptions.wan_trips=1 (an "
        "exchange), assumptions.chunks=8 and the like change what is assumed; see `bicoastal extrapolate`.",
        *(f"{row.transport}: {text}." for row in sizing.rows if (text := about(row.transport))),
        *_same_as(sizing),
        *notes,
    ]
    return Group(
        Text(title, style="bold"),
        Text(),
        table,
        Text(),
        *reasons,
        *_savings(sizing),
        *(Text(line, style="dim") for line in lines),
    )


def _cells(row: Row, own: float | None) -> list[str]:
    found = row.found
    if found is None:
        cells = ["–"] * (5 if own is None else 6)
    else:
        rates = (found.least_bps, found.per_flow_bps)
        cells = ["none" if rate is None else f"{rate / 1e9:.2f}" for rate in rates]
        cells.append("" if found.aggregate_bps is None else f"{found.aggregate_bps / 1e15:.2f}")
        cells += [f"{1e3 * found.slowest_s:.1f}", f"{1e3 * found.lost_s:.1f}"]
        if own is not None and found.exposed_s is not None and found.exposed_share is not None:
            cells.append(f"{1e3 * found.exposed_s:.0f} ms, {100 * found.exposed_share:.2f} %")
    return cells


def _evidence(row: Row) -> str:
    """Return what a transport's measurements say, and how far they carry."""
    m = row.measured
    if m is None:
        return ""
    ends = [None if rate is None else format_rate(rate) for rate in (row.low_bps, row.high_bps)]
    span = " to ".join(dict.fromkeys(end or "no bandwidth" for end in ends))
    takes = "" if row.refused or ends == [None, None] else f", which takes {span}"
    interval = f"95 %: {m.loss_low:.2g} to {m.loss_high:.2g}{takes}"
    return (
        f"a loss of {m.loss:.2g} explains {m.messages} messages ({interval}); model and measurement differ by "
        f"{m.gap:.2f} where chance explains {m.allowed_gap:.2f}"
    )


def _same_as(sizing: Sizing) -> list[str]:
    """Return which transports need no row of their own."""
    names = [row.transport for row in sizing.rows]
    missing = [(own, of.name) for own, of in SAME_ALGORITHM.items() if of.name in names and own not in names]
    if not missing or sizing.of_runs:
        return []
    return [f"{' and '.join(own for own, _ in missing)} count as {' and '.join(of for _, of in missing)}."]


def _savings(sizing: Sizing) -> list[Text]:
    enough = [row.found for row in sizing.rows if row.found and row.found.aggregate_bps is not None]
    if len(enough) < 2:
        return []
    dearest, least = (pick(enough, key=lambda found: found.aggregate_bps or 0.0) for pick in (max, min))
    saved = (dearest.aggregate_bps or 0.0) - (least.aggregate_bps or 0.0)
    text = f"{least.transport} saves {format_rate(saved)} across the country each way against {dearest.transport}."
    return [Text(text)] if saved > 0 else []


# -- command ----------------------------------------------------------------------------------------------------------


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    command = commands.add_parser(
        "size",
        help="find the WAN bandwidth per GPU that hides the all-reduce with each transport",
        description="Find, for each transport, the least WAN bandwidth per GPU and flow that keeps a step's exposed "
        "communication at or under a target when the slowest of all messages is waited for.",
    )
    add_case_options(command)
    command.add_argument(
        "--from", dest="source", type=Path, metavar="DIR", help="take losses from a comparison's results"
    )
    command.add_argument(
        "--transport", action="append", metavar="T", help="a transport with a tail model; may be repeated"
    )
    command.add_argument("--loss", default=None, metavar="P", help=f"loss per packet (default: {DEFAULT_LOSS:g})")
    command.add_argument("--tail-loss", default="0", metavar="P", help="loss of each message's last packet, besides")
    command.add_argument("--target", metavar="SHARE", help="exposed share of a step (default: gradients all hidden)")
    command.add_argument("--scope", choices=SCOPES, default="step", help="wait for one layer's group or all (default)")
    command.add_argument(
        "--share", default=str(DEFAULT_SHARE), metavar="P", help=f"of the steps that meet it (default: {DEFAULT_SHARE})"
    )
    command.add_argument("--out", type=directory, metavar="DIR", help="draw pictures into this directory")
    command.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    command.set_defaults(command=_size)


def _probability(option: str, text: str) -> float:
    try:
        value = parse_probability(text)
    except ValueError as error:
        raise ScenarioError(f"{option}: {error}") from None
    if value >= 1:
        raise ScenarioError(f"{option}: {shown(text)} is not below 1")
    return value


def _loss(text: str) -> float:
    loss = _probability("--loss", text)
    if loss > MOST_LOSS:
        raise ScenarioError(f"--loss: {shown(text)} is more than {MOST_LOSS:g}, up to which the tail models hold")
    return loss


def _size(arguments: argparse.Namespace) -> int:
    deployment, assumptions = read_case(arguments.deployment, arguments.set)
    if arguments.source is not None and arguments.loss is not None:
        raise ScenarioError("--loss: cannot stand beside --from, which has the loss of its own runs")
    path = WanPath(
        loss=_loss(arguments.loss or str(DEFAULT_LOSS)),
        tail_loss=_probability("--tail-loss", arguments.tail_loss),
    )
    target = None if arguments.target is None else _probability("--target", arguments.target)
    share = _probability("--share", arguments.share)
    scope: Scope = arguments.scope
    try:
        question = Question(deployment=deployment, assumptions=assumptions, path=path, scope=scope, share=share)
        for name in arguments.transport or ():
            if name not in WITHOUT_MODEL:
                model_of(name)
    except ValueError as error:
        raise ScenarioError(str(error)) from None
    if arguments.out is not None:
        make_place(arguments.out, [EXPOSED, STAGES])
    if arguments.source is None:
        sizing = size(question, arguments.transport or [*MODELS, *WITHOUT_MODEL], target)
    else:
        sizing = size_measured(question, arguments.source, arguments.transport, target)
    files = [] if arguments.out is None else _draw(sizing, arguments.out)
    if arguments.json:
        say_document(to_document(sizing, files))
    else:
        show(to_table(sizing, [f"written: {', '.join(files)}"] if files else []))
    return UNSUPPORTED if all(row.found is None for row in sizing.rows) else DONE


def _draw(sizing: Sizing, into: Path) -> list[str]:
    prepare_matplotlib()
    from experiments.sizing_figures import draw_sizing  # noqa: PLC0415 (matplotlib takes half a second)

    models = [model_of(row.transport) for row in sizing.rows if row.found is not None]
    if not models:
        return []
    losses = [row.measured.loss for row in sizing.rows if row.measured]
    question = at(sizing.question, loss=max(losses)) if losses else sizing.question
    return [str(path) for path in draw_sizing(question, models, sizing.target, Registry.installed(), into)]
