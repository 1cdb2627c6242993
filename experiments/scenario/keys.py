"""The keys of scenarios, studies and deployments: each has a name, a kind, a default and a meaning, said once.

The readers read tables with these keys, and `key_document` writes docs/scenarios.md from them. A `Section` is a class
whose attributes are its keys: `LinkKeys.rate.read(table)` gives a rate in bit/s.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from bicoastal.experiments.scenario.tables import Table
from bicoastal.wan.units import INFINITY

T = TypeVar("T")

_REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key(Generic[T]):
    """One key of a table.

    kind: what its value is, in words. meaning: one plain sentence. default: the value that stands for a missing key,
    None where there is none. said_default: that value as people write it, or what applies instead, or "required".
    reader: how a table gives the value, called with the table, the key's name and a default.
    """

    name: str
    kind: str
    meaning: str
    default: T | None
    said_default: str
    reader: Callable[[Table, str, T | None], T]

    @property
    def required(self) -> bool:
        """Whether the key has to be there."""
        return self.said_default == _REQUIRED

    def read(self, table: Table, default: T | None = None) -> T:
        """Return the value in the table, or a default: this one, else the key's own. Raises ScenarioError."""
        return self.reader(table, self.name, self.default if default is None else default)

    def find(self, table: Table) -> T | None:
        """Return the value in the table, or None where the key is not there. Raises ScenarioError."""
        table.know(self.name)
        return self.read(table) if table.has(self.name) else None


class Section:
    """A table of a document: a subclass has `title`, `meaning` and its keys as attributes, in the order of the docs."""

    title: ClassVar[str]
    meaning: ClassVar[str]

    @classmethod
    def all_keys(cls) -> tuple[Key[Any], ...]:
        """Return the keys of the table."""
        return tuple(value for value in vars(cls).values() if isinstance(value, Key))

    @classmethod
    def finish(cls, table: Table) -> None:
        """Raise ScenarioError for the first key of the table that is none of these."""
        table.finish(key.name for key in cls.all_keys())


def rate_key(name: str, meaning: str, *, default: float | None = None, said: str = _REQUIRED) -> Key[float]:
    """Return a key for a rate, read in bit/s. said: the default as people write it, as for all of these."""
    return Key(
        name=name,
        kind='rate, such as "5 Gbit/s"',
        meaning=meaning,
        default=default,
        said_default=said,
        reader=Table.rate_bps,
    )


def time_key(
    name: str, meaning: str, *, default: float | None = None, said: str = _REQUIRED, positive: bool = False
) -> Key[float]:
    """Return a key for a time, read in seconds. positive: 0 is refused."""
    return Key(
        name=name,
        kind='time, such as "60 ms"',
        meaning=meaning,
        default=default,
        said_default=said,
        reader=lambda table, key, missing: table.time_s(key, missing, positive=positive),
    )


def size_key(name: str, meaning: str, *, default: int | None = None, said: str = _REQUIRED) -> Key[int]:
    """Return a key for a size, read in bytes."""
    return Key(
        name=name,
        kind='size, such as "57.13 MB"',
        meaning=meaning,
        default=default,
        said_default=said,
        reader=Table.size_bytes,
    )


def probability_key(name: str, meaning: str, *, default: float | None = None, said: str = _REQUIRED) -> Key[float]:
    """Return a key for a probability."""
    return Key(
        name=name,
        kind="probability",
        meaning=meaning,
        default=default,
        said_default=said if default is None else f"{default:g}",
        reader=Table.probability,
    )


def whole_key(
    name: str, meaning: str, *, least: int, most: int, default: int | None = None, said: str = _REQUIRED
) -> Key[int]:
    """Return a key for a whole number from `least` to `most`."""
    return Key(
        name=name,
        kind="whole number",
        meaning=meaning,
        default=default,
        said_default=said if default is None else str(default),
        reader=lambda table, key, missing: table.integer(key, missing, least=least, most=most),
    )


def number_key(
    name: str, meaning: str, *, least: float, most: float = INFINITY, expected: str, said: str = _REQUIRED
) -> Key[float]:
    """Return a key for a finite number from `least` to `most`. expected: what an error sentence says of it."""
    return Key(
        name=name,
        kind="number",
        meaning=meaning,
        default=None,
        said_default=said,
        reader=lambda table, key, _: table.number(key, least=least, most=most, expected=expected),
    )


def truth_key(name: str, meaning: str, *, default: bool) -> Key[bool]:
    """Return a key that is true or false."""
    return Key(
        name=name,
        kind="true or false",
        meaning=meaning,
        default=default,
        said_default="true" if default else "false",
        reader=lambda table, key, missing: table.boolean(key, bool(missing)),
    )


def text_key(name: str, meaning: str, *, default: str | None = None, said: str = _REQUIRED) -> Key[str]:
    """Return a key for text."""
    return Key(
        name=name,
        kind="text",
        meaning=meaning,
        default=default,
        said_default=said if default is None else f'"{default}"',
        reader=Table.text,
    )


def name_key(name: str, meaning: str, *, default: str | None = None, said: str = _REQUIRED) -> Key[str]:
    """Return a key for a name: letters, digits, dots, dashes and underscores."""
    return Key(
        name=name,
        kind="name",
        meaning=meaning,
        default=default,
        said_default=said,
        reader=Table.name,
    )


def choice_key(name: str, meaning: str, choices: Sequence[str], *, default: str | None = None) -> Key[str]:
    """Return a key for one of a few texts."""
    return Key(
        name=name,
        kind=f"one of {', '.join(choices)}",
        meaning=meaning,
        default=default,
        said_default=_REQUIRED if default is None else f'"{default}"',
        reader=lambda table, key, missing: table.one_of(key, choices, missing),
    )


def names_key(
    name: str, meaning: str, *, default: tuple[str, ...] | None = None, said: str = _REQUIRED
) -> Key[tuple[str, ...]]:
    """Return a key for a list of names, no two alike."""
    return Key(
        name=name,
        kind="list of names",
        meaning=meaning,
        default=default,
        said_default=said,
        reader=Table.names,
    )


def tables_key(name: str, meaning: str, *, required: bool = False) -> Key[tuple[Table, ...]]:
    """Return a key for a list of tables."""
    return Key(
        name=name,
        kind="list of tables",
        meaning=meaning,
        default=None,
        said_default=_REQUIRED if required else "none",
        reader=lambda table, key, _: table.tables(key, required=required),
    )


def other_key(name: str, kind: str, meaning: str, *, said: str = _REQUIRED, expected: str = "a value") -> Key[object]:
    """Return a key of another kind. It is read as it stands, and its reader looks at the value itself."""
    return Key(
        name=name,
        kind=kind,
        meaning=meaning,
        default=None,
        said_default=said,
        reader=lambda table, key, _: table.raw(key, expected),
    )
