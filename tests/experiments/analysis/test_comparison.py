import io
import json
import statistics
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from bicoastal.experiments.analysis.comparison import compare, comparison_document, percentile
from bicoastal.experiments.runs.runner import plan, run_all
from bicoastal.experiments.runs.store import RunRow, Store
from bicoastal.experiments.scenario.scenario import load_scenario
from bicoastal.experiments.terminal.tables import to_table
from helpers.fake_backends import BOUND_S, TRANSPORTS, WORLD, record

SCENARIO = load_scenario("coast-to-coast", TRANSPORTS)


def run(tmp_path, *transports, seeds=(0,)):
    tasks = plan(SCENARIO, backend="plain", transports=transports, seeds=seeds)
    with Store(tmp_path) as store:
        run_all(tasks, store, WORLD, workers=0)
        return compare(store, [task.key for task in tasks])


def of_completions(tmp_path, completions_s, jobs=("job",), scenario=SCENARIO):
    spec = scenario.run_spec("reno", seed=0)
    made = record(spec, completions_s)
    row = RunRow(
        key="a" * 16,
        scenario=spec.name,
        study="",
        settings=(),
        labels=(),
        source="",
        backend="plain",
        transport="reno",
        parameters=(),
        jobs=jobs,
        seed=0,
        scale=1.0,
        setup="",
        options=(),
        notes=(),
        status=made.status,
        reason=made.reason,
        array_note="",
        spec=spec,
    )
    with Store(tmp_path) as store:
        store.write(row, made)
        return compare(store, [row.key])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 99, 100, 101, 1000])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99, 1.0])
def test_percentiles_agree_with_numpys_inverted_cdf(count, share):
    values = [((7919 * index) % count) / 3 for index in range(count)]
    assert percentile(values, share) == np.percentile(values, 100 * share, method="inverted_cdf")


def test_the_median_of_an_odd_number_is_the_median():
    values = [0.3, 0.1, 0.9, 0.2, 0.4]
    assert percentile(values, 0.5) == statistics.median(values)


def test_a_failed_iteration_is_infinitely_slow():
    assert percentile([0.1, None, 0.2], 0.5) == 0.2
    assert percentile([0.1, None, 0.2], 1.0) is None
    assert percentile([], 0.5) is None


def test_the_document_has_the_figures_of_the_runs(tmp_path):
    completions_s = [BOUND_S * factor for factor in (4.0, 2.0, 1.25, 1.0, 5.0)]
    document = comparison_document(of_completions(tmp_path, completions_s))
    assert document == {
        "scenario": "coast-to-coast",
        "backend": "plain",
        "scale": 1.0,
        "bound_s": BOUND_S,
        "transports": [
            {
                "name": "reno",
                "status": "ok",
                "reason": "",
                "n": 5,
                "first_s": 4 * BOUND_S,
                "completion_s": {"min": BOUND_S, "p50": 2 * BOUND_S, "p99": None, "max": 5 * BOUND_S},
                "efficiency_p50": 0.5,
                "overhead": 0.1,  # 1,100 bytes on the wire for every 1,000 of payload
                "repairs": 2 * 8 * 3,  # two late iterations, 8 flows each
                "timeouts": 2 * 8,
                "failed": 0,
                "at_scale": None,
            }
        ],
    }


def test_the_keys_stand_in_the_order_of_the_design(tmp_path):
    text = json.dumps(comparison_document(run(tmp_path, "adaptive")))
    assert text.startswith(
        '{"scenario": "coast-to-coast", "backend": "plain", "scale": 1.0, "bound_s": 0.05, "transports"'
    )
    keys = ["name", "status", "reason", "n", "first_s", "completion_s", "min", "p50", "p99", "max", "efficiency_p50"]
    keys += ["overhead", "repairs", "timeouts", "failed", "at_scale"]
    places = [text.index(f'"{key}": ') for key in keys]
    assert places == sorted(places)


def test_p99_takes_100_iterations(tmp_path):
    few = run(tmp_path / "few", "reno", seeds=range(4)).transports[0]
    assert (few.n, few.p99_s) == (80, None)
    enough = run(tmp_path / "enough", "reno", seeds=range(5)).transports[0]
    assert enough.n == 100
    assert enough.p99_s == sorted(time for time in enough.completions_s if time is not None)[98]


