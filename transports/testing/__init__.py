"""The conformance suite for sans-IO transports, for ours and for third parties' alike.

    from random import Random
    from bicoastal.transports.testing import check_transport

    check_transport(MY_SPEC, rng_factory=Random).raise_on_failure()

Each schedule is a handful of messages over paths that lose, reorder, duplicate, corrupt and fall dark, in virtual time.
A failure names its schedule, and `check_transport(MY_SPEC, rng_factory=Random, only=417)` runs that one again.
"""

from bicoastal.transports.testing.conformance import ConformanceError, ConformanceReport, Violation, check_transport
from bicoastal.transports.testing.schedules import Garbage, Offer, Schedule, make_schedule

__all__ = [
    "ConformanceError",
    "ConformanceReport",
    "Garbage",
    "Offer",
    "Schedule",
    "Violation",
    "check_transport",
    "make_schedule",
]
