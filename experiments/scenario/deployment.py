"""Deployments by name or file. Changes from the command line are made before they are read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bicoastal.experiments.scenario.bundled import bundled_data, bundled_names
from bicoastal.experiments.scenario.deployment_keys import TABLES, DeploymentKeys
from bicoastal.experiments.scenario.overrides import Override
from bicoastal.experiments.scenario.tables import (
    Given,
    ScenarioError,
    Table,
    alternatives,
    load_toml,
    parse_toml,
    shown,
)
from bicoastal.wan.checks import FieldError
from bicoastal.wan.deployment import Deployment, Gpu, Precision
from bicoastal.wan.transformer import Transformer

_PARTS: dict[str, type[Any]] = {"model": Transformer, "precision": Precision, "gpu": Gpu}
# where a field is not called as its key
_FIELDS = {
    "memory": "memory_bytes",
    "scale_up": "scale_up_Bps",
    "scale_out": "scale_out_bps",
    "scale_up_latency": "scale_up_latency_s",
    "scale_out_latency": "scale_out_latency_s",
    "wan": "wan_bps",
    "wan_rtt": "wan_rtt_s",
}
_KEYS = {field: key for key, field in _FIELDS.items()}

Part = TypeVar("Part")


def load_deployment(name: str, directory: Path | None, changes: Sequence[Override] = ()) -> Deployment:
    """Return the bundled deployment `name`, or the one in the file `name`, below `directory`, with the changes made.

    Each change leads to a key of a table, such as plant.wan_rtt. Raises ScenarioError in one sentence that names the
    file and the key, or the option that put a value in.
    """
    names = bundled_names("deployments")
    if name in names:
        label = f"{name}.toml"
        document = parse_toml(bundled_data("deployments", name), label)
    elif directory is not None and name.endswith(".toml"):
        label = name
        document = load_toml(directory / name, label)
    else:
        raise ScenarioError(f"there is no deployment {shown(name)}{alternatives(name, names)}")
    for change in changes:
        _make(document, change)
    return read_deployment(document, label)


def read_deployment(document: Mapping[str, object], label: str) -> Deployment:
    """Return the deployment that a parsed TOML document describes; `label` stands for its file in sentences.

    Raises ScenarioError in one sentence that names the file and the key, or the option that put a value in.
    """
    table = Table(document, file=label)
    values: dict[str, Any] = {"name": DeploymentKeys.name.read(table), "source": DeploymentKeys.source.read(table)}
    below = {name: table.table(name) for name in TABLES}
    DeploymentKeys.finish(table)
    read = {name: _values(name, below[name]) for name in TABLES}
    for name, kind in _PARTS.items():
        values[name] = _built(kind, read[name], {name: below[name]})
    places = {name: below[name] for name in ("parallelism", "plant")}
    return _built(Deployment, values | read["parallelism"] | read["plant"], places)


def _values(name: str, table: Table) -> dict[str, Any]:
    """Return the values of one table, by the names of their fields; what is not there keeps the field's default."""
    keys = TABLES[name].all_keys()
    for key in keys:
        table.know(key.name)
    table.finish()  # a key that is misspelt is told before the one that is missing for it
    found = {key.name: key.read(table) if key.required else key.find(table) for key in keys}
    if (scale_up_bps := found.get("scale_up")) is not None:
        found["scale_up"] = scale_up_bps / 8  # bytes per second, as in `Deployment`
    return {_FIELDS.get(key, key): value for key, value in found.items() if value is not None}


def _built(kind: type[Part], values: Mapping[str, Any], tables: Mapping[str, Table]) -> Part:
    """Return kind(**values). tables: those that its fields come from, by name. Raises ScenarioError about a key."""
    try:
        return kind(**values)
    except FieldError as error:
        key = _KEYS.get(error.field, error.field)
        places = [table.label(key) for name, table in tables.items() if hasattr(TABLES[name], key)]
        where = places[0] if places else f"{next(iter(tables.values())).file}: {key}"
        raise ScenarioError(f"{where}: {error.message}") from error


def _make(document: dict[str, object], change: Override) -> None:
    if len(change.steps) != 2 or any(index is not None for _, index in change.steps):
        raise ScenarioError(f"{change.label}: expected a table and a key, such as plant.wan_rtt")
    (section, _), (key, _) = change.steps
    table = document.setdefault(section, {})
    if not isinstance(table, dict):
        raise ScenarioError(f"{change.label}: {section} is {shown(table)}, not a table")
    table[key] = Given(change.value, change.label)
