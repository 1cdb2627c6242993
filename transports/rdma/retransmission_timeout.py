"""The retransmission timeout of both RDMA transports.

It is a multiple of the round-trip time, as models of long-haul RDMA have it (3 in arXiv 2505.05366, "SDR-RDMA").
Repeated timeouts without an answer double it, so that a path that is down is not flooded.
"""

from bicoastal.transports.paced.paced_path import PacedPath

CONSTANT_TIMEOUTS = 3  # in a row without an answer; the next ones are doubled
MAX_DOUBLINGS = 8
LONGEST_RTO_S = 8.0


def retransmission_timeout_s(path: PacedPath, rto_rtts: float, timeouts: int) -> float:
    """Return the timeout of a path after `timeouts` in a row without an answer, seconds.

    rto_rtts: in smoothed round-trip times. The time that one packet takes at the path's rate is added.
    """
    rto_s = path.srtt_s * rto_rtts + path.health.packet_s
    doublings = min(max(timeouts - CONSTANT_TIMEOUTS, 0), MAX_DOUBLINGS)
    return max(rto_s, min(rto_s * 2.0**doublings, LONGEST_RTO_S))
