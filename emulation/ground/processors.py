"""Which processors the relays have to themselves, and which do the coasts' receiving. Pure.

A frame that the relay sends is received by the far coast's kernel, in the relay's own time, unless it is steered
elsewhere. That includes what TCP makes of an acknowledgement: in recovery from many losses it holds the relay up for
10 ms. Steering (Documentation/networking/scaling.rst of Linux, RPS) took the 99th percentile of lateness from 10 ms to
0.1 ms at 500 Mbit/s of TCP.
"""

from collections.abc import Collection
from dataclasses import dataclass

_PROCESSORS_PER_RELAY = 3  # the others are for both coasts' kernels and programs


@dataclass(frozen=True, slots=True, kw_only=True)
class Processors:
    """relays: one for each relay, empty when there are too few to choose. coasts: those that receive; empty for any."""

    relays: tuple[int, ...] = ()
    coasts: tuple[int, ...] = ()

    @property
    def coast_mask(self) -> str:
        """The coasts' processors as the kernel writes a set of them: hexadecimal, in groups of 32."""
        digits = f"{sum(1 << processor for processor in self.coasts):x}"
        padded = digits.zfill(-(-len(digits) // 8) * 8)
        return ",".join(padded[at : at + 8] for at in range(0, len(padded), 8))


def share_out(available: Collection[int], *, most_relays: int, turn: int) -> Processors:
    """Divide the processors between relays and coasts.

    most_relays: how many relays could be of use. turn: where in the row the relays' begin, so that two runs at once
    seldom choose the same.
    """
    row = sorted(available)
    if len(row) < 2 or most_relays < 1:
        return Processors()
    count = min(most_relays, max(1, len(row) // _PROCESSORS_PER_RELAY))
    start = turn % len(row)
    row = row[start:] + row[:start]
    return Processors(relays=tuple(row[:count]), coasts=tuple(sorted(row[count:])))
