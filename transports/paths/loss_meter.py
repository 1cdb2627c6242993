"""What a path loses, and how much of it in a row: measured from the fate of its symbols."""

from math import ceil, log, sqrt

from bicoastal.wan.loss import Bernoulli, GilbertElliott, LossSpec

MEMORY = 1 << 17  # symbols after which what was counted before weighs half
LOSS_STEPS = 8  # per decade: what is told is rounded up, so that it changes seldom
DEVIATIONS = 1.64  # of a Poisson count: the true loss is below with 95 %
LARGEST_LOSS = 0.3
SMALLEST_BURST = 1.3  # mean losses in a row below which they count as independent


class LossMeter:
    """One path's loss. `initial_loss` is what is assumed as if one loss had been seen in 1 / initial_loss symbols."""

    __slots__ = ("_bursts", "_last_lost", "_lost", "_total")

    def __init__(self, initial_loss: float) -> None:
        self._total = 1.0 / initial_loss
        self._lost = self._bursts = 1.0
        self._last_lost = -2

    def acknowledged(self) -> None:
        """A symbol has arrived."""
        self._total += 1.0
        if self._total > MEMORY:
            self._total /= 2
            self._lost /= 2
            self._bursts /= 2

    def lost(self, position: int) -> None:
        """The symbol that left as number `position` on this path is taken for lost."""
        self._total += 1.0
        self._lost += 1.0
        if position != self._last_lost + 1:
            self._bursts += 1.0
        self._last_lost = position

    def found(self) -> None:
        """A symbol that was taken for lost has arrived after all."""
        self._lost = max(0.0, self._lost - 1.0)
        self._bursts = max(min(self._bursts, self._lost), 1e-3)

    @property
    def loss(self) -> float:
        """Return an upper estimate of the share that is lost."""
        return min(LARGEST_LOSS, (self._lost + DEVIATIONS * sqrt(self._lost)) / self._total)

    @property
    def burst(self) -> float:
        """Return the mean number of losses in a row."""
        return max(1.0, self._lost / self._bursts)

    def channel(self) -> LossSpec:
        """Return the loss as the prediction takes it; rounded up to a grid."""
        loss = min(LARGEST_LOSS, 10.0 ** (ceil(LOSS_STEPS * log(self.loss, 10)) / LOSS_STEPS)) if self.loss else 0.0
        burst = self.burst
        if burst < SMALLEST_BURST or loss == 0.0:
            return Bernoulli(probability=loss)
        return GilbertElliott.from_means(mean_loss=loss, mean_burst_packets=2.0 ** (ceil(2 * log(burst, 2)) / 2))
