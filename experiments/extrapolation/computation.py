"""The compute side: how published times of computation relate to one another, with the efficiency as an input."""

from wan.transformer import Transformer


def full_over_selective(model: Transformer) -> float:
    """Return the time of a step that recomputes everything, over that of one that recomputes attention's core alone.

    Both at the same efficiency, so it is the ratio of their operations: four passes against three and attention's
    core once more (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv
    2205.05198, appendix A).
    """
    return model.training_flops("full") / model.training_flops("selective")


def time_to_train_s(
    model: Transformer, *, tokens: float, gpus: int, flops: float, efficiency: float, bubble: float = 0.0
) -> float:
    """Return the time that `tokens` take on `gpus` of peak `flops`, of which computation reaches `efficiency`.

    bubble: the part of the time in which the pipeline is not full (see `bubble_share`). Selective recomputation.
    """
    operations = tokens / model.sequence * model.training_flops("selective")
    return operations / (gpus * flops * efficiency) / (1 - bubble)


def scaled_time(time: float, *, gpus: int, to_gpus: int, bubble: float = 0.0, to_bubble: float = 0.0) -> float:
    """Return the time that the same tokens take on `to_gpus` when they take `time` on `gpus`, at the same efficiency.

    Strong scaling: the two differ by the number of GPUs and by how much of the time their pipelines are not full.
    """
    return time * gpus / to_gpus * (1 - bubble) / (1 - to_bubble)


def bubble_share(*, pipeline: int, micro_batches: float, interleaved: int = 1) -> float:
    """Return the part of a step in which a pipeline stage waits: (p - 1) / (v m + p - 1).

    p stages of v parts each, m micro-batches (Narayanan et al., arXiv 2104.04473 §2.2: the bubble is (p - 1) / (v m)
    of the time that the computation takes).
    """
    waiting = (pipeline - 1) / interleaved
    return waiting / (micro_batches + waiting)
