"""What is closed when its block is left."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """A context manager that is itself what the block gets, and is closed at the end, however that comes."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
