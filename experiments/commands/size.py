"""`bicoastal size`: how much WAN bandwidth per GPU hides the all-reduce, with each transport's slowest message."""

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from bicoastal import ScenarioError, Sizing, exposed_figure, size, stages_figure
from bicoastal.commandline import format_rate, format_time, parse_override, parse_probability, rounded, shown
from bicoastal.experiments.commands.extrapolate import add_case_options
from bicoastal.experiments.terminal.arguments import directory
from bicoastal.experiments.terminal.console import DONE, UNSUPPORTED
from bicoastal.experiments.terminal.documents import say_document
from bicoastal.experiments.terminal.pictures import EXPOSED, STAGES, make_place, prepare_matplotlib, write_figures
from bicoastal.experiments.terminal.showing import show
from bicoastal.planning import (
    DEFAULT_LOSS,
    DEFAULT_SHARE,
    NO_TRANSPORT,
    SAME_ALGORITHM,
    SCOPES,
    WITHOUT_MODEL,
    Fit,
    Need,
    SizingRow,
    evidence,
    step_share,
)

MOST_LOSS = 0.1  # more than on any path that is used for training
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"))


def about(name: str) -> str:
    """Return a note on a name that is no transport, or counts as another one; else an empty text."""
    same = SAME_ALGORITHM.get(name)
    return f"the model of {same.name}, whose algorithm it is" if same else NO_TRANSPORT.get(name, "")


# -- JSON -------------------------------------------------------------------------------------------------------------


def to_document(sizing: Sizing, files: Sequence[str]) -> dict[str, Any]:
    """Return the JSON document; seconds and bit/s, floats with 12 digits. A rate is null if none suffices."""
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
                "measured": None if row.measured is None else _fit_document(row.measured),
                **(_need_document(row.found, dearest) if row.found else {}),
                **{f"least_bps_{end}": value for end, value in zip(("low", "high"), row.least_bps, strict=True)},
                **{f"exposed_s_{end}": value for end, value in zip(("low", "high"), row.exposed_s, strict=True)},
            }
            for row in sizing.rows
        ],
        "files": list(files),
    }
    found: dict[str, Any] = rounded(document)
    return found


def _fit_document(fitted: Fit) -> dict[str, Any]:
    counted = fitted.measured.counted
    return {
        "loss": fitted.loss,
        "loss_low": fitted.loss_low,
        "loss_high": fitted.loss_high,
        "source": fitted.source,
        "messages": len(fitted.measured.completions_s),
        "independent": fitted.independent,
        "gap": fitted.gap,
        "allowed_gap": fitted.allowed_gap,
        "scale": fitted.measured.scale,
        "counted": None if counted is None else asdict(counted),
    }


def _need_document(found: Need, dearest: float | None) -> dict[str, Any]:
    values = asdict(found)
    values.pop("transport")
    saves = None if dearest is None or found.aggregate_bps is None else dearest - found.aggregate_bps
    return {**values, "saves_bps": saves}


# -- table ------------------------------------------------------------------------------------------------------------


def to_table(sizing: Sizing, notes: Sequence[str]) -> Group:
    """Return the table for people, with its notes."""
    question = sizing.question
    deployment, own = question.deployment, question.deployment.wan_bps
    hidden = float(step_share(question, 0.0))
    aim = "hide the gradients" if sizing.target is None else f"expose at most {100 * sizing.target:g} % of a step"
    unit, prefix = _aggregate_unit(sizing)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("transport", no_wrap=True)
    for heading in ("Gbit/s\nper GPU", "per\nflow", f"{prefix}bit/s\neach way", "slowest\nms", "loses\nms"):
        table.add_column(heading, justify="right", no_wrap=True)
    if own is not None:
        table.add_column(f"exposed at\n{format_rate(own)}", justify="right", no_wrap=True)
    for row in sizing.rows:
        table.add_row(Text(row.transport), *map(Text, _cells(row, own, unit)))
    path = "measured loss" if sizing.of_runs else f"loss {float(question.path.loss):g}"
    steps = f"in {100 * question.share:g} % of steps"
    title = f"{deployment.name}: WAN to {aim} {steps}, RTT {format_time(deployment.wan_rtt_s)}, {path}"
    lines = [
        f"slowest: the last of {round(question.fleet.messages):,} messages of a trip (scope: {question.scope}), losses "
        "independent; loses: what all trips take beyond delay and payload / rate, at that bandwidth or, where none "
        "suffices, at any.",
        f"{100 * hidden:.2f} % of a step are exposed with all gradients hidden. --set assumptions.wan_trips=1 (an "
        "exchange), assumptions.chunks=8 and the like change what is assumed; see `bicoastal extrapolate`.",
        *_bounds(sizing),
        *(f"{row.transport}: {text}." for row in sizing.rows if (text := about(row.transport))),
        *([f"The runs are of {sizing.setups} set-ups: not all transports had the same path."] * (sizing.setups > 1)),
        *_same_as(sizing),
        *notes,
    ]
    return Group(
        Text(title, style="bold"),
        Text(),
        table,
        Text(),
        *_remarks(sizing),
        *_savings(sizing),
        *(Text(line, style="dim") for line in lines),
    )


