"""`bicoastal size` as people and programs call it."""

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from bicoastal.experiments.cli import main
from bicoastal.experiments.extrapolation.tails.models import MODELS, WITHOUT_MODEL
from bicoastal.experiments.terminal.pictures import EXPOSED, STAGES
from bicoastal.transports.registry import Registry

EASY = ["--set", "assumptions.wan_trips=1", "--set", "assumptions.chunks=8", "--set", "plant.wan_rtt='20 ms'"]
PACED = ["--transport", "adaptive", "--transport", "b4", "--transport", "fec"]


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["size", "--json", *arguments]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_every_transport_with_a_model_is_sized(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys)
    assert document["messages"] == 1_677_600
    rows = document["transports"]
    assert [row["name"] for row in rows] == [*(name for name in MODELS if name != "fec"), *WITHOUT_MODEL]
    assert all(row["refused"] == f"it has no model of its tail: {WITHOUT_MODEL[row['name']]}" for row in rows[8:])
    for row in rows[:8]:  # at a loss of 1e-4 and two trips, no transport that waits for a repair will do
        if row["name"] in ("quic-fec", "mpquic-fec"):
            assert 15e9 < row["least_bps"] < 20e9
            continue
        assert row["least_bps"] is None
        assert row["reason"]
        assert row["exposed_share"] > document["target_share"]
        assert row["slowest_correlated_s"] < row["slowest_s"] <= row["slowest_any_s"]


def test_every_name_is_a_transport_or_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", *PACED, "--transport", "kernel-bbr", "--transport", "kernel-cubic", "--loss", "1e-5"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    known = Registry.installed().names()
    for name in MODELS:
        assert name in known or name == "fec"
    assert "fec: no transport here: a model of QUIC whose blocks of 32 packets have 2 for repair" in text
    assert "kernel-bbr: no figure: it has no model of its tail: BBR's rate follows its own measurements" in text
    assert "kernel-cubic: the model of cubic, whose algorithm it is." in text
    assert main(["size", "--transport", "quic", "--transport", "mpquic"]) == 3


def test_the_kernels_tcp_counts_as_ours(capsys: pytest.CaptureFixture[str]) -> None:
    ours, kernels = answer(capsys, "--transport", "reno", "--transport", "kernel-reno")["transports"]
    assert {**ours, "name": "", "about": ""} == {**kernels, "name": "", "about": ""}
    assert main(["size", "--transport", "reno", "--transport", "cubic"]) == 0
    assert "kernel-reno and kernel-cubic count as reno and cubic." in " ".join(capsys.readouterr().out.split())


def test_the_worst_path_has_an_answer_too(capsys: pytest.CaptureFixture[str]) -> None:
    paced = [name for name in MODELS if name not in ("reno", "cubic")]
    document = answer(capsys, "--loss", "0.1", *(word for name in paced for word in ("--transport", name)))
    for row in document["transports"]:
        assert 0.03 < row["slowest_s"] < 1000
        assert 0.05 < row["exposed_share"] < 1


def test_rates_are_per_gpu_per_flow_and_across_the_country(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, *EASY, *PACED)
    rows = document["transports"]
    for row in rows:
        assert row["per_flow_bps"] == pytest.approx(row["least_bps"] / 4)
        assert row["aggregate_bps"] == pytest.approx(row["least_bps"] * 838_800)
    dearest = max(row["aggregate_bps"] for row in rows)
    assert [row["saves_bps"] for row in rows] == pytest.approx([dearest - row["aggregate_bps"] for row in rows])


def test_the_table_says_why_no_bandwidth_suffices_once_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "--transport", "b4", "--transport", "rdma-sr", "--scope", "layer"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "b4, rdma-sr: no bandwidth suffices: 30.57 ms are to spare, and the slowest of 12,528 messages loses" in text
    assert text.count("no bandwidth suffices") == 1
    assert "losses independent" in text
    assert "most whatever depends on what: b4 90 ms to 90 ms, rdma-sr 210 ms to 390 ms." in text


def test_a_small_deployments_capacity_is_in_a_unit_of_its_size(capsys: pytest.CaptureFixture[str]) -> None:
    gpt3 = ["size", "--deployment", "gpt3-two-sites", "--transport", "b4", "--loss", "0"]
    gpt3 += ["--target", "0.6", "--set", "assumptions.chunks=16"]
    assert main(gpt3) == 0
    table = capsys.readouterr().out
    assert "Pbit/s" not in table
    assert main([*gpt3, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["transports"]
    assert row["aggregate_bps"] == pytest.approx(310e9, rel=0.01)  # 384 pairs
    assert f"{row['aggregate_bps'] / 1e9:.2f}" in table


def test_pictures_are_drawn_where_they_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, *EASY, *PACED, "--out", str(tmp_path / "new"))
    assert document["files"] == [str(tmp_path / "new" / name) for name in (EXPOSED, STAGES)]
    for name in (EXPOSED, STAGES):
        assert imread(tmp_path / "new" / name).shape[1] == 1430


def test_losses_come_from_measured_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    chosen = ["--transport", "b4", "--transport", "rdma-sr", "--iterations", "12", "--out", str(runs)]
    small = ["--set", "links.loss=1e-3", "--set", "allreduce.shard='2 MB'", "--set", "links.rate='1 Gbit/s'"]
    assert main(["compare", *chosen, *small, "--json"]) == 0
    capsys.readouterr()
    document = answer(capsys, "--from", str(runs), *EASY)
    assert document["loss"] is None
    rows = {row["name"]: row for row in document["transports"]}
    measured = rows["rdma-sr"]["measured"]
    assert measured["loss_low"] < 1e-3 < measured["loss_high"]
    assert measured["messages"] == 11 * 8
    assert rows["b4"]["least_bps_low"] <= rows["b4"]["least_bps"] <= rows["b4"]["least_bps_high"]


def test_measurements_that_support_nothing_are_refused_with_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    few = ["--transport", "reno", "--transport", "adaptive", "--iterations", "2", "--set", "allreduce.shard='1 MB'"]
    assert main(["compare", "lossless", *few, "--out", str(runs), "--json"]) == 0
    capsys.readouterr()
    assert main(["size", "--from", str(runs)]) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert "RTT 60 ms, measured loss" in text
    assert "reno, adaptive: refused: 8 messages after the first iteration are fewer than 20." in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--loss", "2"], "--loss: '2' is not a probability"),
        (["--loss", "1"], "--loss: '1' is not below 1"),
        (["--loss", "0.2"], "--loss: '0.2' is more than 0.1, up to which the tail models hold"),
        (["--target", "a lot"], "--target: 'a lot' is not a probability"),
        (["--share", "0"], "share: 0.0 is not between 0 and 1"),
        (["--transport", "udp"], "'udp' has no model of its tail"),
        (["--deployment", "llama3-405b"], "deployment: llama3-405b is at one site"),
        (["--from", "/nowhere", "--loss", "1e-4"], "--loss: cannot stand beside --from"),
        (["--from", "/nowhere"], "/nowhere: holds no results"),
        (["--out", "/dev/null"], "/dev/null: is no directory for pictures (File exists)"),
        (["--out", "/proc/none"], "/proc/none: is no directory for pictures (No such file or directory)"),
        (
            ["--set", "assumptions.wan_serialisation=false"],
            "assumptions.wan_serialisation: without it no rate plays a part",
        ),
    ],
)
def test_bad_input_gets_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"bicoastal: {sentence}")
    assert captured.err.count("\n") == 1
