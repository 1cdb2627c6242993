"""One path as a sender sees it: its pace, what is on its way, and whether it still answers."""

from collections import deque

from bicoastal.transports.base import PathView
from bicoastal.transports.paced.health_policy import PACED_HEALTH
from bicoastal.transports.paced.packets import DATA_OVERHEAD_BYTES, Report
from bicoastal.transports.paths.health import PathHealth
from bicoastal.transports.recovery.rtt import RttEstimator
from bicoastal.wan.units import INFINITY

UNKNOWN_RTT_S = 1.0  # RFC 6298 §2.1: before there is a sample
MOST_LOOKAHEAD_S = 1e-3  # reports must not wait behind a packet that is handed out but has long to go


class Piece:
    """Octets [start, stop) of the stream: cut once, sent as often as it takes. flying: transmissions not settled."""

    __slots__ = ("done", "flying", "path_id", "start", "stop", "tries")

    def __init__(self, start: int, stop: int) -> None:
        self.start = start
        self.stop = stop
        self.done = False
        self.flying = 0
        self.tries = 0
        self.path_id = -1  # that it was last sent on


SentPacket = tuple[Piece | None, float]
"""What a packet carries (None: nothing, it only asks for a report), and when it departs."""


class MissingPacket:
    """A packet that a report passed over: reordered until `lost`, kept a while longer to learn if that was wrong.

    overtaken: a report did pass over it; False for one that was given up because no report came.
    """

    __slots__ = ("lost", "noticed_at", "overtaken", "piece", "sent_at")

    def __init__(self, flight: SentPacket, noticed_at: float, *, overtaken: bool = True) -> None:
        self.piece, self.sent_at = flight
        self.noticed_at = noticed_at
        self.overtaken = overtaken
        self.lost = False


class PacedPath:
    """Pace, packet numbers, round-trip time and state of one path.

    rate_bps: of the link, `overhead_bytes` counted on top of each IP packet. free_at: the next departure.
    lookahead_s: how far ahead packets are handed out, one packet time, or none where that is long: it halves the number
    of timers, and a new rate still takes effect within one packet time.
    outstanding: packets that no report has covered, by number, in the order in which they were sent; missing: those
    that one has passed over; expired: those that a timeout has given up, older than the missing. copies: pieces to send
    a second time, here, when there is nothing else. share: of the pace of all paths that carry data.
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
        self.sure_losses = 0  # since a packet was last taken for lost that had been overtaken
        self.told_down = False

    def set_rate(self, rate_bps: float, overhead_bytes: int) -> None:
        """Pace at `rate_bps` from the very next packet on, whatever the last one was paced at."""
        self.rate_bps = rate_bps
        self.overhead_bytes = overhead_bytes
        self.s_per_byte = 8 / rate_bps if rate_bps > 0 else INFINITY
        packet_s = self._last_bytes * self.s_per_byte if self._last_bytes else 0.0
        self.health.packet_s = packet_s
        self.free_at = self._last_at + packet_s if self._last_bytes else 0.0

    def departed(self, at: float, payload_bytes: int) -> None:
        """Take note of a departure: the next is a packet time later."""
        size = payload_bytes + DATA_OVERHEAD_BYTES + self.overhead_bytes
        gap_s = size * self.s_per_byte
        self._last_at = at
        self._last_bytes = size
        self.free_at = at + gap_s
        self.lookahead_s = gap_s if gap_s < MOST_LOOKAHEAD_S else 0.0
        self.health.packet_s, self.health.ahead_s = gap_s, self.lookahead_s

    @property
    def last_departure(self) -> float:
        """When the last packet handed out leaves: nothing may be handed out to leave earlier."""
        return self._last_at

    @property
    def srtt_s(self) -> float:
        """The smoothed round-trip time, or a guess before the first sample."""
        return self.rtt.srtt_s if self.rtt.srtt_s is not None else UNKNOWN_RTT_S

    @property
    def oldest_in_flight_s(self) -> float | None:
        """When the oldest packet left that no report has covered; None: there is none."""
        for _, sent_at in self.outstanding.values():
            return sent_at
        return None

    def awaited(self, after_s: float, until_s: float) -> tuple[int, float, float]:
        """Return how many outstanding packets left after `after_s` and until `until_s`, the first and the last when."""
        count, first_s, last_s = 0, INFINITY, -INFINITY
        for _, sent_at in self.outstanding.values():
            if sent_at > until_s:
                break
            if sent_at > after_s:
                count += 1
                first_s, last_s = min(first_s, sent_at), sent_at
        return count, first_s, last_s

    def overdue_at(self) -> float:
        """Return when an answer is late (inf: none is awaited); kept in `late_at`, because it is asked per packet."""
        if self.late_at is None:
            self.late_at = self.health.overdue_at_s()
        return self.late_at

    def floor(self) -> int:
        """Return the packet number below which nothing is of interest any more."""
        if self.expired:
            return next(iter(self.expired))
        if self.missing:
            return next(iter(self.missing))
        if self.outstanding:
            return next(iter(self.outstanding))
        return self.next_number

    def take(self, report: Report, now: float) -> tuple[list[SentPacket], list[MissingPacket]]:
        """Settle what a report covers; return what it says has newly arrived, and what counted as lost and was not.

        What it passes over goes to `missing`.
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
        """Return when a packet was sent that has been given up since, or infinity: its round trip counts as any."""
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
        """Count everything on its way as lost, and return what it carries. A report may still say otherwise."""
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
