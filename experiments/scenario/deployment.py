"""Deployments by name or file, with changes from the command line made before they are read."""

from collections.abc import Sequence
from pathlib import Path

from bicoastal.experiments.scenario.bundled import bundled_data, bundled_names
from bicoastal.experiments.scenario.overrides import Override
from bicoastal.experiments.scenario.tables import ScenarioError, alternatives, load_toml, parse_toml, shown
from bicoastal.wan.checks import FieldError
from bicoastal.wan.deployment import Deployment
from bicoastal.wan.deployment_file import deployment_from_mapping


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
    try:
        return deployment_from_mapping(document)
    except FieldError as error:
        options = {".".join(step for step, _ in change.steps): change.label for change in changes}
        where = options.get(error.field, f"{label}: {error.field}")
        raise ScenarioError(f"{where}: {error.message}") from error


def _make(document: dict[str, object], change: Override) -> None:
    if len(change.steps) != 2 or any(index is not None for _, index in change.steps):
        raise ScenarioError(f"{change.label}: expected a table and a key, such as plant.wan_rtt")
    (section, _), (key, _) = change.steps
    table = document.setdefault(section, {})
    if not isinstance(table, dict):
        raise ScenarioError(f"{change.label}: {section} is {shown(table)}, not a table")
    table[key] = change.value
