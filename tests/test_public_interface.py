"""`import bicoastal`: what is listed, that it is quick and silent, and what scripts get from it."""

import ast
import inspect
import json
import re
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

import bicoastal
from bicoastal import network, runs
from bicoastal.experiments.figures.style import png_of
from bicoastal.public import PUBLIC
from helpers.shown_code import example_transport

SMALL = {"allreduce.shard": "200 kB", "scenario.iterations": 3}
SCALE_ERROR = r"^scale: 'zero' is neither 'auto' nor a number from 0\.001 to 1e\+06$"


@pytest.fixture(scope="module")
def results() -> bicoastal.Results:
    scenario = bicoastal.load_scenario("metro", changes=SMALL)
    return bicoastal.run(scenario, transports=["reno", "cubic"], seeds=[1, 2])


# -- what is public ---------------------------------------------------------------------------------------------------


def test_no_name_is_listed_twice_and_the_top_level_is_small() -> None:
    names = [name for homes in PUBLIC.values() for name in homes]
    assert len(names) == len(set(names))
    assert len(PUBLIC["bicoastal"]) <= 45


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, homes in PUBLIC.items() for name in homes])
def test_every_public_name_is_there_and_is_explained(module: str, name: str) -> None:
    found = getattr(import_module(module), name)
    if inspect.isclass(found) or inspect.isroutine(found):
        assert found.__name__ == name
        assert found.__doc__
        assert not found.__doc__.startswith(f"{name}(")  # what dataclasses and named tuples write by themselves


@pytest.mark.parametrize("name", PUBLIC)
def test_nothing_else_is_exported(name: str) -> None:
    module = import_module(name)
    assert module.__all__ == list(PUBLIC[name])
    assert dir(module) == sorted(PUBLIC[name])
    assert module.__doc__
    with pytest.raises(AttributeError, match=f"^module '{name}' has no attribute 'frobnicate'$"):
        module.frobnicate  # noqa: B018 (reading it is the test)


def test_the_top_level_names_every_other_module_of_the_interface() -> None:
    assert bicoastal.__doc__
    assert set(re.findall(r"^- `(bicoastal\.\w+)`", bicoastal.__doc__, re.MULTILINE)) == set(PUBLIC) - {"bicoastal"}


