"""Counters add and subtract name by name, whatever names there are."""

from dataclasses import fields

from bicoastal.transports.base import Counters, sum_counters

NAMES = [field.name for field in fields(Counters)]


def numbered(first: int, step: int = 1) -> Counters:
    return Counters(**{name: first + step * place for place, name in enumerate(NAMES)})


def test_each_counter_is_added_to_and_subtracted_from_its_own() -> None:
    assert numbered(10, step=3) + numbered(4) == numbered(14, step=4)
    assert numbered(10, step=3) - numbered(4) == numbered(6, step=2)


def test_the_counters_of_no_links_are_zero() -> None:
    assert sum_counters([]) == Counters()
    assert sum_counters(numbered(first) for first in (1, 2, 3)) == numbered(6, step=3)


def test_counts_by_name_are_in_the_order_of_the_columns() -> None:
    assert list(numbered(1).as_dict().items()) == [(name, 1 + place) for place, name in enumerate(NAMES)]
