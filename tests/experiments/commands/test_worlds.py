"""Worlds beside one another: which runs make a figure, and what a figure says of them."""

import json
from dataclasses import replace
from statistics import median

import pytest

from bicoastal.emulation.limits.scaled import scaled_run
from bicoastal.emulation.simulator import SimulatorBackend
from bicoastal.experiments.cli import main
from bicoastal.experiments.validation.worlds import (
    Analytic,
    Case,
    Run,
    WorldCell,
    WorldRow,
    compare_worlds,
    standard_cases,
)
from bicoastal.transports.registry import Registry


def cases(scale: float) -> dict[str, Case]:
    found = standard_cases(Registry.installed(), iterations=2)
    return {name: Case(name=name, scenario=scenario, scale=scale) for name, scenario in found}


def test_the_five_scenarios_of_the_comparison_can_be_run_and_scaled() -> None:
    simulator = SimulatorBackend(Registry.installed())
    rows = compare_worlds(
        list(cases(100).values()), ["cubic"], [Run(name="sim", backend=simulator)], tell=lambda line: None
    )
    assert [row.scenario for row in rows] == ["lossless", "loss 1e-4", "loss 1e-3", "shallow queue", "tail loss"]
    for row in rows:
        (cell,) = row.cells
        assert (cell.n, cell.status) == (2, "ok")
        assert cell.median_s is not None
        assert cell.median_s > row.bound_s
        assert row.disagreement is None


def test_one_figure_is_made_of_all_seeds_and_the_same_seeds_agree() -> None:
    simulator = SimulatorBackend(Registry.installed())
    case = cases(20)["loss 1e-3"]
    worlds = [Run(name=name, backend=simulator) for name in ("sim", "again")]
    (row,) = compare_worlds([replace(case, seeds=3)], ["reno"], worlds, tell=lambda line: None)
    assert [cell.n for cell in row.cells] == [6, 6]
    assert row.disagreement == 0.0
    singly = [
        iteration.completion_s
        for seed in range(3)
        for iteration in simulator.run(
            scaled_run(case.scenario.run_spec("reno", seed=seed, sampled=False), case.scale)
        ).iterations
        if iteration.completion_s is not None
    ]
    assert row.cells[0].median_s == median(singly)


def test_worlds_disagree_by_the_largest_median_over_the_smallest() -> None:
    def cell(world: str, median_s: float | None) -> WorldCell:
        return WorldCell(world=world, transport="reno", median_s=median_s, n=1, status="ok")

    row = WorldRow(
        scenario="lossless",
        transport="reno",
        scale=20,
        bound_s=0.1,
        cells=(cell("sim", 0.2), cell("netns", 0.22), cell("mininet", None)),
    )
    assert row.disagreement == pytest.approx(0.1)


def test_the_models_stand_beside_the_worlds_where_there_is_one() -> None:
    found = cases(20)
    worlds = [Run(name="sim", backend=SimulatorBackend(Registry.installed())), Analytic()]
    chosen = [found["lossless"], found["shallow queue"]]
    rows = compare_worlds(chosen, ["b4", "quic"], worlds, tell=lambda line: None)
    cells = {(row.scenario, row.transport): row.cells[1] for row in rows}
    assert [row.disagreement is None for row in rows] == [False, True, True, True]
    assert rows[0].disagreement == pytest.approx(0.0, abs=0.02)
    assert (cells["lossless", "b4"].n, cells["lossless", "b4"].status) == (0, "ok")
    assert "not of 0.05" in cells["shallow queue", "b4"].reason
    assert "no model of its tail" in cells["lossless", "quic"].reason
    assert cells["lossless", "quic"].status == "unsupported"


def test_the_models_alone_need_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--world", "analytic", "--transport", "b4", "--case", "lossless", "--json"]
    assert main(["validate", "--worlds", *options]) == 3  # one world alone disagrees with none
    (row,) = json.loads(capsys.readouterr().out)
    assert row["scale"] == 1
    assert row["bound_s"] < row["cells"][0]["median_s"] < 1.02 * row["bound_s"]
    assert main(["validate", "--worlds", "--world", "moon"]) == 2
    assert capsys.readouterr().err.endswith("analytic\n")


@pytest.mark.parametrize("option", ["--iterations", "--seeds"])
def test_a_number_of_runs_that_makes_no_sense_is_refused_by_its_option(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "--worlds", option, "0"]) == 2
    assert capsys.readouterr().err.count(option) == 1


@pytest.mark.parametrize(
    "options",
    [
        ["--world", "sim"],
        ["--transport", "reno"],
        ["--case", "lossless"],
        ["--iterations", "2"],
        ["--seeds", "2"],
        ["--scale", "auto"],
    ],
)
def test_an_option_of_worlds_is_refused_without_it(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"bicoastal: {options[0]}: is for --worlds, which compares worlds and is not there\n"


def test_one_case_alone_is_compared_and_a_misspelt_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["validate", "--worlds", "--world", "sim", "--transport", "reno", "--iterations", "1", "--scale", "100"]
    assert main([*options, "--case", "lossless", "--json"]) == 3  # one world alone disagrees with none
    assert [row["scenario"] for row in json.loads(capsys.readouterr().out)] == ["lossless"]
    assert main([*options, "--case", "losless"]) == 2
    assert "--case: 'losless' is none of lossless, loss 1e-4" in capsys.readouterr().err
