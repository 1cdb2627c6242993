"""Tables of a TOML document, read key by key. An error is one sentence that names the file, the key and the problem.

A `Table` knows its place in the file (`coast.toml: links[1]`). A value from `--set` is wrapped in `Given`, so that an
error in it names the option instead of the file. A key that was not read is an error too: `finish` finds it.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import NoReturn, TypeVar

from bicoastal.wan.checks import FieldError, quoted
from bicoastal.wan.units import parse_probability, parse_rate, parse_size, parse_time

MAX_FILE_BYTES = 1_000_000
LEAST_QUANTITY = 1e-15  # of seconds, bytes or bit/s: no quotient of a few such numbers is infinite
MAX_QUANTITY = 2**53  # larger numbers of seconds, bytes or bit/s lose their last digit in floats
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

T = TypeVar("T")


class ScenarioError(ValueError):
    """The input is not usable; the message is one sentence that says where and why."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value that an option of the command line put in; `label` is that option, for the sentence."""

    value: object
    label: str


def bare(value: object) -> object:
    """Return the value without its `Given`."""
    return value.value if isinstance(value, Given) else value


def shown(value: object) -> str:
    """Return a value as TOML writes it, cut to the length that a sentence can hold."""
    match bare(value):
        case bool(truth):
            return "true" if truth else "false"
        case Mapping():
            return "a table"
        case list() | tuple():
            return "a list"
        case datetime() | date() | time():
            return "a date"
        case scalar:
            return quoted(scalar)


