import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bicoastal.experiments import cli
from bicoastal.experiments.scenario.deployment import load_deployment
from bicoastal.experiments.scenario.tables import ScenarioError
from bicoastal.experiments.validation.checks import check_published
from bicoastal.experiments.validation.published import FIGURES, Computed
from bicoastal.experiments.validation.references import load_references, read_reference

BUNDLED = ("hundred-trillion", "libra", "sdr-rdma", "training")
FOLDER = Path(__file__).parents[3] / "experiments" / "references"


def document(name: str = "hundred-trillion") -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def test_every_derived_and_plausible_figure_is_within_its_tolerance() -> None:
    checks = check_published(load_references())
    assert {check.figure.name for check in checks if check.verdict == "off"} == set()
    assert sum(check.figure.status == "derived" for check in checks) >= 11
    assert sum(check.figure.status == "plausible" for check in checks) >= 11


def test_no_computation_is_without_a_published_figure() -> None:
    published = {figure.name for reference in load_references() for figure in reference.figures}
    assert set(FIGURES) <= published


def test_the_deployment_has_the_published_inputs() -> None:
    inputs = document()["inputs"]
    paper = load_deployment("hundred-trillion", None)
    for key in ("layers", "heads", "hidden", "sequence", "vocabulary"):
        assert getattr(paper.model, key) == inputs[key]
    for key in ("racks", "gpus_per_rack", "replicas_per_rack", "sites", "scale_up_Bps", "scale_out_bps", "planes"):
        assert getattr(paper, key) == inputs[key]
    for key in ("tensor", "pipeline", "data"):
        assert getattr(paper, key) == inputs[f"{key}_parallel"]
    assert paper.messages_per_step == inputs["messages_per_step"]
    assert paper.wan_rtt_s == inputs["wan_rtt_s"]
    assert paper.gpu.flops * paper.gpus_per_rack == pytest.approx(inputs["rack_flops_fp4"])


def test_the_command_prints_all_and_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["validate", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True
    figures = {figure["name"]: figure for figure in found["figures"]}
    names = [figure["name"] for name in BUNDLED for figure in document(name)["figure"]]
    assert list(figures) == names
    assert figures["dp_stage_2_datacenter_ms"]["computed"] == pytest.approx(98.27, abs=0.005)
    assert figures["fat_tree_cost_usd"]["computed"] is None
    assert figures["fat_tree_cost_usd"]["verdict"] == "quoted, not computed"
    assert "2407.12819" in figures["parameters"]["source"]


@pytest.mark.parametrize("columns", ["80", "160"])
def test_the_table_has_a_line_for_each_figure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert cli.main(["validate"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= int(columns)
    rows = [line.split() for line in printed.splitlines()]
    assert ["dp_stage_1_rack_ms", "16.57", "16.568"] in [row[:3] for row in rows]
    assert ["fat_tree_cost_usd", "5e+09", "–", "–"] in [row[:4] for row in rows]


@pytest.mark.parametrize("columns", ["80", "250"])
def test_what_is_missing_and_why_nothing_is_computed_is_said_at_any_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert cli.main(["validate"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "what is missing: how well the pipeline fills, and how the batch grows" in text
    assert "the published model's shape is not known; hundred-trillion-moe has 0.114" in text
    assert "no formula was found that gives it" in text


def test_a_derived_figure_that_moves_ends_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # the same model on a scale-out one per cent slower
    paper = load_deployment("hundred-trillion", None)
    slower = replace(paper, scale_out_bps=0.99 * paper.scale_out_bps)
    monkeypatch.setattr("bicoastal.experiments.validation.published._paper", lambda: slower)
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["validate"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    moved = ("pipeline_parallel_ms", "dp_stage_2_datacenter_ms", "dp_stage_4_datacenter_ms")
    assert last.startswith("off: " + ", ".join(moved))


@pytest.mark.parametrize(
    ("status", "value", "verdict"),
    [
        ("derived", 100.4, "ok"),
        ("derived", 99.4, "off"),
        ("derived", None, "off"),  # a derived figure that nothing computes is no confirmation
        ("plausible", 119.0, "ok"),
        ("plausible", 121.0, "off"),
        ("published", 300.0, "computed"),
        ("published", None, "quoted, not computed"),
    ],
)
def test_a_figure_is_judged_by_its_kind(status: str, value: float | None, verdict: str) -> None:
    reference = read_reference({"source": "x", "figure": [{"name": "n", "value": 100.0, "status": status}]}, "r")
    (check,) = check_published([reference], {"n": lambda _: Computed(value=value)})
    assert check.verdict == verdict


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"status": "guessed"}, "r.toml: figure[0].status: 'guessed' is not one of derived, plausible, published"),
        ({"tolerance": 0.1}, "r.toml: figure[0].tolerance: a published figure is quoted, not judged"),
        ({"value": "many"}, "r.toml: figure[0].value: 'many' is not a number of at least zero"),
        ({"values": 1}, "r.toml: figure[0].values: is not a known key; did you mean 'value'?"),
    ],
)
def test_a_reference_that_is_not_right_is_refused(change: dict[str, object], sentence: str) -> None:
    figure = {"name": "n", "value": 1.0, "status": "published"} | change
    with pytest.raises(ScenarioError) as caught:
        read_reference({"source": "x", "figure": [figure]}, "r")
    assert str(caught.value) == sentence


def test_a_name_that_stands_there_twice_is_refused() -> None:
    figure = {"name": "n", "value": 1.0, "status": "published"}
    with pytest.raises(ScenarioError, match=r"^r.toml: figure\[1\].name: 'n' stands there twice"):
        read_reference({"source": "x", "figure": [figure, figure]}, "r")