def _aggregate_unit(sizing: Sizing) -> tuple[float, str]:
    """Return the largest unit in which each capacity of the whole deployment is at least one."""
    rates = [row.found.aggregate_bps for row in sizing.rows if row.found and row.found.aggregate_bps]
    least = min(rates, default=_PREFIXES[0][0])
    return next(((unit, prefix) for unit, prefix in _PREFIXES if least >= unit), _PREFIXES[-1])


def _cells(row: SizingRow, own: float | None, unit: float) -> list[str]:
    found = row.found
    if found is None:
        return ["–"] * (5 if own is None else 6)
    cells = [_rate(rate) for rate in (found.least_bps, found.per_flow_bps)]
    cells.append("" if found.aggregate_bps is None else f"{found.aggregate_bps / unit:.2f}")
    cells += [f"{1e3 * found.slowest_s:.1f}", f"{1e3 * found.lost_s:.1f}"]
    if row.measured:
        cells[0] = _with_span(cells[0], [_rate(rate) for rate in row.least_bps])
    if own is not None and found.exposed_s is not None and found.exposed_share is not None:
        shown_s = f"{1e3 * found.exposed_s:.0f} ms"
        ends = [f"{1e3 * (end or 0.0):.0f} ms" for end in row.exposed_s] if row.measured else [shown_s]
        cells.append(_with_span(f"{shown_s}, {100 * found.exposed_share:.2f} %", ends))
    return cells


def _rate(rate_bps: float | None) -> str:
    return "none" if rate_bps is None else f"{rate_bps / 1e9:.2f}"


def _with_span(cell: str, ends: Sequence[str]) -> str:
    """Return a cell, with its values at the ends of the loss's interval below it if they differ."""
    different = dict.fromkeys(ends)
    return cell if len(different) < 2 else f"{cell}\n{' to '.join(different)}"


def _remarks(sizing: Sizing) -> list[Text]:
    """Return the remarks on transports. Transports with the same remark share a line."""
    for_rows = [
        (row.transport, f"{evidence(row.measured, _takes(row))}.", "")
        for row in sizing.rows
        if row.measured and not row.refused
    ]
    for row in sizing.rows:
        if row.refused:
            word = "no figure" if row.transport in WITHOUT_MODEL else "refused"
            for_rows.append((row.transport, f"{word}: {row.refused}.", "yellow"))
        elif row.found and row.found.least_bps is None:
            for_rows.append((row.transport, f"no bandwidth suffices: {row.found.reason}.", ""))
    return [Text(f"{', '.join(names)}: {said}", style=style) for (said, style), names in _grouped(for_rows)]


def _grouped(rows: Iterable[tuple[str, str, str]]) -> Iterable[tuple[tuple[str, str], list[str]]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for name, said, style in rows:
        groups.setdefault((said, style), []).append(name)
    return groups.items()


def _takes(row: SizingRow) -> str:
    """Return the effect of the loss's interval on the bandwidth, in words."""
    ends = [None if rate is None else format_rate(rate) for rate in row.least_bps]
    if ends == [None, None]:
        return ""
    return f", which takes {' to '.join(dict.fromkeys(end or 'no bandwidth' for end in ends))}"


def _bounds(sizing: Sizing) -> list[str]:
    """Return bounds of the slowest message that hold for any dependence between losses."""
    found = [row.found for row in sizing.rows if row.found]
    if not found:
        return []
    spans = ", ".join(
        f"{each.transport} {format_time(each.slowest_correlated_s)} to {format_time(each.slowest_any_s)}"
        for each in found
    )
    return [f"The slowest where all messages lose the same packets, to the most whatever depends on what: {spans}."]


def _same_as(sizing: Sizing) -> list[str]:
    """Return the transports that have no row of their own, because another row holds for them."""
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
    if arguments.source is not None and arguments.loss is not None:
        raise ScenarioError("--loss: cannot stand beside --from, which has the loss of its own runs")
    options: dict[str, Any] = {
        "changes": [parse_override(text) for text in arguments.set],
        "transports": arguments.transport,
        "loss": _loss(arguments.loss or str(DEFAULT_LOSS)),
        "tail_loss": _probability("--tail-loss", arguments.tail_loss),
        "target": None if arguments.target is None else _probability("--target", arguments.target),
        "share": _probability("--share", arguments.share),
        "scope": arguments.scope,
        "results": arguments.source,
    }
    if arguments.out is not None:
        make_place(arguments.out, [EXPOSED, STAGES])
    try:
        sizing = size(arguments.deployment, **options)
    except ScenarioError:
        raise
    except ValueError as error:
        raise ScenarioError(str(error)) from None
    files = [] if arguments.out is None else _draw(sizing, arguments.out)
    if arguments.json:
        say_document(to_document(sizing, files))
    else:
        show(to_table(sizing, [f"written: {', '.join(files)}"] if files else []))
    return UNSUPPORTED if all(row.found is None for row in sizing.rows) else DONE


def _draw(sizing: Sizing, into: Path) -> list[str]:
    prepare_matplotlib()
    return write_figures(into, {EXPOSED: exposed_figure(sizing), STAGES: stages_figure(sizing)})
