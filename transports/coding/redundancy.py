"""The least redundancy with which a whole step needs no second trip, and the code that gives it."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from bicoastal.transports.coding.codes import ErasureCode
from bicoastal.transports.coding.raptor import MAX_BLOCK_BYTES, RAPTORQ
from bicoastal.transports.coding.reed_solomon import REED_SOLOMON
from bicoastal.transports.coding.second_trip import any_of, second_trip_probability, split
from bicoastal.transports.coding.xor import PARITY
from bicoastal.wan.checks import FieldError, check_positive, check_probability, check_whole
from bicoastal.wan.loss import LossSpec

MESSAGES_PER_STEP = 1_677_600  # 838,800 GPU pairs, both directions
ALL_CODES: tuple[ErasureCode, ...] = (PARITY, REED_SOLOMON, RAPTORQ)
# Sizes of blocks that are tried: closer together where a code of at most 255 symbols needs it.
BLOCK_SYMBOLS = (
    *(56_000, 25_000, 12_000, 6_000, 3_000, 1_500, 1_000, 700, 500, 350),
    *(252, 248, 244, 240, 235, 230, 220, 210, 200, 180, 160, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedundancyTarget:
    """What the redundancy must achieve.

    message_bytes, symbol_bytes: of one message, cut into symbols. messages: how many a step waits for.
    target: acceptable probability that any of them needs a second trip. cover_paths: so many whole paths may fall
    silent in addition. max_overhead: repair symbols per source symbol at most. Raises FieldError.
    """

    message_bytes: int
    symbol_bytes: int
    messages: float = MESSAGES_PER_STEP
    target: float = 0.01
    cover_paths: int = 0
    max_overhead: float = 1.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_whole("message_bytes", self.message_bytes, 1)
        check_whole("symbol_bytes", self.symbol_bytes, 1)
        check_positive("messages", self.messages)
        check_probability("target", self.target)
        check_whole("cover_paths", self.cover_paths, 0)
        check_positive("max_overhead", self.max_overhead)

    @property
    def symbols(self) -> int:
        """How many source symbols the message has; the last may be padded."""
        return -(-self.message_bytes // self.symbol_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedundancyPlan:
    """The redundancy of a message: `blocks` blocks of k symbols (some of k - 1), r repair symbols to each.

    block_failure, step_failure: predicted probability that a block, or any message of the step, needs a second trip.
    attained: the step's probability is within the target; otherwise this is the best plan within the limits.
    overhead: repair symbols per source symbol.
    """

    code: ErasureCode
    blocks: int
    k: int
    r: int
    overhead: float
    block_failure: float
    step_failure: float
    attained: bool


@dataclass(frozen=True, slots=True)
class _Search:
    """One target, on the paths that there are."""

    wanted: RedundancyTarget
    channels: tuple[LossSpec, ...]
    weights: tuple[float, ...]


def _block_failure(search: _Search, code: ErasureCode, blocks: int, k: int, r: int) -> float:
    wanted, channels, weights = search.wanted, search.channels, search.weights
    symbols = split(k + r, weights)
    used = [path for path in range(len(weights)) if symbols[path]]
    worst = 0.0
    seen: set[tuple[tuple[LossSpec, int], ...]] = set()
    for dead in combinations(used, min(wanted.cover_paths, len(used))):
        alike = tuple(sorted(((channels[path], symbols[path]) for path in dead), key=repr))
        if alike not in seen:  # equal paths need not be tried one by one
            seen.add(alike)
            failure = second_trip_probability(code, k, r, channels, symbols, spacing=blocks, dead=frozenset(dead))
            worst = max(worst, failure)
    return worst


def _least_repair(
    search: _Search, code: ErasureCode, blocks: int, cheapest: RedundancyPlan | None
) -> RedundancyPlan | None:
    """Return the plan with the fewest repair symbols that meet the target with so many blocks, or else with the most.

    None if the code has no such block, or if no plan that meets the target is cheaper than `cheapest`, which meets it.
    """
    wanted = search.wanted
    k = -(-wanted.symbols // blocks)
    try:
        code.check_shape(k, wanted.symbol_bytes)
    except ValueError:
        return None
    most = min(code.max_repair(k), int(wanted.max_overhead * wanted.symbols / blocks))
    if cheapest is not None:
        most = min(most, -(-cheapest.blocks * cheapest.r // blocks) - 1)
        if most < 0:
            return None

    def at(r: int) -> RedundancyPlan:
        failure = _block_failure(search, code, blocks, k, r)
        step = any_of(failure, blocks * wanted.messages)
        return RedundancyPlan(
            code=code,
            blocks=blocks,
            k=k,
            r=r,
            overhead=blocks * r / wanted.symbols,
            block_failure=failure,
            step_failure=step,
            attained=step <= wanted.target,
        )

    if cheapest is not None and not at(most).attained:
        return None
    low, best, reach = -1, at(0), 1
    while not best.attained and best.r < most:  # double, then halve the interval: small r are cheap to try
        low = best.r
        best = at(min(most, reach))
        reach *= 2
    while best.attained and best.r - low > 1:
        middle = at((low + best.r) // 2)
        if middle.attained:
            best = middle
        else:
            low = middle.r
    return best


@lru_cache(maxsize=1024)
def choose_redundancy(
    wanted: RedundancyTarget,
    channels: tuple[LossSpec, ...],
    weights: tuple[float, ...],
    codes: tuple[ErasureCode, ...] = ALL_CODES,
    max_blocks: int | None = None,
) -> RedundancyPlan:
    """Return the blocks and repair symbols of least overhead that meet the target, and fewest blocks among equals.

    channels, weights: the loss of each path, and its share of the symbols. The blocks of a message take turns on every
    path. Blocks are taken for independent of one another, which errs on the safe side (`any_of`). If nothing meets the
    target the answer has the smallest probability, and has `attained` False. Raises FieldError when no code has such
    blocks, or for shares that are not positive.
    """
    if len(channels) != len(weights):
        raise FieldError("weights", f"{len(weights)} shares for {len(channels)} paths")
    fullest = max(1, MAX_BLOCK_BYTES // wanted.symbol_bytes)
    counts = sorted({-(-wanted.symbols // k) for k in (fullest, *BLOCK_SYMBOLS) if k <= wanted.symbols} | {1})
    search = _Search(wanted, channels, weights)
    cheapest: RedundancyPlan | None = None
    found: list[RedundancyPlan] = []
    for blocks in counts:
        if max_blocks is None or blocks <= max_blocks:
            for code in codes:
                option = _least_repair(search, code, blocks, cheapest)
                if option is not None:
                    found.append(option)
                    if option.attained:
                        cheapest = option
    if cheapest is not None:
        return cheapest
    if not found:
        raise FieldError(
            "symbol_bytes", f"no code has blocks for {wanted.symbols} symbols of {wanted.symbol_bytes} bytes"
        )
    return min(found, key=lambda option: (option.blocks * option.block_failure, option.overhead, option.blocks))
