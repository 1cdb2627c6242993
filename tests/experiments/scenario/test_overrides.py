import tomllib

import pytest

from bicoastal.experiments.scenario.overrides import option, parse_override
from bicoastal.experiments.scenario.scenario import ScenarioError, read_scenario
from helpers.fake_backends import TRANSPORTS

TEXT = """
[scenario]
name = "coast"
[[links]]
name = "plane"
count = 3
rate = "5 Gbit/s"
rtt = "60 ms"
loss = 1e-4
[[links]]
name = "other"
rate = "5 Gbit/s"
rtt = "60 ms"
[allreduce]
shard = "1 MB"
"""


def load(*changes):
    made = [parse_override(change) if isinstance(change, str) else change for change in changes]
    return read_scenario(tomllib.loads(TEXT), "coast.toml", TRANSPORTS, made)


def losses(scenario):
    return [link.loss.mean_loss for link in scenario.topology.links.values()]


def test_a_key_without_an_index_is_set_on_every_link():
    assert losses(load("links.loss=1e-3")) == [1e-3] * 4


def test_an_index_counts_the_links_that_a_count_made():
    assert losses(load("links[2].loss=0.5")) == [1e-4, 1e-4, 0.5, 0.0]


def test_a_model_can_be_set_and_then_changed():
    scenario = load('links.loss={ model = "tail-of-burst" }', "links[0].loss.packets=10")
    assert [link.loss.packets for link in scenario.topology.links.values()] == [10, 1, 1, 1]


def test_a_time_needs_no_quotes():
    assert load("scenario.gap=250 ms").jobs[0].gap_s == 0.25
    assert load("scenario.gap='250 ms'").jobs[0].gap_s == 0.25


def test_a_key_takes_the_place_of_the_one_that_says_the_same():
    assert load("links.delay=1 ms").topology.path_rtt_s("plane0") == 0.002
    assert load("allreduce.deployment=hundred-trillion").jobs[0].allreduce.shard_bytes > 57e6


def test_the_number_of_links_can_be_set():
    assert list(load("links[0].count=1").topology.links) == ["plane0", "other"]


def test_a_transport_is_a_section():
    assert load("adaptive.gain=2").parameters == {"adaptive": (("gain", 2),)}
    assert load("transports.default=['cubic']").transports == ("cubic",)


def test_the_last_change_counts():
    assert losses(load("links.loss=0.1", "links.loss=0.2")) == [0.2] * 4


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("links[1].loss=1.5", "--set links[1].loss: 1.5 is not a probability"),
        ("links.loss=much", "--set links.loss: 'much' is not a probability"),
        ("links.loss=", "--set links.loss: '' is not a probability"),
        ("links.lss=0", "--set links.lss: is not a known key; did you mean 'loss'?"),
        ("links.rate=5", '--set links.rate: 5 is not a rate such as "5 Gbit/s"'),
        ("links[4].loss=0", "--set links[4].loss: there are only 4 links, counted from 0"),
        ("links.loss.packets=3", "--set links.loss.packets: loss is 0.0001, not a table"),
        (
            "links.loss={ model = 'periodic', every = 0 }",
            "--set links.loss.every: 0 is not between 1 and 2147483648",
        ),
        ("links.count=0", "--set links.count: 0 is not between 1 and 1024"),
        ("scenario[0].gap=1 s", "--set scenario[0].gap: scenario is not a list"),
        ("scenario.gap=soon", "--set scenario.gap: 'soon' is not a number with a unit, like '60 ms'"),
        (
            "scenario.gap=1 s\nseed = 1",
            "--set scenario.gap: '1 s\\nseed = 1' is not a time: its unit must be one of ns, us, ms, s, min, h",
        ),
        ("adaptive.gian=2", "--set adaptive.gian: adaptive has no such parameter; it has gain, policy, window"),
        ("adaptive.gain=-2", "--set adaptive.gain: -2.0 is not positive"),
        (
            "adaptiv.gain=2",
            "--set adaptiv.gain: there is neither a section nor a transport 'adaptiv'; did you mean 'adaptive'?",
        ),
        ("jobs[0].gap=1 s", "--set jobs[0].gap: there are no jobs"),
        ("jobs.gap=1 s", "--set jobs.gap: cannot stand beside allreduce"),
        ("links.loss", "--set links.loss: expected KEY=VALUE"),
        ("loss=1", "--set loss: expected a section and a key, such as scenario.gap"),
        ("links[-1].loss=1", "--set links[-1].loss: 'links[-1].loss' is not a key such as links[1].loss"),
        ("=1", "--set =1: '' is not a key such as links[1].loss"),
    ],
)
def test_a_fault_names_the_option(change, sentence):
    with pytest.raises(ScenarioError) as caught:
        load(change)
    assert str(caught.value) == sentence


def test_an_option_with_a_name_of_its_own_is_named_in_the_fault():
    with pytest.raises(ScenarioError) as caught:
        load(option("--iterations", "scenario.iterations", 0))
    assert str(caught.value) == "--iterations: 0 is not between 1 and 1000000"


def test_the_document_itself_is_left_alone():
    document = tomllib.loads(TEXT)
    read_scenario(document, "coast.toml", TRANSPORTS, [parse_override("links.loss=0.5")])
    assert document == tomllib.loads(TEXT)
