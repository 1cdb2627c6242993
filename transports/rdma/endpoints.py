"""How RDMA recovers, on the same paced path: go-back-N as today's NICs do, and selective repeat by timeout alone.

Both keep the retransmission timeout that long-haul RDMA models use, a multiple of the round-trip time (3 in
arXiv 2505.05366, "SDR-RDMA"); repeated timeouts without an answer double it, so that a dead path is not flooded.
"""

from collections import deque
from collections.abc import Sequence

from bicoastal.transports.base import Datagram, PathView
from bicoastal.transports.events import Buffer
from bicoastal.transports.paced.paced_path import MissingPacket, PacedPath
from bicoastal.transports.paced.paced_sender import PacedSender, PieceSender
from bicoastal.transports.paced.packets import DATA_OVERHEAD_BYTES, LAST, MAX_U32, NAK, Data, Report
from bicoastal.transports.paced.receiver import Reassembly
from bicoastal.wan.checks import FieldError
from bicoastal.wan.units import INFINITY

CONSTANT, MAX_BACKOFFS = 3, 8  # timeouts without an answer before the first that is longer, and longer ones
LONGEST_RTO_S = 8.0
FRUITLESS = 1  # timeouts after which go-back-N becomes careful
GAIN = 64  # packets that may be under way for each that got through since it last went back
LEAST_WINDOW, MOST_WINDOW = 4, 1024  # packets
REMEMBERED_RTOS, REMEMBERED_S = (
    4,
    1.0,
)  # for so long a late arrival of a packet that timed out is recognised, and its RTT measured


def _rto_s(path: PacedPath, rto_rtts: float, timeouts: int) -> float:
    """Return the timeout after so many without an answer; beside the round trip, a packet takes its own time."""
    rto_s = path.srtt_s * rto_rtts + path.health.packet_s
    return max(rto_s, min(rto_s * 2.0 ** min(max(timeouts - CONSTANT, 0), MAX_BACKOFFS), LONGEST_RTO_S))


class TimeoutSender(PieceSender):
    """Selective repeat in which nothing but a timeout tells of a loss; each packet has its own.

    rto_rtts: the timeout, in smoothed round-trip times.
    """

    def __init__(self, views: Sequence[PathView], *, rto_rtts: float, give_up_s: float) -> None:
        super().__init__(views, give_up_s=give_up_s)
        self._rto_rtts = rto_rtts
        self._unanswered = [0] * len(views)  # timeouts since the path was last heard
        self._timed_out_s = [0.0] * len(views)  # when the last of them was

    def path_answers(self, path_id: int, now: float) -> None:
        """The path has brought something from the far end: its timeout is the shortest again."""
        self._unanswered[path_id] = 0
        super().path_answers(path_id, now)

    def on_report(self, report: Report, now: float) -> None:
        """Settle what has arrived; what the report passes over waits for its timeout."""
        arrived, mistaken = self.paths[report.path_id].take(report, now)
        self.path_answers(report.path_id, now)
        self._forgive(mistaken)
        self._settle(arrived, now, news=bool(mistaken))
        self._forget(self.paths[report.path_id], now)

    def timer(self) -> float:
        """Return when a packet may depart or the oldest that has not arrived times out."""
        at = INFINITY
        waiting = self._cursor < self.stream.end or bool(self._again)
        for path in self.paths:
            if waiting and path.health.usable:
                at = min(at, path.free_at)
            at = min(at, self._expires_at(path))
        return at

    def _oldest_at(self, path: PacedPath) -> float:
        """Return when the oldest packet was sent that has neither arrived nor timed out."""
        if path.missing:
            return next(iter(path.missing.values())).sent_at
        if path.outstanding:
            return next(iter(path.outstanding.values()))[1]
        return INFINITY

    def _timeout_s(self, path: PacedPath) -> float:
        return _rto_s(path, self._rto_rtts, self._unanswered[path.path_id])

    def _expires_at(self, path: PacedPath) -> float:
        return self._oldest_at(path) + self._timeout_s(path)

    def on_timer(self, now: float) -> None:
        """Send again what has timed out."""
        self._check_patience(now)
        for path in self.paths:
            rto_s = self._timeout_s(path)
            oldest_at = self._oldest_at(path)
            if oldest_at + rto_s <= now:
                self.timeouts += 1
                self._expire(path, rto_s, now)
                if oldest_at >= self._timed_out_s[path.path_id]:  # what was sent before tells nothing more
                    self._unanswered[path.path_id] += 1
                    self._timed_out_s[path.path_id] = now

    def _expire(self, path: PacedPath, rto_s: float, now: float) -> None:
        while path.missing:  # all of them older than what is outstanding
            number, late = next(iter(path.missing.items()))
            if late.sent_at + rto_s > now:
                return
            del path.missing[number]
            self._give_up(path, number, late)
        while path.outstanding:
            number, flight = next(iter(path.outstanding.items()))
            if flight[1] + rto_s > now:
                return
            del path.outstanding[number]
            path.mark = number + 1
            self._give_up(path, number, MissingPacket(flight, now, overtaken=False))

    def _give_up(self, path: PacedPath, number: int, late: MissingPacket) -> None:
        late.lost = True
        path.expired[number] = late
        self._lose(late.piece)

    def _forget(self, path: PacedPath, now: float) -> None:
        """Forget what timed out so long ago that it cannot be on its way any more."""
        memory_s = max(REMEMBERED_RTOS * self._timeout_s(path), REMEMBERED_S)
        while path.expired:
            number, late = next(iter(path.expired.items()))
            if late.sent_at + memory_s > now:
                return
            del path.expired[number]

    def fill(self, now: float, out: list[Datagram]) -> None:
        """Hand out what may depart within a packet time: repairs first."""
        for path in self.paths:
            if not path.health.usable or not (self._again or self._cursor < self.stream.end):
                continue
            while (at := path.free_at if path.free_at > now else now) <= now + path.lookahead_s:
                if self._again:
                    piece = self._again.popleft()
                    if not piece.done:
                        self._send(path, piece, at, None, out)
                elif self._cursor < self.stream.end:
                    piece = self._cut()
                    self._send(path, piece, at, self._left_on(path, at), out)
                else:
                    break


