"""`--set KEY=VALUE`: changes to a scenario before it is read. They pass the same checks as the file."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass

from bicoastal.experiments.scenario.tables import Given, ScenarioError, bare, close_matches, shown
from bicoastal.wan.checks import cut

SECTIONS = ("scenario", "links", "paths", "tunnels", "allreduce", "jobs", "background", "transports")
# a key that is set takes the place of the one that says the same in another way
_RIVALS = {"rtt": "delay", "delay": "rtt", "shard": "deployment", "deployment": "shard"}
_STEP = re.compile(r"([A-Za-z0-9_-]+)(?:\[(\d{1,6})\])?")


@dataclass(frozen=True, slots=True)
class Override:
    """One change: `steps` lead to the key, each a name and, for one element of a list, its index."""

    label: str
    steps: tuple[tuple[str, int | None], ...]
    value: object

    @property
    def key(self) -> str:
        """The last step's name."""
        return self.steps[-1][0]


def parse_override(text: str) -> Override:
    """Parse "links[1].loss=1e-3". The value is read as TOML where it is TOML, else as text. Raises ScenarioError."""
    path, separator, written = (part.strip() for part in text.partition("="))
    if not separator:
        raise ScenarioError(f"--set {cut(text)}: expected KEY=VALUE")
    if not path:
        raise ScenarioError(f"--set {cut(text)}: '' is not a key such as links[1].loss")
    return option(f"--set {cut(path)}", path, _value(written))


def setting(text: str) -> str:
    """Return "KEY=VALUE" as `parse_override` takes it, without the blanks that have no meaning."""
    return "=".join(part.strip() for part in text.split("=", 1))


def option(label: str, path: str, value: object) -> Override:
    """Return the change of the key at `path`, such as links[1].loss. Error sentences call it `label`.

    It is for options with a name of their own, such as --iterations, and for a study's file. Raises ScenarioError.
    """
    return Override(label, _steps(path, label), value)


def _steps(path: str, label: str) -> tuple[tuple[str, int | None], ...]:
    steps = []
    for part in path.split("."):
        match = _STEP.fullmatch(part)
        if match is None:
            raise ScenarioError(f"{label}: {shown(path)} is not a key such as links[1].loss")
        steps.append((match[1], None if match[2] is None else int(match[2])))
    if len(steps) == 1:
        raise ScenarioError(f"{label}: expected a section and a key, such as scenario.gap")
    return tuple(steps)


def _value(written: str) -> object:
    try:
        parsed = tomllib.loads(f"value = {written}")
    except (ValueError, RecursionError):
        return written
    return parsed["value"] if len(parsed) == 1 else written  # a line break would bring further keys


def apply_overrides(document: dict[str, object], overrides: Iterable[Override], transport_names: Sequence[str]) -> None:
    """Make the changes in `document`. Raises ScenarioError for one that leads nowhere."""
    for override in overrides:
        section, _ = override.steps[0]
        steps = override.steps
        if section not in SECTIONS:
            if section not in transport_names:
                known = (*SECTIONS, *transport_names)
                raise ScenarioError(
                    f"{override.label}: there is neither a section nor a transport {shown(section)}"
                    f"{close_matches(section, known)}"
                )
            steps = (("transports", None), *steps)
        _apply(document, steps, override)


def _apply(node: dict[str, object], steps: Sequence[tuple[str, int | None]], override: Override) -> None:
    (name, index), *further = steps
    if not further and index is None:
        if (rival := _RIVALS.get(name)) is not None:
            node.pop(rival, None)
        node[name] = Given(deepcopy(override.value), override.label)  # a table of its own for each
        return
    if name not in node:
        if index is not None:
            raise ScenarioError(f"{override.label}: there are no {name}")
        node[name] = Given({}, override.label)
    below = bare(node[name])
    if isinstance(below, list):
        if index is not None and index >= len(below):
            raise ScenarioError(f"{override.label}: there are only {len(below)} {name}, counted from 0")
        if not further:
            below[index or 0] = Given(deepcopy(override.value), override.label)
            return
        for item in below if index is None else [below[index]]:
            _apply(_table(item, name, override), further, override)
        return
    if index is not None:
        raise ScenarioError(f"{override.label}: {name} is not a list")
    _apply(_table(below, name, override), further, override)


def _table(node: object, name: str, override: Override) -> dict[str, object]:
    table = bare(node)
    if not isinstance(table, dict):
        raise ScenarioError(f"{override.label}: {name} is {shown(table)}, not a table")
    return table
