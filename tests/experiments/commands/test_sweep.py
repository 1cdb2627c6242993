"""Sweeps: the grid that is run, what is kept and not run again, and what is shown of it."""

import json
import re
import sqlite3
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.image import imread

from bicoastal.emulation.base import RunFailedError
from bicoastal.experiments import cli
from bicoastal.experiments.analysis.groups import groups_of, varied
from bicoastal.experiments.figures.curves import axis_positions, curve_figures
from bicoastal.experiments.runs.store import Store
from helpers.fake_backends import TRANSPORTS, PlainBackend

pytestmark = pytest.mark.usefixtures("plain_world")

STUDY = """
[study]
name = "grid"
description = "Two by two"
transports = ["reno", "adaptive"]
backend = "plain"
[set]
"scenario.iterations" = 3
[[axes]]
key = "links.loss"
label = "loss per packet"
values = [0, 1e-4]
[[axes]]
key = "links.rtt"
values = ["2 ms", "60 ms"]
"""
PICTURES = ["efficiency-against-loss.png", "completion-against-loss.png"]


@pytest.fixture(autouse=True)
def study(tmp_path):
    (tmp_path / "grid.toml").write_text(STUDY)


def sweep(*arguments):
    return cli.main(["sweep", "grid.toml", *arguments])


def test_a_table_has_a_row_for_each_point_and_transport(capsys, tmp_path):
    assert sweep() == 0
    printed = capsys.readouterr()
    rows = [line.split() for line in printed.out.splitlines()[2:10]]
    assert [row[:4] for row in rows[::2]] == [
        ["0", "2", "ms", "reno"],
        ["0", "60", "ms", "reno"],
        ["1e-4", "2", "ms", "reno"],
        ["1e-4", "60", "ms", "reno"],
    ]
    assert [row[0] for row in rows[1::2]] == ["adaptive"] * 4
    assert rows[0][4:] == ["ok", "3", "50.00", "300.0", "–", "350.0", "0.167", "10.00", "%"]
    assert "\ngrid:       Two by two; completion of an iteration, ms." in printed.out
    assert printed.err.endswith("(8 of 8)\n")
    files = {path.name for path in (tmp_path / "out" / "grid").iterdir()}
    assert files == {"results.sqlite", *PICTURES}
    assert imread(tmp_path / "out" / "grid" / PICTURES[0]).shape[1] > 1000  # two panels beside one another


def test_json_has_what_compare_says_of_each_point(capsys):
    assert sweep("--json", "--seeds", "2", "--transport", "cubic", "--iterations", "5") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["study"] == "grid"
    assert [point["settings"]["links.rtt"] for point in document["points"]] == ["2 ms", "60 ms"] * 2
    assert [(t["name"], t["n"]) for point in document["points"] for t in point["transports"]] == [("cubic", 10)] * 4


def test_what_a_study_sets_tells_its_runs_from_those_of_another(capsys, tmp_path):
    assert sweep("--json", "--set", "links.mtu = 1500") == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [(s["scenario.iterations"], s["links.mtu"], s["links.loss"]) for s in (p["settings"] for p in points)] == [
        ("3", "1500", loss) for loss in ("0", "0", "1e-4", "1e-4")
    ]
    (tmp_path / "grid.toml").write_text(STUDY.replace('"scenario.iterations" = 3', '"allreduce.pattern" = "exchange"'))
    assert sweep() == 0
    assert sweep("--iterations", "5") == 0
    with Store(tmp_path / "out" / "grid") as store:
        groups = groups_of(store)
    reno = [result for group in groups for result in group.comparison.transports if result.name == "reno"]
    assert sorted(result.n for result in reno) == [3] * 4 + [5] * 4 + [20] * 4


def test_resuming_runs_only_what_is_not_there_and_ends_with_the_same(capsys, monkeypatch):
    assert sweep("--json", "--out", "whole") == 0
    whole = capsys.readouterr().out

    def slow_link_fails(self, spec):
        if next(iter(spec.topology.links.values())).delay_s > 0.01:
            raise RunFailedError("the machine was late")
        return run(self, spec)

    run = PlainBackend.run
    with monkeypatch.context() as patched:
        patched.setattr(PlainBackend, "run", slow_link_fails)
        patched.setattr("bicoastal.interface.runs.run_all", _in_this_process)
        assert sweep("--json", "--out", "part") == 1
    assert json.loads(capsys.readouterr().out)["points"][1]["transports"][0]["reason"] == "the machine was late"
    assert sweep("--json", "--out", "part", "--resume") == 0
    printed = capsys.readouterr()
    assert printed.out == whole
    assert printed.err.endswith("(4 of 4)\n")
    assert sweep("--json", "--out", "part", "--resume") == 0
    assert capsys.readouterr() == (whole, "")
    assert sweep("--out", "part") == 0
    assert capsys.readouterr().err.endswith("(8 of 8)\n")


def _in_this_process(tasks, store, world, *, workers, progress):
    from bicoastal.experiments.runs.runner import run_all

    del workers
    run_all(tasks, store, world, workers=0, progress=progress)


def test_a_study_that_nothing_supports_ends_with_3(capsys):
    assert sweep("--transport", "unfit") == 3
    printed = capsys.readouterr()
    assert "unfit needs real packets, which plain lacks" in re.sub(r"\s+", " ", printed.out + printed.err)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--seeds", "0"], "--seeds: 0 is not between 1 and 100000"),
        (["--workers", "0"], "--workers: 0 is not between 1 and 1024"),
        (["--transport", "cubik"], "--transport: there is no transport 'cubik'; did you mean 'cubic'?"),
        (["--backend", "mars"], "--backend: there is no backend 'mars'"),
        (["--iterations", "0"], "--iterations: 0 is not between 1 and"),
        (["--set", "links.loss=2"], ""),  # an axis takes its place: it is never looked at
        (["--scale", "0"], "--scale: '0' is neither 'auto' nor a number"),
    ],
)
def test_bad_options_get_one_sentence_and_leave_nothing(arguments, sentence, capsys, tmp_path):
    code = sweep(*arguments)
    printed = capsys.readouterr()
    if not sentence:
        assert code == 0
        return
    assert code == 2
    assert printed.err.startswith(f"bicoastal: {sentence}")
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert not (tmp_path / "out").exists()


