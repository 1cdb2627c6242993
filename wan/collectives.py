"""Ring collectives inside a coast: what a stage of the hierarchical all-reduce takes on the coast's own fabric."""

from dataclasses import dataclass
from typing import Literal

from wan.checks import check_name, check_not_negative, check_positive, check_whole

Collective = Literal["reduce-scatter", "all-gather", "all-reduce"]
_PASSES: dict[Collective, int] = {"reduce-scatter": 1, "all-gather": 1, "all-reduce": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStage:
    """One collective among `ranks` neighbours over `volume_bytes`, the whole that each of them has or ends up with.

    rate_Bps: bytes/s that one rank sends and, at the same time, receives. latency_s: what each step of the ring takes
    besides its bytes, seconds. Raises ValueError naming the field.
    """

    name: str
    collective: Collective
    ranks: int
    volume_bytes: float
    rate_Bps: float  # noqa: N815 (bytes per second are written B/s)
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        """Check every field."""
        check_name("name", self.name)
        if self.collective not in _PASSES:
            raise ValueError(f"collective: {self.collective!r} is not one of {', '.join(_PASSES)}")
        check_whole("ranks", self.ranks, 1)
        check_positive("volume_bytes", self.volume_bytes)
        check_positive("rate_Bps", self.rate_Bps)
        check_not_negative("latency_s", self.latency_s)

    @property
    def time_s(self) -> float:
        """Seconds from its beginning to its end: for n ranks (n - 1) a + (n - 1)/n V / B, an all-reduce twice that.

        a: latency_s, V: volume_bytes, B: rate_Bps (Thakur, Rabenseifner, Gropp, "Optimization of collective
        communication operations in MPICH", IJHPCA 19(1), 2005: ring all-gather, and reduce-scatter likewise).
        """
        steps = self.ranks - 1
        one_pass_s = steps * self.latency_s + steps / self.ranks * self.volume_bytes / self.rate_Bps
        return _PASSES[self.collective] * one_pass_s
