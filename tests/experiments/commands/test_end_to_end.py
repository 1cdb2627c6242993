"""The main job as a user starts it: installed transports, the simulator, worker processes, store, pictures."""

import json
import sqlite3

import pytest

from bicoastal.experiments.cli import main
from bicoastal.experiments.runs.store import FILE_NAME

SMALL = ["--iterations", "3", "--set", "allreduce.shard=400 kB", "--set", "scenario.gap=200 ms"]


@pytest.mark.parametrize("scenario", ["coast-to-coast", "shared"])
def test_same_seed_same_bytes(scenario, tmp_path, capsys):
    section = "jobs" if scenario == "shared" else "allreduce"
    arguments = [part.replace("allreduce", section) for part in SMALL]
    printed, kept = [], []
    for name in ("one", "two"):
        code = main(["compare", scenario, "--json", "--seeds", "2", "--out", str(tmp_path / name), *arguments])
        assert code == 0
        printed.append(capsys.readouterr().out)
        with sqlite3.connect(tmp_path / name / FILE_NAME) as db:
            kept.append("\n".join(db.iterdump()))
    assert printed[0] == printed[1]
    assert kept[0] == kept[1]
    document = json.loads(printed[0])
    assert [(t["name"], t["status"], t["failed"]) for t in document["transports"]] == [
        ("reno", "ok", 0),
        ("cubic", "ok", 0),
        ("adaptive", "ok", 0),
    ]
    jobs = 2 if scenario == "shared" else 1
    for transport in document["transports"]:
        assert transport["n"] == 3 * 2 * jobs
        assert document["bound_s"] < transport["completion_s"]["min"]
        assert 0 < transport["overhead"] < 1


def test_another_seed_gives_other_losses_but_the_same_bound(tmp_path, capsys):
    documents = []
    for seed in ("1", "2"):
        options = ["--json", "--seed", seed, "--transport", "reno", "--set", "links.loss=0.02", "--out", str(tmp_path)]
        assert main(["compare", *options, *SMALL]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0]["bound_s"] == documents[1]["bound_s"] == pytest.approx(0.03 + 400e3 * 8 / 20e9)
    assert documents[0]["transports"] != documents[1]["transports"]


def test_a_message_that_never_arrives_is_a_failed_row_and_exit_code_1(tmp_path, capsys):
    options = ["--json", "--set", "scenario.time_limit=2 s", "--set", "links.events=[{at='1 s', outage='1 h'}]"]
    options += ["--set", "scenario.gap=1 s", "--transport", "reno", "--out", str(tmp_path)]
    assert main(["compare", "lossless", "--set", "allreduce.shard=400 kB", *options]) == 1
    (result,) = json.loads(capsys.readouterr().out)["transports"]
    assert (result["status"], result["failed"]) == ("failed", 1)
    assert result["completion_s"]["max"] is None
    assert result["reason"]
