from dataclasses import replace
from math import log

import numpy as np
import pytest

from bicoastal.experiments.extrapolation.tails.model import Crossing
from bicoastal.experiments.extrapolation.tails.models import RDMA_GBN
from bicoastal.experiments.extrapolation.tails.table import Table

SHARE = log(0.99) / 1e6
MESSAGE = Crossing(payload_bytes=14.28e6, rate_bps=5e9, rtt_s=0.06, loss=1e-4)
RATES_BPS, RTTS_S, LOSSES = (1e9, 5e9, 25e9), (0.01, 0.03, 0.09), (1e-5, 1e-4, 1e-3)
TABLE = Table.of(RDMA_GBN, MESSAGE, SHARE, rates_bps=RATES_BPS, rtts_s=RTTS_S, losses=LOSSES)


def test_at_its_own_points_a_table_is_the_model() -> None:
    rates, rtts, losses = np.meshgrid(RATES_BPS, RTTS_S, LOSSES, indexing="ij")
    points = replace(MESSAGE, rate_bps=rates, rtt_s=rtts, loss=losses)
    assert TABLE.quantile_s(points, SHARE) == pytest.approx(RDMA_GBN.quantile_s(points, SHARE))


def test_between_them_it_is_close() -> None:
    rng = np.random.default_rng(3)
    rates, rtts, losses = (np.exp(rng.uniform(log(a[0]), log(a[-1]), 40)) for a in (RATES_BPS, RTTS_S, LOSSES))
    points = replace(MESSAGE, rate_bps=rates, rtt_s=rtts, loss=losses)
    assert np.median(np.abs(TABLE.quantile_s(points, SHARE) / RDMA_GBN.quantile_s(points, SHARE) - 1)) < 0.1


def test_what_it_was_not_made_for_is_refused() -> None:
    for change, word in (
        ({"rate_bps": 1e8}, "rate_bps"),
        ({"loss": 1e-2}, "loss"),
        ({"rtt_s": 0.2}, "rtt_s"),
        ({"payload_bytes": 1e6}, "crossing"),
    ):
        with pytest.raises(ValueError, match=f"^{word}: "):
            TABLE.quantile_s(replace(MESSAGE, **change), SHARE)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^crossing: "):
        TABLE.quantile_s(MESSAGE, 2 * SHARE)
    with pytest.raises(ValueError, match=r"^losses: "):
        Table.of(RDMA_GBN, MESSAGE, SHARE, rates_bps=RATES_BPS, rtts_s=RTTS_S, losses=(0.0, 1e-4))
