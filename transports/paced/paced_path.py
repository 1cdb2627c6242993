"""One path from the sender's side: its rate, its packets in flight, and whether it still answers."""

from collections import deque

from bicoastal.transports.base import PathView
from bicoastal.transports.paced.health_policy import PACED_HEALTH
from bicoastal.transports.paced.packets import DATA_OVERHEAD_BYTES, Report
from bicoastal.transports.paths.health import PathHealth
from bicoastal.transports.recovery.rtt import RttEstimator
from bicoastal.wan.units import INFINITY

UNKNOWN_RTT_S = 1.0  # RFC 6298 §2.1; used until there is a sample
MOST_LOOKAHEAD_S = 1e-3  # a report must not wait behind a packet that departs much later


class Piece:
    """Octets [start, stop) of the stream. They are sent again, as one piece, until they arrive.

    flying: transmissions whose fate is not known yet.
    """

    __slots__ = ("done", "flying", "path_id", "start", "stop", "tries")

    def __init__(self, start: int, stop: int) -> None:
        self.start = start
        self.stop = stop
        self.done = False
        self.flying = 0
        self.tries = 0
        self.path_id = -1  # of the last transmission


SentPacket = tuple[Piece | None, float]
"""The piece that a packet carries, and its departure time. None: no piece; the packet only asks for a report."""


class MissingPacket:
    """A packet in a gap of a report. It may be reordered; after some time it counts as lost.

    It is kept for a while after that, because a later report may show that it did arrive. overtaken: a later packet
    arrived before it; False if it was given up because no report came.
    """

    __slots__ = ("lost", "noticed_at", "overtaken", "piece", "sent_at")

    def __init__(self, flight: SentPacket, noticed_at: float, *, overtaken: bool = True) -> None:
        self.piece, self.sent_at = flight
        self.noticed_at = noticed_at
        self.overtaken = overtaken
        self.lost = False


