"""A base class of context managers that are closed at the end of their block."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """A context manager that returns itself and calls `close` at the end of the block, also after an exception."""

    @abstractmethod
    def close(self) -> None:
        """Release every resource."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
