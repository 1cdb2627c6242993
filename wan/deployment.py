"""A training deployment: from a model and how it is laid out over racks to the bytes that each GPU sends.

Formulas: "I've Got 99 Problems But FLOPS Ain't One", HotNets '24, arXiv 2407.12819, and the ring collectives of
`wan.collectives`.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields

from wan.checks import check_name, check_not_negative, check_positive, check_whole
from wan.collectives import LocalStage
from wan.units import parse_rate, parse_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A model trained on two coasts, one replica of a layer on `tensor` GPUs, `replicas_per_rack` of them in a rack.

    layers, hidden, sequence, vocabulary: of the transformer. tensor, pipeline, data: degrees of parallelism;
    gpus_per_rack must equal tensor * replicas_per_rack. racks: what is bought, where that is not exactly what the
    parallelism needs. scale_up_Bps: bytes/s of a GPU inside its rack; scale_out_bps: bit/s of a GPU inside its site,
    over `planes` planes. scale_up_latency_s, scale_out_latency_s: what each step of a ring takes besides its bytes,
    seconds. wan_rtt_s: round trip between the coasts, seconds.
    gradient_bytes_per_parameter: 0.5 is FP4. Raises ValueError naming the field.
    """

    name: str
    layers: int
    hidden: int
    sequence: int
    vocabulary: int
    tensor: int
    pipeline: int
    data: int
    replicas_per_rack: int
    gpus_per_rack: int
    scale_up_Bps: float  # noqa: N815 (bytes per second are written B/s)
    scale_out_bps: float
    planes: int
    wan_rtt_s: float
    sites: int = 2
    racks: int | None = None
    gradient_bytes_per_parameter: float = 0.5
    scale_up_latency_s: float = 0.0
    scale_out_latency_s: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        """Check the numbers, and that the layout comes out even."""
        check_name("name", self.name)
        for field in ("layers", "hidden", "sequence", "vocabulary", "tensor", "pipeline", "data"):
            check_whole(field, getattr(self, field), 1)
        for field in ("replicas_per_rack", "gpus_per_rack", "planes"):
            check_whole(field, getattr(self, field), 1)
        for field in ("scale_up_Bps", "scale_out_bps", "gradient_bytes_per_parameter"):
            check_positive(field, getattr(self, field))
        for field in ("wan_rtt_s", "scale_up_latency_s", "scale_out_latency_s"):
            check_not_negative(field, getattr(self, field))
        if self.sites != 2:
            raise ValueError(f"sites: {self.sites!r} is not 2, and partners on two coasts are all this describes")
        if self.gpus_per_rack != self.tensor * self.replicas_per_rack:
            raise ValueError(
                f"gpus_per_rack: {self.gpus_per_rack} is not tensor * replicas_per_rack, "
                f"{self.tensor * self.replicas_per_rack}"
            )
        if self.layers % self.pipeline:
            raise ValueError(f"pipeline: {self.pipeline} stages do not divide {self.layers} layers")
        if self.data % (self.sites * self.replicas_per_rack):
            raise ValueError(
                f"data: {self.data} replicas do not fill whole racks of {self.replicas_per_rack} at {self.sites} sites"
            )
        if self.racks is not None:
            check_whole("racks", self.racks, 1)

    @property
    def parameters(self) -> int:
        """Parameters of the model: 12 L h^2 in its layers and 2 V h in its embeddings."""
        return 12 * self.layers * self.hidden**2 + 2 * self.vocabulary * self.hidden

    @property
    def parameters_per_gpu_layer(self) -> float:
        """Parameters of one layer that one GPU holds: 12 h^2 / t."""
        return 12 * self.hidden**2 / self.tensor

    @property
    def gradient_bytes(self) -> float:
        """Gradients of one GPU, all layers of its pipeline stage."""
        return self.layers // self.pipeline * self.parameters_per_gpu_layer * self.gradient_bytes_per_parameter

    @property
    def racks_per_layer_and_site(self) -> int:
        """Racks at one coast that hold replicas of the same pipeline stage."""
        return self.data // self.sites // self.replicas_per_rack

    @property
    def racks_needed(self) -> int:
        """Racks that the parallelism takes, both coasts."""
        return self.pipeline * self.sites * self.racks_per_layer_and_site

    @property
    def gpu_pairs(self) -> int:
        """Pairs of partners on the two coasts, one for every two GPUs of the racks bought (else needed)."""
        return (self.racks if self.racks is not None else self.racks_needed) * self.gpus_per_rack // 2

    @property
    def messages_per_step(self) -> int:
        """Messages across the WAN in one training step: each pair, both directions."""
        return 2 * self.gpu_pairs

    @property
    def messages_per_layer(self) -> int:
        """Messages across the WAN for one pipeline stage's group of GPUs, both directions."""
        return 2 * self.racks_per_layer_and_site * self.gpus_per_rack

    @property
    def wide_area_shard_bytes(self) -> int:
        """What one GPU sends its partner: its gradients, reduced over the rack and then over the site's racks."""
        return round(self.gradient_bytes / self.replicas_per_rack / self.racks_per_layer_and_site)

    @property
    def local_stages(self) -> tuple[LocalStage, ...]:
        """The stages inside a coast, in their order; the wide-area stage, the paper's third, comes after the second.

        The second is a whole all-reduce, as published, although a reduce-scatter would do before the wide-area stage.
        """
        rack, site = self.replicas_per_rack, self.racks_per_layer_and_site
        up = {"rate_Bps": self.scale_up_Bps, "latency_s": self.scale_up_latency_s}
        out = {"rate_Bps": self.scale_out_bps / 8, "latency_s": self.scale_out_latency_s}
        whole, part = self.gradient_bytes, self.gradient_bytes / rack
        return (
            LocalStage(name="1 rack", collective="all-reduce", ranks=rack, volume_bytes=whole, **up),
            LocalStage(name="2 datacenter", collective="all-reduce", ranks=site, volume_bytes=part, **out),
            LocalStage(name="4 datacenter", collective="all-gather", ranks=site, volume_bytes=part, **out),
            LocalStage(name="5 rack", collective="all-gather", ranks=rack, volume_bytes=whole, **up),
        )

    @property
    def local_s(self) -> float:
        """Time inside a coast, before and after the wide-area stage, seconds."""
        return sum(stage.time_s for stage in self.local_stages)


