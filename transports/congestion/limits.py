"""What a congestion controller sets: the window, the slow-start threshold and the pacing rate."""

from typing import NamedTuple


class Limits(NamedTuple):
    """The window and ssthresh, bytes, and the pacing rate, bit/s of payload (None: not paced)."""

    cwnd_bytes: float
    ssthresh_bytes: float
    pacing_rate_bps: float | None
