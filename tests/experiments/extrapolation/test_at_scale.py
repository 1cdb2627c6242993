"""`compare` says what its runs mean for the whole deployment, and is silent where they mean nothing."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bicoastal.experiments.analysis.comparison import Comparison, TransportResult
from bicoastal.experiments.cli import main
from bicoastal.experiments.extrapolation.assumptions import Assumptions
from bicoastal.experiments.extrapolation.at_scale import at_scale
from bicoastal.experiments.extrapolation.exposure import exposed_gradient_s
from bicoastal.experiments.runs.store import Store
from bicoastal.experiments.scenario.deployment import load_deployment

SMALL = ["--set", "allreduce.array='64 KiB'", "--seeds", "3", "--iterations", "5"]


def compared(capsys: pytest.CaptureFixture[str], tmp_path: Path, *arguments: str) -> dict[str, Any]:
    assert main(["compare", "--json", "--out", str(tmp_path), *arguments]) == 0
    rows = json.loads(capsys.readouterr().out)["transports"]
    return {row["name"]: row["at_scale"] for row in rows}


def test_the_slowest_of_all_pairs_takes_a_repair_even_where_the_typical_one_takes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(capsys, tmp_path, *SMALL, "--transport", "b4")["b4"]
    assert found["messages"] == 1_677_600
    # 52.9 ms is the bound; in every step some message has a loss in its last 60 ms, and waits for one round trip or two
    assert 0.0529 + 0.04 < found["completion_s"] < 0.0529 + 0.120
    assert found["completion_low_s"] <= found["completion_s"] <= found["completion_high_s"]
    assert found["losses"] == "independent"
    assert found["completion_correlated_s"] == pytest.approx(
        0.0532, rel=0.005
    )  # as one message: typically none is lost
    assert found["completion_s"] <= found["completion_any_s"] < 0.0529 + 0.190
    assert "losses are taken to be independent: where all messages lose the same packets" in found["evidence"]
    deployment = load_deployment("hundred-trillion", None)
    exposed = exposed_gradient_s(deployment, Assumptions(wan_trips=1), found["completion_s"])
    assert found["exposed_s"] == pytest.approx(exposed)


@pytest.mark.parametrize(
    ("name", "path"), [("adaptive", ["links.loss=1e-4"]), ("cubic", ["links.loss=1e-3", "links.rate='500 Mbit/s'"])]
)
def test_seeds_do_not_make_the_slowest_of_all_faster_than_one_that_was_seen(
    name: str, path: Sequence[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = [word for change in (*path, "allreduce.array='64 KiB'") for word in ("--set", change)]
    found = compared(capsys, tmp_path, "--transport", name, "--seeds", "3", "--iterations", "4", *changes)[name]
    assert found is not None
    with Store(tmp_path) as store:
        keys = [row.key for row in store.runs()]
        seen = [row.completion_s for key in keys for row in store.flows(key) if row.iteration > 0]
    assert len(keys) == 3
    assert found["completion_s"] >= max(seen)


def test_messages_later_than_the_model_allows_have_no_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["outage", "--transport", "adaptive", "--iterations", "10", "--set", "allreduce.array='64 KiB'"]
    assert compared(capsys, tmp_path, *arguments) == {"adaptive": None}


def test_a_shard_of_no_deployment_has_no_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(capsys, tmp_path, "--transport", "b4", "--iterations", "4", "--set", "allreduce.shard='1 MB'")
    assert found == {"b4": None}


def test_a_few_messages_say_nothing_and_the_table_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--transport", "b4", "--iterations", "2", "--set", "allreduce.array='64 KiB'"]
    assert compared(capsys, tmp_path, *arguments) == {"b4": None}
    assert main(["compare", "--out", str(tmp_path), *arguments]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "nothing can be said of b4: 2 messages after the first iteration are fewer than 20" in text


def test_what_the_figures_rest_on_stands_below_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--transport", "rdma-sr", "--iterations", "6", "--set", "allreduce.array='64 KiB'", "--set", "links.loss=0"]
    assert main(["compare", "--out", str(tmp_path), *few]) == 0
    text = " ".join(capsys.readouterr().out.split())
    # some 6 * 8 * 1600 packets and their acknowledgements; completions tell a little more closely that none was lost
    assert (
        "at scale: rdma-sr: 0 losses of 81,520 packets are a share of 0; 40 messages show a loss of 0 (95 %: 0" in text
    )
    assert "40 messages cannot tell less than 0.26 from chance" in text


def test_a_transport_without_a_model_is_told_so_before_its_runs_are_looked_at(tmp_path: Path) -> None:
    result = TransportResult(name="kernel-bbr", status="ok", reason="", keys=(), iterations=(), flows=())
    runs = Comparison(
        scenario="s", backend="netns", scale=1.0, bound_s=1.0, local_s=None, array_note="", transports=(result,)
    )
    with Store(tmp_path) as store:
        found, refused = at_scale(store, runs, load_deployment("hundred-trillion", None), trips=1)
    assert found == {}
    assert refused["kernel-bbr"].startswith("it has no model of its tail: BBR's rate follows its own measurements")
