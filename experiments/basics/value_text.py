"""How values are written for people: as they would write them behind `--set KEY=`."""

from decimal import Decimal
from math import isfinite

_SMALL = 0.01  # up to this a value is written with an exponent, so that nobody has to count zeros


def value_text(value: object) -> str:
    """Return a value as people write it behind `--set KEY=`, digit for digit: 1e-4, not 0.0001, and 2, not 2.0."""
    match value:
        case bool():
            return "true" if value else "false"
        case float() if isfinite(value) and 0 < abs(value) <= _SMALL:
            return format(Decimal(repr(value)).normalize(), "e")
        case float():
            return repr(value).removesuffix(".0")
        case _:
            return str(value)
