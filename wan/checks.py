"""The checks that specifications share: each raises ValueError in one sentence that begins with the field's name."""

from math import isfinite


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def check_positive(field: str, value: float) -> None:
    """Refuse what is not a finite number above zero."""
    if not _is_number(value) or not value > 0:
        raise ValueError(f"{field}: {value!r} is not a finite number above zero")


def check_not_negative(field: str, value: float) -> None:
    """Refuse what is not a finite number of at least zero."""
    if not _is_number(value) or not value >= 0:
        raise ValueError(f"{field}: {value!r} is not a finite number of at least zero")


def check_probability(field: str, value: float) -> None:
    """Refuse what is not a number from 0 to 1."""
    if not _is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{field}: {value!r} is not a probability")


def check_whole(field: str, value: int, least: int) -> None:
    """Refuse what is not an integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{field}: {value!r} is not a whole number of at least {least}")


def check_name(field: str, value: str) -> None:
    """Refuse what is not text with something to see in it."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{field}: {value!r} is not a name")
