"""What the curves of a sweep say is what its table says."""

import pytest
from matplotlib.figure import Figure

from bicoastal.experiments.analysis.comparison import percentile
from bicoastal.experiments.figures.curves import DRAWN
from bicoastal.experiments.figures.style import Look
from helpers.fake_backends import BOUND_S, result


@pytest.mark.parametrize("factors", [(4.0, 2.0, 1.25, 1.0), (4.0, 2.0, 1.25, 1.0, 5.0), (3.0, 2.0)])
def test_both_curves_and_the_table_have_one_median_and_one_band(factors):
    of = result([BOUND_S * factor for factor in factors])
    drawn = {}
    for what, draw in DRAWN.items():
        axes = Figure().subplots()
        draw(axes, [(1.0, of)], Look("#000000", "o"), "reno")
        (band,), line = axes.collections, axes.lines[0]
        ends = band.get_paths()[0].vertices[:, 1]
        drawn[what] = (line.get_ydata()[0], sorted((min(ends), max(ends))))
    (efficiency, efficiencies), (completion_ms, completions_ms) = drawn["efficiency"], drawn["completion"]
    assert completion_ms == pytest.approx(1e3 * percentile(of.completions_s, 0.5))
    assert efficiency == of.efficiency_p50 == pytest.approx(1e3 * BOUND_S / completion_ms)
    assert efficiencies == pytest.approx(sorted(1e3 * BOUND_S / each for each in completions_ms))


def test_an_iteration_that_failed_has_no_completion_and_an_efficiency_of_0():
    of = result([None, None, BOUND_S])
    assert (of.efficiency_p50, of.efficiency_of(0.1), of.efficiency_of(0.9)) == (None, 1.0, 0.0)
    axes = Figure().subplots()
    DRAWN["efficiency"](axes, [(1.0, of)], Look("#000000", "o"), "reno")
    assert axes.lines[0].get_ydata()[0] == 0.0
