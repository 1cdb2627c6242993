"""Which processors are reserved for the relays, and which ones receive packets for the coasts. It only calculates.

Without steering, the far coast's kernel receives a frame on the processor of the relay that sends it, in the relay's
time. That includes TCP's processing of acknowledgements, which delays the relay by 10 ms during recovery from many
losses. Steering (Documentation/networking/scaling.rst of Linux, RPS) reduced the 99th percentile of lateness from 10 ms
to 0.1 ms at 500 Mbit/s of TCP.
"""

from collections.abc import Collection
from dataclasses import dataclass

_PROCESSORS_PER_RELAY = 3  # the others run both coasts' kernels and programs


@dataclass(frozen=True, slots=True, kw_only=True)
class Processors:
    """relays: one for each relay, empty when there are too few. coasts: those that receive packets, empty for any."""

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

    most_relays: the largest useful number of relays. turn: the position of the relays' first processor in the sorted
    row, so that two runs at the same time seldom choose the same processors.
    """
    row = sorted(available)
    if len(row) < 2 or most_relays < 1:
        return Processors()
    count = min(most_relays, max(1, len(row) // _PROCESSORS_PER_RELAY))
    start = turn % len(row)
    row = row[start:] + row[:start]
    return Processors(relays=tuple(row[:count]), coasts=tuple(sorted(row[count:])))
