"""Go-back-N: after a loss the sender sends again everything in flight. A lost NAK or repair costs a timeout as well.

With n packets and a loss of p the number of rewinds is Poisson with a mean of about n p. A rewind after a NAK costs a
round trip and two packet times, because the receiver discards the packets in flight. The NAK or the packet sent again
may be lost too, in 2 p of the cases. Then the sender waits for a timeout of a few round trips. Afterwards its window is
small and doubles with each report. Completion is n g + D plus these costs: a compound Poisson sum over a few kinds.
Source: InfiniBand's reliable connection ("PSN sequence error" NAK, once per gap)
as `transports.rdma.go_back_sender` implements it.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bicoastal.experiments.extrapolation.tails.model import Array, Crossing
from bicoastal.experiments.extrapolation.tails.pointwise import Distribution, PointwiseModel, compound
from bicoastal.transports.b4.parameters import RdmaParameters
from bicoastal.transports.rdma.go_back_sender import GAIN, LEAST_WINDOW, MOST_WINDOW

DEFAULTS = RdmaParameters()  # what the transport itself begins with
STALLS = 8  # kinds of rewind by how long the window that follows stands still
GROWTH = 7  # rounds after which a window of one packet that doubles with each report fills any pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class GoBackN(PointwiseModel):
    """Paced go-back-N. timeout_rtts: the retransmission timeout. ack_every, ack_delay_s: when the far end reports.

    gain: packets under way at most for each that got through since the last rewind; least_window: after a timeout;
    most_window: beyond which the window is no more limited.
    """

    name: str
    source: str
    header_bytes: int
    pace: float = 1.0
    timeout_rtts: float = DEFAULTS.rto_rtts
    gain: int = GAIN
    least_window: int = LEAST_WINDOW
    most_window: int = MOST_WINDOW
    ack_every: int = DEFAULTS.ack_every
    ack_delay_s: float = DEFAULTS.ack_delay_s
    spreads: bool = False

    def back_s(self, rtt_s: float, packet_s: float) -> float:
        """Return the time that a rewind after a NAK costs, seconds."""
        return rtt_s + 2 * packet_s

    def timeout_s(self, rtt_s: float, packet_s: float) -> float:
        """Return the time that a rewind after a timeout costs, without the slow restart, seconds."""
        return self.timeout_rtts * (rtt_s + packet_s) + packet_s

    def short_s(self, crossing: Crossing) -> float:
        """Return by how much the last packet is shorter than a full one, in time."""
        room = crossing.mtu_bytes - self.header_bytes
        missing = float(crossing.packets(self.header_bytes)) * room - float(crossing.payload_bytes)
        return 8 * missing / (float(crossing.rate_bps) * self.pace)

    def distribution(self, crossing: Crossing) -> Distribution:
        """Return the distribution at one point."""
        packets, loss = float(crossing.packets(self.header_bytes)), float(crossing.loss)
        packet_s, rtt_s = float(crossing.packet_s(self.pace)), float(crossing.rtt_s)
        ends_s = packets * packet_s + rtt_s / 2 - self.short_s(crossing)
        back_s, timeout_s = self.back_s(rtt_s, packet_s), self.timeout_s(rtt_s, packet_s)
        events = packets * loss / (1 - loss)
        silent = 1 - (1 - loss) ** 2
        kinds = [
            (events * (1 - silent) * share, back_s + stall)
            for share, stall in self._stalls(packets, loss, rtt_s, packet_s)
        ]
        for left, share in ((0.05, 0.1), (0.2, 0.2), (0.5, 0.4), (0.85, 0.3)):
            stall = float(stall_s(self, np.array(float(self.least_window)), np.array(left * packets), rtt_s, packet_s))
            # half of the silent ones know of the loss already: the packet sent again is what was lost
            kinds.append((events * silent / 2 * share, timeout_s + stall))
            kinds.append((events * silent / 2 * share, back_s + timeout_s + stall))
        last = 1 - (1 - loss) * (1 - float(crossing.tail_loss))  # nothing comes behind it that could show its loss
        return compound(ends_s, kinds, last=(last, timeout_s))

    def _stalls(self, packets: float, loss: float, rtt_s: float, packet_s: float) -> list[tuple[float, float]]:
        """Return (share, stall) of rewinds by how far the one before lies back."""
        limit = min(rtt_s / packet_s, packets) / self.gain
        if limit < 1:
            return [(1.0, 0.0)]
        edges = np.unique(np.linspace(0, np.floor(limit), STALLS).round())
        kinds = []
        kept = 1.0
        for low, high in pairwise(edges):  # so many packets since: low + 1 to high
            middle = (low + 1 + high) / 2
            share = (1 - loss) ** low - (1 - loss) ** high
            share *= max(0.0, 1 - self.gain * middle / packets)  # that more than the window is left
            left = packets * 0.5 + self.gain * middle * 0.5
            stall = float(stall_s(self, np.array(self.gain * middle), np.array(left), rtt_s, packet_s))
            kinds.append((share, stall))
            kept -= share
        return [(kept, 0.0), *kinds]


def stall_s(model: GoBackN, window: Array, left: Array, rtt_s: float, packet_s: float) -> Array:
    """Return how long a sender with `left` packets to send is idle while its window grows, seconds.

    Each round trip it sends a window, waits, and finds the window doubled once for each report, of which one comes for
    every `ack_every` packets or, where they are fewer, after `ack_delay_s`.
    """
    total = np.zeros(np.broadcast_shapes(window.shape, left.shape))
    window, left = np.broadcast_to(window, total.shape).copy(), np.broadcast_to(left, total.shape).copy()
    for _ in range(GROWTH):
        waits = (window < left) & (window * packet_s < rtt_s) & (window <= model.most_window * 2)
        slow = window < model.ack_every
        total += np.where(waits, rtt_s - window * packet_s + np.where(slow, model.ack_delay_s, 0.0), 0.0)
        left = np.where(waits, left - window, left)
        reports = np.clip(window // model.ack_every, 1, 20)
        window = np.where(waits, window * 2.0**reports, window)
    return np.asarray(total)
