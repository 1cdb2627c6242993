"""Where scenarios are found, what is read from beside them, and files that are none."""

import re
from pathlib import Path

import pytest

from bicoastal.experiments.scenario.scenario import ScenarioError, load_scenario
from bicoastal.wan.recorded_loss import Trace
from helpers.fake_backends import TRANSPORTS
from helpers.scenario_text import GOOD


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"[scenario]\nname = \xff", "is not UTF-8 text (byte 18)"),
        (b"x = " + b"[" * 5000, "is not TOML: nested too deeply"),
        (b"#" * 1_000_001, "is larger than 1 MB, which no scenario is"),
        (b"[scenario]\n", "links: is missing; expected at least one [[links]]"),
    ],
    ids=["empty", "blank", "latin-1", "nested", "huge", "headings alone"],
)
def test_a_file_that_is_no_scenario_is_refused(tmp_path, data, sentence):
    path = tmp_path / "coast.toml"
    path.write_bytes(data)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(str(path), TRANSPORTS)
    assert str(caught.value) == f"{path}: {sentence}"


@pytest.mark.parametrize("text", ["name 'x'", "[scenario", "a = 1\na = 2", "n = " + "9" * 5000])
def test_a_syntax_error_tells_where(tmp_path, text):
    path = tmp_path / "coast.toml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=rf"^{re.escape(str(path))}: is not TOML: [^\n]+$"):
        load_scenario(str(path), TRANSPORTS)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    missing = tmp_path / "none.toml"
    with pytest.raises(ScenarioError) as caught:
        load_scenario(str(missing), TRANSPORTS)
    assert str(caught.value) == f"{missing}: there is no such file"
    with pytest.raises(ScenarioError) as caught:
        load_scenario(str(tmp_path), TRANSPORTS)
    assert str(caught.value) == f"{tmp_path}: is a directory, not a TOML file"
    with pytest.raises(ScenarioError, match=r"cannot be read \(embedded null byte\)$"):
        load_scenario("a\0.toml", TRANSPORTS)


def test_an_unknown_scenario_gets_the_names_that_resemble_it():
    with pytest.raises(ScenarioError) as caught:
        load_scenario("coast", TRANSPORTS)
    assert str(caught.value).startswith(
        "there is no scenario 'coast'; did you mean 'coast-to-coast'? there are backbone, coast-to-"
    )


def test_a_trace_is_read_from_beside_the_scenario(tmp_path):
    (tmp_path / "loss.txt").write_text("0001 # a recording\n")
    path = tmp_path / "coast.toml"
    path.write_text(GOOD.replace("loss = 1e-4", 'loss = { model = "trace", file = "loss.txt" }'))
    loss = load_scenario(str(path), TRANSPORTS).topology.links["plane0"].loss
    assert loss == Trace(outcomes=(False, False, False, True))
    path.write_text(GOOD.replace("loss = 1e-4", 'loss = { model = "trace", file = "gone.txt" }'))
    with pytest.raises(ScenarioError, match=r"links\[0\].loss.file: 'gone.txt' cannot be read \(No such file"):
        load_scenario(str(path), TRANSPORTS)


def test_a_trace_without_end_is_refused(tmp_path):
    path = tmp_path / "coast.toml"
    path.write_text(GOOD.replace("loss = 1e-4", 'loss = { model = "trace", file = "/dev/zero" }'))
    with pytest.raises(ScenarioError, match=re.escape("loss.file: the file is larger than 1 MB")):
        load_scenario(str(path), TRANSPORTS)


def test_a_deployment_of_ones_own_is_read_from_beside_the_scenario(tmp_path):
    bundled = Path("experiments/deployments/hundred-trillion.toml").read_text()
    (tmp_path / "mine.toml").write_text(bundled)
    path = tmp_path / "coast.toml"
    path.write_text(GOOD.replace('shard = "57.13 MB"', 'deployment = "mine.toml"'))
    assert load_scenario(str(path), TRANSPORTS).jobs[0].allreduce.shard_bytes == pytest.approx(57.13e6, rel=1e-4)
    (tmp_path / "mine.toml").write_text(bundled.replace("layers", "layer"))
    with pytest.raises(ScenarioError, match=r"allreduce.deployment: mine.toml: model.layer: is not a known key"):
        load_scenario(str(path), TRANSPORTS)
