"""The store of runs and their records: one SQLite file, one transaction per run, the same content for the same runs.

A run's name is its key, a digest of everything that decides it (`run_key`). Running it again replaces it. The store
keeps the whole specification of each run, so that analysis reads what was run and never a text about it. No row depends
on when or where the run was made, or after which others. The file's pages may: compare rows, or exports.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from types import NoneType, TracebackType
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from bicoastal.emulation.base import RunSpec, TransportUse
from bicoastal.emulation.processes.wire_format import WireFormatError
from bicoastal.emulation.records import (
    FlowRecord,
    FlowSample,
    FlowSummary,
    IterationRecord,
    LinkRecord,
    NoticeRecord,
    QueueSample,
    RunRecord,
)
from bicoastal.experiments.basics.digests import digest
from bicoastal.experiments.runs.setups import conditions
from bicoastal.experiments.runs.specifications import compared_job, decode_specification, encode_specification
from bicoastal.wan.checks import FieldError

FILE_NAME = "results.sqlite"
SCHEMA_VERSION = 4
_APPLICATION_ID = 0x62_69_63_6F  # "bico"
_BUSY_S = 30.0
_MAX_INTEGER_BITS = 63

RunStatus = Literal["ok", "degraded", "failed", "unsupported"]

# The rows of a run, by the table they stand in. The columns are the record's fields, in their order.
_ROWS: Mapping[str, type[Any]] = {
    "iterations": IterationRecord,
    "flows": FlowRecord,
    "summaries": FlowSummary,
    "links": LinkRecord,
    "samples": FlowSample,
    "queues": QueueSample,
    "notices": NoticeRecord,
}
TABLES = ("runs", *_ROWS)
_LISTS = ("settings", "labels", "parameters", "jobs", "notes")  # of a RunRow: JSON in their columns, as options are

R = TypeVar("R")


class StoreError(Exception):
    """The store cannot be used; the message is one sentence that names the file."""


class UnfitRecordError(ValueError):
    """A record holds what no column can; the message begins with the record and its field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run as a whole. `transport` is the one under comparison, `jobs` those of the run that it carries.

    study: that the run is a point of; empty for none. settings: what was changed in the scenario for it, "key=value"
    each, in the order in which it was. labels: what people call those keys, "key=label" each, where it is known.
    source: a digest of the scenario before any of its settings. parameters: of the transport, "key=value" each, where
    they differ from its defaults. setup: a digest of all else that decides the run but its seed; runs with the same
    one, and the same parameters of each transport, can be taken together. options: of the backend. spec: the whole
    specification of the run. notes: "term: meaning" each, of its paths and its scale, for people. status
    "unsupported": the world could not honour the run, for `reason`, and there are no further rows.
    """

    key: str
    scenario: str
    study: str
    settings: tuple[str, ...]
    labels: tuple[str, ...]
    source: str
    backend: str
    transport: str
    parameters: tuple[str, ...]
    jobs: tuple[str, ...]
    seed: int
    scale: float
    setup: str
    options: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    status: RunStatus
    reason: str
    array_note: str
    spec: RunSpec

    @property
    def use(self) -> TransportUse:
        """The transport under comparison, with the parameters that differ from its defaults."""
        return compared_job(self.spec, self.jobs).transport

    @property
    def setup_conditions(self) -> dict[str, str]:
        """What the setup consists of, values as texts by key, for people (`setups.conditions`)."""
        return conditions(self.spec, self.jobs, dict(self.options))

    @property
    def conditions(self) -> tuple[str, ...]:
        """What the setup consists of, "key=value" each, for people."""
        return tuple(f"{key}={value}" for key, value in self.setup_conditions.items())


def run_key(spec: RunSpec, backend: str) -> str:
    """Return the name of a run: a digest of its specification and its world.

    With or without time series a run is the same, and counts once.
    """
    return digest([SCHEMA_VERSION, backend, encode_specification(replace(spec, sample_interval_s=None))])


def _column(name: str, hint: Any) -> str:
    kinds = [kind for kind in get_args(hint) if kind is not type(None)] or [hint]
    optional = type(None) in get_args(hint)
    sql = {int: "INTEGER", bool: "INTEGER", float: "REAL"}.get(kinds[0], "TEXT")
    return f"{name} {sql}" + ("" if optional else " NOT NULL")


def _columns(record: type[Any]) -> list[str]:
    hints = get_type_hints(record)
    return [_column(f.name, hints[f.name]) for f in fields(record)]


def _schema() -> Iterator[str]:
    runs = [column.replace("key TEXT NOT NULL", "key TEXT PRIMARY KEY") for column in _columns(RunRow)]
    yield f"CREATE TABLE runs ({', '.join(runs)}) WITHOUT ROWID"
    for table, record in _ROWS.items():
        columns = ["run TEXT NOT NULL", "row INTEGER NOT NULL", *_columns(record), "PRIMARY KEY (run, row)"]
        yield f"CREATE TABLE {table} ({', '.join(columns)}) WITHOUT ROWID"
    yield f"PRAGMA application_id = {_APPLICATION_ID}"
    yield f"PRAGMA user_version = {SCHEMA_VERSION}"


class Store:
    """The results of one directory. Use it as a context manager; every error of the file is a StoreError."""

    def __init__(self, directory: Path | None, *, writable: bool = True) -> None:
        """Open or create the store in `directory`, which is made if need be; None keeps the results in memory.

        writable: check now that runs can be written, not after the first one.
        """
        self.path = Path(":memory:") if directory is None else directory / FILE_NAME
        try:
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise StoreError(f"{directory}: is no directory for results ({_why(error)})") from error
        with self._faults():
            # autocommit: transactions begin and end with statements of their own
            self._db = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)
        try:
            with self._faults():
                self._prepare()
                if writable:
                    self._try_to_write()
        except BaseException:
            self._db.close()
            raise

    @classmethod
    def existing(cls, directory: Path) -> "Store":
        """Open the store that is in `directory`, to read it. Raises StoreError when there is none."""
        if not (directory / FILE_NAME).is_file():
            raise StoreError(f"{directory}: holds no results ({FILE_NAME} is not there)")
        return cls(directory, writable=False)

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _prepare(self) -> None:
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application == 0 and version == 0 and tables == 0:
            self._create()
        elif application != _APPLICATION_ID:
            raise StoreError(f"{self.path}: is a database, but not one of bicoastal's")
        elif version != SCHEMA_VERSION:
            raise StoreError(
                f"{self.path}: has layout {version}, this program reads and writes layout {SCHEMA_VERSION}; "
                "take another --out"
            )

    def _create(self) -> None:
        with self._transaction():
            # Checked again under the lock: another run may have created the tables in the meantime.
            (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not tables:
                for statement in _schema():
                    self._db.execute(statement)

    def _try_to_write(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: {error}") from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:  # Ctrl-C too: a run is complete or absent
            if self._db.in_transaction:  # a full disk has ended it already
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, run: RunRow, record: RunRecord | None) -> None:
        """Write one run in one transaction, in the place of what stood under its key.

        Raises UnfitRecordError, and changes nothing, when a value is not of its field's type: much of a record comes
        from a third party's transport.
        """
        with self._faults(), self._transaction():
            self._db.execute("DELETE FROM runs WHERE key = ?", (run.key,))
            self._insert("runs", [_run_values(run)])
            for table in _ROWS:
                self._db.execute(f"DELETE FROM {table} WHERE run = ?", (run.key,))
                if record is not None:
                    rows = enumerate(getattr(record, table))
                    self._insert(table, ((run.key, index, *_values(row)) for index, row in rows))

    def _insert(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        record = RunRow if table == "runs" else _ROWS[table]
        columns = len(fields(record)) + (0 if table == "runs" else 2)
        self._db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * columns)})", rows)

    # -- reading ------------------------------------------------------------------------------------------------------

    def runs(self, keys: Sequence[str] | None = None) -> list[RunRow]:
        """Return the runs with these keys in the order given, or all of them in the order of their keys."""
        with self._faults():
            found = {row[0]: row for row in self._db.execute("SELECT * FROM runs ORDER BY key")}
        return [self._run(found[key]) for key in (found if keys is None else keys) if key in found]

    def _run(self, row: tuple[Any, ...]) -> RunRow:
        values = dict(zip((f.name for f in fields(RunRow)), row, strict=True))
        try:
            read = {name: tuple(json.loads(values[name])) for name in _LISTS}
            options = tuple(json.loads(values["options"]).items())
            spec = decode_specification(values["spec"])
        except (ValueError, AttributeError, TypeError) as error:
            raise StoreError(f"{self.path}: run {values['key']} cannot be read: {error}") from error
        return RunRow(**{**values, **read, "options": options, "spec": spec})

    def iterations(self, key: str) -> list[IterationRecord]:
        """Return a run's iterations, job by job."""
        return self._rows(key, "iterations", IterationRecord)

    def flows(self, key: str) -> list[FlowRecord]:
        """Return a run's flow records."""
        return self._rows(key, "flows", FlowRecord)

    def summaries(self, key: str) -> list[FlowSummary]:
        """Return a run's flows."""
        return self._rows(key, "summaries", FlowSummary)

    def links(self, key: str) -> list[LinkRecord]:
        """Return a run's link directions."""
        return self._rows(key, "links", LinkRecord)

    def notices(self, key: str) -> list[NoticeRecord]:
        """Return a run's notices."""
        return self._rows(key, "notices", NoticeRecord)

    def samples(self, key: str, start_s: float, stop_s: float) -> list[FlowSample]:
        """Return a run's flow samples from `start_s` to `stop_s`."""
        return self._rows(key, "samples", FlowSample, "AND at_s BETWEEN ? AND ?", (start_s, stop_s))

    def queues(self, key: str, start_s: float, stop_s: float) -> list[QueueSample]:
        """Return a run's queue samples from `start_s` to `stop_s`."""
        return self._rows(key, "queues", QueueSample, "AND at_s BETWEEN ? AND ?", (start_s, stop_s))

    def _rows(
        self, key: str, table: str, make: Callable[..., R], condition: str = "", arguments: tuple[float, ...] = ()
    ) -> list[R]:
        names = [f.name for f in fields(_ROWS[table])]
        flags = {name for name, hint in get_type_hints(_ROWS[table]).items() if hint is bool}
        query = f"SELECT {', '.join(names)} FROM {table} WHERE run = ? {condition} ORDER BY row"
        with self._faults():
            rows = self._db.execute(query, (key, *arguments)).fetchall()
        return [
            make(**{name: bool(v) if name in flags else v for name, v in zip(names, row, strict=True)}) for row in rows
        ]

    def dump(self, table: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Return the columns and the rows of one of TABLES, run by run, as an export shows them."""
        if table not in TABLES:
            raise FieldError("table", f"{table!r} is not one of {', '.join(TABLES)}")
        if table == "runs":
            names = [f.name for f in fields(RunRow)]
            return [*names, "conditions"], ((*_run_values(run), json.dumps(run.conditions)) for run in self.runs())
        with self._faults():
            cursor = self._db.execute(f"SELECT * FROM {table} ORDER BY run, row")
        return [column[0] for column in cursor.description], self._fetch(cursor)

    def _fetch(self, cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
        with self._faults():
            yield from cursor


def _run_values(run: RunRow) -> tuple[Any, ...]:
    """Return the columns of a run."""
    try:
        written = {name: json.dumps(getattr(run, name)) for name in _LISTS}
        written |= {"options": json.dumps(dict(run.options)), "spec": encode_specification(run.spec)}
    except WireFormatError as error:
        raise UnfitRecordError(f"RunRow.spec: {error}") from error
    return _values(run, written)


def _values(row: Any, written: Mapping[str, str] | None = None) -> tuple[Any, ...]:
    """Return the columns of a row. written: those that are kept as JSON."""
    values = []
    for name, kinds in _kinds(type(row)):  # type: ignore[arg-type]  # a class is hashable; mypy doubts it of type[Any]
        value = written[name] if written and name in written else getattr(row, name)
        if not isinstance(value, kinds) or (type(value) is int and value.bit_length() > _MAX_INTEGER_BITS):
            raise UnfitRecordError(f"{type(row).__name__}.{name}: {value!r:.60} cannot be kept")
        # a lone surrogate has no place in UTF-8
        values.append(value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value)
    return tuple(values)


@cache
def _kinds(record: type[Any]) -> tuple[tuple[str, tuple[type, ...]], ...]:
    hints = get_type_hints(record)
    return tuple((f.name, _column_kinds(hints[f.name])) for f in fields(record))


def _column_kinds(hint: Any) -> tuple[type, ...]:
    # a Literal has texts; what is kept as JSON is text too
    kinds = {part if part in (int, float, bool, NoneType) else str for part in get_args(hint) or (hint,)}
    return (*kinds, int) if float in kinds else tuple(kinds)


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
