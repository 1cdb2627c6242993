"""The compute side: how published times of computation relate to one another, with the efficiency as an input."""

from bicoastal.wan.transformer import Transformer


def full_over_selective(model: Transformer) -> float:
    """Return the time of a step that recomputes everything, over that of one that recomputes attention's core alone.

    Both at the same efficiency, so it is the ratio of their operations: four passes against three and attention's
    core once more (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv
    2205.05198, appendix A).
    """
    return model.training_flops("full") / model.training_flops("selective")


def time_to_train_s(model: Transformer, *, tokens: float, gpus: int, flops: float, efficiency: float) -> float:
    """Return the time that `tokens` take on `gpus` of peak `flops`, of which computation reaches `efficiency`.

    With selective recomputation, a pipeline that is always full, and no exposed communication.
    """
    operations = tokens / model.sequence * model.training_flops("selective")
    return operations / (gpus * flops * efficiency)


def scaled_time(time: float, *, gpus: int, to_gpus: int) -> float:
    """Return what the same tokens take on `to_gpus` when they take `time` on `gpus`, at the same efficiency."""
    return time * gpus / to_gpus


def bubble_share(*, pipeline: int, micro_batches: int) -> float:
    """Return the part of a step in which a pipeline stage waits: (p - 1) / (m + p - 1).

    p stages, m micro-batches, one forward and one backward pass at a time (1F1B; Narayanan et al., arXiv 2104.04473
    §2.2: the bubble is (p - 1) / m of the time in which a stage works). Stages of several parts each wait less.
    """
    return (pipeline - 1) / (micro_batches + pipeline - 1)
