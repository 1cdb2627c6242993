"""The driver's clock in real time: CLOCK_MONOTONIC, and a select on whatever may bring something."""

import select
import time
from collections.abc import Callable

from bicoastal.emulation.clock import Clock
from bicoastal.emulation.realtime.lateness import LatenessHistogram
from bicoastal.wan.checks import FieldError

Ready = Callable[[float], None]


class RealClock(Clock):
    """Seconds since an epoch on CLOCK_MONOTONIC; while it waits, it serves descriptors.

    Uses select, whose time limit is in microseconds (those of poll and epoll are rounded to milliseconds); see
    `RealClock.LARGEST_DESCRIPTOR`. lateness: of what the driver waited for.
    """

    passes_by_itself = True
    LARGEST_DESCRIPTOR = 1023  # FD_SETSIZE - 1: select(2)

    def __init__(self) -> None:
        self.epoch_s = time.monotonic()
        self.lateness = LatenessHistogram()
        self._readers: dict[int, Ready] = {}
        self._writers: dict[int, Ready] = {}

    def start(self) -> None:
        """Make this moment zero."""
        self.epoch_s = time.monotonic()

    def now(self) -> float:
        """Return the seconds since the epoch; negative before it."""
        return time.monotonic() - self.epoch_s

    def on_readable(self, descriptor: int, ready: Ready | None) -> None:
        """Call `ready(now)` whenever the descriptor can be read; None for not any more. Raises ValueError."""
        self._watch(self._readers, descriptor, ready)

    def on_writable(self, descriptor: int, ready: Ready | None) -> None:
        """Call `ready(now)` whenever the descriptor can be written; None for not any more. Raises ValueError."""
        self._watch(self._writers, descriptor, ready)

    def _watch(self, watched: dict[int, Ready], descriptor: int, ready: Ready | None) -> None:
        if not 0 <= descriptor <= self.LARGEST_DESCRIPTOR:
            raise FieldError("descriptor", f"{descriptor} is beyond {self.LARGEST_DESCRIPTOR}, the last for select")
        if ready is None:
            watched.pop(descriptor, None)
        else:
            watched[descriptor] = ready

    def wait_until(self, at_s: float) -> bool:
        """Serve what arrives, once, until `at_s`; return whether it has come. What is overdue is served once too."""
        late_s = time.monotonic() - self.epoch_s - at_s
        readable, writable, _ = select.select(self._readers, self._writers, (), max(0.0, -late_s))
        for descriptors, watched in ((readable, self._readers), (writable, self._writers)):
            for descriptor in descriptors:
                ready = watched.get(descriptor)  # one that was served before may have closed it
                if ready is not None:
                    ready(time.monotonic() - self.epoch_s)
        now = time.monotonic() - self.epoch_s
        if now < at_s:
            return False
        self.lateness.add(now - at_s)
        return True
