"""Collectives inside a coast: the time of a communication stage on the coast's own network."""

from dataclasses import dataclass
from typing import Literal

from bicoastal.wan.checks import FieldError, check_name, check_not_negative, check_positive, check_whole

Collective = Literal["reduce-scatter", "all-gather", "all-reduce", "all-to-all"]
_PASSES: dict[Collective, int] = {"reduce-scatter": 1, "all-gather": 1, "all-reduce": 2, "all-to-all": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStage:
    """One collective among `ranks` ranks over `volume_bytes`, the whole volume that each has before or after it.

    rate_Bps: bytes/s that one rank sends and receives at the same time. latency_s: additional time of each step, in
    seconds. in_network: the switches sum (SHARP), so that an all-reduce is one pass up and, at the same time, one down.
    Raises FieldError.
    """

    name: str
    collective: Collective
    ranks: int
    volume_bytes: float
    rate_Bps: float  # noqa: N815 (bytes per second are written B/s)
    latency_s: float = 0.0
    in_network: bool = False

    def __post_init__(self) -> None:
        """Check every field."""
        check_name("name", self.name)
        if self.collective not in _PASSES:
            raise FieldError("collective", f"{self.collective!r} is not one of {', '.join(_PASSES)}")
        check_whole("ranks", self.ranks, 1)
        check_positive("volume_bytes", self.volume_bytes)
        check_positive("rate_Bps", self.rate_Bps)
        check_not_negative("latency_s", self.latency_s)

    @property
    def sent_bytes(self) -> float:
        """Bytes that each rank sends: (n - 1)/n of the volume for each pass of a ring or an all-to-all.

        An all-reduce in the network sends the whole volume once (Graham et al., "Scalable Hierarchical Aggregation
        Protocol (SHArP)", COMHPC 2016). A reduce-scatter or an all-gather alone gains no bandwidth: one of the two
        directions of a rank's link carries as much as before.
        """
        if self.ranks == 1:
            return 0.0
        if self.in_network and self.collective == "all-reduce":
            return self.volume_bytes
        return _PASSES[self.collective] * (self.ranks - 1) / self.ranks * self.volume_bytes

    @property
    def latency_total_s(self) -> float:
        """Latency of all steps, in seconds: n - 1 for each pass of a ring, two where switches sum."""
        steps = min(2, self.ranks - 1) if self.in_network else _PASSES[self.collective] * (self.ranks - 1)
        return steps * self.latency_s

    @property
    def time_s(self) -> float:
        """Duration in seconds: for n ranks (n - 1) a + (n - 1)/n V / B, an all-reduce twice that.

        a: latency_s, V: volume_bytes, B: rate_Bps (Thakur, Rabenseifner, Gropp, "Optimization of collective
        communication operations in MPICH", IJHPCA 19(1), 2005: ring all-gather, and reduce-scatter likewise, and
        pairwise all-to-all).
        """
        return self.latency_total_s + self.sent_bytes / self.rate_Bps
