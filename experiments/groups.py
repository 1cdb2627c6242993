"""What a directory of results holds, scenario by scenario: runs that belong together, and what tells them apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from experiments.compare import Comparison, compare_runs
from experiments.store import RunRow, Store
from wan.units import parse_rate, parse_size, parse_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs of one scenario in one world, with the same settings: values as texts, by key."""

    settings: Mapping[str, str]
    comparison: Comparison

    @property
    def name(self) -> str:
        """What tells it from the others, for people."""
        return ", ".join(f"{key} = {value}" for key, value in self.settings.items())


def groups_of(store: Store, keys: Sequence[str] | None = None) -> list[Group]:
    """Return the runs with these keys, or all that are in the store, as groups.

    Groups come in the order of their first run; those of a whole store by scenario, world and settings, values by what
    they amount to.
    """
    runs = store.runs(keys)
    if keys is None:
        runs.sort(key=lambda run: (run.scenario, run.backend, run.scale, _rank(run.settings), run.transport, run.seed))
    together: dict[tuple[str, str, float, tuple[str, ...]], list[RunRow]] = {}
    for run in runs:
        together.setdefault(_kind(run), []).append(run)
    return [
        Group(
            settings=dict(_split(setting) for setting in kind[-1]),
            comparison=compare_runs(store, members),
        )
        for kind, members in together.items()
    ]


def _kind(run: RunRow) -> tuple[str, str, float, tuple[str, ...]]:
    return run.scenario, run.backend, run.scale, run.settings


def _rank(settings: Sequence[str]) -> list[tuple[str, float, str]]:
    pairs = [_split(setting) for setting in settings]
    return [(key, inf if (amount := quantity(value)) is None else amount, value) for key, value in pairs]


def quantity(text: str) -> float | None:
    """Return what a value amounts to: a number, or a time, rate or size in its base unit; None for anything else."""
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
    """Return the keys in which groups differ, each with its values in the order in which they come."""
    keys = dict.fromkeys(key for group in groups for key in group.settings)
    values = {key: list(dict.fromkeys(group.settings.get(key, "") for group in groups)) for key in keys}
    return {key: found for key, found in values.items() if len(found) > 1}