_SECTIONS = {
    "model": ("layers", "hidden", "sequence", "vocabulary", "gradient_bytes_per_parameter"),
    "parallelism": ("tensor", "pipeline", "data", "replicas_per_rack"),
    "plant": (
        "sites",
        "racks",
        "gpus_per_rack",
        "scale_up",
        "scale_out",
        "scale_up_latency",
        "scale_out_latency",
        "planes",
        "wan_rtt",
    ),
}
_RATES = {"scale_up": "scale_up_Bps", "scale_out": "scale_out_bps"}
_TIMES = {key: f"{key}_s" for key in ("scale_up_latency", "scale_out_latency", "wan_rtt")}
_WHOLE = {key for keys in _SECTIONS.values() for key in keys} - {"gradient_bytes_per_parameter", *_RATES, *_TIMES}


def deployment_from_mapping(mapping: Mapping[str, object]) -> Deployment:
    """Return the deployment that a file describes: `name`, `source`, and the tables of `_SECTIONS`.

    Rates, latencies and `wan_rtt` are text with a unit. Raises ValueError, in one sentence that begins with
    the key, for keys that are unknown or missing and for values of the wrong kind.
    """
    values: dict[str, object] = {}
    for key, value in mapping.items():
        if key in ("name", "source"):
            if not isinstance(value, str):
                raise ValueError(f"{key}: {value!r} is not text")
            values[key] = value
        elif key not in _SECTIONS:
            raise ValueError(f"{key}: there is no such key; expected name, source, {', '.join(_SECTIONS)}")
        elif not isinstance(value, Mapping):
            raise ValueError(f"{key}: {value!r} is not a table")
        else:
            for inner, inner_value in value.items():
                if inner not in _SECTIONS[key]:
                    raise ValueError(f"{key}.{inner}: there is no such key; expected {', '.join(_SECTIONS[key])}")
                field, converted = _read(f"{key}.{inner}", inner, inner_value)
                values[field] = converted
    for field_info in fields(Deployment):
        if field_info.default is MISSING and field_info.name not in values:
            raise ValueError(f"{_key_of(field_info.name)}: this key is missing")
    try:
        return Deployment(**values)  # type: ignore[arg-type]  # _read has checked each one's type
    except ValueError as error:
        field, colon, rest = str(error).partition(":")
        raise ValueError(f"{_key_of(field)}{colon}{rest}") from None


def _key_of(field: str) -> str:
    """Return what a person finds in the file."""
    key = {value: key for key, value in (_RATES | _TIMES).items()}.get(field, field)
    return next((f"{section}.{key}" for section, inner in _SECTIONS.items() if key in inner), key)


def _read(key: str, name: str, value: object) -> tuple[str, object]:
    if name in _WHOLE:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{key}: {value!r} is not a whole number")
        return name, value
    if name == "gradient_bytes_per_parameter":
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"{key}: {value!r} is not a number")
        return name, float(value)
    if not isinstance(value, str):
        raise ValueError(f"{key}: {value!r} is not text with a unit")
    try:
        if name in _TIMES:
            return _TIMES[name], parse_time(value)
        return _RATES[name], parse_rate(value) / (8 if name == "scale_up" else 1)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
