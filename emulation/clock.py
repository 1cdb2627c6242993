"""The driver's clock: three methods, virtual or real behind them."""

from abc import ABC, abstractmethod


class Clock(ABC):
    """Seconds since the run began, and a way to wait. passes_by_itself: time passes while nobody waits."""

    passes_by_itself = False

    @abstractmethod
    def start(self) -> None:
        """Make this moment zero."""

    @abstractmethod
    def now(self) -> float:
        """Return the seconds since `start`; never less than before."""

    @abstractmethod
    def wait_until(self, at_s: float) -> bool:
        """Wait for `at_s`. True: it has come. False: something arrived first and has been handed to the driver."""


class VirtualClock(Clock):
    """Time that passes only when somebody waits, and then at once."""

    def __init__(self) -> None:
        self._now = 0.0

    def start(self) -> None:
        """Make this moment zero."""
        self._now = 0.0

    def now(self) -> float:
        """Return the virtual time."""
        return self._now

    def wait_until(self, at_s: float) -> bool:
        """Jump to `at_s`; a time already past changes nothing."""
        self._now = max(self._now, at_s)
        return True
