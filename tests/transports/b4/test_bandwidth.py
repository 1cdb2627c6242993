"""Values from Jain et al., SIGCOMM 2013, Figure 6: App1 (weight 10, 15 Gbit/s), App2 (1, 5), App3 (0.5, 10)."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.transports.b4.bandwidth import Application, BandwidthFunction

G = 1e9
APP1 = Application(name="App1", weight=10, demand_bps=15 * G)
APP2 = Application(name="App2", weight=1, demand_bps=5 * G)
APP3 = Application(name="App3", weight=0.5, demand_bps=10 * G)

applications = st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(0, 1e12)), min_size=1, max_size=5).map(
    lambda pairs: tuple(Application(name=str(i), weight=w, demand_bps=d) for i, (w, d) in enumerate(pairs))
)


@pytest.mark.parametrize(
    ("fair_share", "gbps"), [(0, 0), (10 / 11, 10), (1.5, 16.5), (10 / 3, 15 + 10 / 3), (5, 20), (7, 20), (inf, 20)]
)
def test_the_function_of_fg1_is_the_sum_of_its_applications(fair_share: float, gbps: float) -> None:
    assert BandwidthFunction((APP1, APP2)).bps_at(fair_share) == pytest.approx(gbps * G, rel=1e-15)


def test_the_function_of_fg1_bends_where_an_application_is_satisfied() -> None:
    function = BandwidthFunction((APP1, APP2))
    assert function.shares == (0, 1.5, 5)
    assert function.values_bps == (0, 16.5 * G, 20 * G)
    assert function.slopes_bps == (11 * G, 1 * G, 0)


def test_the_order_of_applications_does_not_matter() -> None:
    assert BandwidthFunction((APP2, APP1)).shares == BandwidthFunction((APP1, APP2)).shares


@pytest.mark.parametrize(("gbps", "fair_share"), [(0, 0), (10, 10 / 11), (18, 3), (20, inf), (25, inf)])
def test_a_bandwidth_has_the_least_fair_share_that_gives_it(gbps: float, fair_share: float) -> None:
    assert BandwidthFunction((APP1, APP2)).fair_share_at(gbps * G) == pytest.approx(fair_share)


@given(applications, st.floats(0, 1e6))
def test_the_function_equals_its_definition_and_inverts(apps: tuple[Application, ...], share: float) -> None:
    function = BandwidthFunction(apps)
    direct = sum(min(each.weight * 1e9 * share, each.demand_bps) for each in apps)
    assert function.bps_at(share) == pytest.approx(direct, rel=1e-12, abs=1e-6)
    if direct < function.demand_bps * (1 - 1e-6):
        assert function.bps_at(function.fair_share_at(direct)) == pytest.approx(direct, rel=1e-9, abs=1e-6)


def test_an_appetite_without_end_keeps_its_slope() -> None:
    function = BandwidthFunction((APP3, Application(name="all", weight=2, demand_bps=inf)))
    assert function.demand_bps == inf
    assert function.bps_at(100) == pytest.approx(210 * G)
    assert function.fair_share_at(210 * G) == pytest.approx(100)


def test_no_demand_is_satisfied_at_once() -> None:
    function = BandwidthFunction((Application(name="idle", weight=1, demand_bps=0),))
    assert function.demand_bps == 0
    assert function.fair_share_at(0) == inf


def test_a_demand_too_small_for_a_fair_share_of_its_own_is_met_at_none() -> None:
    function = BandwidthFunction((Application(name="least", weight=1, demand_bps=5e-324),))
    assert function.fair_share_at(0) == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", " "), ("weight", 0), ("weight", inf), ("weight", 1e-10), ("demand_bps", -1), ("demand_bps", nan)],
)
def test_bad_applications_are_refused(field: str, value: object) -> None:
    arguments = {"name": "a", "weight": 1.0, "demand_bps": 1.0, field: value}
    with pytest.raises(ValueError, match=f"^{field}: "):
        Application(**arguments)
