"""What a deployment's file says, key by key.

The tables and their keys; those of the classes' fields that have a default may be left out::

    name, source
    [model]         layers, hidden, sequence, vocabulary, heads, kv_heads, ffn_hidden, ffn_matrices, experts,
                    experts_per_token, embeddings, dropout
    [precision]     weights, gradients, optimizer, gradient_messages, weight_messages, tensor_activations,
                    pipeline_activations, expert_activations, activations
    [gpu]           flops, memory, efficiency
    [parallelism]   tensor, pipeline, data, replicas_per_rack, expert, zero, micro_batch, micro_batches, recomputation
    [plant]         sites, racks, gpus_per_rack, scale_up, scale_out, scale_up_latency, scale_out_latency, planes, wan,
                    wan_rtt
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from bicoastal.wan.checks import FieldError, quoted
from bicoastal.wan.deployment import Deployment, Gpu, Precision
from bicoastal.wan.transformer import Transformer
from bicoastal.wan.units import parse_rate, parse_size, parse_time

MOST_WHOLE = 10**12
LEAST, MOST = 1e-15, 1e24  # nothing on earth is beyond, and no product of such numbers is infinite


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{quoted(value)} is not a whole number")
    if value > MOST_WHOLE:
        raise ValueError(f"{quoted(value)} is more than {MOST_WHOLE:.0e}")
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{quoted(value)} is not a number")
    return float(_sane(value, value))  # an integer that no float can be is refused first


def _sane(number: float, value: object) -> float:
    if number > MOST or 0 < number < LEAST:
        raise ValueError(f"{quoted(value)} is not between {LEAST:g} and {MOST:g}")
    return number


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{quoted(value)} is not text")
    return value


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{quoted(value)} is not true or false")
    return value


def _with_unit(parse: Callable[[str], float]) -> Callable[[object], float]:
    def read(value: object) -> float:
        if not isinstance(value, str):
            raise ValueError(f"{quoted(value)} is not text with a unit")
        return _sane(parse(value), value)

    return read


_Reader = Callable[[object], object]
_rate_bps = _with_unit(parse_rate)
_time_s = _with_unit(parse_time)
_size_bytes = _with_unit(parse_size)

# key in the file: (field, how its value is read), table by table
_MODEL: dict[str, tuple[str, _Reader]] = {
    field.name: (field.name, _truth if field.name == "dropout" else _whole) for field in fields(Transformer)
}
_PRECISION: dict[str, tuple[str, _Reader]] = {field.name: (field.name, _number) for field in fields(Precision)}
_GPU: dict[str, tuple[str, _Reader]] = {
    "flops": ("flops", _number),
    "memory": ("memory_bytes", _size_bytes),
    "efficiency": ("efficiency", _number),
}
_PARALLELISM: dict[str, tuple[str, _Reader]] = {
    **{
        key: (key, _whole)
        for key in ("tensor", "pipeline", "data", "replicas_per_rack", "expert", "zero", "micro_batch", "micro_batches")
    },
    "recomputation": ("recomputation", _text),
}
_PLANT: dict[str, tuple[str, _Reader]] = {
    **{key: (key, _whole) for key in ("sites", "racks", "gpus_per_rack", "planes")},
    "scale_up": ("scale_up_Bps", lambda value: _rate_bps(value) / 8),
    "scale_out": ("scale_out_bps", _rate_bps),
    "scale_up_latency": ("scale_up_latency_s", _time_s),
    "scale_out_latency": ("scale_out_latency_s", _time_s),
    "wan": ("wan_bps", _rate_bps),
    "wan_rtt": ("wan_rtt_s", _time_s),
}
_TABLES = {"model": _MODEL, "precision": _PRECISION, "gpu": _GPU, "parallelism": _PARALLELISM, "plant": _PLANT}
_PARTS: dict[str, type[Any]] = {"model": Transformer, "precision": Precision, "gpu": Gpu}


def deployment_from_mapping(mapping: Mapping[str, object]) -> Deployment:
    """Return the deployment that a file describes.

    Rates, latencies, sizes and `wan_rtt` are text with a unit, `flops` operations per second, precisions bytes. Raises
    FieldError, whose field is the key with its table (plant.wan_rtt), for keys that are unknown or missing and for
    values that cannot be used.
    """
    values: dict[str, dict[str, object]] = {table: {} for table in _TABLES}
    header: dict[str, object] = {}
    for key, value in mapping.items():
        if key in ("name", "source"):
            header[key] = _read(key, _text, value)
        elif key not in _TABLES:
            raise FieldError(key, f"there is no such key; expected name, source, {', '.join(_TABLES)}")
        elif not isinstance(value, Mapping):
            raise FieldError(key, f"{quoted(value)} is not a table")
        else:
            for inner, inner_value in value.items():
                if inner not in _TABLES[key]:
                    raise FieldError(f"{key}.{inner}", f"there is no such key; expected {', '.join(_TABLES[key])}")
                field, reader = _TABLES[key][inner]
                values[key][field] = _read(f"{key}.{inner}", reader, inner_value)
    parts = {table: _make(kind, values[table], (table,)) for table, kind in _PARTS.items()}
    plain = {**header, **values["parallelism"], **values["plant"]}
    deployment: Deployment = _make(Deployment, parts | plain, ("parallelism", "plant"))
    return deployment


def _read(key: str, reader: _Reader, value: object) -> object:
    try:
        return reader(value)
    except (ValueError, OverflowError) as error:
        raise FieldError(key, str(error)) from None


def _make(kind: type[Any], values: Mapping[str, object], tables: tuple[str, ...]) -> Any:
    """Return kind(**values); what it lacks or refuses is called as in the file."""
    for field in fields(kind):
        if field.default is MISSING and field.name not in values:
            raise FieldError(_key_of(field.name, tables), "this key is missing")
    try:
        return kind(**values)
    except FieldError as error:
        raise FieldError(_key_of(error.field, tables), error.message) from None


def _key_of(name: str, tables: tuple[str, ...]) -> str:
    """Return what a person finds in the file."""
    for table in tables:
        for key, (field, _) in _TABLES[table].items():
            if field == name:
                return f"{table}.{key}"
    return name
