"""Results as columns: numpy arrays without further packages; pandas and Arrow where they are installed."""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas
    import pyarrow


class ResultTable(Mapping[str, tuple[Any, ...]]):
    """A table of results: its columns by name, all of one length, each a tuple of plain values or None.

    `print` shows it as aligned text. A notebook shows `to_pandas()` best.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Make a table. Raises ValueError where the columns are not of one length."""
        self._columns = {name: tuple(values) for name, values in columns.items()}
        if len({len(values) for values in self._columns.values()}) > 1:
            raise ValueError("columns: they are not of one length")

    def __getitem__(self, column: str) -> tuple[Any, ...]:
        return self._columns[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        """Return the number of columns, as of any mapping; `rows` counts the rows."""
        return len(self._columns)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self._columns.values()), ()))

    def array(self, column: str) -> np.ndarray[Any, Any]:
        """Return a column as a numpy array. In a column of numbers None becomes nan. Raises KeyError for no column."""
        values = self._columns[column]
        numbers = all(value is None or type(value) in (int, float) for value in values)
        if numbers and None in values:
            return np.array([np.nan if value is None else value for value in values], dtype=float)
        return np.array(values)

    def records(self) -> list[dict[str, Any]]:
        """Return the rows, each a dictionary by column."""
        return [dict(zip(self._columns, row, strict=True)) for row in zip(*self._columns.values(), strict=True)]

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a pandas.DataFrame. Raises ImportError, in one sentence, where pandas is not installed."""
        return _required("pandas").DataFrame({name: list(values) for name, values in self._columns.items()})

    def to_arrow(self) -> "pyarrow.Table":
        """Return a pyarrow.Table. Raises ImportError, in one sentence, where pyarrow is not installed."""
        return _required("pyarrow").table({name: list(values) for name, values in self._columns.items()})

    def __str__(self) -> str:
        cells = [[name, *map(_cell, values)] for name, values in self._columns.items()]
        widths = [max(map(len, column)) for column in cells]
        lines = zip(*cells, strict=True)
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )

    def __repr__(self) -> str:
        return f"<ResultTable of {self.rows} rows: {', '.join(self._columns)}>"


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _required(package: str) -> ModuleType:
    try:
        return import_module(package)
    except ImportError as error:
        raise ImportError(f"{package} is not installed; `pip install {package}` adds it", name=package) from error
