"""The runs of a directory in groups: one for each scenario, world and settings, with the differences between them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from bicoastal.experiments.analysis.comparison import Comparison, compare_runs
from bicoastal.experiments.runs.store import RunRow, Store
from bicoastal.wan.units import parse_rate, parse_size, parse_time

MOST_NAMED = 4  # differences in a heading


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs of one setup with the same settings (values as texts, by key), each transport with the same parameters.

    differences: from other groups with the same settings, "key=value" each. The rest as in `RunRow`.
    """

    settings: Mapping[str, str]
    differences: tuple[str, ...]
    conditions: tuple[str, ...]
    labels: Mapping[str, str]
    study: str
    source: str
    notes: tuple[str, ...]
    comparison: Comparison

    @property
    def name(self) -> str:
        """The settings and the differences, as a heading."""
        return enumerated([*(f"{key}={value}" for key, value in self.settings.items()), *self.differences[:MOST_NAMED]])


def enumerated(settings: Iterable[str]) -> str:
    """Return settings, "key=value" each, as one text for people."""
    return ", ".join(setting.replace("=", " = ", 1) for setting in settings)


def groups_of(store: Store, keys: Sequence[str] | None = None) -> list[Group]:
    """Return the runs with these keys, or all that are in the store, as groups.

    Groups are in the order of their first run. Those of a whole store are sorted by scenario, world, settings and
    differences; values are compared as quantities.
    """
    runs = store.runs(keys)
    if keys is None:
        runs.sort(key=lambda run: (run.transport, _rank(run.parameters), run.seed))
    families: dict[tuple[str, str, float, tuple[str, ...]], list[RunRow]] = {}
    for run in runs:
        families.setdefault((run.scenario, run.backend, run.scale, run.settings), []).append(run)
    groups = [group for members in families.values() for group in _groups(store, members)]
    if keys is None:
        groups.sort(key=_place)
    return groups


def _groups(store: Store, runs: Sequence[RunRow]) -> list[Group]:
    """Return the groups of runs with the same settings."""
    together: dict[tuple[str, int], list[RunRow]] = {}
    editions: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for run in runs:
        seen = editions.setdefault((run.setup, run.transport), [])
        if run.parameters not in seen:
            seen.append(run.parameters)
        together.setdefault((run.setup, seen.index(run.parameters)), []).append(run)
    differences = distinct([_conditions(members) for members in together.values()])
    return [
        Group(
            settings=dict(_split(setting) for setting in members[0].settings),
            differences=differing,
            conditions=_conditions(members),
            labels=dict(_split(label) for label in members[0].labels),
            study=members[0].study,
            source=members[0].source,
            notes=members[0].notes,
            comparison=compare_runs(store, members),
        )
        for members, differing in zip(together.values(), differences, strict=True)
    ]


def _conditions(runs: Sequence[RunRow]) -> tuple[str, ...]:
    parameters = dict.fromkeys(f"{run.transport}.{each}" for run in runs for each in run.parameters)
    return (*runs[0].conditions, *parameters)


def distinct(several: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return for each the items that not all of them have; if these are not unique, also a version number."""
    common = set(several[0]).intersection(*several[1:])
    found = [tuple(item for item in each if item not in common) for each in several]
    count = len(found)
    return [
        each if count == 1 or found.count(each) == 1 else (*each, f"version={number} of {count}")
        for number, each in enumerate(found, start=1)
    ]


def _place(group: Group) -> tuple[Any, ...]:
    comparison = group.comparison
    settings = [f"{key}={value}" for key, value in group.settings.items()]
    return comparison.scenario, comparison.backend, comparison.scale, _rank(settings), _rank(group.differences)


def _rank(settings: Sequence[str]) -> list[tuple[str, float, str]]:
    pairs = [_split(setting) for setting in settings]
    return [(key, inf if (amount := quantity(value)) is None else amount, value) for key, value in pairs]


def quantity(text: str) -> float | None:
    """Return the value as a number: itself, or a time, rate or size in its base unit; None for any other text."""
    for parse in (float, parse_time, parse_rate, parse_size):
        try:
            amount = float(parse(text))
        except (ValueError, OverflowError):
            continue
        return amount if isfinite(amount) else None
    return None


def _split(setting: str) -> tuple[str, str]:
    key, _, value = setting.partition("=")
    return key, value


def varied(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Return the keys in which groups differ, each with its values in the order of the groups."""
    keys = dict.fromkeys(key for group in groups for key in group.settings)
    values = {key: list(dict.fromkeys(group.settings.get(key, "") for group in groups)) for key in keys}
    return {key: found for key, found in values.items() if len(found) > 1}
