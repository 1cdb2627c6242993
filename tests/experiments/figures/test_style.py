import hashlib
from pathlib import Path

import pytest
from matplotlib.image import imread

from bicoastal.experiments.analysis.comparison import compare
from bicoastal.experiments.figures.overview import overview_figure
from bicoastal.experiments.figures.series import series_figure
from bicoastal.experiments.figures.style import looks_of
from bicoastal.experiments.runs.runner import plan, run_all
from bicoastal.experiments.runs.store import Store, StoreError
from bicoastal.experiments.scenario.scenario import load_scenario
from bicoastal.experiments.terminal.pictures import OVERVIEW, SERIES, write_figures
from helpers.fake_backends import TRANSPORTS, WORLD, transport

SCENARIO = load_scenario("coast-to-coast", TRANSPORTS)


def draw(tmp_path, *transports, sampled=True):
    tasks = plan(SCENARIO, backend="plain", transports=transports, seeds=[0], sampled=sampled)
    with Store(tmp_path) as store:
        run_all(tasks, store, WORLD, workers=0)
        comparison = compare(store, [task.key for task in tasks])
        figures = {
            OVERVIEW: overview_figure(comparison, TRANSPORTS),
            SERIES: series_figure(store, comparison, TRANSPORTS),
        }
        return [Path(path) for path in write_figures(tmp_path, figures)]


def colours(path):
    """Return the colours of a picture, as #rrggbb, that fill at least 100 of its points."""
    points = (imread(path)[:, :, :3] * 255).round().astype("u4")
    packed = (points[:, :, 0] << 16 | points[:, :, 1] << 8 | points[:, :, 2]).ravel()
    found: dict[int, int] = {}
    for value in packed.tolist():
        found[value] = found.get(value, 0) + 1
    return {f"#{value:06x}" for value, count in found.items() if count >= 100}


def test_both_pictures_show_every_transport_in_its_colour(tmp_path):
    files = draw(tmp_path, "reno", "cubic", "adaptive")
    assert [path.name for path in files] == [OVERVIEW, SERIES]
    assert colours(tmp_path / SERIES) >= {"#0072b2", "#d55e00", "#009e73"}
    assert imread(tmp_path / OVERVIEW).shape[1] == 1430  # 11 inches at 130 dots
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([OVERVIEW, SERIES, "results.sqlite"])


def test_transports_of_one_look_are_told_apart():
    looks = looks_of(["reno", "unfit", "broken", "lost"], TRANSPORTS)
    assert looks["reno"] == ("#0072b2", "o")
    assert len({look.colour for look in looks.values()}) == 4
    assert len({look.marker for look in looks.values()}) == 4


def test_the_same_results_give_the_same_bytes(tmp_path):
    digests = [
        [hashlib.sha256(path.read_bytes()).hexdigest() for path in draw(tmp_path / name, "reno", "adaptive")]
        for name in ("one", "two")
    ]
    assert digests[0] == digests[1]


def test_without_time_series_there_is_the_overview_alone(tmp_path):
    assert [path.name for path in draw(tmp_path, "reno", sampled=False)] == [OVERVIEW]


def test_a_failed_iteration_does_not_keep_the_others_from_being_drawn(tmp_path):
    assert [path.name for path in draw(tmp_path, "broken", "unfit")] == [OVERVIEW, SERIES]


def test_where_nothing_ran_nothing_is_drawn(tmp_path):
    assert draw(tmp_path, "unfit", "crashing") == []


def test_a_picture_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / OVERVIEW).mkdir()
    with pytest.raises(StoreError, match=r"overview.png: cannot be written \(Is a directory\)$"):
        draw(tmp_path, "reno")
    assert not list(tmp_path.glob("*.unfinished"))


def test_a_look_that_cannot_be_drawn_gives_way_to_the_plain_one():
    registry = TRANSPORTS.with_specs(transport("gaudy", "no such colour", "??"))
    assert looks_of(["reno", "gaudy"], registry)["gaudy"] == ("#666666", "D")


def test_a_transport_that_is_not_installed_any_more_is_drawn_plainly():
    assert looks_of(["reno", "gone"], TRANSPORTS)["gone"] == ("#666666", "D")