def test_an_unsupported_transport_has_no_figures_but_a_reason(tmp_path):
    document = comparison_document(run(tmp_path, "unfit"))
    assert document["bound_s"] is None
    assert document["transports"] == [
        {
            "name": "unfit",
            "status": "unsupported",
            "reason": "unfit needs real packets, which plain lacks",
            "n": 0,
            "first_s": None,
            "completion_s": {"min": None, "p50": None, "p99": None, "max": None},
            "efficiency_p50": None,
            "overhead": None,
            "repairs": None,
            "timeouts": None,
            "failed": 0,
            "at_scale": None,
        }
    ]


def test_a_failed_iteration_is_counted_and_takes_the_maximum_away(tmp_path):
    (result,) = comparison_document(of_completions(tmp_path, [0.1, 0.2, None]))["transports"]
    assert (result["status"], result["n"], result["failed"]) == ("failed", 3, 1)
    assert result["completion_s"] == {"min": 0.1, "p50": 0.2, "p99": None, "max": None}
    assert result["overhead"] == pytest.approx(3 * 1100 / (2 * 1000) - 1)  # sent three times, delivered twice


def test_a_run_in_which_nothing_arrived_has_no_figures(tmp_path):
    (result,) = comparison_document(of_completions(tmp_path, [None, None]))["transports"]
    assert (result["n"], result["failed"], result["overhead"], result["efficiency_p50"]) == (2, 2, None, None)


def test_the_worst_seed_decides_the_status(tmp_path):
    with Store(tmp_path) as store:
        tasks = plan(SCENARIO, backend="plain", transports=["reno"], seeds=range(3))
        run_all(tasks, store, WORLD, workers=0)
        (second,) = store.runs([tasks[1].key])
        store.write(replace(second, status="failed", reason="it did not connect"), None)
        (result,) = compare(store, [task.key for task in tasks]).transports
    assert (result.status, result.reason, result.n) == ("failed", "seed 1: it did not connect", 40)


def test_only_the_compared_jobs_count(tmp_path):
    shared = load_scenario("shared", TRANSPORTS)
    both = of_completions(tmp_path / "both", [0.1, 0.2], jobs=("first", "second"), scenario=shared)
    one = of_completions(tmp_path / "one", [0.1, 0.2], jobs=("second",), scenario=shared)
    assert (both.transports[0].n, one.transports[0].n) == (4, 2)


def test_repairs_and_timeouts_are_summed(tmp_path):
    (result,) = of_completions(tmp_path, [BOUND_S, 3 * BOUND_S, 4 * BOUND_S]).transports
    assert (result.repairs, result.timeouts) == (2 * 8 * 3, 2 * 8)  # two late iterations, 8 flows each


def test_other_runs_in_the_store_are_left_out(tmp_path):
    run(tmp_path, "reno", "cubic")
    assert [result.name for result in run(tmp_path, "adaptive").transports] == ["adaptive"]
    with Store(tmp_path) as store, pytest.raises(ValueError, match="none of these runs"):
        compare(store, ["0" * 16])


def printed(comparison, width, **options):
    written = io.StringIO()
    console = Console(file=written, width=width, **options)
    console.print(to_table(comparison, width=width, notes=["written: out/results.sqlite"]))
    return written.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits(tmp_path, width):
    text = printed(run(tmp_path, "reno", "cubic", "adaptive", "unfit", "broken", seeds=range(5)), width)
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    assert ("first" in text.partition("reno")[0]) == (width == 120)
    row = next(line.split() for line in text.splitlines() if line.startswith("adaptive"))
    assert row[:3] == ["adaptive", "ok", "100"]
    assert "unfit unsupported: unfit needs real packets, which plain lacks" in text
    lines = text.splitlines()
    for term, meaning in (("bound", "50 ms"), ("local", "1 ms inside"), ("written", "out/results.sqlite")):
        assert any(line.startswith(f"{term + ':':12}{meaning}") for line in lines)
    below = lines[next(number for number, line in enumerate(lines) if line.startswith("bound:")) :]
    assert all(line[11] == " " and (line[:11].strip() in ("", line.split()[0])) for line in below)  # terms stand apart


def test_without_colours_the_table_says_as_much(tmp_path, monkeypatch):
    comparison = run(tmp_path, "reno", "broken")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in printed(comparison, 80, force_terminal=True)
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[3" in printed(comparison, 80, force_terminal=True, color_system="standard")


def test_markup_in_a_reason_is_text(tmp_path):
    comparison = run(tmp_path, "reno")
    odd = replace(comparison, transports=(replace(comparison.transports[0], reason="[red]no[/red] [bold"),))
    assert "[red]no[/red] [bold" in printed(odd, 80)