@pytest.mark.parametrize("name", PUBLIC)
def test_type_checkers_see_the_same_names_from_the_same_modules(name: str) -> None:
    source = ast.parse(Path(f"{import_module(name).__file__}").read_text(encoding="utf-8"))
    (block,) = [node for node in source.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {(alias.asname, f"{node.module}") for node in imports for alias in node.names}
    assert seen == {(public, f"bicoastal.{home}") for public, home in PUBLIC[name].items()}


def test_importing_it_loads_nothing_else() -> None:
    program = "import sys; before = set(sys.modules); import bicoastal; print(*sorted(set(sys.modules) - before))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in ended.stdout.split()}
    assert loaded.isdisjoint({"numpy", "matplotlib", "rich", "aioquic", "multiprocessing", "sqlite3", "asyncio"})
    assert [name for name in ended.stdout.split() if name.startswith("bicoastal")] == ["bicoastal", "bicoastal.public"]
    assert ended.stderr == ""


# -- results ----------------------------------------------------------------------------------------------------------


def test_completions_are_arrays_and_agree_with_the_records(results: bicoastal.Results) -> None:
    assert results.transports == ("reno", "cubic")
    completions_s = results.completions_s("cubic")
    assert completions_s.dtype == np.float64
    assert completions_s.tolist() == [row.completion_s for row in results.iterations("cubic")]
    assert len(completions_s) == 6
    assert results.efficiencies("cubic").tolist() == list(results["cubic"].efficiencies)
    assert {type(row) for row in results.flows()} == {bicoastal.FlowRecord}
    assert {row.transport for row in results.summaries("reno")} == {"reno"}
    with pytest.raises(KeyError, match="bbr"):
        results.completions_s("bbr")


def test_an_iteration_that_failed_is_nan() -> None:
    scenario = bicoastal.load_scenario("metro", changes={**SMALL, "scenario.time_limit": "1 ms"})
    failed = bicoastal.run(scenario, transports=["reno"], iterations=1)
    assert failed["reno"].status == "failed"
    assert failed["reno"].reason
    assert failed.figure() is None
    assert np.isnan(failed.completions_s("reno")).all()


def test_the_table_of_the_comparison_has_a_row_for_each_transport(results: bicoastal.Results) -> None:
    table = results.table()
    assert table["transport"] == ("reno", "cubic")
    assert table.array("p50_s").tolist() == [
        sorted(results.completions_s(name))[2] for name in ("reno", "cubic")
    ]  # nearest rank of six
    assert np.isnan(table.array("p99_s")).all()  # below 100 iterations
    header, *rows = str(table).splitlines()
    assert header.split()[:3] == ["transport", "status", "n"]
    assert [row.split()[:3] for row in rows] == [["reno", "ok", "6"], ["cubic", "ok", "6"]]
    assert table.records()[1]["transport"] == "cubic"


def test_each_kind_of_record_is_a_table(results: bicoastal.Results) -> None:
    for name in runs.TABLES:
        assert set(results.table(name)) >= {"run"} or name == "runs"
    iterations = results.table("iterations")
    assert iterations.rows == 12
    assert iterations.array("completion_s")[-6:].size == 6
    with pytest.raises(ValueError, match="name: 'sizes' is not one of comparison, runs, iterations"):
        results.table("sizes")


@pytest.mark.parametrize(("package", "call"), [("pandas", "to_pandas"), ("pyarrow", "to_arrow")])
def test_a_package_that_is_missing_is_named_in_one_sentence(
    package: str, call: str, results: bicoastal.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"^{package} is not installed; `pip install {package}` adds it$"):
        getattr(results.table(), call)()


def test_pandas_gets_the_same_columns(results: bicoastal.Results) -> None:
    pytest.importorskip("pandas")
    frame = results.table("iterations").to_pandas()
    assert list(frame.columns) == list(results.table("iterations"))
    assert frame["completion_s"].tolist() == list(results.table("iterations")["completion_s"])


def test_arrow_gets_the_same_columns(results: bicoastal.Results) -> None:
    pytest.importorskip("pyarrow")
    table = results.table("iterations").to_arrow()
    assert table.to_pydict() == {name: list(values) for name, values in results.table("iterations").items()}


def test_the_document_is_what_the_command_prints(results: bicoastal.Results) -> None:
    document = json.loads(json.dumps(results.document()))
    assert [row["name"] for row in document["transports"]] == ["reno", "cubic"]
    assert document["transports"][0]["n"] == 6


def test_without_a_directory_nothing_is_written_and_with_one_it_can_be_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = bicoastal.load_scenario("metro", changes=SMALL)
    in_memory = bicoastal.run(scenario, transports=["reno"], seeds=[1])
    assert list(tmp_path.iterdir()) == []
    with bicoastal.run(scenario, transports=["reno"], seeds=[1], directory="kept") as kept:
        assert kept.document() == in_memory.document()
    with bicoastal.open_results("kept") as opened:
        assert opened.document() == in_memory.document()
    with pytest.raises(bicoastal.StoreError, match="nowhere: holds no results"):
        bicoastal.open_results("nowhere")


def test_workers_give_what_this_process_gives(results: bicoastal.Results) -> None:
    scenario = bicoastal.load_scenario("metro", changes=SMALL)
    by_workers = bicoastal.run(scenario, transports=["reno", "cubic"], seeds=[1, 2], workers=2)
    assert by_workers.document() == results.document()


def test_a_transport_that_is_an_object_of_the_script_runs_without_being_installed() -> None:
    module: dict[str, Any] = {"__name__": "notebook"}
    exec(example_transport(), module)
    done: list[str] = []
    found = bicoastal.run(
        bicoastal.load_scenario("metro", changes=SMALL),
        transports=["reno", module["SCALABLE"]],
        workers=2,
        progress=lambda task, outcome: done.append(f"{task.transport} {outcome.status}"),
    )
    assert found["scalable"].status == "ok"
    assert done == ["reno ok", "scalable ok"]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"scale": "zero"}, SCALE_ERROR),
        ({"backend": "mars"}, "^backend: there is no backend 'mars'"),
        ({"impairment": "netem"}, "^impairment: sim has no choice of it$"),
    ],
)
def test_an_argument_that_cannot_be_is_named_as_the_function_calls_it(wrong: dict[str, str], match: str) -> None:
    with pytest.raises(bicoastal.ScenarioError, match=match):
        bicoastal.run("metro", transports=["reno"], **wrong)  # type: ignore[arg-type]


def test_a_transport_that_is_not_there_is_told_in_one_sentence() -> None:
    with pytest.raises(bicoastal.ScenarioError, match=r"^transports: there is no transport 'rino'; did you"):
        bicoastal.run("metro", transports=["rino"])


# -- scenarios --------------------------------------------------------------------------------------------------------


def test_a_change_that_does_not_fit_is_named_by_its_key() -> None:
    with pytest.raises(bicoastal.ScenarioError, match=r"^changes\['links.loss'\]: 1.5 is not a probability"):
        bicoastal.load_scenario("metro", changes={"links.loss": 1.5})


