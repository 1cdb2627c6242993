"""A controller without a connection: the test takes the connection's part, and feeds the round-trip estimates."""

from bicoastal.transports.congestion.base import Ack, CongestionControl


def tell(congestion: CongestionControl, ack: Ack) -> None:
    """Tell a controller of an acknowledgement, as a connection does: the estimates take the sample first."""
    if ack.rtt_s is not None:
        congestion.rtt.add(ack.rtt_s)
    congestion.on_ack(ack)
