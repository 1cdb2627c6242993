"""The order of symbols on the paths: blocks take turns on every path, and all paths deliver their last one together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bicoastal.transports.coding.second_trip import split
from bicoastal.wan.checks import FieldError, check_not_negative, check_positive, check_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class PathEstimate:
    """What is known of a path: its rate, its one-way delay, and when it can take the first symbol (seconds).

    Raises FieldError.
    """

    rate_bps: float
    delay_s: float
    free_at_s: float = 0.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_positive("rate_bps", self.rate_bps)
        check_not_negative("delay_s", self.delay_s)


def landing_time(paths: Sequence[PathEstimate], total_bytes: float) -> float:
    """Return the earliest time (seconds) by which `total_bytes` can have arrived, divided without rounding.

    The t that solves sum of rate_i * max(0, t - free_i - delay_i) = 8 * total_bytes: paths join in the order of the
    time at which their first bit would land.
    """
    bits = 8.0 * total_bytes
    ordered = sorted(paths, key=lambda path: path.free_at_s + path.delay_s)
    rate = spent = 0.0
    time = ordered[0].free_at_s + ordered[0].delay_s
    for at, path in enumerate(ordered):
        begin = path.free_at_s + path.delay_s
        if at and spent + rate * (begin - time) >= bits:
            break
        spent += rate * (begin - time)
        time, rate = begin, rate + path.rate_bps
    return time + max(0.0, bits - spent) / rate


def land_together(paths: Sequence[PathEstimate], symbols: int, symbol_bytes: int) -> list[int]:
    """Return how many of `symbols` each path takes so that their last ones land within a symbol of one another.

    symbol_bytes: on the wire, headers included. Raises FieldError for a number that is no count.
    """
    check_whole("symbols", symbols, 0)
    check_whole("symbol_bytes", symbol_bytes, 1)
    if symbols == 0:
        return [0] * len(paths)
    landed = landing_time(paths, symbols * symbol_bytes)
    return split(symbols, [path.rate_bps * max(0.0, landed - path.free_at_s - path.delay_s) for path in paths])


class Slot(NamedTuple):
    """One symbol's place: number of its block, and the index in that block (repair from k on)."""

    block: int
    symbol: int


_EMPTY = Slot(-1, -1)


def block_sizes(symbols: int, blocks: int) -> list[int]:
    """Return k of each block: as even as possible, the larger ones first."""
    small, larger = divmod(symbols, blocks)
    return [small + (at < larger) for at in range(blocks)]


def interleave(sizes: Sequence[int], repair: int, path_symbols: Sequence[int]) -> list[list[Slot]]:
    """Return the slots of each path, in the order in which they leave.

    sizes: k of each block, as `block_sizes` makes them; repair: r of each; path_symbols: how many slots each path has.
    Blocks take turns on every path, so that n losses in a row take at most ceil(n / blocks) from any block. Each block
    has its share of every path, give or take one. Its repair sits on one path as far as it fits there, its data
    elsewhere, and another block's repair on the next path: a silent path then takes data from blocks most of
    whose repair is on other paths. Raises FieldError where slots do not add up, or blocks are not even.
    """
    blocks, paths = len(sizes), len(path_symbols)
    if list(sizes) != block_sizes(sum(sizes), blocks):
        raise FieldError("sizes", f"{list(sizes)!r} are not even, the larger ones first")
    if sum(path_symbols) != sum(sizes) + blocks * repair:
        raise FieldError("path_symbols", f"{list(path_symbols)!r} do not add up to {sum(sizes) + blocks * repair}")
    # One round-robin over all slots of path 0, then path 1, …: every block gets exactly its k + r of them.
    places: list[list[list[int]]] = [[[] for _ in range(paths)] for _ in range(blocks)]
    slots: list[list[Slot]] = []
    turn = 0
    for path, count in enumerate(path_symbols):
        slots.append([_EMPTY] * count)
        for at in range(count):
            places[(turn + at) % blocks][path].append(at)
        turn = (turn + count) % blocks
    for block, by_path in enumerate(places):
        k, left = sizes[block], repair
        next_source, next_repair = 0, k
        for step in range(paths):
            path = (block + step) % paths
            for at in reversed(by_path[path]):
                if left:
                    left -= 1
                    slots[path][at] = Slot(block, next_repair)
                    next_repair += 1
        for path, taken in enumerate(by_path):
            for at in taken:
                if slots[path][at] is _EMPTY:
                    slots[path][at] = Slot(block, next_source)
                    next_source += 1
    return slots