def test_groups_tell_what_was_varied(tmp_path):
    assert sweep("--out", "here") == 0
    assert cli.main(["compare", "metro", "--backend", "plain", "--set", " links.loss = 0.5 ", "--out", "here"]) == 0
    with Store.existing(tmp_path / "here") as store:
        groups = groups_of(store)
    assert [group.comparison.scenario for group in groups] == ["coast-to-coast"] * 4 + ["metro"]
    assert groups[-1].name == "links.loss = 0.5"
    assert varied(groups[:4]) == {"links.loss": ["0", "1e-4"], "links.rtt": ["2 ms", "60 ms"]}
    assert varied(groups[:1]) == {}


def test_sweeps_that_differ_in_what_was_set_everywhere_are_told_apart(tmp_path):
    assert sweep("--out", "here") == 0
    assert sweep("--out", "here", "--set", "links.mtu=1500") == 0
    with Store.existing(tmp_path / "here") as store:
        names = [group.name for group in groups_of(store)]
    assert len(names) == len(set(names)) == 8
    assert sum("links.mtu = 1500, " in name for name in names) == 4


def test_groups_come_by_what_their_values_amount_to(tmp_path):
    for value in ("links.rtt=120 ms", "links.rtt=10 ms", "links.rtt=2 ms", "allreduce.pattern=exchange"):
        assert cli.main(["compare", "--backend", "plain", "--set", value, "--out", "here"]) == 0
    with Store.existing(tmp_path / "here") as store:
        found = [group.name for group in groups_of(store)]
    assert found == ["allreduce.pattern = exchange", "links.rtt = 2 ms", "links.rtt = 10 ms", "links.rtt = 120 ms"]


@pytest.mark.parametrize(
    ("values", "positions", "scale"),
    [
        (["0", "1e-5", "1e-4"], [0.0, 1e-5, 1e-4], "linear"),
        (["0", "1e-5", "1e-3"], [1e-6, 1e-5, 1e-3], "log"),
        (["2 ms", "10 ms"], [0.002, 0.01], "linear"),
        (["2 ms", "120 ms"], [0.002, 0.12], "log"),
        (["5 Gbit/s", "400 Gbit/s"], [5e9, 4e11], "log"),
        (["exchange", "reduce-scatter"], [0, 1], "linear"),
        (["-1", "1"], [0, 1], "linear"),
    ],
)
def test_values_stand_where_they_are(values, positions, scale):
    assert axis_positions(values) == (pytest.approx(positions), scale)


def test_nothing_is_drawn_where_nothing_is_varied_or_nothing_ran(tmp_path):
    assert cli.main(["compare", "metro", "--backend", "plain", "--out", "one"]) == 0
    assert sweep("--transport", "unfit", "--out", "none") == 3
    for name in ("one", "none"):
        with Store.existing(tmp_path / name) as store:
            assert curve_figures(groups_of(store), TRANSPORTS) == {}


# -- the page ---------------------------------------------------------------------------------------------------------


class _Page(HTMLParser):
    """Collects what a page says, and what it would load. Tags that are left open fail."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.sources: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.sources += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_a_report_shows_all_and_loads_nothing(capsys, tmp_path):
    assert sweep("--out", "here", "--transport", "reno", "--transport", "broken") == 1
    capsys.readouterr()
    assert cli.main(["report", "here"]) == 0
    assert capsys.readouterr().out == "here/report.html\n"
    text = Path("here/report.html").read_text(encoding="utf-8")
    page = _Page(text)
    assert [source.partition(",")[0] for source in page.sources if not source.startswith("#")] == [
        "data:image/png;base64"
    ] * (2 + 4)  # two curves, an overview of each point
    assert [source for source in page.sources if source.startswith("#")] == [f"#group{n}" for n in range(4)]
    assert "coast-to-coast in plain: scenario.iterations = 3, links.loss = 1e-4, links.rtt = 60 ms" in page.texts
    assert "broken failed: iteration 2 did not complete" in page.texts
    assert "script" not in text
    assert cli.main(["report", "here"]) == 0
    assert Path("here/report.html").read_text(encoding="utf-8") == text
    assert not list(Path("here").glob("*.unfinished"))


def test_what_a_third_party_says_is_text_and_never_markup(tmp_path):
    assert cli.main(["compare", "--backend", "plain", "--transport", "reno", "--out", "here"]) == 0
    with Store.existing(tmp_path / "here") as store:
        (run,) = store.runs()

    with sqlite3.connect("here/results.sqlite") as db:
        changes = "status = 'failed', reason = '<script>alert(1)</script>', transport = '<b>x'"
        db.execute(f"UPDATE runs SET {changes} WHERE key = ?", (run.key,))
    assert cli.main(["report", "here"]) == 0
    text = Path("here/report.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "<b>x" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    _Page(text)


@pytest.mark.parametrize("made", [False, True])
def test_a_report_of_nothing_is_refused(made, capsys, tmp_path):
    if made:
        Store(tmp_path / "empty").close()
    assert cli.main(["report", "empty"]) == 2
    assert capsys.readouterr().err.startswith("bicoastal: empty: holds no results")
