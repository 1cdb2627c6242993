"""`bicoastal validate`: every published figure beside ours, and whether any has moved out of its tolerance."""

import argparse
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from bicoastal.commandline import rounded
from bicoastal.experiments.commands import worlds
from bicoastal.experiments.terminal.documents import say_document
from bicoastal.experiments.terminal.showing import show
from bicoastal.validation import Check, check_published

WIDE_COLUMNS = 120
_STYLES = {"ok": "green", "off": "red", "computed": "", "quoted, not computed": "dim"}


def to_document(checks: Sequence[Check]) -> dict[str, object]:
    """Return the JSON document: keys in a fixed order, floats with 12 digits."""
    return {
        "ok": all(check.verdict != "off" for check in checks),
        "figures": [
            {
                "name": check.figure.name,
                "reference": check.reference.name,
                "source": check.reference.source,
                "kind": check.figure.status,
                "unit": check.figure.unit,
                "published": rounded(check.figure.value),
                "computed": rounded(check.computed.value),
                "relative_error": rounded(check.relative_error),
                "tolerance": check.figure.tolerance,
                "verdict": check.verdict,
                "formula": check.computed.how,
                "note": check.note,
            }
            for check in checks
        ],
    }


def to_table(checks: Sequence[Check], *, width: int) -> Group:
    """Return the table for people: a part for each reference, with formulas where there is room for them."""
    parts: list[Text | Table] = []
    for reference in {check.reference.name: check.reference for check in checks}.values():
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
        wide = width >= WIDE_COLUMNS
        table.add_column("figure", no_wrap=wide, overflow="fold")
        for heading in ("published", "ours", "error"):
            table.add_column(heading, justify="right", no_wrap=True)
        if wide:
            for heading in ("unit", "kind"):
                table.add_column(heading, no_wrap=True)
        table.add_column("verdict", no_wrap=not wide)
        if wide:
            table.add_column("formula, and what to know")
        for check in checks:
            if check.reference.name == reference.name:
                table.add_row(*_cells(check, wide=wide))
        notes = [
            Text(f"{check.figure.name}: {check.note}.", style="dim")
            for check in checks
            if check.reference.name == reference.name and check.note and not wide
        ]
        parts += [Text(reference.name, style="bold"), Text(reference.source, style="dim"), Text(), table, Text()]
        parts += [*notes, Text()] if notes else []
    return Group(*parts, *(Text(line, style="dim") for line in _summary(checks)))


def _cells(check: Check, *, wide: bool) -> list[Text]:
    error = None if check.relative_error is None else round(100 * check.relative_error, 2) + 0.0  # no "-0.00 %"
    tolerance = "" if check.figure.tolerance is None else f" (within {100 * check.figure.tolerance:g} %)"
    figures = [
        Text(check.figure.name),
        Text(f"{check.figure.value:.5g}"),
        Text("–" if check.computed.value is None else f"{check.computed.value:.5g}"),
        Text("–" if error is None else f"{error:+.2f} %"),
    ]
    style = _STYLES[check.verdict]
    if not wide:
        return [*figures, Text(check.verdict.partition(",")[0], style=style)]
    explanation = "; ".join(part for part in (check.computed.how, check.note) if part)
    return [
        *figures,
        Text(check.figure.unit),
        Text(check.figure.status),
        Text(f"{check.verdict}{tolerance}", style=style),
        Text(explanation, style="dim"),
    ]


def _summary(checks: Sequence[Check]) -> list[str]:
    count = {verdict: sum(check.verdict == verdict for check in checks) for verdict in _STYLES}
    lines = [
        f"{count['ok']} within their tolerance, {count['off']} off; of those only quoted, {count['computed']} computed "
        f"and {count['quoted, not computed']} not.",
        "derived: a formula is known to give it. plausible: ours is close to it, the published formula is not known. "
        "published: quoted, never judged.",
    ]
    moved = [check.figure.name for check in checks if check.verdict == "off"]
    return [*lines, f"off: {', '.join(moved)}"] if moved else lines


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    validating = commands.add_parser(
        "validate",
        help="compare every published figure with ours",
        description="Print every published figure beside ours. Ends with 1 when one is out of its tolerance.",
    )
    validating.add_argument(
        "--worlds",
        action="store_true",
        help="run five scaled scenarios in every world that this machine has, and print how far they disagree",
    )
    worlds.add_options(validating)
    validating.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    validating.set_defaults(command=_validate)


def _validate(arguments: argparse.Namespace) -> int:
    if arguments.worlds:
        return worlds.run(arguments)
    worlds.require_worlds(arguments)
    checks = check_published()
    if arguments.json:
        say_document(to_document(checks))
    else:
        show(to_table(checks, width=Console().width))
    return 1 if any(check.verdict == "off" for check in checks) else 0
