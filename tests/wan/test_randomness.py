from random import Random

import numpy as np
import pytest
from scipy import stats

from bicoastal.wan.randomness import NEVER, SplitMix64, geometric


def test_splitmix64_gives_the_published_sequence() -> None:
    rng = SplitMix64(1234567)  # what the reference C implementation gives
    assert [rng.getrandbits(64) for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]
    assert SplitMix64(1234567).getrandbits(8) == 6457827717110365317 >> 56
    assert SplitMix64(1234567).getrandbits(128) == 6457827717110365317 << 64 | 3203168211198807973
    assert SplitMix64(1234567).random() == (6457827717110365317 >> 11) / 2**53


@pytest.mark.parametrize("rng", [Random(4), SplitMix64(4)], ids=["random", "splitmix64"])
def test_geometric_counts_the_failures_before_a_success(rng) -> None:
    drawn = np.minimum([geometric(rng, 0.3) for _ in range(20_000)], 15)
    expected = stats.geom.pmf(np.arange(1, 17), 0.3)
    expected[-1] = stats.geom.sf(15, 0.3)
    assert stats.chisquare(np.bincount(drawn, minlength=16), expected * 20_000).pvalue > 1e-4


def test_geometric_with_probability_zero_and_one() -> None:
    assert geometric(Random(1), 1.0) == 0
    assert geometric(Random(1), 0.0) == NEVER
    assert geometric(Random(1), 5e-324) == NEVER
