"""A training deployment: calculates the bytes that each GPU sends from a model and its layout over racks.

Formulas: "I've Got 99 Problems But FLOPS Ain't One", HotNets '24, arXiv 2407.12819, and the collectives of
`wan.collectives`. Here a rack means the GPUs that one scale-up network joins: a rack of 72 GPUs, or a node of 8.
"""

from dataclasses import dataclass
from math import ceil

from bicoastal.wan.checks import FieldError, check_name, check_not_negative, check_positive, check_whole
from bicoastal.wan.collectives import Collective, LocalStage
from bicoastal.wan.transformer import RECOMPUTATIONS, Recomputation, Transformer

ROUNDED = 1e-3  # allowed deficit of a published, rounded number of racks: 23,300 means 23,316 in arXiv 2407.12819


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes for each use of a number; the defaults are those of mixed-precision training in 16 bits.

    Kept in memory, per parameter: weights, gradients, optimizer (its moments and master weights). Sent, per parameter:
    gradient_messages in a reduce-scatter or all-reduce, weight_messages in the all-gathers that distribute the result.
    Sent, per element: tensor_activations, pipeline_activations, expert_activations. Kept, per element: activations. FP4
    is 0.5. Raises FieldError.
    """

    weights: float = 2.0
    gradients: float = 4.0
    optimizer: float = 12.0
    gradient_messages: float = 4.0
    weight_messages: float = 2.0
    tensor_activations: float = 2.0
    pipeline_activations: float = 2.0
    expert_activations: float = 2.0
    activations: float = 2.0

    def __post_init__(self) -> None:
        """Check every field."""
        for field in self.__slots__:
            check_positive(field, getattr(self, field))

    @property
    def state(self) -> float:
        """Bytes per parameter that training keeps: weights, gradients and optimizer."""
        return self.weights + self.gradients + self.optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """An accelerator: peak flops (operations/s) at the precision that it computes in, and memory_bytes.

    efficiency: the share of the peak that the layers reach, without communication and pipeline effects. Raises
    ValueError naming the field.
    """

    flops: float
    memory_bytes: float
    efficiency: float = 1.0

    def __post_init__(self) -> None:
        """Check every field."""
        for field in self.__slots__:
            check_positive(field, getattr(self, field))
        if self.efficiency > 1:
            raise FieldError("efficiency", f"{self.efficiency!r} is more than 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A model that is trained at one or two sites. A replica of a layer takes `tensor` GPUs of a rack.

    tensor, pipeline, data: degrees of parallelism; gpus_per_rack must equal tensor * replicas_per_rack. expert: number
    of replicas that share the experts of a layer, 1 without experts. zero: the state that is divided among the replicas
    instead of being stored by each: 0 nothing, 1 the optimizer's part, 2 the gradients too (Rajbhandari et al., "ZeRO",
    SC '20). micro_batch: sequences of one micro-batch. micro_batches: of one step and replica. racks: the number
    bought, where it is not exactly the number that the parallelism needs. It may be larger, or smaller by the rounding
    of a published number (`ROUNDED`). scale_up_Bps: bytes/s of a GPU inside its rack. scale_out_bps: bit/s of a GPU
    inside its site, over `planes` planes. scale_up_latency_s, scale_out_latency_s: additional time of each step of a
    collective, in seconds. wan_rtt_s: round trip between the sites, seconds. wan_bps: bit/s of a GPU between the sites,
    None where it is to be found.
    Raises FieldError.
    """

    name: str
    model: Transformer
    precision: Precision
    gpu: Gpu
    tensor: int
    pipeline: int
    data: int
    replicas_per_rack: int
    gpus_per_rack: int
    scale_up_Bps: float  # noqa: N815 (bytes per second are written B/s)
    scale_out_bps: float
    planes: int
    expert: int = 1
    zero: int = 0
    micro_batch: int = 1
    micro_batches: int = 1
    recomputation: Recomputation = "selective"
    sites: int = 2
    racks: int | None = None
    scale_up_latency_s: float = 0.0
    scale_out_latency_s: float = 0.0
    wan_rtt_s: float = 0.0
    wan_bps: float | None = None
    source: str = ""

    def __post_init__(self) -> None:
        """Check the numbers, and that the layout fills whole racks."""
        check_name("name", self.name)
        for field in ("tensor", "pipeline", "data", "expert", "replicas_per_rack", "gpus_per_rack", "planes"):
            check_whole(field, getattr(self, field), 1)
        for field in ("micro_batch", "micro_batches"):
            check_whole(field, getattr(self, field), 1)
        for field in ("scale_up_Bps", "scale_out_bps"):
            check_positive(field, getattr(self, field))
        for field in ("wan_rtt_s", "scale_up_latency_s", "scale_out_latency_s"):
            check_not_negative(field, getattr(self, field))
        if self.zero not in (0, 1, 2):
            raise FieldError("zero", f"{self.zero!r} is not 0, 1 or 2")
        if self.recomputation not in RECOMPUTATIONS:
            raise FieldError("recomputation", f"{self.recomputation!r} is not one of {', '.join(RECOMPUTATIONS)}")
        if self.sites not in (1, 2):
            raise FieldError("sites", f"{self.sites!r} is neither 1 nor 2, and partners at two are all this describes")
        if self.sites == 2:
            check_positive("wan_rtt_s", self.wan_rtt_s)
        if self.wan_bps is not None:
            check_positive("wan_bps", self.wan_bps)
        if self.racks is not None:
            check_whole("racks", self.racks, 1)
        self._check_layout()
        self._check_plant()

    def _check_layout(self) -> None:
        if self.gpus_per_rack != self.tensor * self.replicas_per_rack:
            raise FieldError(
                "gpus_per_rack",
                f"{self.gpus_per_rack} is not tensor * replicas_per_rack, {self.tensor * self.replicas_per_rack}",
            )
        if self.pipeline > self.model.layers:
            raise FieldError("pipeline", f"{self.pipeline} stages are more than {self.model.layers} layers")
        if self.data % (self.sites * self.replicas_per_rack):
            raise FieldError(
                "data",
                f"{self.data} replicas do not fill whole racks of {self.replicas_per_rack} at "
                f"{'one site' if self.sites == 1 else '2 sites'}",
            )
        if self.model.experts % self.expert:
            raise FieldError("expert", f"{self.expert} replicas do not divide {self.model.experts} experts")
        inner, outer = sorted((self.expert, self.replicas_per_rack))
        if outer % inner or self.racks_per_layer_and_site % self.racks_per_expert_group:
            raise FieldError(
                "expert",
                f"{self.expert} replicas are no whole part or multiple of the {self.replicas_per_rack} in a "
                f"rack that divides the {self.racks_per_layer_and_site} racks of a layer at a site",
            )

    def _check_plant(self) -> None:
        if self.racks is not None and self.racks < (1 - ROUNDED) * self.racks_needed:
            held, needed = (count * self.gpus_per_rack for count in (self.racks, self.racks_needed))
            raise FieldError(
                "racks",
                f"{self.racks:,} of {self.gpus_per_rack} hold {held:,} GPUs, and tensor * pipeline * data, "
                f"{self.tensor} * {self.pipeline} * {self.data}, take {needed:,}",
            )

    # -- how many ------------------------------------------------------------------------------------------------------

    @property
    def layers_per_stage(self) -> int:
        """Layers of a pipeline stage; of the largest one where the layers do not divide evenly."""
        return ceil(self.model.layers / self.pipeline)

    @property
    def racks_per_layer_and_site(self) -> int:
        """Racks at one site that hold replicas of the same pipeline stage."""
        return self.data // self.sites // self.replicas_per_rack

    @property
    def racks_per_expert_group(self) -> int:
        """Racks that share one set of a layer's experts between them."""
        return max(1, self.expert // self.replicas_per_rack)

    @property
    def racks_needed(self) -> int:
        """Racks that the parallelism needs, at all sites."""
        return self.pipeline * self.sites * self.racks_per_layer_and_site

    @property
    def gpus(self) -> int:
        """GPUs in use at all sites: those of the racks needed, or of the racks bought where these are fewer."""
        return min(self.racks_needed, self.racks or self.racks_needed) * self.gpus_per_rack

    @property
    def gpu_pairs(self) -> int:
        """Pairs of partners at the two sites, one for every two GPUs; none where there is one site."""
        return self.gpus // 2 if self.sites == 2 else 0

    @property
    def messages_per_step(self) -> int:
        """Messages across the WAN in one training step and trip: each pair, both directions."""
        return 2 * self.gpu_pairs

    @property
    def messages_per_layer(self) -> int:
        """Messages across the WAN for one pipeline stage's group of GPUs, both directions."""
        return 2 * self.racks_per_layer_and_site * self.gpus_per_rack if self.sites == 2 else 0

    # -- how much ------------------------------------------------------------------------------------------------------

    @property
    def shared_parameters_per_gpu(self) -> float:
        """Parameters of a stage's layers on one GPU that every replica has: 12 h^2 / t for each without experts."""
        model = self.model
        layer = model.attention_parameters + (model.expert_parameters if model.experts == 1 else 0.0)
        return self.layers_per_stage * layer / self.tensor

    @property
    def expert_parameters_per_gpu(self) -> float:
        """Parameters of the experts of a stage's layers on one GPU; 0 where there are none."""
        model = self.model
        if model.experts == 1:
            return 0.0
        return self.layers_per_stage * model.experts // self.expert * model.expert_parameters / self.tensor

    @property
    def parameters_per_gpu(self) -> float:
        """Parameters on one GPU of the first pipeline stage, which has the input's embedding too.

        Where that is the last one as well, it has the output's, unless they share a matrix.
        """
        matrices = self.model.embeddings if self.pipeline == 1 else 1
        embeddings = matrices * self.model.embedding_parameters / self.tensor
        return self.shared_parameters_per_gpu + self.expert_parameters_per_gpu + embeddings

    @property
    def gradient_bytes(self) -> float:
        """Gradients of one GPU's layers as they are sent; those of the embeddings are neglected, as published."""
        whole = self.shared_parameters_per_gpu + self.expert_parameters_per_gpu
        return whole * self.precision.gradient_messages

    def wide_area_bytes(self, trips: int) -> float:
        """Bytes that one GPU sends its partner in one direction, over all trips.

        These are its gradients after the reductions over the rack and over the site's racks. One trip (an exchange)
        sends all of them. Of two trips, the first sends half of the gradients, and the second half of the result's
        weights. Raises FieldError for another number of trips.
        """
        if trips not in (1, 2):
            raise FieldError("trips", f"{trips!r} is neither 1 nor 2")
        if self.sites == 1:
            return 0.0
        shared = self.shared_parameters_per_gpu / (self.replicas_per_rack * self.racks_per_layer_and_site)
        experts = (
            self.expert_parameters_per_gpu * self.expert / (self.replicas_per_rack * self.racks_per_layer_and_site)
        )
        sent = self.precision.gradient_messages
        if trips == 2:
            sent = (sent + self.precision.weight_messages) / 2
        return (shared + experts) * sent

    @property
    def wide_area_shard_bytes(self) -> int:
        """Bytes that one GPU sends its partner in an exchange: its gradients, reduced over the site's racks."""
        return round(self.wide_area_bytes(1))

    @property
    def local_stages(self) -> tuple[LocalStage, ...]:
        """The stages inside a site, in their order; the wide-area stage, the paper's third, comes after the second.

        The second is a whole all-reduce, as published, although a reduce-scatter would do before the wide-area stage.
        Experts are reduced over fewer replicas than the rest, in stages of their own.
        """
        group = min(self.expert, self.replicas_per_rack)
        shared = self._stages_of(self.shared_parameters_per_gpu, self.replicas_per_rack, self.racks_per_layer_and_site)
        if self.model.experts == 1:
            return shared
        experts = self._stages_of(
            self.expert_parameters_per_gpu,
            self.replicas_per_rack // group,
            self.racks_per_layer_and_site // self.racks_per_expert_group,
            ", experts",
        )
        return tuple(stage for pair in zip(shared, experts, strict=True) for stage in pair)

    def _stages_of(self, parameters: float, rack: int, site: int, suffix: str = "") -> tuple[LocalStage, ...]:
        precision = self.precision
        summed, gathered = parameters * precision.gradient_messages, parameters * precision.weight_messages

        def in_rack(name: str, collective: Collective, volume_bytes: float) -> LocalStage:
            return LocalStage(
                name=name + suffix,
                collective=collective,
                ranks=rack,
                volume_bytes=volume_bytes,
                rate_Bps=self.scale_up_Bps,
                latency_s=self.scale_up_latency_s,
            )

        def in_site(name: str, collective: Collective, volume_bytes: float) -> LocalStage:
            return LocalStage(
                name=name + suffix,
                collective=collective,
                ranks=site,
                volume_bytes=volume_bytes,
                rate_Bps=self.scale_out_bps / 8,
                latency_s=self.scale_out_latency_s,
            )

        return (
            in_rack("1 rack", "all-reduce", summed),
            in_site("2 datacenter", "all-reduce", summed / rack),
            in_site("4 datacenter", "all-gather", gathered / rack),
            in_rack("5 rack", "all-gather", gathered),
        )

    @property
    def local_s(self) -> float:
        """Time inside a site before and after the wide-area stage, in seconds."""
        return sum(stage.time_s for stage in self.local_stages)
