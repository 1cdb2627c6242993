"""Transports by name: the built-in ones and those of third parties are found in the same way."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from importlib.metadata import EntryPoint, entry_points
from math import isfinite
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from bicoastal.transports.base import Endpoint, EndpointContext, Pacer, ServiceContext, ServicePlacement
from bicoastal.wan.checks import FieldError, quoted

GROUP = "bicoastal.transports"


def _no_services(_context: ServiceContext) -> Sequence[ServicePlacement]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportSpec:
    """The properties of a transport, and the functions that make its parts.

    kind: a "sans-io" transport makes endpoints. A "native" one names a `program` that a real-time backend runs, and may
    make a pacer for it, which communicates with the transport's services.
    paths: with "one", a message is striped over one flow per path; with "many", one flow with all paths carries it.
    requires: capabilities that a backend must have (`emulation.base.Capabilities.features`).
    over: "udp" where the payload of a datagram is UDP's, and its `wire_bytes` counts UDP's header besides IP's; "ip"
    where it begins with a transport's header of its own.
    min_mtu_bytes: the smallest largest-packet of a path that it can use (QUIC has such a minimum).
    parameters: a frozen dataclass whose fields have defaults, and which raises FieldError for a value that it cannot
    use; its instance reaches the endpoints.
    colour, marker: how figures draw it.
    Raises FieldError where the kind and the parts do not fit.
    """

    name: str
    kind: Literal["sans-io", "native"]
    paths: Literal["one", "many"]
    description: str
    requires: frozenset[str] = frozenset()
    over: Literal["ip", "udp"] = "ip"
    min_mtu_bytes: int = 0
    parameters: type[Any] | None = None
    make_endpoint: Callable[[EndpointContext], Endpoint] | None = None
    make_pacer: Callable[[EndpointContext], Pacer] | None = None
    make_services: Callable[[ServiceContext], Sequence[ServicePlacement]] = field(default=_no_services)
    program: str | None = None
    colour: str = "#666666"
    marker: str = "o"

    def __post_init__(self) -> None:
        """Check that the parts fit the kind."""
        if self.kind not in ("sans-io", "native"):
            raise FieldError("kind", f"{self.kind!r} is neither 'sans-io' nor 'native'")
        if self.paths not in ("one", "many"):
            raise FieldError("paths", f"{self.paths!r} is neither 'one' nor 'many'")
        if self.over not in ("ip", "udp"):
            raise FieldError("over", f"{self.over!r} is neither 'ip' nor 'udp'")
        if self.kind == "sans-io" and self.make_endpoint is None:
            raise FieldError("make_endpoint", f"the sans-io transport {self.name} needs it")
        if self.kind == "native" and self.program is None:
            raise FieldError("program", f"the native transport {self.name} needs one")
        if self.parameters is not None and not is_dataclass(self.parameters):
            raise FieldError("parameters", f"{self.parameters!r} of {self.name} is not a dataclass")

    def make_parameters(self, values: Mapping[str, object]) -> object:
        """Return the parameters with `values` in the place of defaults; text is converted to the field's type.

        Raises FieldError for an unknown key or an unusable value.
        """
        if self.parameters is None:
            for key in values:
                raise FieldError(key, f"{self.name} has no parameters")
            return None
        known = {f.name: f for f in fields(self.parameters)}
        hints = get_type_hints(self.parameters)
        converted: dict[str, object] = {}
        for key, value in values.items():
            if key not in known:
                raise FieldError(key, f"{self.name} has no such parameter; it has {', '.join(sorted(known))}")
            converted[key] = _convert(key, value, hints[key])
        for name, f in known.items():
            if f.default is MISSING and f.default_factory is MISSING and name not in converted:
                raise FieldError(name, f"{self.name} needs this parameter")
        return self.parameters(**converted)


def _convert(key: str, value: object, hint: Any) -> object:
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if value is None or (isinstance(value, str) and value.lower() == "none"):
        if type(None) in kinds:
            return None
        raise FieldError(key, "needs a value")
    for kind in kinds:
        if get_origin(kind) is Literal:
            for option in get_args(kind):
                if value == option and isinstance(value, type(option)):
                    return option
        elif kind is bool:
            if isinstance(value, bool):
                return value
            if isinstance(value, str) and value.lower() in ("true", "false"):
                return value.lower() == "true"
        elif kind in (int, float) and (number := _number(value, kind)) is not None:
            return number
        elif kind is str and isinstance(value, str):
            return value
    options = [str(option) for kind in kinds if get_origin(kind) is Literal for option in get_args(kind)]
    if options:
        raise FieldError(key, f"{quoted(value)} is not one of {', '.join(options)}")
    expected = [_NAMES.get(kind, str(kind)) for kind in kinds if kind is not type(None)]
    raise FieldError(key, f"{quoted(value)} is not {' or '.join(expected)}")


_NAMES = {bool: "true or false", int: "a whole number", float: "a finite number", str: "text"}


def _number(value: object, kind: type) -> int | float | None:
    """Return a number, or the number that a text stands for; None when it is no finite number of this kind."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if kind is int and not isinstance(value, float):
        with suppress(ValueError):
            return int(value)  # exact, however many digits
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    if not isfinite(number):
        return None
    if kind is float:
        return number
    return int(number) if number.is_integer() else None


class UnknownTransportError(LookupError):
    """No transport has this name; the message says which there are."""


class Registry:
    """An immutable table of transports. `Registry.installed()` reads the entry points of every installed package."""

    def __init__(self, specs: Sequence[TransportSpec] = ()) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._entries: dict[str, EntryPoint] = {}

    @classmethod
    def installed(cls) -> "Registry":
        """Return the transports of all installed packages; each is imported only when it is resolved."""
        registry = cls()
        registry._entries = {entry.name: entry for entry in entry_points(group=GROUP)}
        return registry

    def with_specs(self, *specs: TransportSpec) -> "Registry":
        """Return a registry that has `specs` besides what this one has."""
        registry = Registry([*self._specs.values(), *specs])
        registry._entries = dict(self._entries)
        return registry

    def names(self) -> tuple[str, ...]:
        """Return the names, sorted."""
        return tuple(sorted({*self._specs, *self._entries}))

    def resolve(self, name: str) -> TransportSpec:
        """Return the transport called `name`, or the object at "module:attribute".

        Raises UnknownTransportError when there is none, in one sentence.
        """
        if name in self._specs:
            return self._specs[name]
        entry = self._entries.get(name)
        if entry is None:
            if ":" not in name:
                raise UnknownTransportError(
                    f"there is no transport {quoted(name)}; there are {', '.join(self.names())}"
                )
            if not all(part.isidentifier() for side in name.split(":", 1) for part in side.split(".")):
                raise UnknownTransportError(f"transport {quoted(name)} is not of the form module:attribute")
            entry = EntryPoint(name=name, value=name, group=GROUP)
        try:
            spec = entry.load()
        except (ImportError, AttributeError) as error:
            raise UnknownTransportError(f"transport {name!r} cannot be loaded: {error}") from error
        except (Exception, SystemExit) as error:  # a third party's module may run any code when it is imported
            raise UnknownTransportError(
                f"transport {name!r} cannot be loaded: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(spec, TransportSpec):
            raise UnknownTransportError(f"transport {name!r} is not a TransportSpec")
        return spec
