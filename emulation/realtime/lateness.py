"""How late events were: a histogram with a bin for each microsecond, and its summary. It reads no clock."""

from collections.abc import Sequence
from dataclasses import dataclass

_LARGEST_US = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """How late events were, in seconds; all values are zero when there was no event.

    p50 and p99 are rounded up to the microsecond. A quantile above 20 ms is given as the largest value.
    """

    count: int
    mean_s: float
    p50_s: float
    p99_s: float
    max_s: float


class LatenessHistogram:
    """A bin for each microsecond, so that a long run needs no more memory than a short one."""

    __slots__ = ("counts", "max_s", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (_LARGEST_US + 1)
        self.total_s = 0.0
        self.max_s = 0.0

    def add(self, late_s: float) -> None:
        """Count one event. An event that is early, by the resolution of the clocks, counts as on time."""
        if late_s < 0.0:
            late_s = 0.0
        elif late_s > self.max_s:
            self.max_s = late_s
        self.total_s += late_s
        microseconds = int(late_s * 1e6)
        self.counts[microseconds if microseconds < _LARGEST_US else _LARGEST_US] += 1

    def summary(self) -> Lateness:
        """Return the figures."""
        count = sum(self.counts)
        return Lateness(
            count=count,
            mean_s=self.total_s / count if count else 0.0,
            p50_s=self._quantile(count, 0.50),
            p99_s=self._quantile(count, 0.99),
            max_s=self.max_s,
        )

    def _quantile(self, count: int, share: float) -> float:
        below = 0
        for microseconds, here in enumerate(self.counts):
            below += here
            if below and below >= share * count:
                return min((microseconds + 1) * 1e-6, self.max_s) if microseconds < _LARGEST_US else self.max_s
        return 0.0


def worst(parts: Sequence[Lateness]) -> Lateness:
    """Return one summary of several: the sum of the counts, the common mean, and the largest quantiles."""
    count = sum(part.count for part in parts)
    return Lateness(
        count=count,
        mean_s=sum(part.mean_s * part.count for part in parts) / count if count else 0.0,
        p50_s=max(part.p50_s for part in parts),
        p99_s=max(part.p99_s for part in parts),
        max_s=max(part.max_s for part in parts),
    )
