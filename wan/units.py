"""Converts text to bit/s, seconds and bytes, and back; the only place where units are read.

A number without a unit is refused (except 0), and so is every ambiguous unit. Only the letter distinguishes bits from
bytes: `Gbit/s`, `Gb/s` and `Gbps` are gigabits, `GB/s` is gigabytes. Prefixes of rates are
powers of ten; sizes also know the binary ones (`KiB`).
"""

import re
from math import isfinite

from bicoastal.wan.checks import quoted

INFINITY = float("inf")
"""No bound (of a rate or a size), or never (of a time)."""

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}

_RATES = {f"{prefix}{unit}": factor for prefix, factor in _DECIMAL.items() for unit in ("bit/s", "b/s", "bps")}
_RATES |= {f"{prefix}B/s": 8 * factor for prefix, factor in _DECIMAL.items()}
_RATES |= {f"{prefix}B/s": 8 * factor for prefix, factor in _BINARY.items()}

_TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_TIME_DIVISORS = {"ns": 10**9, "us": 10**6, "µs": 10**6, "μs": 10**6, "ms": 10**3}

_SIZES = {f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()} | {"byte": 1, "bytes": 1}

_QUANTITY = re.compile(r"([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(.*)", re.DOTALL)


def _split(text: str, example: str) -> tuple[float, str]:
    if not isinstance(text, str):
        if text == 0 and not isinstance(text, bool):
            return 0.0, ""
        raise ValueError(f"{quoted(text)} has no unit; write it as text, like {example!r}")
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{quoted(text)} is not a number with a unit, like {example!r}")
    value, unit = float(match[1]), match[2].strip()
    if not isfinite(value):
        raise ValueError(f"{quoted(text)} is too large a number")
    if value < 0:
        raise ValueError(f"{quoted(text)} is negative")
    if not unit and value != 0:
        raise ValueError(f"{quoted(text)} has no unit; write it like {example!r}")
    return value, unit


def parse_rate(text: str) -> float:
    """Return the bit/s of text such as "5 Gbit/s", "800 kbps" or "1 GB/s".

    Raises ValueError in one sentence: no unit, no such unit, a unit that could be bits or bytes, negative.
    """
    value, unit = _split(text, "5 Gbit/s")
    if not unit:
        return 0.0
    if unit in _RATES:
        return value * _RATES[unit]
    raise ValueError(
        f"{quoted(text)} is not a rate: write Gbit/s or Gbps for bits, GB/s for bytes, with the letters so"
    )


def parse_time(text: str) -> float:
    """Return the seconds of text such as "60 ms", "2 us" or "1 min". Raises ValueError in one sentence."""
    value, unit = _split(text, "60 ms")
    if not unit:
        return 0.0
    if unit in _TIME_DIVISORS:
        return value / _TIME_DIVISORS[unit]  # division rounds correctly where a factor of 1e-3 would not
    if unit in _TIMES:
        return value * _TIMES[unit]
    raise ValueError(f"{quoted(text)} is not a time: its unit must be one of ns, us, ms, s, min, h")


def parse_size(text: str) -> int:
    """Return the bytes of text such as "57.13 MB" (decimal) or "64 KiB" (binary), rounded to a whole byte.

    Raises ValueError in one sentence: no unit, no such unit, bits, negative.
    """
    value, unit = _split(text, "57.13 MB")
    if not unit:
        return 0
    if unit in _SIZES:
        return round(value * _SIZES[unit])
    raise ValueError(f"{quoted(text)} is not a size in bytes: its unit must be like B, kB, MB, GB or KiB, MiB, GiB")


def parse_probability(value: object) -> float:
    """Return a probability given as a number, or as text such as "1e-4" or "0.01 %".

    Raises ValueError in one sentence when it is not from 0 to 1.
    """
    number: float | None = None
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value.strip())
        if match is not None and match[2] in ("", "%"):
            number = float(match[1]) / 100 if match[2] else float(match[1])
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    if number is None or not 0.0 <= number <= 1.0:
        raise ValueError(f"{quoted(value)} is not a probability")
    return number


def _format(value: float, units: tuple[tuple[float, str], ...]) -> str:
    if value == 0:
        return f"0 {units[-1][1]}"
    for factor, unit in units:
        rounded = float(f"{value / factor:.4g}")
        if abs(rounded) >= 1:
            return f"{rounded:.10g} {unit}"
    return f"{rounded:.10g} {unit}"  # a fraction of the smallest unit


def format_rate(rate_bps: float) -> str:
    """Return bit/s as text with four significant digits, e.g. "5 Gbit/s"."""
    return _format(
        rate_bps,
        ((1e15, "Pbit/s"), (1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s")),
    )


def format_time(time_s: float) -> str:
    """Return seconds as text with four significant digits, e.g. "60 ms"."""
    return _format(time_s, ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")))


def format_size(size_bytes: float) -> str:
    """Return bytes as text with four significant digits and decimal prefixes, e.g. "57.13 MB"."""
    return _format(size_bytes, ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")))
