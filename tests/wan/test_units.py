import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.wan.units import (
    format_rate,
    format_size,
    format_time,
    parse_probability,
    parse_rate,
    parse_size,
    parse_time,
)


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("5 Gbit/s", 5e9),
        ("5Gbps", 5e9),  # tc(8) reads this as gigabytes; people mean gigabits
        ("5 Gb/s", 5e9),
        ("1 GB/s", 8e9),
        ("1.8 TB/s", 14.4e12),
        ("800 kbit/s", 8e5),
        ("2 Mbps", 2e6),
        ("1 MiB/s", 8 * 2**20),
        ("9600 bit/s", 9600),
        ("1e3 bps", 1000),
        ("0", 0),
    ],
)
def test_a_rate_tells_bits_from_bytes(text: str, rate_bps: float) -> None:
    assert parse_rate(text) == rate_bps


@pytest.mark.parametrize(
    "text",
    [
        "5",
        "5 G",
        "5 Gb",
        "5 GB",
        "5 Gbyte/s",
        "5 MBPS",
        "5 MBps",
        "5 GBps",
        "5 mbps",
        "5 gbit/s",
        "5 Gibit/s",
        "-1 Gbit/s",
        "1 Gbit/s 2",
        "five Gbit/s",
        "",
        "nan Gbit/s",
        "inf bit/s",
        "1e999 bit/s",
    ],
)
def test_a_rate_that_could_be_read_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(repr(text))) as caught:
        parse_rate(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "time_s"),
    [
        ("60 ms", 0.060),
        ("2 us", 2e-6),
        ("2 µs", 2e-6),
        ("2 μs", 2e-6),
        ("100 ns", 1e-7),
        ("1 s", 1),
        ("1 min", 60),
        ("0.5 h", 1800),
        ("0", 0),
        ("1.1 ms", 0.0011),
    ],
)
def test_a_time_is_the_nearest_float(text: str, time_s: float) -> None:
    assert parse_time(text) == time_s


@pytest.mark.parametrize("text", ["60", "60 m", "60 sec", "60 MS", "-1 ms", "ms", "1 month"])
def test_a_time_without_a_clear_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"unit|negative"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("57.13 MB", 57_130_000),
        ("64 KiB", 65536),
        ("1 GiB", 2**30),
        ("1 kB", 1000),
        ("1 KB", 1000),
        ("9000 B", 9000),
        ("1 byte", 1),
        ("1_500 bytes", 1500),
        ("0", 0),
        ("0 B", 0),
    ],
)
def test_sizes_know_decimal_and_binary_prefixes(text: str, size: int) -> None:
    assert parse_size(text) == size
    assert isinstance(parse_size(text), int)


@pytest.mark.parametrize("text", ["64", "64 K", "64 Kb", "64 Mbit", "64 mb", "-1 B", "64 Gb"])
def test_a_size_in_bits_or_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"unit|negative"):
        parse_size(text)


@pytest.mark.parametrize("parse", [parse_rate, parse_time, parse_size])
def test_a_bare_number_is_refused_unless_it_is_zero(parse) -> None:
    assert parse(0) == 0
    for value in (5, 5.0, True, None, ["5 ms"]):
        with pytest.raises(ValueError, match="no unit"):
            parse(value)


def test_a_probability_is_a_number_or_a_percentage() -> None:
    assert parse_probability(1e-4) == 1e-4
    assert parse_probability("1e-4") == 1e-4
    assert parse_probability("0.01 %") == pytest.approx(1e-4, rel=1e-15)
    assert parse_probability(0) == 0
    assert parse_probability(1) == 1


@pytest.mark.parametrize("value", [1.5, -0.1, "1.5", "101 %", "often", "", "0.1 ms", True, None, float("nan")])
def test_a_value_that_is_not_a_probability_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not a probability"):
        parse_probability(value)


def test_quantities_are_written_with_four_digits_and_a_fitting_prefix() -> None:
    assert format_rate(5e9) == "5 Gbit/s"
    assert format_rate(16.4e9) == "16.4 Gbit/s"
    assert format_rate(999_999) == "1 Mbit/s"
    assert format_time(0.060) == "60 ms"
    assert format_time(0.121408) == "121.4 ms"
    assert format_time(2e-6) == "2 us"
    assert format_time(3e-10) == "0.3 ns"
    assert format_size(57_131_573) == "57.13 MB"
    assert format_size(0) == "0 B"
    assert format_size(9000) == "9 kB"


@given(st.floats(min_value=1e-3, max_value=1e17))
def test_what_is_written_can_be_read_again(value: float) -> None:
    assert parse_rate(format_rate(value)) == pytest.approx(value, rel=1e-3)
    assert parse_time(format_time(value)) == pytest.approx(value, rel=1e-3)
    assert parse_size(format_size(value)) == pytest.approx(value, rel=1e-3, abs=1)
