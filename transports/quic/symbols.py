"""Symbols: what a multipath transport sends in DATAGRAM frames (RFC 9221), which are unreliable and unordered."""

from collections.abc import Callable
from typing import NamedTuple

from bicoastal.transports.events import Buffer


class Symbol(NamedTuple):
    """The data of one DATAGRAM frame, at most `PathConnection.symbol_bytes` long.

    tag: the symbol's outcome carries the same number. repair: the symbol repeats, or protects, data sent before.
    burst_left: how many more first transmissions follow in this burst on this path (`Datagram.burst_left`).
    """

    data: Buffer
    tag: int
    repair: bool = False
    burst_left: int | None = None


class SymbolOutcome(NamedTuple):
    """What became of a symbol: acknowledged, or declared lost (`acked` False). sent_s: when it left, seconds.

    A symbol that was declared lost can be acknowledged later. Then it has a second outcome, with `acked` True.
    """

    tag: int
    acked: bool
    sent_s: float


SymbolSource = Callable[[int, float], Symbol | None]
"""(path_id, time of departure) -> the next symbol for that path; None when there is nothing to send there now."""
