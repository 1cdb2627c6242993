"""The sender of `rdma-gbn`: go-back-N, as RDMA network cards do."""

from collections import deque
from collections.abc import Sequence

from bicoastal.transports.base import Datagram, PathView
from bicoastal.transports.paced.paced_sender import PacedSender
from bicoastal.transports.paced.packets import DATA_OVERHEAD_BYTES, LAST, NAK, Data, Report
from bicoastal.transports.rdma.retransmission_timeout import retransmission_timeout_s
from bicoastal.wan.checks import FieldError
from bicoastal.wan.units import INFINITY

FRUITLESS = 1  # timeouts in a row without an acknowledgement after which the window is `LEAST_WINDOW`
GAIN = 64  # packets that may be under way for each one acknowledged since the sender last went back
LEAST_WINDOW, MOST_WINDOW = 4, 1024  # packets


class GoBackSender(PacedSender):
    """Go-back-N: a packet number stands for a piece, and all packets from a lost one on are sent again.

    The far end reports a missing packet once, by a NAK (InfiniBand's "PSN sequence error"). If the NAK or the repair is
    lost, the sender waits for the timeout. After a timeout a small window limits the packets that are under way, until
    some arrive: a link that is slower than its granted rate would otherwise drop the needed packets again and again.
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
        self._sent: deque[tuple[float, int]] = deque()  # of the sent ones: last time, and how often
        self._next = 0  # number of the next packet to send
        self._cursor = 0
        self._rewound_at = 0.0
        self._rewound_to: int | None = None  # the packet number it last went back to
        self._fruitless = 0  # timeouts since anything was acknowledged
        self._window = INFINITY  # packets under way at a time

    def on_report(self, report: Report, now: float) -> None:
        """Process a cumulative acknowledgement. Go back if it is a NAK."""
        path = self._path
        expected = report.stop
        if expected > self._first + len(self._sent):
            return  # it acknowledges a packet that was never sent
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
        if self._rewound_to is not None:  # few packets arrive: more would only fill the link
            self._window = min(self._window, max(LEAST_WINDOW, GAIN * (self._first - self._rewound_to)))
        self._rewound_to = self._first
        self._next = self._first
        self._rewound_at = now

    def _count_in_flight(self) -> None:
        count = self._next - self._first
        self.in_flight_bytes = self._edges[count - 1][1] - self._edges[0][0] if count else 0

    def timer(self) -> float:
        """Return when a packet may depart, or when the acknowledgement of the oldest packet is overdue."""
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
        return max(self._sent[0][0], self._rewound_at) + retransmission_timeout_s(
            self._path, self._rto_rtts, self._fruitless
        )

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
        """Hand out the packets that may depart within a packet time, in the order of the stream."""
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
