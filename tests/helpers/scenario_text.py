"""A scenario's text for tests to change, and what is read from it."""

import tomllib

import pytest

from bicoastal.experiments.scenario.scenario import Scenario, ScenarioError, read_scenario
from helpers.fake_backends import TRANSPORTS

GOOD = """
[scenario]
name = "coast"
description = "For tests"
iterations = 3
gap = "2 s"
seed = 7
time_limit = "30 s"
sample_interval = "5 ms"

[[links]]
name = "plane"
count = 2
rate = "5 Gbit/s"
rtt = "60 ms"
mtu = 9000
loss = 1e-4

[[links]]
name = "slow"
rate = "1 GB/s"
delay = "1 ms"
queue = "0.5 BDP"

[[links.events]]
iteration = 1
at = "10 ms"
outage = "500 ms"

[allreduce]
shard = "57.13 MB"

[transports]
default = ["reno", "adaptive"]

[transports.adaptive]
gain = 1.5
"""


def load(text: str) -> Scenario:
    """Return the scenario of a text, as of the file `coast.toml`, with the transports of the tests."""
    return read_scenario(tomllib.loads(text), "coast.toml", TRANSPORTS)


def sentence_of(text: str) -> str:
    """Return the one line that says what is wrong with a text."""
    with pytest.raises(ScenarioError) as caught:
        load(text)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence
