"""The assumptions of the closed forms where published ones differ. Each is a parameter with a name."""

from dataclasses import dataclass
from typing import Literal

from bicoastal.wan.checks import FieldError, check_not_negative, check_whole

Reduction = Literal["all-reduce", "reduce-scatter"]
REDUCTIONS: tuple[Reduction, ...] = ("all-reduce", "reduce-scatter")
MOST = 1_000_000  # chunks, or passes to hide behind
NETWORKS = ("tensor", "rack", "datacenter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """How the stages follow one another, and what computation hides of them. Raises FieldError.

    wan_trips: one-way trips between the sites, one after another: 2 are a reduce-scatter and an all-gather, 1 is an
    exchange of everything, which is possible between two sites. wan_serialisation: whether the bytes take time on the
    WAN, or its delay alone counts, as published. local_reduction: the two stages before the WAN: a whole all-reduce, as
    published, or the reduce-scatter that is enough. in_network: where switches add up (SHARP): any of "tensor",
    "rack", "datacenter". chunks: pieces in which the gradients go through the stages; with 1 each stage waits for the
    one before. cover_passes: how many backward passes of a micro-batch can hide the gradients of a stage. One, as
    published, holds for the second stage of the pipeline: when its last backward pass ends, that of the first stage is
    still to come. The first stage has none, the last one as many as there are stages before it. communication_covers:
    whether the tensor, pipeline and expert communication of a pass hides gradients too. count_recomputation: whether
    the backward pass takes the time of what it computes again.
    """

    wan_trips: int = 2
    wan_serialisation: bool = True
    local_reduction: Reduction = "all-reduce"
    in_network: tuple[str, ...] = ()
    chunks: int = 1
    cover_passes: float = 1.0
    communication_covers: bool = False
    count_recomputation: bool = True

    def __post_init__(self) -> None:
        """Check every field."""
        if self.wan_trips not in (1, 2) or isinstance(self.wan_trips, bool):
            raise FieldError("wan_trips", f"{self.wan_trips!r} is neither 1 nor 2")
        for field in ("wan_serialisation", "communication_covers", "count_recomputation"):
            if not isinstance(getattr(self, field), bool):
                raise FieldError(field, f"{getattr(self, field)!r} is not true or false")
        if self.local_reduction not in REDUCTIONS:
            raise FieldError("local_reduction", f"{self.local_reduction!r} is not one of {', '.join(REDUCTIONS)}")
        if not isinstance(self.in_network, tuple) or not all(name in NETWORKS for name in self.in_network):
            raise FieldError("in_network", f"{self.in_network!r} is not a list of some of {', '.join(NETWORKS)}")
        for field in ("chunks", "cover_passes"):
            value = getattr(self, field)
            if isinstance(value, int | float) and value > MOST:
                raise FieldError(field, f"is more than {MOST:,}")
        check_whole("chunks", self.chunks, 1)
        check_not_negative("cover_passes", self.cover_passes)


PUBLISHED = Assumptions(wan_serialisation=False, count_recomputation=False)
"""What reproduces the figures of arXiv 2407.12819."""
