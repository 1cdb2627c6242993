"""The figures of lateness against numpy's, to the microsecond of the histogram."""

import numpy
import pytest

from bicoastal.emulation.realtime.lateness import Lateness, LatenessHistogram, worst


def test_the_figures_are_numpys_to_a_microsecond() -> None:
    late_s = numpy.random.default_rng(1).exponential(200e-6, 5000)
    histogram = LatenessHistogram()
    for each in late_s:
        histogram.add(float(each))
    summary = histogram.summary()
    assert summary.count == 5000
    assert summary.mean_s == pytest.approx(late_s.mean())
    assert summary.max_s == late_s.max()
    for share, found in ((0.50, summary.p50_s), (0.99, summary.p99_s)):
        exact = numpy.quantile(late_s, share, method="inverted_cdf")
        assert exact <= found <= exact + 1e-6


def test_nothing_late_is_zero_and_early_is_on_time() -> None:
    assert LatenessHistogram().summary() == Lateness(count=0, mean_s=0.0, p50_s=0.0, p99_s=0.0, max_s=0.0)
    histogram = LatenessHistogram()
    histogram.add(-1e-7)
    assert histogram.summary() == Lateness(count=1, mean_s=0.0, p50_s=0.0, p99_s=0.0, max_s=0.0)


def test_what_is_too_late_to_be_counted_finely_is_the_latest() -> None:
    histogram = LatenessHistogram()
    for late_s in (0.03, 0.5):
        histogram.add(late_s)
    assert histogram.summary().p50_s == 0.5


def test_several_relays_have_the_worst_lateness() -> None:
    one = Lateness(count=1, mean_s=1.0, p50_s=1.0, p99_s=2.0, max_s=9.0)
    other = Lateness(count=3, mean_s=5.0, p50_s=0.5, p99_s=8.0, max_s=8.0)
    assert worst([one, other]) == Lateness(count=4, mean_s=4.0, p50_s=1.0, p99_s=8.0, max_s=9.0)
    nothing = Lateness(count=0, mean_s=0.0, p50_s=0.0, p99_s=0.0, max_s=0.0)
    assert worst([nothing]) == nothing
