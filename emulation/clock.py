"""The driver's clock: three methods, for virtual and for real time."""

from abc import ABC, abstractmethod


class Clock(ABC):
    """Seconds since the run began, and a way to wait. passes_by_itself: time also passes outside `wait_until`."""

    passes_by_itself = False

    @abstractmethod
    def start(self) -> None:
        """Set the present time to zero."""

    @abstractmethod
    def now(self) -> float:
        """Return the seconds since `start`; they never decrease."""

    @abstractmethod
    def wait_until(self, at_s: float) -> bool:
        """Wait until `at_s`. Return True when it has come, False when something arrived first and was delivered."""


class VirtualClock(Clock):
    """Time that passes only in `wait_until`, which returns at once."""

    def __init__(self) -> None:
        self._now = 0.0

    def start(self) -> None:
        """Set the present time to zero."""
        self._now = 0.0

    def now(self) -> float:
        """Return the virtual time."""
        return self._now

    def wait_until(self, at_s: float) -> bool:
        """Set the time to `at_s`; a time in the past changes nothing."""
        self._now = max(self._now, at_s)
        return True
