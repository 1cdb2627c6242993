"""An error of a field carries the field and the message apart, so that no text has to be split."""

import pickle

import pytest

from bicoastal.wan.checks import FieldError, check_positive
from bicoastal.wan.topology import Path


def test_the_field_and_the_message_are_apart_and_joined_in_text() -> None:
    with pytest.raises(FieldError) as refusal:
        check_positive("rate_bps", -1.0)
    assert (refusal.value.field, refusal.value.message) == ("rate_bps", "-1.0 is not a finite number above zero")
    assert str(refusal.value) == "rate_bps: -1.0 is not a finite number above zero"
    assert isinstance(refusal.value, ValueError)


def test_a_colon_in_a_value_does_not_move_the_border() -> None:
    with pytest.raises(FieldError) as refusal:
        Path(name="a: b", sites=("west",), links=())
    assert refusal.value.field == "sites"
    assert refusal.value.message == "the path 'a: b' needs at least two sites"


def test_another_process_gets_the_same_error() -> None:
    error = pickle.loads(pickle.dumps(FieldError("sites", "there is none")))
    assert (error.field, error.message) == ("sites", "there is none")
