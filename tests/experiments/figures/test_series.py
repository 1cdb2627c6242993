"""The picture of windows, rates and queues: what it is of, in what units, and up to when."""

import numpy as np
import pytest

from bicoastal.experiments.analysis.comparison import compare
from bicoastal.experiments.figures.series import CWND_UNITS, RATE_UNITS, series_figure, unit_for
from bicoastal.experiments.runs.runner import plan, run_all
from bicoastal.experiments.runs.store import Store
from bicoastal.experiments.scenario.scenario import load_scenario
from helpers.fake_backends import BOUND_S, TRANSPORTS, WORLD


@pytest.fixture
def draw(tmp_path):
    """Return a function that draws these transports: the panels row by row, and the picture."""

    def drawn(*transports):
        tasks = plan(load_scenario("coast-to-coast", TRANSPORTS), backend="plain", transports=transports, seeds=[0])
        with Store(tmp_path) as store:
            run_all(tasks, store, WORLD, workers=0)
            comparison = compare(store, [task.key for task in tasks])
            figure = series_figure(store, comparison, TRANSPORTS)
        return [figure.axes[row : row + 2] for row in (0, 2, 4)], figure

    return drawn


def test_a_curve_ends_with_its_iteration(draw):
    (cwnds, *_), _ = draw("reno", "adaptive")
    ends = [line.get_xdata()[-1] for line in cwnds[0].lines]
    assert ends == pytest.approx([1e3 * BOUND_S * pace for pace in (6.0, 1.2)])  # the second iteration


def test_the_path_that_each_curve_is_of_is_named(draw):
    (cwnds, *_), figure = draw("reno", "adaptive")
    title = cwnds[0].get_title(loc="left").replace("\n", " ")
    assert title.startswith("Second iteration reno on plane")
    assert "adaptive on plane" in title
    assert figure.get_suptitle() == "coast-to-coast (plain): the flow that ended last"


def test_where_the_time_axis_turns_logarithmic_is_said_and_shaded(draw):
    rows, _ = draw("reno", "adaptive")
    axes = rows[2][0]
    assert axes.get_xscale() == "symlog"
    assert axes.get_xlabel() == "since the iteration began, ms; shaded, from 60 on: logarithmic"
    assert [tick for tick in axes.get_xticks() if tick > 60] == [100, 200]
    assert [np.atleast_2d(row[0].patches[0].get_xy())[:, 0].min() for row in rows] == [60] * 3


def test_a_time_axis_that_is_linear_says_nothing_of_it(draw):
    rows, _ = draw("reno", "cubic")
    assert rows[2][0].get_xscale() == "linear"
    assert rows[2][0].get_xlabel() == "since the iteration began, ms"


@pytest.mark.parametrize(
    ("value", "units", "unit"),
    [
        (0.22e9, RATE_UNITS, (1e6, "Mbit/s")),
        (1e9, RATE_UNITS, (1e9, "Gbit/s")),
        (90e3, CWND_UNITS, (1e3, "kB")),
        (2.4e8, CWND_UNITS, (1e6, "MB")),
        (0.5, CWND_UNITS, (1.0, "B")),
    ],
)
def test_units_go_by_what_there_is_to_show(value, units, unit):
    assert unit_for(value, units) == unit
