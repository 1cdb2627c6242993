import json
from pathlib import Path
from typing import Any

import pytest

from bicoastal.experiments import cli

BUNDLED = Path(__file__).parents[3] / "experiments" / "deployments" / "hundred-trillion.toml"


def extrapolated(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert cli.main(["extrapolate", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["extrapolate", *arguments]) == 0
    return capsys.readouterr().out


def test_the_document_has_the_published_stages_and_what_crosses_the_wan(capsys: pytest.CaptureFixture[str]) -> None:
    found = extrapolated(capsys, "--set", "assumptions.wan_serialisation=false")
    times_s = {stage["name"]: stage["time_s"] for stage in found["stages"]}
    assert times_s == pytest.approx(
        {
            "tensor parallel": 8.2e-3,
            "pipeline parallel": 2.17e-3,
            "1 rack": 16.57e-3,
            "2 datacenter": 98.27e-3,
            "3 wide area": 60e-3,
            "4 datacenter": 49.14e-3,
            "5 rack": 8.3e-3,
        },
        rel=3e-3,
    )
    assert found["deployment"]["messages_per_step"] == 1_677_600
    assert found["wan"]["sent_bytes"] == pytest.approx(57.13e6, rel=1e-4)
    assert found["wan"]["messages_per_layer"] == 12_528
    assert found["exposure"]["layer_share"] == pytest.approx(0.05, rel=0.02)


def test_twenty_gbit_come_out_and_what_they_hang_on(capsys: pytest.CaptureFixture[str]) -> None:
    found = extrapolated(capsys, "--set", "assumptions.count_recomputation=false")
    assert found["wan"]["least_bps"] == pytest.approx(20e9, rel=0.2)
    assert found["wan"]["least_aggregate_bps"] == pytest.approx(found["wan"]["least_bps"] * 838_800)
    hangs_on = {change["what"]: change["least_bps"] for change in found["hangs_on"]}
    assert hangs_on["as assumed: two one-way trips, stages one after another"] == found["wan"]["least_bps"]
    assert hangs_on["an exchange: one trip"] < found["wan"]["least_bps"] / 2
    assert hangs_on["the slowest message loses a round trip"] is None
    assert hangs_on["no backward pass to hide behind, as for the pipeline's first stage"] is None
    # with every saving there is room for a repair
    assert hangs_on["the same, and the slowest message loses a round trip"] < 5e9


def test_time_to_spare_is_what_a_transport_may_lose_at_the_deployments_own_rate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = extrapolated(capsys)
    exposure, wan = found["exposure"], found["wan"]
    assert wan["spare_s"] == pytest.approx(exposure["cover_s"] - exposure["gradient_s"])
    least = extrapolated(capsys, "--set", f"plant.wan='{wan['least_bps']} bit/s'")
    assert least["wan"]["spare_s"] == pytest.approx(0, abs=1e-9)


def test_what_no_rate_hides_has_a_reason_and_the_passes_that_would(capsys: pytest.CaptureFixture[str]) -> None:
    found = extrapolated(capsys, "--deployment", "gpt3-two-sites")
    assert found["wan"]["least_bps"] is None
    assert "inside a site take 453 ms and the delay 60 ms" in found["wan"]["reason"]
    passes = found["wan"]["least_passes"] * 1.001
    more = extrapolated(capsys, "--deployment", "gpt3-two-sites", "--set", f"assumptions.cover_passes={passes}")
    assert more["wan"]["least_bps"] > 1e12  # just about any rate
    assert more["exposure"]["gradient_exposed_s"] == 0  # no rate of its own: the bytes take no time


def test_one_site_has_no_wan(capsys: pytest.CaptureFixture[str]) -> None:
    found = extrapolated(capsys, "--deployment", "llama3-405b")
    assert found["wan"] is None
    assert found["hangs_on"] == []
    assert "WAN" not in printed(capsys, "--deployment", "llama3-405b")


def test_a_deployment_that_does_not_fit_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    changes = [f"parallelism.{key}={value}" for key, value in {"pipeline": 4, "data": 1}.items()]
    options = [part for change in changes for part in ("--set", change)]
    text = printed(capsys, "--deployment", "gpt3-sakuraone", *options)
    assert "memory: does not fit: weights, gradients and optimizer alone take 99.26 GB, and a GPU has 80 GB" in (
        " ".join(text.split())
    )
    assert extrapolated(capsys, "--deployment", "gpt3-sakuraone", *options)["memory"]["fits"] is False


@pytest.mark.parametrize("deployment", ["hundred-trillion", "hundred-trillion-moe", "gpt3-two-sites", "llama3-405b"])
@pytest.mark.parametrize("columns", [80, 120])
def test_the_table_fits_its_width_and_shows_every_stage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, deployment: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = printed(capsys, "--deployment", deployment).splitlines()
    assert max(map(len, lines)) <= columns
    assert lines[0].startswith(f"{deployment}: ")
    stages = extrapolated(capsys, "--deployment", deployment)["stages"]
    for stage in (stage for stage in stages if stage["ranks"] > 1):
        assert any(line.startswith(stage["name"]) and f"{1e3 * stage['time_s']:.2f}" in line for line in lines)


def test_a_file_of_ones_own_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(
        BUNDLED.read_text(encoding="utf-8").replace('wan_rtt = "60 ms"', 'wan_rtt = "2 ms"'), encoding="utf-8"
    )
    assert extrapolated(capsys, "--deployment", str(own))["wan"]["rtt_s"] == 0.002


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--deployment", "gpt4"], "there is no deployment 'gpt4'; there are gpt3-sakuraone, "),
        (["--deployment", "none.toml"], "none.toml: there is no such file"),
        (["--set", "plant.wan_rtt=60"], "--set plant.wan_rtt: 60 is not a time such as"),
        (["--set", "plant.wann=1"], "--set plant.wann: is not a known key; did you mean 'wan'"),
        (["--set", "planet.wan=1"], "hundred-trillion.toml: planet: is not a known key; did you mean 'plant'"),
        (["--set", "plant=1"], "--set plant: expected a section and a key"),
        (["--set", "plant.wan.rate=1"], "--set plant.wan.rate: expected a table and a key, such as plant.wan_rtt"),
        (["--set", "name.x=1"], "--set name.x: name is 'hundred-trillion', not a table"),
        (["--set", "assumptions.wan_trips=3"], "--set assumptions.wan_trips: 3 is neither 1 nor 2"),
        (["--set", "assumptions.trips=1"], "--set assumptions.trips: there is no such assumption; "),
        (["--set", "assumptions.chunks='many'"], "--set assumptions.chunks: 'many' is not a whole number"),
        (
            ["--set", "assumptions.in_network=['wan']"],
            "--set assumptions.in_network: ('wan',) is not a list of some of",
        ),
    ],
)
def test_bad_input_is_one_sentence(capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str) -> None:
    assert cli.main(["extrapolate", *arguments]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith(f"bicoastal: {sentence}")
    assert found.err.count("\n") == 1
