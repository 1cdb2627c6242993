"""The keys of a deployment's tables. What may be left out has its default from the class in `wan.deployment`."""

from bicoastal.experiments.scenario.keys import (
    Key,
    Section,
    choice_key,
    number_key,
    rate_key,
    size_key,
    text_key,
    time_key,
    truth_key,
    whole_key,
)
from bicoastal.wan.transformer import RECOMPUTATIONS

_MOST_WHOLE = 10**12
_LEAST, _MOST = 1e-15, 1e24  # no product of a few numbers in this range is infinite


def _whole(name: str, meaning: str, said: str = "required") -> Key[int]:
    return whole_key(name, meaning, least=0, most=_MOST_WHOLE, said=said)


def _number(name: str, meaning: str, said: str = "required") -> Key[float]:
    expected = f"a number from {_LEAST:g} to {_MOST:g}"
    return number_key(name, meaning, least=_LEAST, most=_MOST, expected=expected, said=said)


class DeploymentKeys(Section):
    """The head of the file."""

    title = "The head of the file"
    meaning = "Two keys before the first table."

    name = text_key("name", "The name of the deployment.")
    source = text_key("source", "Where its numbers were published.", default="")


class ModelKeys(Section):
    """[model]."""

    title = "[model]"
    meaning = "A decoder of equal layers."

    layers = _whole("layers", "The number of layers.")
    hidden = _whole("hidden", "The width of a layer.")
    sequence = _whole("sequence", "Tokens of a sequence.")
    vocabulary = _whole("vocabulary", "Tokens of the vocabulary.")
    heads = _whole("heads", "Attention heads.", "1")
    kv_heads = _whole("kv_heads", "Heads of keys and values; fewer than heads is grouped-query attention.", "as heads")
    ffn_hidden = _whole("ffn_hidden", "The width inside the feed-forward network.", "4 × hidden")
    ffn_matrices = _whole("ffn_matrices", "Matrices of that network: 2, or 3 where it is gated (SwiGLU).", "2")
    experts = _whole("experts", "Feed-forward networks side by side in each layer.", "1")
    experts_per_token = _whole("experts_per_token", "How many of the experts a token visits.", "1")
    embeddings = _whole("embeddings", "1 where input and output share their matrix, else 2.", "2")
    dropout = truth_key("dropout", "Whether the masks of dropout are kept in memory.", default=False)


class PrecisionKeys(Section):
    """[precision]."""

    title = "[precision]"
    meaning = "Bytes per parameter or element, in memory and in messages; FP4 is 0.5."

    weights = _number("weights", "In memory: a weight.", "2")
    gradients = _number("gradients", "In memory: a gradient.", "4")
    optimizer = _number("optimizer", "In memory: the optimizer's moments and master weight.", "12")
    gradient_messages = _number("gradient_messages", "Sent: a gradient in a reduce-scatter or an all-reduce.", "4")
    weight_messages = _number("weight_messages", "Sent: a weight in the all-gather that returns the result.", "2")
    tensor_activations = _number("tensor_activations", "Sent: an element in tensor parallelism.", "2")
    pipeline_activations = _number("pipeline_activations", "Sent: an element in pipeline parallelism.", "2")
    expert_activations = _number("expert_activations", "Sent: an element in expert parallelism.", "2")
    activations = _number("activations", "In memory: an activation.", "2")


class GpuKeys(Section):
    """[gpu]."""

    title = "[gpu]"
    meaning = "The accelerator."

    flops = _number("flops", "Peak operations per second at the precision that it computes in.")
    memory = size_key("memory", "Its memory.")
    efficiency = _number("efficiency", "The part of the peak that the layers reach, at most 1.", "1")


class ParallelismKeys(Section):
    """[parallelism]."""

    title = "[parallelism]"
    meaning = "How the model is divided between GPUs."

    tensor = _whole("tensor", "GPUs that share a layer.")
    pipeline = _whole("pipeline", "Stages of the pipeline.")
    data = _whole("data", "Replicas of the model.")
    replicas_per_rack = _whole("replicas_per_rack", "Replicas of a layer in a rack.")
    expert = _whole("expert", "Replicas that share the experts of a layer.", "1")
    zero = _whole("zero", "What replicas divide: 0 nothing, 1 the optimizer's part, 2 the gradients too (ZeRO).", "0")
    micro_batch = _whole("micro_batch", "Sequences of a micro-batch.", "1")
    micro_batches = _whole("micro_batches", "Micro-batches of a step, for each replica.", "1")
    recomputation = choice_key(
        "recomputation",
        "What the backward pass computes again instead of keeping it.",
        RECOMPUTATIONS,
        default="selective",
    )


class PlantKeys(Section):
    """[plant]."""

    title = "[plant]"
    meaning = "The sites, and the rates and delays of their networks."

    sites = _whole("sites", "1 or 2.", "2")
    racks = _whole("racks", "Racks that are bought.", "what the parallelism needs")
    gpus_per_rack = _whole("gpus_per_rack", "GPUs of a rack: tensor × replicas_per_rack.")
    scale_up = rate_key("scale_up", "The rate of a GPU inside its rack.")
    scale_out = rate_key("scale_out", "The rate of a GPU inside its site, over all planes.")
    scale_up_latency = time_key(
        "scale_up_latency", "What a step of a collective in a rack takes besides its bytes.", said='"0 s"'
    )
    scale_out_latency = time_key(
        "scale_out_latency", "What a step of a collective in a site takes besides its bytes.", said='"0 s"'
    )
    planes = _whole("planes", "Planes of the scale-out network and of the WAN.")
    wan = rate_key("wan", "The rate of a GPU between the sites.", said="open: it is what is asked for")
    wan_rtt = time_key("wan_rtt", "The round-trip time between the sites.", said='"0 s"')


TABLES: dict[str, type[Section]] = {
    "model": ModelKeys,
    "precision": PrecisionKeys,
    "gpu": GpuKeys,
    "parallelism": ParallelismKeys,
    "plant": PlantKeys,
}
SECTIONS: tuple[type[Section], ...] = (DeploymentKeys, *TABLES.values())
