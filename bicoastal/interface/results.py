"""The results of runs: records, arrays, tables and figures."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bicoastal.emulation.records import (
    FlowRecord,
    FlowSample,
    FlowSummary,
    IterationRecord,
    LinkRecord,
    NoticeRecord,
    QueueSample,
)
from bicoastal.experiments.analysis.comparison import (
    Comparison,
    TransportResult,
    compare_runs,
    comparison_document,
    percentile,
)
from bicoastal.experiments.analysis.groups import Group, groups_of
from bicoastal.experiments.extrapolation.at_scale import AtScale, at_scale
from bicoastal.experiments.runs.store import TABLES, RunRow, Store, StoreError
from bicoastal.interface.table import ResultTable
from bicoastal.transports.registry import Registry
from bicoastal.wan.deployment import Deployment
from bicoastal.wan.units import INFINITY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COMPARISON = "comparison"

R = TypeVar("R")


class Results:
    """The results of runs: records, arrays, tables, figures, and what they say of a whole deployment.

    Times are seconds, sizes bytes. It may be used as a context manager; `close` lets go of the file or the memory.
    """

    def __init__(self, store: Store, keys: Sequence[str], registry: Registry, *, whole: bool = False) -> None:
        """Take the runs with these keys. whole: they are all that the store has. `run` and `open_results` do it."""
        self._store = store
        self._keys = list(keys)
        self._registry = registry
        self._whole = whole

    def __enter__(self) -> "Results":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the results. What was read before stays usable."""
        self._store.close()

    @property
    def path(self) -> Path:
        """The file that the results are in, or ":memory:"."""
        return self._store.path

    # -- records ------------------------------------------------------------------------------------------------------

    @cached_property
    def runs(self) -> tuple[RunRow, ...]:
        """Each run as a whole: transport, seed, status, and what decided it."""
        return tuple(self._store.runs(self._keys))

    @cached_property
    def comparison(self) -> Comparison:
        """The transports side by side. Raises StoreError where there are no runs, or runs of several scenarios."""
        if not self.runs:
            raise StoreError(f"{self.path.parent}: holds no results yet")
        if len({(row.scenario, row.backend, row.scale) for row in self.runs}) > 1:
            raise StoreError(f"{self.path}: holds runs of several scenarios or backends; take `groups`")
        return compare_runs(self._store, self.runs)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The runs that belong together: of one scenario, backend and settings. A study has a group for each point."""
        return tuple(groups_of(self._store, None if self._whole else self._keys))

    @property
    def transports(self) -> tuple[str, ...]:
        """The names of the transports, in their order."""
        return tuple(dict.fromkeys(row.transport for row in self.runs))

    def __getitem__(self, transport: str) -> TransportResult:
        """Return all that the runs of a transport amount to: percentiles, efficiency, overhead, and its records."""
        for result in self.comparison.transports:
            if result.name == transport:
                return result
        raise KeyError(transport)

    def iterations(self, transport: str | None = None) -> list[IterationRecord]:
        """Return the iterations of one transport's runs, or of all runs, run by run."""
        return self._records(self._store.iterations, transport)

    def flows(self, transport: str | None = None) -> list[FlowRecord]:
        """Return each flow's part in each iteration, likewise."""
        return self._records(self._store.flows, transport)

    def summaries(self, transport: str | None = None) -> list[FlowSummary]:
        """Return the flows as a whole, with their handshakes, likewise."""
        return self._records(self._store.summaries, transport)

    def links(self, transport: str | None = None) -> list[LinkRecord]:
        """Return what each direction of each link did with its packets, likewise."""
        return self._records(self._store.links, transport)

    def notices(self, transport: str | None = None) -> list[NoticeRecord]:
        """Return what transports wanted the records to tell, likewise."""
        return self._records(self._store.notices, transport)

    def samples(self, transport: str | None = None) -> list[FlowSample]:
        """Return the time series of the flows, likewise; the first seed's run has them."""
        return self._records(lambda key: self._store.samples(key, 0.0, INFINITY), transport)

    def queues(self, transport: str | None = None) -> list[QueueSample]:
        """Return the time series of the links' queues, likewise."""
        return self._records(lambda key: self._store.queues(key, 0.0, INFINITY), transport)

    def _records(self, read: Callable[[str], list[R]], transport: str | None) -> list[R]:
        if transport is not None and transport not in self.transports:
            raise KeyError(transport)
        keys = [row.key for row in self.runs if transport in (None, row.transport)]
        return [record for key in keys for record in read(key)]

    # -- arrays and tables --------------------------------------------------------------------------------------------

    def completions_s(self, transport: str) -> NDArray[np.float64]:
        """Return the completion of each iteration of the compared jobs, seed by seed, seconds; nan where it failed."""
        return np.array([np.nan if value is None else value for value in self[transport].completions_s], dtype=float)

    def efficiencies(self, transport: str) -> NDArray[np.float64]:
        """Return bound over completion of each iteration, likewise; 0 where it failed."""
        return np.array(self[transport].efficiencies, dtype=float)

    def table(self, name: str = _COMPARISON) -> ResultTable:
        """Return a table: "comparison", with a row for each transport, or the records of one kind.

        The kinds are "runs", "iterations", "flows", "summaries", "links", "samples", "queues" and "notices"; the column
        "run" tells to which run a record belongs. Raises ValueError for another name.
        """
        if name == _COMPARISON:
            return ResultTable(_comparison_columns(self.comparison))
        if name not in TABLES:
            raise ValueError(f"name: {name!r} is not one of {', '.join((_COMPARISON, *TABLES))}")
        columns, rows = self.dump(name)
        values = list(zip(*rows, strict=True)) or [()] * len(columns)
        return ResultTable(dict(zip(columns, values, strict=True)))

    def dump(self, name: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Return the columns and, one after another, the rows of one of `TABLES`: for tables that fill the memory."""
        columns, rows = self._store.dump(name)
        own = set(self._keys)
        return columns, (row for row in rows if row[0] in own)

    def document(self) -> dict[str, Any]:
        """Return what `compare --json` prints, without what the runs say of a whole deployment."""
        return comparison_document(self.comparison)

    # -- figures ------------------------------------------------------------------------------------------------------

    def figure(self) -> "Figure | None":
        """Return completions as distributions beside the median efficiencies; None where nothing completed.

        The figure is returned and neither shown nor written: a notebook shows it, `figure.savefig("name.png")` writes
        it. It takes no part in pyplot, and changes no setting of matplotlib.
        """
        from bicoastal.experiments.figures.overview import overview_figure  # noqa: PLC0415 (matplotlib is slow to import)

        return overview_figure(self.comparison, self._registry)

    def series_figure(self) -> "Figure | None":
        """Return window, rate and queue over time of two iterations of each transport; None without time series."""
        from bicoastal.experiments.figures.series import series_figure  # noqa: PLC0415 (as above)

        return series_figure(self._store, self.comparison, self._registry)

    def curve_figures(self) -> "dict[str, Figure]":
        """Return efficiency and completion against what the runs vary, keyed by a name such as
        "efficiency-against-loss"; none where nothing is varied, or more than can be shown.
        """
        from bicoastal.experiments.figures.curves import curve_figures  # noqa: PLC0415 (as above)

        labels = {key: label for group in self.groups for key, label in group.labels.items()}
        return curve_figures(self.groups, self._registry, labels=labels)

    def page(self) -> str:
        """Return one HTML page with all tables and figures inside. Raises StoreError where there is nothing."""
        from bicoastal.experiments.figures.page import to_page  # noqa: PLC0415 (as above)

        if not self.groups:
            raise StoreError(f"{self.path.parent}: holds no results yet")
        return to_page(self._store, self.groups, self._registry)

    # -- a whole deployment -------------------------------------------------------------------------------------------

    def at_scale(self, deployment: Deployment, *, trips: int) -> tuple[Mapping[str, AtScale], Mapping[str, str]]:
        """Return, by transport, the slowest of all messages of a deployment, and why there is none for the others.

        It is read off each transport's tail model at the loss that the runs bear out. trips: one-way trips across the
        wide area of the compared job's all-reduce.
        """
        return at_scale(self._store, self.comparison, deployment, trips=trips)


def _comparison_columns(comparison: Comparison) -> dict[str, list[Any]]:
    results = comparison.transports
    return {
        "transport": [result.name for result in results],
        "status": [result.status for result in results],
        "n": [result.n for result in results],
        "failed": [result.failed for result in results],
        "first_s": [result.first_s for result in results],
        "min_s": [percentile(result.completions_s, 0.0) for result in results],
        "p50_s": [percentile(result.completions_s, 0.5) for result in results],
        "p99_s": [result.p99_s for result in results],
        "max_s": [percentile(result.completions_s, 1.0) for result in results],
        "efficiency_p50": [result.efficiency_p50 for result in results],
        "overhead": [result.overhead for result in results],
        "repairs": [result.repairs if result.n else None for result in results],
        "timeouts": [result.timeouts if result.n else None for result in results],
    }
