"""The measured loss: not below the true one, not far above it, and bursts are seen as bursts."""

import random
from statistics import fmean

import pytest

from bicoastal.transports.base import Datagram
from bicoastal.transports.paths.loss_meter import LossMeter
from bicoastal.wan.loss import Bernoulli, GilbertElliott, LossSpec

PACKET = Datagram(path_id=0, payload=b"", wire_bytes=1500, depart_at=0.0)


def measured(spec: LossSpec, packets: int, seed: int) -> LossMeter:
    meter = LossMeter(1e-3)
    process = spec.start(random.Random(seed))
    for position in range(packets):
        if process.lost(PACKET, 0.0):
            meter.lost(position)
        else:
            meter.acknowledged()
    return meter


@pytest.mark.parametrize("loss", [1e-4, 1e-3, 1e-2])
def test_independent_loss_is_seldom_underestimated_and_taken_for_independent(loss):
    estimates = [measured(Bernoulli(probability=loss), 100_000, seed) for seed in range(40)]
    assert sum(meter.loss < loss for meter in estimates) <= 5, "95 % of them are above"
    assert all(meter.loss < 2.5 * loss for meter in estimates)
    assert all(isinstance(meter.channel(), Bernoulli) for meter in estimates)
    assert all(loss < (meter.channel().mean_loss or 0) < 3.5 * loss for meter in estimates if meter.loss > loss)


def test_bursts_are_measured():
    true = GilbertElliott.from_means(mean_loss=1e-3, mean_burst_packets=10)
    meters = [measured(true, 100_000, seed) for seed in range(16)]
    assert fmean(meter.burst for meter in meters) == pytest.approx(10, rel=0.2)
    channels = [meter.channel() for meter in meters]
    assert all(isinstance(channel, GilbertElliott) for channel in channels)
    assert fmean(channel.mean_loss or 0 for channel in channels) == pytest.approx(1.4e-3, rel=0.3)


def test_what_was_only_late_is_taken_back():
    meter = LossMeter(1e-3)
    before = meter.loss
    for position in range(0, 500, 10):
        meter.lost(position)
    assert meter.loss > 10 * before
    for _ in range(50):
        meter.found()
    assert meter.loss < 2 * before


def test_loss_of_long_ago_is_forgotten():
    meter = LossMeter(1e-3)
    for position in range(1000):
        meter.lost(position)
    for _ in range(2_000_000):
        meter.acknowledged()
    assert meter.loss < 1e-3
