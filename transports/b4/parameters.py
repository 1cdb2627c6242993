"""The parameters of b4 and of the transports that share its controller."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from bicoastal.transports.b4.generation import MOST_ROUNDS
from bicoastal.transports.b4.quantise import quanta_in_one
from bicoastal.wan.checks import FieldError, check_positive, check_whole

LEAST_WEIGHT, LARGEST_WEIGHT = 1e-3, 1e3

LEAST_GRACE_S = 0.5
"""With real packets, a control message may be late by this much beyond its propagation delay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledParameters:
    """The parameters of every transport that sends at a controller's rates.

    rate_bps: a fixed rate per path, bits of IP packets per second; None lets a controller decide.
    weights: by job, such as "first=10, second=1"; a job that is not named has 1.
    deadlines: by job, such as "first=0.1": the time in seconds in which a burst is to arrive. A job that is not named
    has none, and its bursts are sent as fast as possible.
    site: where the controller stands; the first site of the topology if empty.
    quantum: the unit in which a flow's rate is split over its paths, such as 0.25 (§4.3 of the B4 paper); 1 divided by
    it must be a whole number. None leaves the split exact.
    rounds: how many times the tunnels of all flows are chosen; the most max-min fair result counts. In each round after
    the first, the bottlenecks of the round before cost more. The paper has one round.
    tunnels: how many paths of a flow may carry its traffic beyond the safe share; None for all.
    headroom: the share of every link that is not allocated, for acknowledgements and other small packets.
    safe_share: the share of every link that all flows together may use when they have lost the controller.
    lease_s: how long a grant is valid. grace_s: how much longer the controller keeps its capacity reserved, in addition
    to the longest propagation delay to a site; at least `LEAST_GRACE_S`. patience_s: how long a connection waits for
    its first grant. idle_hold_s: how long after a burst a flow keeps the rates that no other flow needs.
    Raises FieldError.
    """

    rate_bps: float | None = None
    weights: str = ""
    deadlines: str = ""
    site: str = ""
    quantum: float | None = None
    rounds: int = 1
    tunnels: int | None = None
    headroom: float = 0.005
    safe_share: float = 0.05
    lease_s: float = 6.0
    grace_s: float = 1.0
    patience_s: float = 1.0
    idle_hold_s: float = 30.0

    def __post_init__(self) -> None:
        """Check every field."""
        if self.rate_bps is not None:
            check_positive("rate_bps", self.rate_bps)
        if self.quantum is not None:
            quanta_in_one(self.quantum)
        check_whole("rounds", self.rounds, 1)
        if self.rounds > MOST_ROUNDS:
            raise FieldError("rounds", f"{self.rounds} is more than {MOST_ROUNDS}")
        if self.tunnels is not None:
            check_whole("tunnels", self.tunnels, 1)
        for job, weight in self.weight_of.items():
            if not LEAST_WEIGHT <= weight <= LARGEST_WEIGHT:
                raise FieldError("weights", f"{weight:g} of {job!r} is not from {LEAST_WEIGHT:g} to {LARGEST_WEIGHT:g}")
        for job, deadline_s in self.deadline_s_of.items():
            if deadline_s <= 0:
                raise FieldError("deadlines", f"{deadline_s:g} of {job!r} is not positive")
        for name in ("headroom", "safe_share"):
            if not 0 < getattr(self, name) < 1:
                raise FieldError(name, f"{getattr(self, name)} is not between 0 and 1")
        for name in ("lease_s", "grace_s", "patience_s", "idle_hold_s"):
            check_positive(name, getattr(self, name))
        if self.grace_s < LEAST_GRACE_S:
            raise FieldError("grace_s", f"{self.grace_s} is less than {LEAST_GRACE_S}, a late message's delay")

    @property
    def weight_of(self) -> Mapping[str, float]:
        """The weights by job."""
        return _by_job("weights", self.weights)

    @property
    def deadline_s_of(self) -> Mapping[str, float]:
        """The deadlines by job, seconds."""
        return _by_job("deadlines", self.deadlines)


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedParameters(ControlledParameters):
    """The parameters of the paced senders of this package.

    ack_every, ack_delay_s: the far end reports after so many packets, or so many seconds, whichever comes first.
    give_up_s: the endpoint fails when nothing has arrived for so long.
    """

    ack_every: int = 16
    ack_delay_s: float = 0.001
    give_up_s: float = 90.0

    def __post_init__(self) -> None:
        """Check every field."""
        ControlledParameters.__post_init__(self)
        check_positive("give_up_s", self.give_up_s)
        if not 0 <= self.ack_delay_s < 1:
            raise FieldError("ack_delay_s", f"{self.ack_delay_s} is not at least 0 and below 1")
        if self.ack_every < 1:
            raise FieldError("ack_every", f"{self.ack_every} is less than 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class B4Parameters(PacedParameters):
    """The parameters of b4.

    tail_copies: how many of a burst's last packets are sent twice, on each path. With 0, only the probe repairs a lost
    tail.
    """

    tail_copies: int = 2

    def __post_init__(self) -> None:
        """Check every field."""
        PacedParameters.__post_init__(self)
        if self.tail_copies < 0:
            raise FieldError("tail_copies", f"{self.tail_copies} is negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaParameters(PacedParameters):
    """The parameters of RDMA. rto_rtts: the retransmission timeout in round-trip times (3 in arXiv 2505.05366)."""

    rto_rtts: float = 3.0

    def __post_init__(self) -> None:
        """Check every field."""
        PacedParameters.__post_init__(self)
        if not 1 < self.rto_rtts < 1000:
            raise FieldError("rto_rtts", f"{self.rto_rtts} is not above 1 and below 1000")


def _by_job(field: str, text: str) -> dict[str, float]:
    values: dict[str, float] = {}
    for part in text.replace(",", " ").split():
        job, equals, number = part.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if not equals or not job or not isfinite(value):
            raise FieldError(field, f"{part!r} is not of the form job=number")
        if job in values:
            raise FieldError(field, f"{job!r} is there twice")
        values[job] = value
    return values