def test_a_scenario_can_be_a_file_or_its_tables(tmp_path: Path) -> None:
    text = '[scenario]\nname = "own"\n[[links]]\nrate = "1 Gbit/s"\nrtt = "2 ms"\n[allreduce]\nshard = "1 MB"\n'
    (tmp_path / "own.toml").write_text(text)
    tables = {
        "scenario": {"name": "own"},
        "links": [{"rate": "1 Gbit/s", "rtt": "2 ms"}],
        "allreduce": {"shard": "1 MB"},
    }
    assert bicoastal.load_scenario(tmp_path / "own.toml") == bicoastal.load_scenario(tables)


def test_a_scenario_can_be_made_of_typed_objects() -> None:
    bundled = bicoastal.load_scenario("metro", changes=SMALL)
    link = network.LinkSpec(
        name="plane", a="west", b="east", rate_bps=1e9, delay_s=1e-3, loss=network.Bernoulli(probability=1e-3)
    )
    topology = network.Topology(
        sites=[network.Site(name="west"), network.Site(name="east")],
        links=[link],
        paths=[network.Path(name="plane", sites=("west", "east"), links=("plane",))],
    )
    job = replace(bundled.jobs[0], paths=("plane",))
    found = bicoastal.run(bicoastal.build_scenario(name="own", topology=topology, jobs=[job]), transports=["cubic"])
    assert found["cubic"].n == 3
    assert found.runs[0].scenario == "own"
    with pytest.raises(bicoastal.ScenarioError, match=r"^paths: job uses 'missing', which the topology does not have$"):
        bicoastal.build_scenario(name="own", topology=topology, jobs=[replace(job, paths=("missing",))])


# -- figures ----------------------------------------------------------------------------------------------------------


def test_figures_are_returned_and_keep_their_style(results: bicoastal.Results) -> None:
    figure = results.figure()
    assert figure is not None
    assert figure.get_suptitle() == "metro (sim)"
    with mpl.rc_context({"axes.grid": False, "grid.color": "#ff0000", "font.size": 30}):  # of a notebook's own style
        assert png_of(figure) == png_of(figure)
        assert png_of(results.figure() or figure) == png_of(figure)
    series = results.series_figure()
    assert series is not None
    assert len(series.axes) == 6  # window, rate and queue of two iterations
    assert results.curve_figures() == {}  # nothing is varied


def test_a_study_gives_groups_curves_and_a_page(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(
        '[study]\nname = "own"\nscenario = "metro"\ntransports = ["reno"]\n[set]\n"allreduce.shard" = "200 kB"\n'
        '[[axes]]\nkey = "links.loss"\nlabel = "loss per packet"\nvalues = [0, 1e-3]\n'
    )
    study = bicoastal.load_study(tmp_path / "study.toml", changes={"scenario.iterations": 2})
    tasks = bicoastal.plan_study(study)
    found = bicoastal.run_tasks(tasks, directory=tmp_path / "out")
    assert [group.settings["links.loss"] for group in found.groups] == ["0", "1e-3"]
    assert list(found.curve_figures()) == ["efficiency-against-loss", "completion-against-loss"]
    assert found.page().startswith("<!DOCTYPE html>")
    assert runs.unfinished(tasks, tmp_path / "out") == []
    assert runs.unfinished(tasks, tmp_path / "elsewhere") == tasks
    with pytest.raises(bicoastal.StoreError, match="holds no results yet"):
        bicoastal.run_tasks([]).comparison  # noqa: B018 (reading it is the test)


# -- a whole deployment -----------------------------------------------------------------------------------------------


def test_a_deployment_is_extrapolated_and_sized() -> None:
    found = bicoastal.extrapolate("hundred-trillion", changes={"assumptions.wan_trips": 1})
    assert found.wan is not None
    assert found.wan.least_bps == pytest.approx(7.55e9, rel=1e-3)  # as `bicoastal extrapolate` has it
    assert found == bicoastal.extrapolate(found.deployment, assumptions=bicoastal.Assumptions(wan_trips=1))
    sizing = bicoastal.size(transports=["mpquic-fec", "quic"], loss=1e-4)
    needs = {row.transport: row.found for row in sizing.rows}
    assert needs["quic"] is None
    assert needs["mpquic-fec"] is not None
    assert needs["mpquic-fec"].least_bps == pytest.approx(15.17e9, rel=1e-3)
    assert bicoastal.stages_figure(sizing) is not None
    with pytest.raises(bicoastal.ScenarioError, match=r"^changes\['plant.wan_rtt'\]: "):
        bicoastal.extrapolate(changes={"plant.wan_rtt": "long"})