def close_matches(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean …?" when one of `names` resembles `name`, else ""."""
    known = list(names)
    found = difflib.get_close_matches(name, known, n=2)
    found += [item for item in known if len(name) > 2 and item.startswith(name) and item not in found][:2]
    return f"; did you mean {' or '.join(repr(match) for match in found)}?" if found else ""


def alternatives(name: str, names: Sequence[str]) -> str:
    """Return the end of a sentence "there is no …": the names that resemble `name`, and all that there are."""
    return f"{close_matches(name, names) or ';'} there are {', '.join(names)}" if names else "; there are none"


def load_toml(path: Path, label: str) -> dict[str, object]:
    """Read a TOML file. Raises ScenarioError, in one sentence that begins with `label`."""
    if path.is_dir():
        raise ScenarioError(f"{label}: is a directory, not a TOML file")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ScenarioError(f"{label}: there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise ScenarioError(f"{label}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    return parse_toml(data, label)


def parse_toml(data: bytes, label: str) -> dict[str, object]:
    """Parse what a TOML file holds. Raises ScenarioError, in one sentence that begins with `label`."""
    if len(data) > MAX_FILE_BYTES:
        raise ScenarioError(f"{label}: is larger than 1 MB, which no scenario is")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{label}: is not UTF-8 text (byte {error.start})") from None
    if not text.strip():
        raise ScenarioError(f"{label}: is empty")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ScenarioError(f"{label}: is not TOML: nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError, and int() on more digits than it takes
        raise ScenarioError(f"{label}: is not TOML: {error}") from None


class Table:
    """One table of a scenario, read key by key. `where` is its place in the file, "" for the file itself."""

    def __init__(self, data: Mapping[str, object], *, file: str, where: str = "", label: str | None = None) -> None:
        self._data = dict(data)
        self._asked: set[str] = set()
        self.file = file
        self.where = where
        self._label = label  # of the option that the whole table came from

    # -- faults -------------------------------------------------------------------------------------------------------

    def label(self, key: str = "") -> str:
        """Return what a sentence about `key` begins with."""
        value = self._data.get(key)
        if isinstance(value, Given):
            return value.label
        if self._label is not None:
            return f"{self._label}.{key}" if key else self._label
        place = f"{self.where}.{key}" if self.where and key else self.where or key
        return f"{self.file}: {place}" if place else self.file

    def fail(self, key: str, message: str) -> NoReturn:
        """Raise the ScenarioError that says `message` of `key`."""
        raise ScenarioError(f"{self.label(key)}: {message}")

    def adopt(self, make: Callable[[], T], keys: Mapping[str, str]) -> T:
        """Return make(). A FieldError becomes a sentence about keys[field], other ValueErrors one about the table."""
        try:
            return make()
        except ScenarioError:
            raise
        except FieldError as error:
            if error.field in keys:
                self.fail(keys[error.field], error.message)
            self.fail("", str(error))
        except (ValueError, OverflowError) as error:
            self.fail("", str(error))

    # -- looking ------------------------------------------------------------------------------------------------------

    def has(self, key: str) -> bool:
        """Whether the key is there. This does not make it a known key."""
        return key in self._data

    def data(self) -> dict[str, object]:
        """Return what the table holds, `Given` values as they are. This makes no key a known one."""
        return dict(self._data)

    def raw(self, key: str, expected: str) -> object:
        """Return the value of a key that must be there; `expected` says what it is, if it is not."""
        self._asked.add(key)
        if key not in self._data:
            self.fail(key, f"is missing; expected {expected}")
        return bare(self._data[key])

    def know(self, key: str) -> None:
        """Make the key a known one, whether it is there or not."""
        self._asked.add(key)

    def finish(self, known: Iterable[str] = ()) -> None:
        """Raise for the first key that was not read. known: further keys that the sentence may suggest."""
        for key in self._data:
            if key not in self._asked:
                self.fail(key, f"is not a known key{close_matches(key, sorted({*self._asked, *known}))}")

    def only_one_of(self, *keys: str, expected: str) -> str:
        """Return which of `keys` is there; exactly one must be."""
        present = [key for key in keys if key in self._data]
        if not present:
            self.fail(keys[0], f"is missing; expected {expected}")
        if len(present) > 1:
            self.fail(present[1], f"cannot stand beside {present[0]}")
        return present[0]

    # -- values -------------------------------------------------------------------------------------------------------

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string."""
        if default is not None and key not in self._data:
            self._asked.add(key)
            return default
        value = self.raw(key, "text")
        if not isinstance(value, str):
            self.fail(key, f"{shown(value)} is not text")
        return value

    def name(self, key: str, default: str | None = None) -> str:
        """Return a string that can be a name: letters, digits, dots, dashes and underscores."""
        value = self.text(key, default)
        if not _NAME.fullmatch(value):
            self.fail(key, f"{shown(value)} is not a name of 1 to 64 letters, digits, '.', '_' or '-'")
        return value

    def one_of(self, key: str, choices: Sequence[str], default: str | None = None) -> str:
        """Return a string that is one of `choices`."""
        if default is None and key not in self._data:
            self.raw(key, f"one of {', '.join(choices)}")
        value = self.text(key, default)
        if value not in choices:
            self.fail(key, f"{shown(value)} is not one of {', '.join(choices)}{close_matches(value, choices)}")
        return value

    def names(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """Return a list of strings, no two alike, at least one."""
        if default is not None and key not in self._data:
            self._asked.add(key)
            return default
        value = self.raw(key, "a list of names")
        if not isinstance(value, list) or not value:
            self.fail(key, f"{shown(value)} is not a list of names")
        names = [bare(item) for item in value]
        for index, item in enumerate(names):
            if not isinstance(item, str):
                self.fail(f"{key}[{index}]", f"{shown(item)} is not a name")
            if item in names[:index]:
                self.fail(f"{key}[{index}]", f"{shown(item)} stands there twice")
        return tuple(str(item) for item in names)

    def integer(self, key: str, default: int | None = None, *, least: int, most: int) -> int:
        """Return an integer between `least` and `most`."""
        if default is not None and key not in self._data:
            self._asked.add(key)
            return default
        value = self.raw(key, "an integer")
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"{shown(value)} is not an integer")
        if not least <= value <= most:
            self.fail(key, f"{shown(value)} is not between {least} and {most}")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        """Return a truth value."""
        self._asked.add(key)
        value = bare(self._data.get(key, default))
        if not isinstance(value, bool):
            self.fail(key, f"{shown(value)} is not true or false")
        return value

    def probability(self, key: str, default: float | None = None) -> float:
        """Return a number between 0 and 1."""
        if default is not None and key not in self._data:
            self._asked.add(key)
            return default
        value = self.raw(key, "a probability")
        try:
            return parse_probability(value)
        except (ValueError, OverflowError):
            self.fail(key, f"{shown(value)} is not a probability")

    def number(self, key: str, *, least: float, most: float = math.inf, expected: str) -> float:
        """Return a finite number from `least` to `most`."""
        value = self.raw(key, expected)
        try:
            number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
        except OverflowError:
            number = math.inf
        if not least <= number <= most or number == math.inf:
            self.fail(key, f"{shown(value)} is not {expected}")
        return number

    def time_s(self, key: str, default: float | None = None, *, positive: bool = False) -> float:
        """Return a time such as "60 ms", in seconds."""
        return self._quantity(key, default, parse_time, 'a time such as "60 ms"', positive=positive)

    def rate_bps(self, key: str, default: float | None = None) -> float:
        """Return a rate such as "5 Gbit/s", in bit/s."""
        return self._quantity(key, default, parse_rate, 'a rate such as "5 Gbit/s"', positive=True)

    def size_bytes(self, key: str, default: int | None = None) -> int:
        """Return a size such as "57.13 MB", in bytes; at least 1."""
        return int(self._quantity(key, default, parse_size, 'a size such as "57.13 MB"', positive=True))

    def _quantity(
        self, key: str, default: float | None, parse: Callable[[str], float], expected: str, *, positive: bool
    ) -> float:
        if default is not None and key not in self._data:
            self._asked.add(key)
            return default
        value = self.raw(key, expected)
        if not isinstance(value, str):
            self.fail(key, f"{shown(value)} is not {expected}")
        try:
            number = parse(value)
        except OverflowError:
            number = math.inf
        except ValueError as error:
            self.fail(key, str(error))
        if not number <= MAX_QUANTITY:
            self.fail(key, f"{shown(value)} is too large")
        if 0 < number < LEAST_QUANTITY:
            self.fail(key, f"{shown(value)} is too small")
        if positive and not number > 0:
            self.fail(key, f"{shown(value)} is not more than zero")
        return number

    # -- tables -------------------------------------------------------------------------------------------------------

    def table(self, key: str, *, required: bool = False) -> "Table":
        """Return the table at `key`; an empty one when it is not there and need not be."""
        value = self.raw(key, f"a table [{key}]") if required or key in self._data else {}
        self._asked.add(key)
        if not isinstance(value, Mapping):
            self.fail(key, f"{shown(value)} is not a table")
        return self._below(value, key, self._data.get(key))

    def tables(self, key: str, *, required: bool = False) -> "tuple[Table, ...]":
        """Return the tables of an array of tables, which may be absent unless `required`."""
        value = self.raw(key, f"at least one [[{key}]]") if required or key in self._data else []
        self._asked.add(key)
        if not isinstance(value, list) or not all(isinstance(bare(item), Mapping) for item in value):
            self.fail(key, f"{shown(value)} is not a list of tables [[{key}]]")
        if required and not value:
            self.fail(key, f"is empty; expected at least one [[{key}]]")
        return tuple(
            self._below(item, f"{key}[{index}]", item if isinstance(item, Given) else self._data.get(key))
            for index, item in enumerate(value)
        )

    def _below(self, value: object, step: str, origin: object) -> "Table":
        data = bare(value)
        if not isinstance(data, Mapping):
            raise TypeError(f"{step} is not a table")  # both callers have checked it
        where = f"{self.where}.{step}" if self.where else step
        label = origin.label if isinstance(origin, Given) else self._label and f"{self._label}.{step}"
        return Table(data, file=self.file, where=where, label=label)

    def rest(self) -> dict[str, object]:
        """Return the keys that were not read yet, with their values, and make them known."""
        found = {key: bare(value) for key, value in self._data.items() if key not in self._asked}
        self._asked.update(found)
        return found

    def at(self, where: str) -> "Table":
        """Return this table with another place in the file: the one that it was copied from."""
        return Table(self._data, file=self.file, where=where, label=self._label)
