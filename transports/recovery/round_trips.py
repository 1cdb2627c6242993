"""Estimates of a path's round trip: the filter of RFC 6298, and what congestion control reads of it. Seconds."""

from collections import deque

from bicoastal.wan.units import INFINITY

OLD_BURSTS = 4  # earlier bursts whose least round trips count


class SmoothedRtt:
    """SRTT and RTTVAR of RFC 6298 §2, from the samples that `add` takes. srtt_s: None before the first one."""

    __slots__ = ("rttvar_s", "srtt_s")

    def __init__(self) -> None:
        self.srtt_s: float | None = None
        self.rttvar_s = 0.0

    def add(self, rtt_s: float) -> None:
        """Take a sample."""
        srtt_s = self.srtt_s
        if srtt_s is None:  # RFC 6298 §2.2
            self.srtt_s = rtt_s
            self.rttvar_s = rtt_s / 2
        else:  # RFC 6298 §2.3, beta 1/4 and alpha 1/8: the variation first, with the old mean
            error_s = rtt_s - srtt_s
            self.rttvar_s += ((error_s if error_s > 0 else -error_s) - self.rttvar_s) * 0.25
            self.srtt_s = srtt_s + error_s * 0.125


class RoundTrips:
    """The round trips of data, as the congestion controller of a connection reads them.

    `RttEstimator` feeds it. Samples of the handshake do not count: its packets are small, and no window of data queued
    with them.

    srtt_s: of all samples since the last `restart`; None before the first one. CUBIC predicts its window by it.
    steady: of the lesser of each two successive samples. The receiver may delay the acknowledgement of a burst's last
    segment, and that sample shows nothing of the path.
    min_rtt_s: the least sample of this burst and the last few; None before the first one. It rises soon after the path
    has become longer. RACK's minimum, over minutes, does not.
    """

    __slots__ = ("_burst_min_s", "_old_minima_s", "_previous_s", "_recent", "min_rtt_s", "steady")

    def __init__(self) -> None:
        self.steady = SmoothedRtt()
        self.min_rtt_s: float | None = None
        self._recent = SmoothedRtt()
        self._previous_s = INFINITY
        self._burst_min_s: float | None = None
        self._old_minima_s: deque[float] = deque(maxlen=OLD_BURSTS)

    @property
    def srtt_s(self) -> float | None:
        """The smoothed round trip since the last `restart`."""
        return self._recent.srtt_s

    def add(self, rtt_s: float) -> None:
        """Take a sample."""
        self._recent.add(rtt_s)
        self.steady.add(min(rtt_s, self._previous_s))
        self._previous_s = rtt_s
        if self._burst_min_s is None or rtt_s < self._burst_min_s:
            self._burst_min_s = rtt_s
        if self.min_rtt_s is None or rtt_s < self.min_rtt_s:
            self.min_rtt_s = rtt_s

    def restart(self, rtt_s: float | None) -> None:
        """Begin `srtt_s` anew, with the sample of the present acknowledgement (None: it has none).

        A competition begins when a queue stands. The round trips before it are too short for CUBIC's prediction.
        """
        self._recent = SmoothedRtt()
        if rtt_s is not None:
            self._recent.add(rtt_s)

    def begin_burst(self) -> None:
        """Drop the least round trip of some bursts ago: the path may have become longer."""
        if self._burst_min_s is not None:
            self._old_minima_s.append(self._burst_min_s)
            self.min_rtt_s = min(self._old_minima_s)
            self._burst_min_s = None
