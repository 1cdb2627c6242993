"""docs/scenarios.md says what the readers take: it is generated, it has every key once, and its examples are read."""

import tomllib
from pathlib import Path

import pytest

from bicoastal.experiments.scenario import deployment_keys, scenario_keys, study_keys
from bicoastal.experiments.scenario.key_document import SCENARIO_EXAMPLE, STUDY_EXAMPLE, document
from bicoastal.experiments.scenario.keys import Section
from bicoastal.experiments.scenario.scenario import read_scenario
from bicoastal.experiments.scenario.study import load_study
from bicoastal.experiments.scenario.tables import ScenarioError
from bicoastal.transports.registry import Registry

ROOT = Path(__file__).parents[3]
SECTIONS = (*scenario_keys.SECTIONS, *study_keys.SECTIONS, *deployment_keys.SECTIONS)
TRANSPORTS = Registry.installed()
HEAD = """
[scenario]
name = "one"
[[links]]
rate = "1 Gbit/s"
rtt = "60 ms"
EXTRA
[allreduce]
shard = "1 MB"
"""


def test_the_document_is_what_the_keys_say() -> None:
    written = (ROOT / "docs/scenarios.md").read_text(encoding="utf-8")
    assert written == document(), "run: python -m bicoastal.experiments.scenario.key_document > docs/scenarios.md"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_is_a_plain_sentence(section: type[Section]) -> None:
    for key in section.all_keys():
        assert key.meaning.endswith(".")
        assert len(key.meaning.split()) <= 20
        assert key.said_default


@pytest.mark.parametrize("key", [key.name for key in scenario_keys.LinkKeys.all_keys() if f"{key.name} = " not in HEAD])
def test_the_reader_knows_every_key_of_a_link(key: str) -> None:
    with pytest.raises(ScenarioError) as refused:  # no key is an empty table
        read_scenario(tomllib.loads(HEAD.replace("EXTRA", f"{key} = {{}}")), "x.toml", TRANSPORTS)
    assert str(refused.value).startswith("x.toml: links[0].")
    assert "is not a known key" not in str(refused.value)


def test_a_key_that_is_misspelt_is_told_with_what_was_meant() -> None:
    with pytest.raises(ScenarioError, match=r"^x.toml: links\[0\].jiter: is not a known key; did you mean 'jitter'"):
        read_scenario(tomllib.loads(HEAD.replace("EXTRA", "jiter = 1")), "x.toml", TRANSPORTS)


def test_the_example_of_a_scenario_has_a_value_for_every_key_that_needs_no_other_in_its_place() -> None:
    for section in scenario_keys.SECTIONS[:-1]:
        for key in section.all_keys():
            assert (
                f"{key.name} = " in SCENARIO_EXAMPLE
                or f"{key.name}]]" in SCENARIO_EXAMPLE
                or key.name
                in (
                    "delay",  # stands in for rtt, in a comment
                    "deployment",
                )
            )


def test_the_example_of_a_study_is_one(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY_EXAMPLE, encoding="utf-8")
    study = load_study(str(path), TRANSPORTS)
    assert [len(axis.values) for axis in study.axes] == [3]
