"""What a message of TCP takes where the other direction carries one too, and where nothing else is on the path."""

from dataclasses import replace

import pytest

from bicoastal.experiments.extrapolation.tails.model import Crossing
from bicoastal.experiments.extrapolation.tails.models import CUBIC, RENO
from helpers.simulated_messages import alone, simulated

COAST = Crossing(payload_bytes=14e6, rate_bps=5e9, rtt_s=0.06, loss=0.0)
FRESH = {"reno": replace(RENO, settled=False), "cubic": replace(CUBIC, settled=False)}
# 14 MB are ten times the bandwidth-delay product of 2 ms, and a third of that of 60 ms. From 100 MB on, at these rates,
# the queue overflows in slow start and what is lost is lost in a burst.
PATHS = [
    ("reno", 1e6, 0.002), ("reno", 4e6, 0.002), ("reno", 14e6, 0.002), ("reno", 14e6, 0.004), ("reno", 14e6, 0.01),
    ("reno", 14e6, 0.03), ("reno", 100e6, 0.004), ("reno", 100e6, 0.02), ("cubic", 14e6, 0.002), ("cubic", 14e6, 0.004),
    ("cubic", 14e6, 0.01), ("cubic", 14e6, 0.06), ("cubic", 100e6, 0.06),
]  # fmt: skip


@pytest.mark.parametrize(("name", "payload_bytes", "rtt_s"), PATHS)
def test_a_message_of_an_exchange_takes_as_long_as_in_the_simulator(
    name: str, payload_bytes: float, rtt_s: float
) -> None:
    path = replace(COAST, payload_bytes=payload_bytes, rtt_s=rtt_s)
    seen_s = simulated(name, path, runs=1, iterations=1, paths=1)
    assert float(FRESH[name].quantile_s(path, 0.0)) == pytest.approx(seen_s.max(), rel=0.05)


@pytest.mark.parametrize(("name", "payload_bytes", "rtt_s"), PATHS)
def test_a_message_alone_takes_as_long_as_in_the_simulator(name: str, payload_bytes: float, rtt_s: float) -> None:
    path = replace(COAST, payload_bytes=payload_bytes, rtt_s=rtt_s)
    model = replace(FRESH[name], both_ways=False)
    assert float(model.quantile_s(path, 0.0)) == pytest.approx(alone(name, path), rel=0.05)


def test_data_the_other_way_costs_half_a_round_trip_in_each_that_fills_the_path() -> None:
    # Zhang, Shenker and Clark, SIGCOMM 1991: acknowledgements wait for all of the other direction's window
    short = replace(COAST, rtt_s=0.002, payload_bytes=100e6)
    both, one = (float(replace(RENO, settled=False, both_ways=ways).quantile_s(short, 0.0)) for ways in (True, False))
    bound_s = float(short.bound_s())
    assert one < 1.07 * bound_s
    assert 1.3 * bound_s < both < 1.6 * bound_s
    far = replace(COAST, payload_bytes=4e6)  # whose window never fills half a round trip
    assert float(FRESH["reno"].quantile_s(far, 0.0)) == pytest.approx(alone("reno", far), rel=1e-3)
