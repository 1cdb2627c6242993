"""How many of a block's symbols are lost: the exact distribution, for independent loss and for loss in bursts.

A path is a Markov chain of one state (`Bernoulli`) or two (`GilbertElliott`): a packet is lost with the probability of
the state it meets, and the state may change after it. A block's symbols on a path are `spacing` packets apart, because
those of other blocks lie between. Counts are polynomials in z, the coefficient of z^m being the probability of m
losses; every coefficient is a sum of products of probabilities, so that tails of 1e-30 keep their digits.
"""

from collections.abc import Sequence
from functools import lru_cache, reduce
from math import log1p

import numpy as np
from numpy.typing import NDArray

from bicoastal.wan.checks import FieldError, check_whole
from bicoastal.wan.loss import Bernoulli, GilbertElliott, LossSpec, NoLoss

Floats = NDArray[np.float64]
LEAST_LOG = -600.0  # of a probability that is still far from underflow


def _chain(channel: LossSpec) -> tuple[Floats, Floats, Floats]:
    """Return the transition matrix, the loss in each state and the stationary distribution."""
    if isinstance(channel, NoLoss):
        channel = Bernoulli(probability=0.0)
    if isinstance(channel, Bernoulli):
        return np.ones((1, 1)), np.array([channel.probability]), np.ones(1)
    if not isinstance(channel, GilbertElliott):
        raise FieldError("channel", f"{type(channel).__name__} is neither independent nor Gilbert-Elliott loss")
    into, out = channel.good_to_bad, channel.bad_to_good
    transition = np.array([[1.0 - into, into], [out, 1.0 - out]])
    return transition, np.array([channel.loss_good, channel.loss_bad]), np.array([out, into]) / (into + out)


def add_counts(a: Floats, b: Floats) -> Floats:
    """Return the distribution of the sum of two independent counts, each with "more than that" as its last entry.

    Both have the same length; so has the result.
    """
    full = np.convolve(a, b)
    last = len(a) - 1
    kept: Floats = full[: last + 1]
    kept[last] += full[last + 1 :].sum()
    return kept


def _times(a: Floats, b: Floats) -> Floats:
    """Multiply matrices (or a row, by a matrix) of polynomials: the last axis has the coefficients."""
    rows, inner, columns = a.shape[0], a.shape[1], b.shape[1]
    return np.array(
        [[sum(add_counts(a[i, via], b[via, j]) for via in range(inner)) for j in range(columns)] for i in range(rows)]
    )


def _binomial(loss: float, symbols: int, up_to: int) -> Floats | None:
    """Return what `loss_counts` does for independent loss, term from term; None where the first term underflows."""
    if loss >= 1.0 or symbols * log1p(-loss) < LEAST_LOG:
        return None
    m = np.arange(symbols)
    terms = (1.0 - loss) ** symbols * np.cumprod(
        np.concatenate(([1.0], (symbols - m) / (m + 1.0) * (loss / (1 - loss))))
    )
    counts = np.zeros(up_to + 2)
    kept = min(symbols, up_to) + 1
    counts[:kept] = terms[:kept]
    counts[-1] += terms[kept:].sum()
    return counts


@lru_cache(maxsize=4096)
def loss_counts(channel: LossSpec, symbols: int, *, up_to: int, spacing: int = 1) -> Floats:
    """Return the probabilities that 0, 1, … `up_to` of `symbols` are lost, and last that more are.

    spacing: how many packets it is from one of these symbols to the next. By squaring, the cost is
    O(log(symbols) * up_to^2). The result must not be changed: equal paths share it. Raises FieldError for another
    kind of channel, or for a number that is no count.
    Source of the chain: E. N. Gilbert, BSTJ 39 (1960); E. O. Elliott, BSTJ 42 (1963).
    """
    check_whole("symbols", symbols, 0)
    check_whole("up_to", up_to, 0)
    check_whole("spacing", spacing, 1)
    transition, loss, stationary = _chain(channel)
    if len(loss) == 1 and (independent := _binomial(float(loss[0]), symbols, up_to)) is not None:
        return independent
    moves = np.linalg.matrix_power(transition, spacing)
    states = len(loss)
    step = np.zeros((states, states, up_to + 2))
    step[:, :, 0] = (1.0 - loss)[:, None] * moves
    step[:, :, 1] = loss[:, None] * moves
    row = np.zeros((1, states, up_to + 2))
    row[0, :, 0] = stationary
    while symbols:
        if symbols & 1:
            row = _times(row, step)
        symbols >>= 1
        if symbols:
            step = _times(step, step)
    counts: Floats = row[0].sum(axis=0)
    return counts


def loss_counts_over_paths(
    channels: Sequence[LossSpec], symbols: Sequence[int], *, up_to: int, spacing: int = 1
) -> Floats:
    """Return the distribution of all paths' losses together: `symbols[i]` cross path i, which is `channels[i]`.

    Paths lose independently of one another. Shape, cost and errors as of `loss_counts`.
    """
    if len(channels) != len(symbols):
        raise FieldError("symbols", f"{len(symbols)} shares for {len(channels)} paths")
    nothing = np.zeros(up_to + 2)
    nothing[0] = 1.0
    each = (
        loss_counts(channel, count, up_to=up_to, spacing=spacing)
        for channel, count in zip(channels, symbols, strict=True)
    )
    return reduce(add_counts, each, nothing)
