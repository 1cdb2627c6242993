"""A study: one scenario with some of its keys varied, read from a TOML file.

docs/scenarios.md lists every key.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path

from bicoastal.experiments.basics.value_text import value_text
from bicoastal.experiments.scenario.bundled import bundled_names, find_document
from bicoastal.experiments.scenario.overrides import Override, option
from bicoastal.experiments.scenario.scenario import Scenario, load_scenario
from bicoastal.experiments.scenario.study_keys import AxisKeys, StudyKeys
from bicoastal.experiments.scenario.tables import Table, bare, shown
from bicoastal.transports.registry import Registry

MAX_POINTS = 10_000
_MOST_LETTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A key of the scenario, as `--set` takes it, what people call it, and its values as texts, in their order."""

    key: str
    label: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One combination: the scenario, and how it differs, "key=value" for each axis in their order."""

    settings: tuple[str, ...]
    scenario: Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What is to be run. points: the last axis varies fastest. transports: those named, else the scenario's.

    settings: what `[set]` changes at every point, "key=value" each.
    """

    name: str
    description: str
    backend: str
    seeds: int
    transports: tuple[str, ...]
    settings: tuple[str, ...]
    axes: tuple[Axis, ...]
    points: tuple[Point, ...]


def load_study(source: str, registry: Registry, overrides: Iterable[Override] = ()) -> Study:
    """Return the bundled study called `source`, or the one in the file `source`, with `overrides` made at every point.

    The scenario of every point is read here, so that an error in the last one is found before the first one runs.
    Raises ScenarioError in one sentence that says where (file and key, or the option) and what is wrong.
    """
    document, label, directory = find_document("studies", source)
    return _read(Table(document, file=label), registry, directory, list(overrides))


def _read(document: Table, registry: Registry, directory: Path | None, overrides: Sequence[Override]) -> Study:
    header = document.table("study", required=True)
    name = StudyKeys.name.read(header)
    description = StudyKeys.description.read(header)
    source = StudyKeys.scenario.read(header)
    if directory is not None and source not in bundled_names("scenarios"):
        source = os.path.join(directory, source)
    transports = StudyKeys.transports.read(header)
    backend = StudyKeys.backend.read(header)
    seeds = StudyKeys.seeds.read(header)
    StudyKeys.finish(header)
    table = document.table("set")
    common = table.rest()
    changes = [option(table.label(key), key, value) for key, value in common.items()]
    axes: list[Axis] = []
    given: list[list[Override]] = []
    for table in document.tables("axes", required=True):
        axis, values = _read_axis(table)
        if axis.key in [other.key for other in axes]:
            table.fail("key", f"{shown(axis.key)} is varied twice")
        axes.append(axis)
        given.append(values)
    document.finish()
    if prod(len(axis.values) for axis in axes) > MAX_POINTS:
        document.fail("axes", f"make more than {MAX_POINTS:,} points")
    points = tuple(
        Point(
            settings=tuple(f"{axis.key}={axis.values[at]}" for axis, at in zip(axes, places, strict=True)),
            scenario=load_scenario(
                source,
                registry,
                [*changes, *overrides, *(values[at] for values, at in zip(given, places, strict=True))],
            ),
        )
        for places in product(*(range(len(axis.values)) for axis in axes))
    )
    return Study(
        name=name,
        description=description,
        backend=backend,
        seeds=seeds,
        transports=transports or points[0].scenario.transports,
        settings=tuple(f"{key}={value_text(value)}" for key, value in common.items()),
        axes=tuple(axes),
        points=points,
    )


def _read_axis(table: Table) -> tuple[Axis, list[Override]]:
    key = AxisKeys.key.read(table)
    label = AxisKeys.label.read(table, key)
    found = AxisKeys.values.read(table)
    AxisKeys.finish(table)
    if not isinstance(found, list) or not found:
        table.fail("values", f"{shown(found)} is not a list of values")
    texts: list[str] = []
    for index, value in enumerate(map(bare, found)):
        if not isinstance(value, bool | int | float | str):
            table.fail(f"values[{index}]", f"{shown(value)} is neither a number, a text nor true or false")
        text = value_text(value)
        if len(text) > _MOST_LETTERS or not text.isprintable():
            table.fail(f"values[{index}]", f"{shown(value)} is no value that a table could show")
        if text in texts:
            table.fail(f"values[{index}]", f"{shown(value)} stands there twice")
        texts.append(text)
    changes = [option(table.label(f"values[{index}]"), key, value) for index, value in enumerate(found)]
    return Axis(key=key, label=label, values=tuple(texts)), changes
