"""Bandwidth functions: the rate of an application, or of a group of them, at a given fair share.

Jain et al., "B4: Experience with a Globally-Deployed Software Defined WAN", SIGCOMM 2013, §4.2. The fair share is the
paper's dimensionless scale of priority. An application's function rises with its weight until its demand is met; the
function of a flow group is the sum of its applications' functions, hence piecewise linear and concave.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum

from bicoastal.wan.checks import FieldError, check_name, check_not_negative, check_positive
from bicoastal.wan.units import INFINITY

FAIR_SHARE_UNIT_BPS = 1e9
"""The rate of weight 1 at fair share 1: the paper's bandwidth functions are drawn in Gbit/s (Figure 6)."""

LEAST_WEIGHT, LARGEST_WEIGHT = 1e-9, 1e9  # between them every fair share is finite, whatever the demand


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """The demand of one application (here: one job) between two sites.

    weight: its priority, the slope of its bandwidth function in Gbit/s per unit of fair share; 1e-9 to 1e9.
    demand_bps: the rate at which it is satisfied, bit/s; `INFINITY` asks for as much as there is.
    Raises FieldError.
    """

    name: str
    weight: float
    demand_bps: float

    def __post_init__(self) -> None:
        """Check every field."""
        check_name("name", self.name)
        check_positive("weight", self.weight)
        if not LEAST_WEIGHT <= self.weight <= LARGEST_WEIGHT:
            raise FieldError("weight", f"{self.weight!r} is not between {LEAST_WEIGHT:g} and {LARGEST_WEIGHT:g}")
        if self.demand_bps != INFINITY:
            check_not_negative("demand_bps", self.demand_bps)

    @property
    def slope_bps(self) -> float:
        """The rate for one unit of fair share, bit/s."""
        return self.weight * FAIR_SHARE_UNIT_BPS

    @property
    def satisfied_at(self) -> float:
        """The fair share at which the demand is met."""
        return self.demand_bps / self.slope_bps

    def bps_at(self, fair_share: float) -> float:
        """Return the rate of the application at this fair share, bit/s."""
        return self.demand_bps if fair_share >= self.satisfied_at else self.slope_bps * fair_share


@dataclass(frozen=True, slots=True)
class BandwidthFunction:
    """The bandwidth of a flow group by fair share: the sum of its applications' functions (§4.2).

    shares: where the slope changes, ascending, from 0; values_bps: the bandwidth there.
    slopes_bps: the slope after each of them, bit/s per unit of fair share; the last is 0 unless a demand is infinite.
    """

    applications: tuple[Application, ...]
    shares: tuple[float, ...] = field(init=False, repr=False, compare=False)
    values_bps: tuple[float, ...] = field(init=False, repr=False, compare=False)
    slopes_bps: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compose the function. Every value is a sum of its own, so that rounding errors do not add up."""
        asking = sorted((each for each in self.applications if each.demand_bps > 0), key=lambda each: each.satisfied_at)
        ends = [each.satisfied_at for each in asking]
        shares = (0.0, *sorted({end for end in ends if end < INFINITY}))
        object.__setattr__(self, "shares", shares)
        object.__setattr__(self, "values_bps", tuple(_total_bps(asking, share) for share in shares))
        object.__setattr__(
            self,
            "slopes_bps",
            tuple(fsum(each.slope_bps for each in asking[bisect_right(ends, share) :]) for share in shares),
        )

    @property
    def demand_bps(self) -> float:
        """The bandwidth at which every application is satisfied, bit/s."""
        return INFINITY if self.slopes_bps[-1] else self.values_bps[-1]

    def bps_at(self, fair_share: float) -> float:
        """Return the bandwidth of the group at this fair share (0 to infinity), bit/s."""
        if fair_share == INFINITY:
            return self.demand_bps
        at = bisect_right(self.shares, fair_share) - 1
        return self.values_bps[at] + self.slopes_bps[at] * (fair_share - self.shares[at])

    def fair_share_at(self, bandwidth_bps: float) -> float:
        """Return the least fair share that gives this bandwidth; infinite when it satisfies the demand."""
        if bandwidth_bps >= self.demand_bps:
            return INFINITY
        at = max(0, bisect_left(self.values_bps, bandwidth_bps) - 1)
        if not self.slopes_bps[at]:  # a demand so small that the smallest fair share meets it
            return self.shares[at]
        return self.shares[at] + (bandwidth_bps - self.values_bps[at]) / self.slopes_bps[at]


def _total_bps(applications: Sequence[Application], fair_share: float) -> float:
    return fsum(each.bps_at(fair_share) for each in applications)
