"""The probability that a block, a message or a whole step needs a second trip."""

from collections.abc import Sequence
from math import expm1, log1p

from bicoastal.transports.coding.codes import ErasureCode
from bicoastal.transports.coding.loss_counts import loss_counts_over_paths
from bicoastal.wan.checks import FieldError
from bicoastal.wan.loss import LossSpec


def split(total: int, weights: Sequence[float]) -> list[int]:
    """Return whole shares of `total` in proportion to `weights`, by largest remainders.

    Raises FieldError when no weight is above zero or one is below.
    """
    whole = sum(weights)
    if not whole > 0 or min(weights) < 0:
        raise FieldError("weights", f"{list(weights)!r} are no shares")
    exact = [total * weight / whole for weight in weights]
    shares = [int(share) for share in exact]
    for at in sorted(range(len(weights)), key=lambda at: (shares[at] - exact[at], at))[: total - sum(shares)]:
        shares[at] += 1
    return shares


def _source_is_whole(k: int, r: int, lost: int) -> float:
    """Return the probability that none of k source symbols is among `lost` of k + r, any as likely as any other."""
    probability = 1.0
    for at in range(lost):
        probability *= (r - at) / (k + r - at)
    return probability


def second_trip_probability(
    code: ErasureCode,
    k: int,
    r: int,
    channels: Sequence[LossSpec],
    symbols: Sequence[int],
    *,
    spacing: int = 1,
    dead: frozenset[int] = frozenset(),
) -> float:
    """Return the probability that k + r symbols of a block do not suffice.

    channels, symbols: the loss of each path, and how many of the k + r symbols cross it. spacing: packets from one
    symbol of the block to its next on the same path (the interleaving depth). dead: paths that deliver nothing.
    P = P(more than r lost) + sum over m <= r of P(m lost) * P(the code fails with r - m to spare, source not whole).
    Which of the symbols are lost is taken for equally likely, which matters only where the code may fail with
    enough symbols. Raises FieldError where shares do not add up to k + r.
    """
    if sum(symbols) != k + r:
        raise FieldError("symbols", f"{list(symbols)!r} do not add up to {k + r}")
    gone = sum(symbols[at] for at in dead)
    if gone > r:
        return 1.0
    alive = [at for at in range(len(channels)) if at not in dead]
    counts = loss_counts_over_paths(
        [channels[at] for at in alive], [symbols[at] for at in alive], up_to=r - gone, spacing=spacing
    )
    probability = float(counts[-1])
    for lost, likely in enumerate(counts[:-1], start=gone):
        failure = code.failure(k, r - lost)
        if failure and likely:
            probability += float(likely) * failure * (1.0 - _source_is_whole(k, r, lost))
    return min(1.0, probability)


def any_of(probability: float, count: float) -> float:
    """Return the probability of at least one of `count` independent events of this probability.

    1 - (1 - p)^n, without cancellation. Blocks and messages that share a burst or a path are correlated: then it is
    an upper bound, because simultaneous failures concern fewer steps.
    """
    if probability >= 1.0:
        return 1.0 if count > 0 else 0.0
    return -expm1(count * log1p(-probability))
