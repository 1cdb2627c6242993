import pytest

from bicoastal.wan.checks import FieldError
from bicoastal.wan.flow_id import FlowId


def flow(**changes: object) -> FlowId:
    values: dict[str, object] = {"owner": "job", "source": "us", "destination": "eu", "paths": ("plane0",), **changes}
    return FlowId(**values)  # type: ignore[arg-type]


def test_the_label_names_owner_direction_and_paths() -> None:
    assert str(flow()) == "job/us>eu/plane0"
    assert str(flow(paths=("plane0", "plane1"))) == "job/us>eu/plane0+plane1"


def test_flows_with_one_label_can_be_different() -> None:
    one, other = flow(paths=("a", "b")), flow(paths=("a+b",))
    assert str(one) == str(other)
    assert one != other


@pytest.mark.parametrize(
    ("field", "value"),
    [("owner", ""), ("source", " "), ("destination", ""), ("destination", "us"), ("paths", ()), ("paths", ("",))],
)
def test_bad_fields_are_named(field: str, value: object) -> None:
    with pytest.raises(FieldError) as refusal:
        flow(**{field: value})
    assert refusal.value.field == field
