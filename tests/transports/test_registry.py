from dataclasses import dataclass, field
from typing import Literal, Optional

import pytest

from bicoastal.transports.registry import Registry, TransportSpec, UnknownTransportError
from helpers.example_transports import NATIVE, STEERED, STRIPER, ArqEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    segments: int = 10
    gain: float = 1.0
    paced: bool = True
    policy: Literal["keep", "restart"] = "keep"
    label: str = ""
    limit: int | None = None
    mode: Literal["fast", "slow"] | None = None
    old_style: Optional[float] = None  # noqa: UP045  third parties may write it so
    ports: tuple[int, ...] = field(default_factory=tuple)


def spec_with(parameters: type | None) -> TransportSpec:
    return TransportSpec(
        name="toy", kind="sans-io", paths="one", description="", parameters=parameters, make_endpoint=ArqEndpoint
    )


@pytest.mark.parametrize(
    ("key", "given", "expected"),
    [
        ("segments", 4, 4),
        ("segments", "4", 4),
        ("segments", 4.0, 4),
        ("segments", "1e3", 1000),
        ("segments", "9007199254740993", 9007199254740993),  # 2**53 + 1, which a float cannot hold
        ("gain", 2, 2.0),
        ("gain", "2.5", 2.5),
        ("paced", False, False),
        ("paced", "false", False),
        ("paced", "True", True),
        ("policy", "restart", "restart"),
        ("label", "x", "x"),
        ("limit", None, None),
        ("limit", "none", None),
        ("limit", "7", 7),
        ("mode", "slow", "slow"),
        ("mode", "none", None),
        ("old_style", "0.5", 0.5),
    ],
)
def test_text_and_numbers_become_the_type_of_the_parameter(key: str, given: object, expected: object) -> None:
    value = getattr(spec_with(Parameters).make_parameters({key: given}), key)
    assert value == expected
    assert type(value) is type(expected)


def test_parameters_that_are_not_given_keep_their_defaults() -> None:
    assert spec_with(Parameters).make_parameters({"gain": 3.0}) == Parameters(gain=3.0)


@pytest.mark.parametrize(
    ("key", "given", "sentence"),
    [
        ("segments", "many", "segments: 'many' is not a whole number"),
        ("segments", 1.5, "segments: 1.5 is not a whole number"),
        ("segments", True, "segments: True is not a whole number"),
        ("segments", "nan", "segments: 'nan' is not a whole number"),
        ("segments", "inf", "segments: 'inf' is not a whole number"),
        ("segments", None, "segments: needs a value"),
        ("gain", "nan", "gain: 'nan' is not a finite number"),
        ("gain", float("inf"), "gain: inf is not a finite number"),
        ("gain", 10**400, "gain: an integer of 1329 bits is not a finite number"),
        ("gain", [1], "gain: [1] is not a finite number"),
        ("paced", "yes", "paced: 'yes' is not true or false"),
        ("paced", 1, "paced: 1 is not true or false"),
        ("policy", "fast", "policy: 'fast' is not one of keep, restart"),
        ("policy", "x" * 5000, f"policy: '{'x' * 58}… is not one of keep, restart"),
        ("mode", "medium", "mode: 'medium' is not one of fast, slow"),
        ("label", 3, "label: 3 is not text"),
        ("ports", "80", "ports: '80' is not tuple[int, ...]"),
        ("speed", 1, "speed: toy has no such parameter; it has gain, label, limit, mode, old_style, paced, policy, "
         "ports, segments"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused_in_one_sentence(key: str, given: object, sentence: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011  the whole sentence is compared
        spec_with(Parameters).make_parameters({key: given})
    assert str(refusal.value) == sentence


def test_a_transport_without_parameters_refuses_any() -> None:
    assert spec_with(None).make_parameters({}) is None
    with pytest.raises(ValueError, match=r"^gain: toy has no parameters$"):
        spec_with(None).make_parameters({"gain": 1})


def test_a_parameter_without_default_must_be_given() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Needy:
        rate_bps: float

    with pytest.raises(ValueError, match=r"^rate_bps: toy needs this parameter$"):
        spec_with(Needy).make_parameters({})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kind": "magic"}, "kind: 'magic' is neither 'sans-io' nor 'native'"),
        ({"paths": "two"}, "paths: 'two' is neither 'one' nor 'many'"),
        ({"over": "tcp"}, "over: 'tcp' is neither 'ip' nor 'udp'"),
        ({"make_endpoint": None}, "make_endpoint: the sans-io transport toy needs it"),
        ({"kind": "native", "make_endpoint": None}, "program: the native transport toy needs one"),
        ({"parameters": int}, "parameters: <class 'int'> of toy is not a dataclass"),
    ],
)
def test_a_spec_whose_parts_do_not_fit_cannot_be_made(changes: dict[str, object], sentence: str) -> None:
    parts = {"name": "toy", "kind": "sans-io", "paths": "one", "description": "", "make_endpoint": ArqEndpoint}
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        TransportSpec(**(parts | changes))  # type: ignore[arg-type]
    assert str(refusal.value) == sentence


def test_a_name_resolves_to_its_spec() -> None:
    registry = Registry([STRIPER]).with_specs(STEERED, NATIVE)
    assert registry.names() == ("toy-native", "toy-steered", "toy-striper")
    assert registry.resolve("toy-steered") is STEERED


def test_adding_specs_leaves_the_registry_as_it_was() -> None:
    registry = Registry([STRIPER])
    registry.with_specs(STEERED)
    assert registry.names() == ("toy-striper",)


def test_the_built_in_transports_come_in_by_the_entry_points() -> None:
    assert {"reno", "cubic", "adaptive"} <= set(Registry.installed().names())


def test_an_unknown_name_is_answered_with_those_that_exist() -> None:
    with pytest.raises(UnknownTransportError) as refusal:
        Registry([STRIPER, NATIVE]).resolve("bbr")
    assert str(refusal.value) == "there is no transport 'bbr'; there are toy-native, toy-striper"


def test_module_and_attribute_resolve_without_an_entry_point() -> None:
    assert Registry().resolve("helpers.example_transports:STEERED") is STEERED


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere.at_all:SPEC", "transport 'nowhere.at_all:SPEC' cannot be loaded: No module named 'nowhere'"),
        (
            "helpers.example_transports:NOTHING",
            "transport 'helpers.example_transports:NOTHING' cannot be loaded: "
            "module 'helpers.example_transports' has no attribute 'NOTHING'",
        ),
        ("helpers.example_transports:decode", "transport 'helpers.example_transports:decode' is not a TransportSpec"),
        (":SPEC", "transport ':SPEC' is not of the form module:attribute"),
        ("helpers.example_transports:", "transport 'helpers.example_transports:' is not of the form module:attribute"),
        (".toys:SPEC", "transport '.toys:SPEC' is not of the form module:attribute"),
        (
            "helpers.example_transports:A:B",
            "transport 'helpers.example_transports:A:B' is not of the form module:attribute",
        ),
        ("to ys:SPEC", "transport 'to ys:SPEC' is not of the form module:attribute"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused_in_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(UnknownTransportError) as refusal:
        Registry().resolve(name)
    assert str(refusal.value) == sentence