class GoBackSender(PacedSender):
    """Go-back-N: a packet number stands for a piece, and everything from a lost one on is sent again.

    The far end names a missing packet once (a NAK, as InfiniBand's "PSN sequence error"); if that or the packet itself
    is lost, the timeout has to tell. Where several timeouts bring nothing, only a few packets go at a time until some
    arrive: a link slower than it was promised to be would drop the right ones for ever.
    Raises ValueError for more than one path.
    """

    def __init__(self, views: Sequence[PathView], *, rto_rtts: float, give_up_s: float) -> None:
        super().__init__(views, give_up_s=give_up_s)
        if len(views) != 1:
            raise FieldError("paths", f"go-back-N uses one, not {len(views)}")
        self._path = self.paths[0]
        self._rto_rtts = rto_rtts
        self._first = 0  # number of the oldest piece that is not acknowledged
        self._edges: deque[tuple[int, int]] = deque()  # (start, stop) of the pieces from `_first` on
        self._sent: deque[tuple[float, int]] = deque()  # of those sent at all: when last, and how often
        self._next = 0  # number of the next to send
        self._cursor = 0
        self._rewound_at = 0.0
        self._rewound_to: int | None = None  # the packet number it last went back to
        self._fruitless = 0  # timeouts since anything was acknowledged
        self._window = INFINITY  # packets under way at a time

    def on_report(self, report: Report, now: float) -> None:
        """Take a cumulative acknowledgement, and go back where it is a NAK."""
        path = self._path
        expected = report.stop
        if expected > self._first + len(self._sent):
            return  # it acknowledges what was never sent
        self.path_answers(report.path_id, now)
        if self._first <= report.echo < expected:
            sent_at, tries = self._sent[report.echo - self._first]
            rtt_s = now - sent_at - report.delay_us * 1e-6
            if tries == 1 and rtt_s > 0:  # Karn's rule, RFC 6298 §3
                path.rtt.sample(rtt_s, now)
        if expected > self._first:
            stop = 0
            while self._first < expected:
                _, stop = self._edges.popleft()
                self._sent.popleft()
                self._first += 1
            self.stream.release(stop)
            if self._next < self._first:
                self.spurious += self._first - self._next
                self._next = self._first
            self._fruitless = 0
            if self._window < INFINITY:
                self._window = 2 * self._window if self._window < MOST_WINDOW else INFINITY
            self._progress(now)
        if report.flags & NAK and expected == self._first:
            self._go_back(now)
        self._count_in_flight()

    def _go_back(self, now: float) -> None:
        if self._rewound_to is not None:  # where hardly one gets through, all the others only fill the link
            self._window = min(self._window, max(LEAST_WINDOW, GAIN * (self._first - self._rewound_to)))
        self._rewound_to = self._first
        self._next = self._first
        self._rewound_at = now

    def _count_in_flight(self) -> None:
        count = self._next - self._first
        self.in_flight_bytes = self._edges[count - 1][1] - self._edges[0][0] if count else 0

    def timer(self) -> float:
        """Return when a packet may depart or the oldest acknowledgement is overdue."""
        path = self._path
        at = path.free_at if path.health.usable and self._waiting() else INFINITY
        return min(at, self._expires_at())

    def _waiting(self) -> bool:
        if self._next - self._first >= self._window:
            return False
        return self._next < self._first + len(self._edges) or self._cursor < self.stream.end

    def _expires_at(self) -> float:
        if self._next == self._first:
            return INFINITY
        return max(self._sent[0][0], self._rewound_at) + _rto_s(self._path, self._rto_rtts, self._fruitless)

    def on_timer(self, now: float) -> None:
        """Go back when the acknowledgement of the oldest packet is overdue."""
        self._check_patience(now)
        if self._expires_at() <= now:
            self.timeouts += 1
            self._fruitless += 1
            if self._fruitless >= FRUITLESS:
                self._window = LEAST_WINDOW
            self._go_back(now)
            self._count_in_flight()

    def fill(self, now: float, out: list[Datagram]) -> None:
        """Hand out what may depart within a packet time, in the order of the stream."""
        path = self._path
        if not path.health.usable or not self._waiting():
            return
        end = self.stream.end
        while (at := path.free_at if path.free_at > now else now) <= now + path.lookahead_s:
            index = self._next - self._first
            if index >= self._window:
                break
            left: int | None = None
            if index == len(self._edges):
                if self._cursor == end:
                    break
                start = self._cursor
                self._cursor = min(start + self.room_bytes, end)
                self._edges.append((start, self._cursor))
                left = -(-(end - self._cursor) // self.room_bytes)
            start, stop = self._edges[index]
            if index < len(self._sent):
                self._sent[index] = (at, self._sent[index][1] + 1)
                self.repairs += 1
            else:
                self._sent.append((at, 1))
            last = stop == end
            payload = self.stream.read(start, stop - start)
            frame = Data(self.token, LAST if last else 0, self._next, 0, start, payload)
            out.append(Datagram(path.path_id, frame, DATA_OVERHEAD_BYTES + len(payload), at, 0, left))
            self._next += 1
            self.packets += 1
            path.departed(at, stop - start)
        self._count_in_flight()


class InOrderReceiver:
    """Takes packets in their order only: others are thrown away, and the missing one is named once (a NAK)."""

    def __init__(self, *, ack_every: int, ack_delay_s: float) -> None:
        self._reassembly = Reassembly()
        self._ack_every = ack_every
        self._ack_delay_s = ack_delay_s
        self._expected = 0
        self._unreported = 0
        self._flags = 0
        self._nak_for = -1
        self._echo, self._echo_at = 0, 0.0
        self._due_at = INFINITY

    def on_data(self, path_id: int, packet: Data, now: float) -> bool:
        """Take a packet, if it is the expected one. See `Receiving`."""
        number = packet.number
        if number > self._expected:
            if self._nak_for != self._expected:
                self._nak_for = self._expected
                self._flags = NAK
                self._due_at = now
            return False
        if number < self._expected:  # sent again for want of an acknowledgement
            self._due_at = now
            return False
        self._expected += 1
        self._flags = 0
        self._echo, self._echo_at = number, now
        self._unreported += 1
        if packet.flags & LAST or self._unreported >= self._ack_every:
            self._due_at = now
        elif self._unreported == 1:
            self._due_at = min(self._due_at, now + self._ack_delay_s)
        return self._reassembly.add(packet.offset, packet.payload)

    def messages(self) -> list[tuple[int, Buffer]]:
        """Return, and forget, the complete messages, oldest first."""
        return self._reassembly.messages()

    def timer(self) -> float:
        """Return when a report is due, or infinity."""
        return self._due_at

    def reports(self, now: float, token: int) -> list[Report]:
        """Return the report that is due: everything below `stop` has arrived."""
        if now < self._due_at:
            return []
        self._due_at = INFINITY
        self._unreported = 0
        flags, self._flags = self._flags, 0
        delay_us = min(round((now - self._echo_at) * 1e6), MAX_U32)
        return [Report(token, 0, flags, self._echo, delay_us, 0, self._expected, 0, 0, ())]
