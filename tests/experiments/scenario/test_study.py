"""Studies: the points they make, and what faults in them get."""

from pathlib import Path

import pytest

from bicoastal.experiments.basics.value_text import value_text
from bicoastal.experiments.scenario.bundled import bundled_names
from bicoastal.experiments.scenario.overrides import parse_override
from bicoastal.experiments.scenario.study import load_study
from bicoastal.experiments.scenario.tables import ScenarioError
from bicoastal.transports.registry import Registry
from bicoastal.wan.loss import Bernoulli
from helpers.fake_backends import TRANSPORTS

HEAD = '[study]\nname = "mine"\n'
AXIS = '[[axes]]\nkey = "links.loss"\nvalues = [1e-3, 0]\n'


def study(tmp_path, text, *changes):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return load_study(str(path), TRANSPORTS, [parse_override(change) for change in changes])


def loss_of(point):
    loss = next(iter(point.scenario.topology.links.values())).loss
    return loss.probability if isinstance(loss, Bernoulli) else 0.0


def test_every_combination_is_a_point_and_the_last_axis_varies_fastest(tmp_path):
    found = study(
        tmp_path,
        HEAD + 'seeds = 3\n[set]\n"scenario.iterations" = 7\n' + AXIS + '[[axes]]\nkey = "links.rtt"\n'
        'label = "round trip"\nvalues = ["2 ms", "60 ms"]\n',
        "links.mtu=1500",
    )
    assert [point.settings for point in found.points] == [
        ("links.loss=1e-3", "links.rtt=2 ms"),
        ("links.loss=1e-3", "links.rtt=60 ms"),
        ("links.loss=0", "links.rtt=2 ms"),
        ("links.loss=0", "links.rtt=60 ms"),
    ]
    assert [loss_of(point) for point in found.points] == [1e-3, 1e-3, 0.0, 0.0]
    assert [point.scenario.jobs[0].iterations for point in found.points] == [7] * 4
    assert {link.mtu_bytes for point in found.points for link in point.scenario.topology.links.values()} == {1500}
    assert found.settings == ("scenario.iterations=7",)
    assert [axis.label for axis in found.axes] == ["links.loss", "round trip"]
    assert (found.seeds, found.backend, found.transports) == (3, "sim", ("reno", "cubic", "adaptive"))


def test_a_scenario_is_looked_for_beside_the_study(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "own.toml").write_text(
        '[scenario]\nname = "own"\n[[links]]\nrate = "1 Gbit/s"\nrtt = "9 ms"\n[allreduce]\nshard = "1 MB"\n'
    )
    monkeypatch.chdir(tmp_path)
    assert study(tmp_path / "there", HEAD + 'scenario = "own.toml"\n' + AXIS).points[0].scenario.name == "own"


@pytest.mark.parametrize("name", bundled_names("studies"))
def test_what_is_bundled_can_be_read(name):
    found = load_study(name, Registry.installed())
    assert found.name == name
    assert found.description
    assert len(found.points) >= 5


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty"),
        (AXIS, "study: is missing; expected a table [study]"),
        (HEAD, "axes: is missing; expected at least one [[axes]]"),
        (HEAD + "colour = 1\n" + AXIS, "study.colour: is not a known key"),
        (HEAD + '[[axes]]\nkey = "links.loss"\n', "axes[0].values: is missing; expected a list of values"),
        (HEAD + '[[axes]]\nkey = "links.loss"\nvalues = []\n', "axes[0].values: a list is not a list of values"),
        (HEAD + '[[axes]]\nkey = "links.loss"\nvalues = [1e-3, 2]\n', "axes[0].values[1]: 2 is not a probability"),
        (HEAD + '[[axes]]\nkey = "links.loss"\nvalues = [{}]\n', "axes[0].values[0]: a table is neither a number"),
        (HEAD + '[[axes]]\nkey = "links.loss"\nvalues = [0, 0.0]\n', "axes[0].values[1]: 0.0 stands there twice"),
        (HEAD + '[[axes]]\nkey = "links.lost"\nvalues = [1]\n', "axes[0].values[0]: is not a known key"),
        (HEAD + '[[axes]]\nkey = "loss"\nvalues = [1]\n', "axes[0].values[0]: expected a section and a key"),
        (HEAD + '[[axes]]\nkey = "a b.c"\nvalues = [1]\n', "axes[0].values[0]: 'a b.c' is not a key"),
        (HEAD + AXIS + AXIS, "axes[1].key: 'links.loss' is varied twice"),
        (HEAD + '[set]\n"links.rtt" = "x"\n' + AXIS, "set.links.rtt: "),
        (HEAD + 'scenario = "nowhere"\n' + AXIS, "nowhere: there is no such file"),
        (HEAD + '[[axes]]\nkey = "scenario.name"\nvalues = ["a\\nb"]\n', "axes[0].values[0]: 'a\\nb' is no value"),
        (HEAD + f'[[axes]]\nkey = "scenario.seed"\nvalues = {list(range(10_001))}\n', "axes: make more than 10,000"),
    ],
)
def test_a_fault_gets_one_sentence_that_names_file_and_key(tmp_path, text, sentence):
    with pytest.raises(ScenarioError) as caught:
        study(tmp_path, text)
    message = str(caught.value)
    assert sentence in message
    assert Path(message.partition(":")[0]).name in {"mine.toml", "nowhere"}
    assert "\n" not in message


def test_a_study_that_does_not_exist_is_told_with_what_there_is():
    with pytest.raises(ScenarioError, match=r"^there is no study 'los'; did you mean 'loss'\?"):
        load_study("los", TRANSPORTS)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-4, "1e-4"),
        (1.25e-5, "1.25e-5"),
        (0.0, "0"),
        (0.5, "0.5"),
        (2.0, "2"),
        (3, "3"),
        (True, "true"),
        ("a b", "a b"),
    ],
)
def test_values_are_written_as_people_do(value, text):
    assert value_text(value) == text
