"""The TOML files that come with the package, by name: scenarios, studies, deployments and references."""

import os
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

from bicoastal.experiments.scenario.tables import ScenarioError, alternatives, load_toml, parse_toml, shown

Kind = Literal["scenarios", "studies", "deployments", "references"]
_SINGULAR: dict[Kind, str] = {
    "scenarios": "scenario",
    "studies": "study",
    "deployments": "deployment",
    "references": "reference",
}


def bundled_names(kind: Kind) -> tuple[str, ...]:
    """Return the names of what is bundled, sorted."""
    folder = _folder(kind)
    if not folder.is_dir():
        return ()
    return tuple(sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml")))


def bundled_data(kind: Kind, name: str) -> bytes:
    """Return the file called `name`, one of `bundled_names(kind)`."""
    return _folder(kind).joinpath(f"{name}.toml").read_bytes()


def find_document(kind: Kind, source: str) -> tuple[dict[str, object], str, Path | None]:
    """Return the TOML document called `source`, bundled or a file; its label for sentences; and a file's directory.

    Raises ScenarioError in one sentence.
    """
    names = bundled_names(kind)
    if source in names:
        label = f"{source}.toml"
        return parse_toml(bundled_data(kind, source), label), label, None
    if source.endswith(".toml") or os.sep in source or (source and _exists(source)):
        return load_toml(Path(source), source), source, Path(source).parent
    what = _SINGULAR[kind]
    raise ScenarioError(f"there is no {what} {shown(source)}{alternatives(source, names)} and any path to a .toml file")


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        return False


def _folder(kind: Kind) -> Traversable:
    return files("bicoastal.experiments").joinpath(kind)
