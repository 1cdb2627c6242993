"""Sounding a path before its first burst: a few rounds of padding, from whose spread the far end reads the rate.

Between the end of the handshake and the first message a path is idle, and nothing is known of it but its round trip.
Three rounds of slow start as RFC 9002 §7.3.1 has them (10, 20 and 40 packets, each only once the ones before are
acknowledged) arrive as trains that the bottleneck has spread (Dovrolis, Ramanathan and Moore, "Packet-dispersion
techniques and a capacity-estimation methodology", IEEE/ACM ToN 2004), so that the first burst opens at that rate as
every later one does. Losses can take so much of the trains that they tell nothing: more follow then. The spread is
measured where the trains arrive: acknowledgements that wait behind a train of the other direction say little. Only a
client sounds: it opened the connection because it has much to send.
"""

from collections import deque
from itertools import pairwise

from bicoastal.transports.congestion.base import CongestionControl
from bicoastal.transports.multipath.fec_wire import SOUNDING_BLOCK, SYMBOL_HEADER, Spread
from bicoastal.transports.quic.congestion import QuicAdaptive
from bicoastal.transports.quic.path_connection import PathConnection
from bicoastal.transports.quic.symbols import Symbol, SymbolSource
from bicoastal.wan.units import INFINITY

PACKETS, MORE_PACKETS = 70, 40  # of the three rounds, and of each one more
MOST_PACKETS = PACKETS + 5 * MORE_PACKETS
ROUNDS = 24  # round trips after which a sounding ends, whatever has been told: three, and what losses may take
TELLING_RTTS = 0.25  # by which word of the spread may come later than the last acknowledgement
UNTOLD_S = 1e6
TRAIN_RTTS = 2  # no train takes so long, on paths where a rate matters that acknowledgements do not show as soon
WINDOW = 24  # packets over which the spread is measured: only the third round has so many
TELL_EVERY, NEWS = 8, 0.99  # packets; and times what was told before


def learns(congestion: CongestionControl) -> QuicAdaptive | None:
    """Return the controller if it can make use of a rate that it is told, and has none; None otherwise."""
    return congestion if isinstance(congestion, QuicAdaptive) and congestion.starting else None


class Sounding:
    """The sending end of one path's sounding.

    source: gives the path's symbols once it is over. wanted: there is something to be sounded for. ends_s: when it is
    over at the latest; inf before it has begun. rate_bps: what the far end has seen, bit/s of UDP payload; None before
    it has told.
    """

    def __init__(self, link: PathConnection, source: SymbolSource, *, wanted: bool) -> None:
        self.ends_s = INFINITY
        self.rate_bps: float | None = None
        self._link = link
        self._source = source
        self._wanted = wanted
        self._sent = self._wanted_packets = PACKETS
        self._is_over = False

    @property
    def begun(self) -> bool:
        """Tell whether it has begun."""
        return self.ends_s < INFINITY

    def begin(self, now: float) -> None:
        """Let padding leave on a path that has just connected, if its controller learns anything from it."""
        self.ends_s = now
        if self._wanted and learns(self._link.congestion) is not None:
            self.ends_s += ROUNDS * self._link.rtt_s
            self._sent = 0
            self._link.source = self._pull
            self._link.pace_bps = INFINITY  # the window is small; a pace would only show itself

    def _pull(self, path_id: int, leave_s: float) -> Symbol | None:
        """Return the next of the padding."""
        if self._sent == self._wanted_packets:
            return None
        header = SYMBOL_HEADER.pack(0, SOUNDING_BLOCK, self._sent)
        self._sent += 1
        return Symbol(header.ljust(self._link.symbol_bytes, b"\0"), SOUNDING_BLOCK << 32)

    def on_spread(self, spread: Spread) -> None:
        """Take what the far end has seen."""
        self.rate_bps = 8e12 * self._link.datagram_bytes / spread.interval_ps

    def over(self, now: float) -> bool:
        """Tell whether it is over: the far end has told, or start-up is over already, or there is no more time."""
        if self._is_over or not self.begun:
            return self._is_over
        link = self._link
        controller = learns(link.congestion)
        answered = self._sent == self._wanted_packets and self.rate_bps is not None and not link.in_flight_bytes
        if controller is None or not self._wanted or answered or now >= self.ends_s or link.failure:
            self._is_over = True
            link.source, link.pace_bps = self._source, None
            if controller is not None and self._wanted:
                controller.take_rate(self.rate_bps)
        return self._is_over

    def timer(self) -> float:
        """Return when `on_timer` is due, or `over` to be asked at the latest (inf: it has not begun, or is over)."""
        link = self._link
        if self._is_over or not self.begun or not link.ready:
            return INFINITY
        answered = self._sent == self._wanted_packets and not link.in_flight_bytes
        if not answered or self.rate_bps is not None or self._sent == MOST_PACKETS:
            return self.ends_s
        return min(self.ends_s, link.last_heard_s + TELLING_RTTS * link.rtt_s)

    def on_timer(self, now: float) -> None:
        """Send another train: all are answered, and nothing has been told of their spread."""
        if now < self.ends_s:
            self._wanted_packets += MORE_PACKETS


class SpreadMeter:
    """The receiving end of one path's sounding."""

    def __init__(self) -> None:
        self._arrivals: deque[tuple[int, float]] = deque()
        self._least_s = INFINITY
        self._told_s = UNTOLD_S

    def on_sounding(self, index: int, now: float, rtt_s: float) -> Spread | None:
        """Take the arrival of the padding's packet `index`; return what is to be told of it, if anything.

        What takes two round trips is no train, but the meagre rounds that losses have left of several.

        What is missing between two packets has left in its turn all the same: the first index is subtracted.
        """
        arrivals = self._arrivals
        if index >= MOST_PACKETS or (arrivals and index <= arrivals[-1][0]):
            return None
        arrivals.append((index, now))
        while len(arrivals) > 2 and index - arrivals[1][0] >= WINDOW - 1:
            arrivals.popleft()
        first, first_s = arrivals[0]
        took_s = now - first_s
        longest_s = max((later[1] - at[1] for at, later in pairwise(arrivals)), default=0.0)
        if index - first >= WINDOW - 1 and longest_s < took_s / 4 and took_s < TRAIN_RTTS * rtt_s:
            self._least_s = min(self._least_s, took_s / (index - first))  # and no pause between two rounds is in it
        if self._least_s > NEWS * self._told_s or (index % TELL_EVERY and index < PACKETS - 1):
            return None
        self._told_s = self._least_s
        return Spread(max(1, round(1e12 * self._least_s)))