class PacedPath:
    """Rate, packet numbers, round-trip time and state of one path.

    rate_bps: of the link, `overhead_bytes` counted on top of each IP packet. free_at: the next departure.
    lookahead_s: how far ahead packets are handed out. It is one packet time, or 0 if that is long. It halves the number
    of timers, and a new rate still takes effect within one packet time.
    outstanding: packets that no report has covered, by number, in the order of sending. missing: packets in a gap of a
    report. expired: packets that a timeout has given up; they are older than the missing ones. copies: pieces to send a
    second time on this path when nothing else waits. share: of the rate of all paths that carry data.
    reordering_s: how long a missing packet may be late before it counts as lost.
    """

    __slots__ = (
        "_last_at",
        "_last_bytes",
        "copies",
        "expired",
        "free_at",
        "health",
        "late_at",
        "latest_rtt_s",
        "lookahead_s",
        "mark",
        "missing",
        "next_number",
        "outstanding",
        "overhead_bytes",
        "path_id",
        "peer_ack_delay_s",
        "rate_bps",
        "reordering_s",
        "rtt",
        "s_per_byte",
        "share",
        "sure_losses",
        "told_down",
        "view",
    )

    def __init__(self, view: PathView, *, ack_delay_s: float) -> None:
        self.view = view
        self.peer_ack_delay_s = ack_delay_s
        self.health = PathHealth(PACED_HEALTH, self)
        self.path_id = view.path_id
        self.rate_bps = 0.0
        self.overhead_bytes = 0
        self.s_per_byte = INFINITY
        self.share = 0.0
        self.free_at = 0.0
        self.lookahead_s = 0.0
        self._last_at = 0.0
        self._last_bytes = 0
        self.next_number = 0
        self.mark = 0  # every packet below it is settled or in `missing`
        self.outstanding: dict[int, SentPacket] = {}
        self.missing: dict[int, MissingPacket] = {}
        self.expired: dict[int, MissingPacket] = {}
        self.copies: deque[Piece] = deque()
        self.rtt = RttEstimator(min_rto_s=0.01)
        self.latest_rtt_s = 0.0
        self.reordering_s = 0.0
        self.late_at: float | None = None
        self.sure_losses = 0  # since reordering was last mistaken for a loss
        self.told_down = False

    def set_rate(self, rate_bps: float, overhead_bytes: int) -> None:
        """Send at `rate_bps` from the next packet on. The gap after the last packet is computed anew."""
        self.rate_bps = rate_bps
        self.overhead_bytes = overhead_bytes
        self.s_per_byte = 8 / rate_bps if rate_bps > 0 else INFINITY
        packet_s = self._last_bytes * self.s_per_byte if self._last_bytes else 0.0
        self.health.packet_s = packet_s
        self.free_at = self._last_at + packet_s if self._last_bytes else 0.0

    def departed(self, at: float, payload_bytes: int) -> None:
        """Note a departure: the next one is a packet time later."""
        size = payload_bytes + DATA_OVERHEAD_BYTES + self.overhead_bytes
        gap_s = size * self.s_per_byte
        self._last_at = at
        self._last_bytes = size
        self.free_at = at + gap_s
        self.lookahead_s = gap_s if gap_s < MOST_LOOKAHEAD_S else 0.0
        self.health.packet_s, self.health.ahead_s = gap_s, self.lookahead_s

    @property
    def last_departure(self) -> float:
        """When the last packet that was handed out departs. No later packet may depart earlier."""
        return self._last_at

    @property
    def srtt_s(self) -> float:
        """The smoothed round-trip time; `UNKNOWN_RTT_S` before the first sample."""
        return self.rtt.srtt_s if self.rtt.srtt_s is not None else UNKNOWN_RTT_S

    @property
    def oldest_in_flight_s(self) -> float | None:
        """Departure time of the oldest packet that no report has covered; None if there is none."""
        for _, sent_at in self.outstanding.values():
            return sent_at
        return None

    def awaited(self, after_s: float, until_s: float) -> tuple[int, float, float]:
        """Return how many outstanding packets departed in (after_s, until_s], and the first and last departure."""
        count, first_s, last_s = 0, INFINITY, -INFINITY
        for _, sent_at in self.outstanding.values():
            if sent_at > until_s:
                break
            if sent_at > after_s:
                count += 1
                first_s, last_s = min(first_s, sent_at), sent_at
        return count, first_s, last_s

    def overdue_at(self) -> float:
        """Return when an answer is late; infinity if none is awaited. `late_at` caches it: it is read per packet."""
        if self.late_at is None:
            self.late_at = self.health.overdue_at_s()
        return self.late_at

    def floor(self) -> int:
        """Return the packet number below which the receiver need not report any more."""
        if self.expired:
            return next(iter(self.expired))
        if self.missing:
            return next(iter(self.missing))
        if self.outstanding:
            return next(iter(self.outstanding))
        return self.next_number

    def take(self, report: Report, now: float) -> tuple[list[SentPacket], list[MissingPacket]]:
        """Process a report. Return the packets that newly arrived, and those that counted as lost but have arrived.

        Packets in its gaps go to `missing`.
        """
        self.late_at = None
        start, stop, gaps = report.start, report.stop, report.gaps
        outstanding, missing = self.outstanding, self.missing
        flight = outstanding.get(report.echo)
        sent_at = flight[1] if flight is not None else self._missed_at(report.echo)
        rtt_s = now - sent_at - report.delay_us * 1e-6
        if rtt_s > 0:
            self.rtt.sample(rtt_s, now)
            self.latest_rtt_s = rtt_s
            self.health.on_round_trip()
        arrived: list[SentPacket] = []
        mistaken: list[MissingPacket] = []
        if self.expired:
            self._settle_missing(self.expired, report, arrived, mistaken)
        if missing:
            self._settle_missing(missing, report, arrived, mistaken)
        if stop > self.mark:
            at = 0
            for number in range(self.mark, min(stop, self.next_number)):
                flight = outstanding.pop(number, None)
                if flight is None:
                    continue
                while at < len(gaps) and gaps[at][1] <= number:
                    at += 1
                if number < start or (at < len(gaps) and gaps[at][0] <= number):
                    missing[number] = MissingPacket(flight, now)
                else:
                    arrived.append(flight)
            self.mark = min(stop, self.next_number)
        return arrived, mistaken

    def _missed_at(self, number: int) -> float:
        """Return when a packet in `missing` or `expired` was sent, else infinity. Its round trip is a valid sample."""
        late = self.missing.get(number) or self.expired.get(number)
        return INFINITY if late is None else late.sent_at

    @staticmethod
    def _settle_missing(
        late_ones: dict[int, MissingPacket], report: Report, arrived: list[SentPacket], mistaken: list[MissingPacket]
    ) -> None:
        gaps, at = report.gaps, 0
        for number in [number for number in late_ones if report.start <= number < report.stop]:
            while at < len(gaps) and gaps[at][1] <= number:
                at += 1
            if at == len(gaps) or number < gaps[at][0]:
                late = late_ones.pop(number)
                if late.lost:
                    mistaken.append(late)
                else:
                    arrived.append((late.piece, late.sent_at))

    def give_up(self, now: float) -> list[Piece]:
        """Count all packets in flight as lost, and return their pieces. A later report may still show an arrival."""
        for number, flight in self.outstanding.items():
            self.missing[number] = MissingPacket(flight, now, overtaken=False)
        self.late_at = None
        self.outstanding.clear()
        self.copies.clear()
        self.mark = self.next_number
        pieces = []
        for late in self.missing.values():
            if not late.lost:
                late.lost = True
                if late.piece is not None:
                    pieces.append(late.piece)
        return pieces
