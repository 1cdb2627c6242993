"""The driver's clock in real time: it reads CLOCK_MONOTONIC and serves descriptors while it waits."""

import select
import time
from collections.abc import Callable

from bicoastal.emulation.clock import Clock
from bicoastal.emulation.realtime.lateness import LatenessHistogram
from bicoastal.wan.checks import FieldError

Ready = Callable[[float], None]


class RealClock(Clock):
    """Seconds since an epoch on CLOCK_MONOTONIC; it serves descriptors while it waits.

    It uses select, whose timeout is in microseconds; those of poll and epoll are rounded to milliseconds. Descriptors
    are at most `LARGEST_DESCRIPTOR`. lateness: how late the driver's events were.
    """

    passes_by_itself = True
    LARGEST_DESCRIPTOR = 1023  # FD_SETSIZE - 1: select(2)

    def __init__(self) -> None:
        self.epoch_s = time.monotonic()
        self.lateness = LatenessHistogram()
        self._readers: dict[int, Ready] = {}
        self._writers: dict[int, Ready] = {}

    def start(self) -> None:
        """Set the present time to zero."""
        self.epoch_s = time.monotonic()

    def now(self) -> float:
        """Return the seconds since the epoch; negative before it."""
        return time.monotonic() - self.epoch_s

    def on_readable(self, descriptor: int, ready: Ready | None) -> None:
        """Call `ready(now)` whenever the descriptor can be read; None ends that. Raises FieldError."""
        self._watch(self._readers, descriptor, ready)

    def on_writable(self, descriptor: int, ready: Ready | None) -> None:
        """Call `ready(now)` whenever the descriptor can be written; None ends that. Raises FieldError."""
        self._watch(self._writers, descriptor, ready)

    def _watch(self, watched: dict[int, Ready], descriptor: int, ready: Ready | None) -> None:
        if not 0 <= descriptor <= self.LARGEST_DESCRIPTOR:
            raise FieldError("descriptor", f"{descriptor} is beyond {self.LARGEST_DESCRIPTOR}, the last for select")
        if ready is None:
            watched.pop(descriptor, None)
        else:
            watched[descriptor] = ready

    def wait_until(self, at_s: float) -> bool:
        """Wait until `at_s` or until descriptors are ready, serve those once, and return whether `at_s` has come."""
        late_s = time.monotonic() - self.epoch_s - at_s
        readable, writable, _ = select.select(self._readers, self._writers, (), max(0.0, -late_s))
        for descriptors, watched in ((readable, self._readers), (writable, self._writers)):
            for descriptor in descriptors:
                ready = watched.get(descriptor)  # a descriptor that was served before may have closed this one
                if ready is not None:
                    ready(time.monotonic() - self.epoch_s)
        now = time.monotonic() - self.epoch_s
        if now < at_s:
            return False
        self.lateness.add(now - at_s)
        return True
