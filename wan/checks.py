"""The checks that specifications share. Each raises `FieldError`, which names the field and says what is wrong."""

from math import isfinite

_SHOWN_CHARACTERS = 60


class FieldError(ValueError):
    """A value that a field cannot have.

    field: the field's name. message: what is wrong with its value, without the name. `str()` is "field: message".
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message)
        self.field = field
        self.message = message

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def cut(text: str) -> str:
    """Return `text`, cut to the length that a message may show."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def quoted(value: object) -> str:
    """Return the Python form of `value` for a message, cut to a fixed length."""
    if isinstance(value, int) and abs(value) >= 10**_SHOWN_CHARACTERS:
        return f"an integer of {value.bit_length()} bits"  # repr() refuses those above 4300 digits
    return cut(repr(value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def check_positive(field: str, value: float) -> None:
    """Refuse what is not a finite number above zero."""
    if not _is_number(value) or not value > 0:
        raise FieldError(field, f"{quoted(value)} is not a finite number above zero")


def check_not_negative(field: str, value: float) -> None:
    """Refuse what is not a finite number of at least zero."""
    if not _is_number(value) or not value >= 0:
        raise FieldError(field, f"{quoted(value)} is not a finite number of at least zero")


def check_probability(field: str, value: float) -> None:
    """Refuse what is not a number from 0 to 1."""
    if not _is_number(value) or not 0 <= value <= 1:
        raise FieldError(field, f"{quoted(value)} is not a probability")


def check_whole(field: str, value: int, least: int) -> None:
    """Refuse what is not an integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise FieldError(field, f"{quoted(value)} is not a whole number of at least {least}")


def check_name(field: str, value: str) -> None:
    """Refuse what is not text, and text that is empty or blank."""
    if not isinstance(value, str) or not value.strip():
        raise FieldError(field, f"{quoted(value)} is not a name")
