"""Encodes frozen dataclasses as JSON, and decodes them by their declared types, for messages between processes.

The types decide what can be read: every field's type is in its class, and a field that may hold one of several classes
lists them. The data can select a class from this list and nothing else. They cannot name a module, run code or leave
out a field. Both ends are the same program, so an unknown or missing field, or one of another type, is an error.

Supported are dataclasses, None, bool, int, float (finite), str, Literal, tuples, mappings from str and unions of them.
A dataclass is an object with all its fields. One of several classes is an object whose only key is the class's name.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Generic, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from bicoastal.wan.loss import Bernoulli, Combined, GilbertElliott, LossSpec, NoLoss, Periodic, TailOfBurst
from bicoastal.wan.recorded_loss import Listed, Trace

KINDS: Mapping[type, tuple[type, ...]] = {
    LossSpec: (NoLoss, Bernoulli, Periodic, GilbertElliott, TailOfBurst, Listed, Trace, Combined)
}
"""The classes that a field may hold when it is declared with an abstract class."""

Value = TypeVar("Value")


class WireFormatError(ValueError):
    """A value or a message does not have the declared form; the message is one sentence and begins with the place."""

    def __init__(self, problem: str, place: tuple[str, ...] = ()) -> None:
        super().__init__(f"{'.'.join(place)}: {problem}" if place else problem)
        self.problem = problem
        self.place = place

    def within(self, key: str) -> "WireFormatError":
        """Return the same error with `key` before its place."""
        return WireFormatError(self.problem, (key, *self.place))


class WireFormat(Generic[Value]):
    """Encodes and decodes values of one declared type: `WireFormat[Order](Order)`, where `Order` may be a union.

    Raises TypeError for a type that is not supported.
    """

    def __init__(self, declared: Any) -> None:
        self._rule = _Rules().rule(declared)

    def encode(self, value: Value) -> bytes:
        """Return the value as JSON in ASCII. Raises WireFormatError when a part of it is not as declared."""
        return json.dumps(self._rule.write(value), allow_nan=False, separators=(",", ":")).encode("ascii")

    def decode(self, octets: bytes) -> Value:
        """Return the value that `encode` encoded. Raises WireFormatError for any other octets."""
        try:
            data = json.loads(octets.decode("ascii"), object_pairs_hook=_unique, parse_constant=_refuse_constant)
            value: Value = self._rule.read(data)
        except RecursionError:
            raise WireFormatError("it is nested too deeply") from None
        except WireFormatError:
            raise
        except ValueError as error:  # of the decoders alone: rules raise nothing else
            raise WireFormatError(f"it is not JSON: {error}") from None
        return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise WireFormatError("a key is there twice")
    return made


def _refuse_constant(name: str) -> NoReturn:
    raise WireFormatError(f"{name} is not a number of JSON")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Rule(ABC):
    """One declared type. fits: whether a value may have it. shaped: whether data may have it. Both check little."""

    @abstractmethod
    def fits(self, value: object) -> bool: ...

    @abstractmethod
    def shaped(self, data: object) -> bool: ...

    @abstractmethod
    def write(self, value: Any) -> Any: ...

    @abstractmethod
    def read(self, data: Any) -> Any: ...


class _Plain(_Rule):
    """A type whose values are the same in JSON and in Python."""

    def shaped(self, data: object) -> bool:
        return self.fits(data)

    def read(self, data: Any) -> Any:
        return self.write(data)


class _Scalar(_Plain):
    """None, a bool, a number or text. A float may be given as an int: PEP 484, "The numeric tower"."""

    def __init__(self, declared: type) -> None:
        self._types: tuple[type, ...] = (float, int) if declared is float else (declared,)
        self._name = "null" if declared is NoneType else declared.__name__
        self._is_number = declared is float

    def fits(self, value: object) -> bool:
        return isinstance(value, self._types) and (not isinstance(value, bool) or bool in self._types)

    def write(self, value: Any) -> Any:
        if not self.fits(value) or (self._is_number and not _is_finite(value)):
            raise WireFormatError(f"{_shown(value)} is not a {'finite ' if self._is_number else ''}{self._name}")
        return value


def _is_finite(number: float) -> bool:
    try:
        return isfinite(number)
    except OverflowError:  # an int beyond the largest float
        return False


class _OneOf(_Plain):
    """A Literal: one of the listed values."""

    def __init__(self, values: Sequence[object]) -> None:
        self._values = values

    def fits(self, value: object) -> bool:
        return any(value == each and type(value) is type(each) for each in self._values)

    def write(self, value: Any) -> Any:
        if not self.fits(value):
            raise WireFormatError(f"{_shown(value)} is not one of {', '.join(map(repr, self._values))}")
        return value


class _Tuple(_Rule):
    """An array. parts: one rule for each element, or one for all of them when `length` is None."""

    def __init__(self, parts: Sequence[_Rule], length: int | None) -> None:
        self._parts = parts
        self._length = length

    def fits(self, value: object) -> bool:
        return isinstance(value, tuple)

    def shaped(self, data: object) -> bool:
        return isinstance(data, list)

    def write(self, value: Any) -> Any:
        if not self.fits(value):
            raise WireFormatError(f"{_shown(value)} is not a tuple")
        return self._each("write", value)

    def read(self, data: Any) -> Any:
        if not self.shaped(data):
            raise WireFormatError(f"{_shown(data)} is not an array")
        return tuple(self._each("read", data))

    def _each(self, do: Literal["write", "read"], items: Sequence[Any]) -> list[Any]:
        if self._length is not None and len(items) != self._length:
            raise WireFormatError(f"there are {len(items)} elements instead of {self._length}")
        acts = [getattr(part, do) for part in self._parts]
        if self._length is None:
            acts *= len(items)
        done: list[Any] = []
        try:
            for act, item in zip(acts, items, strict=True):
                done.append(act(item))
        except WireFormatError as error:
            raise error.within(str(len(done))) from None
        return done


class _Mapping(_Rule):
    """An object with any keys, in their order."""

    def __init__(self, part: _Rule) -> None:
        self._part = part

    def fits(self, value: object) -> bool:
        return isinstance(value, Mapping)

    def shaped(self, data: object) -> bool:
        return isinstance(data, dict)

    def write(self, value: Any) -> Any:
        if not self.fits(value):
            raise WireFormatError(f"{_shown(value)} is not a mapping")
        for key in value:
            if not isinstance(key, str):
                raise WireFormatError(f"the key {_shown(key)} is not a str")
        return {key: _inside(self._part.write, key, item) for key, item in value.items()}

    def read(self, data: Any) -> Any:
        if not self.shaped(data):
            raise WireFormatError(f"{_shown(data)} is not an object")
        return {key: _inside(self._part.read, key, item) for key, item in data.items()}


class _Dataclass(_Rule):
    """An object with exactly the fields of a class, which checks them itself when it is made."""

    def __init__(self, made: type) -> None:
        self.made = made
        self.parts: dict[str, _Rule] = {}

    def fits(self, value: object) -> bool:
        return type(value) is self.made  # the fields of a subclass would be lost

    def shaped(self, data: object) -> bool:
        return isinstance(data, dict)

    def write(self, value: Any) -> Any:
        if not self.fits(value):
            raise WireFormatError(f"{_shown(value)} is not a {self.made.__name__}")
        return {name: _inside(part.write, name, getattr(value, name)) for name, part in self.parts.items()}

    def read(self, data: Any) -> Any:
        if not self.shaped(data):
            raise WireFormatError(f"{_shown(data)} is not an object")
        if data.keys() != self.parts.keys():
            odd = sorted(data.keys() ^ self.parts.keys())[0]
            raise WireFormatError(f"{odd!r} is {'unknown' if odd in data else 'missing'}")
        values = {name: _inside(part.read, name, data[name]) for name, part in self.parts.items()}
        try:
            made = self.made(**values)
        except (ValueError, TypeError) as error:
            raise WireFormatError(str(error)) from error
        for name, value in values.items():
            held = getattr(made, name)
            if held is not value and held != value:  # for example a name that a mapping and its part give differently
                raise WireFormatError(f"{name}: {self.made.__name__} changes its value")
        return made


class _Named(_Rule):
    """One of several dataclasses: an object whose only key is the name of the class, out of those declared."""

    def __init__(self) -> None:
        self.choices: dict[str, _Dataclass] = {}

    def fits(self, value: object) -> bool:
        return any(choice.fits(value) for choice in self.choices.values())

    def shaped(self, data: object) -> bool:
        return isinstance(data, dict)

    def write(self, value: Any) -> Any:
        name = type(value).__name__
        choice = self.choices.get(name)
        if choice is None or not choice.fits(value):
            raise WireFormatError(f"{_shown(value)} is not one of {', '.join(self.choices)}")
        return {name: choice.write(value)}

    def read(self, data: Any) -> Any:
        if not isinstance(data, dict) or len(data) != 1:
            raise WireFormatError(f"{_shown(data)} is not an object with one key")
        ((name, content),) = data.items()
        if name not in self.choices:
            raise WireFormatError(f"{_shown(name)} is not one of {', '.join(self.choices)}")
        return _inside(self.choices[name].read, name, content)


class _Union(_Rule):
    """A union of types, which `fits` and `shaped` tell apart."""

    def __init__(self) -> None:
        self.members: Sequence[_Rule] = ()

    def fits(self, value: object) -> bool:
        return any(member.fits(value) for member in self.members)

    def shaped(self, data: object) -> bool:
        return any(member.shaped(data) for member in self.members)

    def write(self, value: Any) -> Any:
        for member in self.members:
            if member.fits(value):
                return member.write(value)
        raise WireFormatError(f"{_shown(value)} has none of the allowed types")

    def read(self, data: Any) -> Any:
        for member in self.members:
            if member.shaped(data):
                return member.read(data)
        raise WireFormatError(f"{_shown(data)} has none of the allowed types")


def _inside(act: Any, key: str, item: Any) -> Any:
    try:
        return act(item)
    except WireFormatError as error:
        raise error.within(key) from None


class _Rules:
    """Makes the rules for a declared type, each once: types may contain themselves."""

    def __init__(self) -> None:
        self._made: dict[Any, _Rule] = {}

    def rule(self, declared: Any) -> _Rule:
        """Return the rule for a type as `typing.get_type_hints` gives it. Raises TypeError when it has no form."""
        if declared not in self._made:
            self._make(declared)
        return self._made[declared]

    def _make(self, declared: Any) -> None:
        origin, arguments = get_origin(declared), get_args(declared)
        if declared in (NoneType, bool, int, float, str):
            self._made[declared] = _Scalar(declared)
        elif origin is Literal:
            self._made[declared] = _OneOf(arguments)
        elif origin is tuple and arguments[-1:] == (...,):
            self._made[declared] = _Tuple([self.rule(arguments[0])], None)
        elif origin is tuple and arguments:
            self._made[declared] = _Tuple([self.rule(argument) for argument in arguments], len(arguments))
        elif origin in (Mapping, dict) and arguments[0] is str:
            self._made[declared] = _Mapping(self.rule(arguments[1]))
        elif origin in (Union, UnionType):
            self._make_union(declared, arguments)
        elif declared in KINDS:
            self._make_named(declared, KINDS[declared])
        elif isinstance(declared, type) and is_dataclass(declared):
            self._make_dataclass(declared)
        else:
            raise TypeError(f"{declared!r} cannot be encoded")

    def _make_dataclass(self, declared: type) -> None:
        self._made[declared] = rule = _Dataclass(declared)
        hints = get_type_hints(declared)
        for field in fields(declared):
            if not field.init:
                raise TypeError(f"{declared.__name__}.{field.name} cannot be encoded: it is not given when made")
            rule.parts[field.name] = self.rule(hints[field.name])

    def _make_named(self, declared: Any, choices: Sequence[type]) -> None:
        self._made[declared] = rule = _Named()
        for choice in choices:
            part = self.rule(choice)
            if not isinstance(part, _Dataclass) or choice.__name__ in rule.choices:
                raise TypeError(f"{choice!r} has the name of another one")
            rule.choices[choice.__name__] = part

    def _make_union(self, declared: Any, members: Sequence[Any]) -> None:
        classes = [member for member in members if isinstance(member, type) and is_dataclass(member)]
        others = [member for member in members if member not in classes]
        if len(classes) > 1 and not others:
            self._make_named(declared, classes)
            return
        self._made[declared] = union = _Union()
        rules = [self.rule(member) for member in others]
        if len(classes) > 1:
            self._make_named(tuple(classes), classes)
            rules.append(self._made[tuple(classes)])
        else:
            rules += [self.rule(member) for member in classes]
        shapes: tuple[object, ...] = ([], {})
        for shape in shapes:
            if sum(rule.shaped(shape) for rule in rules) > 1:
                raise TypeError(f"{declared!r} cannot be encoded: two of its types cannot be distinguished")
        union.members = rules
