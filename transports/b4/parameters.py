"""What can be set on b4 and on the transports that share its controller."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from bicoastal.wan.checks import FieldError

LEAST_WEIGHT, LARGEST_WEIGHT = 1e-3, 1e3

LEAST_GRACE_S = 0.5
"""For so long words may be held up beyond their propagation delay, with real packets, before they are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledParameters:
    """What all have in common that keep to a controller's rates.

    rate_bps: a fixed pace per path, bits of IP packets per second; None lets a controller decide.
    weights, deadlines: by job, such as "first=10, second=1" (1 where a job is not named) and "first=0.1" (seconds in
    which a burst is to be across; as soon as possible where not named).
    site: where the controller stands, the first of the topology where empty.
    headroom: the share of every link that is not allocated, for acknowledgements and other small packets.
    safe_share: the share of every link that the flows may use together when they have lost the controller.
    lease_s: for so long a grant holds. grace_s: for so much longer the controller counts with it, beside the longest
    propagation delay to a site; at least `LEAST_GRACE_S`. patience_s: for so long a connection waits for its first
    grant. idle_hold_s: for so long after a burst a flow keeps its rates, as far as nobody else wants them.
    Raises ValueError naming the field.
    """

    rate_bps: float | None = None
    weights: str = ""
    deadlines: str = ""
    site: str = ""
    headroom: float = 0.005
    safe_share: float = 0.05
    lease_s: float = 6.0
    grace_s: float = 1.0
    patience_s: float = 1.0
    idle_hold_s: float = 30.0

    def __post_init__(self) -> None:
        """Check every field."""
        if self.rate_bps is not None and not 0 < self.rate_bps < float("inf"):
            raise FieldError("rate_bps", f"{self.rate_bps} is not positive and finite")
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
            _check_positive(name, getattr(self, name))
        if self.grace_s < LEAST_GRACE_S:
            raise FieldError("grace_s", f"{self.grace_s} is less than {LEAST_GRACE_S}, for which words may be held up")

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
    """What our own paced senders have in common.

    ack_every, ack_delay_s: packets, and seconds, after which the far end reports at the latest.
    give_up_s: how long nothing arrives before the endpoint fails.
    """

    ack_every: int = 16
    ack_delay_s: float = 0.001
    give_up_s: float = 90.0

    def __post_init__(self) -> None:
        """Check every field."""
        ControlledParameters.__post_init__(self)
        _check_positive("give_up_s", self.give_up_s)
        if not 0 <= self.ack_delay_s < 1:
            raise FieldError("ack_delay_s", f"{self.ack_delay_s} is not at least 0 and below 1")
        if self.ack_every < 1:
            raise FieldError("ack_every", f"{self.ack_every} is less than 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class B4Parameters(PacedParameters):
    """b4's own. tail_copies: how many of a burst's last packets are sent twice, per path; 0 leaves it to the probe."""

    tail_copies: int = 2

    def __post_init__(self) -> None:
        """Check every field."""
        PacedParameters.__post_init__(self)
        if self.tail_copies < 0:
            raise FieldError("tail_copies", f"{self.tail_copies} is negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaParameters(PacedParameters):
    """RDMA's own. rto_rtts: the retransmission timeout in round-trip times (3 in arXiv 2505.05366)."""

    rto_rtts: float = 3.0

    def __post_init__(self) -> None:
        """Check every field."""
        PacedParameters.__post_init__(self)
        if not 1 < self.rto_rtts < 1000:
            raise FieldError("rto_rtts", f"{self.rto_rtts} is not above 1 and below 1000")


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise FieldError(name, f"{value} is not positive and finite")


def job_of(flow: str) -> str:
    """Return the job that a flow belongs to: what comes before the first slash of its name."""
    return flow.partition("/")[0]


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
