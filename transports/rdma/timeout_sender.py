"""The sender of `rdma-sr`: selective repeat driven by a timeout alone."""

from collections.abc import Sequence

from bicoastal.transports.base import Datagram, PathView
from bicoastal.transports.paced.paced_path import MissingPacket, PacedPath
from bicoastal.transports.paced.paced_sender import PieceSender
from bicoastal.transports.paced.packets import Report
from bicoastal.transports.rdma.retransmission_timeout import retransmission_timeout_s
from bicoastal.wan.units import INFINITY

# A packet that has timed out is remembered for so long. If it arrives late, it is recognised and its RTT measured.
REMEMBERED_RTOS, REMEMBERED_S = 4, 1.0


class TimeoutSender(PieceSender):
    """Selective repeat that detects a loss only by a timeout. Each packet has its own timeout.

    rto_rtts: the timeout, in smoothed round-trip times.
    """

    def __init__(self, views: Sequence[PathView], *, rto_rtts: float, give_up_s: float) -> None:
        super().__init__(views, give_up_s=give_up_s)
        self._rto_rtts = rto_rtts
        self._unanswered = [0] * len(views)  # timeouts since the last report about the path
        self._timed_out_s = [0.0] * len(views)  # when the last of them was

    def path_answers(self, path_id: int, now: float) -> None:
        """Note that a packet of the far end has arrived on the path: its timeout is the shortest again."""
        self._unanswered[path_id] = 0
        super().path_answers(path_id, now)

    def on_report(self, report: Report, now: float) -> None:
        """Settle the packets that have arrived. The packets in the gaps of the report wait for their timeouts."""
        arrived, mistaken = self.paths[report.path_id].take(report, now)
        self.path_answers(report.path_id, now)
        self._forgive(mistaken)
        self._settle(arrived, now, news=bool(mistaken))
        self._forget(self.paths[report.path_id], now)

    def timer(self) -> float:
        """Return when a packet may depart, or when the oldest packet that has not arrived times out."""
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
        return retransmission_timeout_s(path, self._rto_rtts, self._unanswered[path.path_id])

    def _expires_at(self, path: PacedPath) -> float:
        return self._oldest_at(path) + self._timeout_s(path)

    def on_timer(self, now: float) -> None:
        """Queue the data of the packets that have timed out to be sent again."""
        self._check_patience(now)
        for path in self.paths:
            rto_s = self._timeout_s(path)
            oldest_at = self._oldest_at(path)
            if oldest_at + rto_s <= now:
                self.timeouts += 1
                self._expire(path, rto_s, now)
                if oldest_at >= self._timed_out_s[path.path_id]:  # not for packets sent before the last timeout
                    self._unanswered[path.path_id] += 1
                    self._timed_out_s[path.path_id] = now

    def _expire(self, path: PacedPath, rto_s: float, now: float) -> None:
        while path.missing:  # they are all older than the outstanding packets
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
        """Forget packets that timed out so long ago that they cannot arrive any more."""
        memory_s = max(REMEMBERED_RTOS * self._timeout_s(path), REMEMBERED_S)
        while path.expired:
            number, late = next(iter(path.expired.items()))
            if late.sent_at + memory_s > now:
                return
            del path.expired[number]

    def fill(self, now: float, out: list[Datagram]) -> None:
        """Hand out the packets that may depart within a packet time, repairs first."""
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
