"""Published figures, as the files in `references/` give them with their source."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from bicoastal.experiments.scenario.bundled import bundled_data, bundled_names
from bicoastal.experiments.scenario.tables import Table, parse_toml

Status = Literal["derived", "plausible", "published"]
STATUSES: tuple[Status, ...] = ("derived", "plausible", "published")
_TOLERANCES: dict[Status, float] = {"derived": 0.005, "plausible": 0.2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published figure.

    status: "derived" where a formula is known to give it, "plausible" where one gives a figure close to it,
    "published" where it is quoted. tolerance: of the relative error, None where the figure is not judged.
    """

    name: str
    value: float
    unit: str
    status: Status
    tolerance: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The figures of one file, where they were published, and the published inputs that they follow from."""

    name: str
    source: str
    inputs: Mapping[str, Any]
    figures: tuple[Figure, ...]


def load_references() -> tuple[Reference, ...]:
    """Return all bundled references. Raises ScenarioError in one sentence for a file that is not right."""
    return tuple(
        read_reference(parse_toml(bundled_data("references", name), f"{name}.toml"), name)
        for name in bundled_names("references")
    )


def read_reference(document: Mapping[str, object], name: str) -> Reference:
    """Return the reference that a parsed TOML document holds. Raises ScenarioError in one sentence."""
    table = Table(document, file=f"{name}.toml")
    inputs = table.table("inputs")
    reference = Reference(
        name=name,
        source=table.text("source"),
        inputs=inputs.rest(),
        figures=tuple(_read_figure(figure) for figure in table.tables("figure", required=True)),
    )
    table.finish()
    names = [figure.name for figure in reference.figures]
    for index, figure_name in enumerate(names):
        if figure_name in names[:index]:
            table.fail(f"figure[{index}].name", f"{figure_name!r} stands there twice")
    return reference


def _read_figure(table: Table) -> Figure:
    status = next(kind for kind in STATUSES if kind == table.one_of("status", STATUSES))
    if status == "published" and table.has("tolerance"):
        table.fail("tolerance", "a published figure is quoted, not judged")
    figure = Figure(
        name=table.name("name"),
        value=table.number("value", least=0.0, expected="a number of at least zero"),
        unit=table.text("unit", ""),
        status=status,
        tolerance=table.probability("tolerance") if table.has("tolerance") else _TOLERANCES.get(status),
    )
    table.finish()
    return figure
