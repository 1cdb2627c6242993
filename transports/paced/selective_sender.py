"""Selective repeat over many paths, each paced at its rate; gaps are repaired as soon as they are reported.

- A repair goes ahead of new data. It is a packet with a number of its own, so losing it shows like any other loss.
- When nothing new is left, the last pieces and the repairs are sent a second time, over another path if there is one.
  So a single loss at the tail costs at most a round trip, and does not wait for a timer.
- If packets stay unanswered for a round trip and a margin, a probe asks for a report. A path with several late answers
  is down: other paths carry the data that was in flight there.
- If a gap turns out to be reordering, the path waits that long before later repairs (as in RFC 8985 §3.3.2).
"""

from collections import deque
from collections.abc import Sequence

from bicoastal.transports.base import Datagram, PathView
from bicoastal.transports.paced.health_policy import PACED_HEALTH
from bicoastal.transports.paced.paced_path import PacedPath, Piece
from bicoastal.transports.paced.paced_sender import PathChange, PieceSender
from bicoastal.transports.paced.packets import LAST, Report
from bicoastal.transports.paths.health import Belief
from bicoastal.wan.units import INFINITY

REORDERING_PERSISTS = 16  # losses after which reordering is forgotten; RFC 8985 §6.2 has as many recoveries
MOST_DOUBLINGS = PACED_HEALTH.lateness.most_doublings  # of the time after which an answer is late
COPIED_TRANSMISSIONS = 2  # of a piece that is copied: itself and one copy
MOST_DOUBLED = 32  # repairs at the tail that are sent twice: a burst of loss, not all that a dead path held
FIRST_PROBE_S = 1.0  # after the handshake, of a path that had no part in it


class SelectiveSender(PieceSender):
    """Selective repeat on reports, over every path.

    ack_delay_s: how long the far end may delay a report. tail_copies: the number of last packets of a burst, per path,
    that are sent twice. give_up_s: as for `PacedSender`.
    """

    def __init__(self, views: Sequence[PathView], *, ack_delay_s: float, tail_copies: int, give_up_s: float) -> None:
        super().__init__(views, give_up_s=give_up_s, ack_delay_s=ack_delay_s)
        self._tail: deque[Piece] = deque(maxlen=tail_copies * len(views))

    # -- events -------------------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Start sending: the handshake is complete on one path. Probe the others."""
        self.path_set.probe_others(now, FIRST_PROBE_S)
        super().begin(now)

    def offer(self, now: float) -> None:
        """Note that the stream has grown. Probe paths whose probing had stopped while the sender was idle."""
        super().offer(now)
        for index, path in enumerate(self.paths):
            if path.health.belief is not Belief.UP and path.health.probe_at_s == INFINITY:
                self.path_set.probe_from(index, now)

    def on_report(self, report: Report, now: float) -> None:
        """Settle the packets that the report covers, and queue repairs of the lost ones."""
        path = self.paths[report.path_id]
        arrived, mistaken = path.take(report, now)
        if path.health.belief is not Belief.UP:
            self.path_answers(report.path_id, now)
        if mistaken:
            self._forgive(mistaken)
            if overtaken := [late.noticed_at for late in mistaken if late.overtaken]:
                path.reordering_s = min(max(2 * path.reordering_s, 1.25 * (now - min(overtaken))), path.srtt_s)
                path.sure_losses = 0
        self._settle(arrived, now, news=bool(mistaken))
        if path.missing:
            self._judge(path, now)

    def path_answers(self, path_id: int, now: float) -> None:
        """Note that the path can be used. It takes the data that is in flight on paths that do not answer."""
        was_up = self.paths[path_id].health.belief is Belief.UP
        super().path_answers(path_id, now)
        if not was_up:
            for path in self.paths:
                if path.health.belief is not Belief.UP:
                    self._abandon(path, now)

    def _judge(self, path: PacedPath, now: float) -> None:
        """Decide which missing packets are lost and not reordered. Forget old losses."""
        patience_s = path.reordering_s
        certain_s = patience_s + path.srtt_s * 2.0 ** min(path.health.late_answers, MOST_DOUBLINGS)
        settled = []
        for number, late in path.missing.items():
            waited_s = now - late.noticed_at
            if late.lost:
                if waited_s >= certain_s:
                    settled.append(number)
            elif now >= late.noticed_at + patience_s:  # the same expression as in the timer, so that both agree
                late.lost = True
                self._lose(late.piece)
        for number in settled:
            del path.missing[number]
        path.sure_losses += len(settled)
        if path.sure_losses >= REORDERING_PERSISTS:
            path.sure_losses, path.reordering_s = 0, 0.0
            for late in path.missing.values():  # without waiting time they are lost now: no timer looks at them again
                if not late.lost:
                    late.lost = True
                    self._lose(late.piece)

    def _abandon(self, path: PacedPath, now: float) -> None:
        """Let other paths carry the data that is in flight on this one."""
        for piece in path.give_up(now):
            self._lose(piece)

    # -- timers -------------------------------------------------------------------------------------------------------

    def timer(self) -> float:
        """Return when a packet may depart, an answer is late, or a probe is due."""
        at = self.path_set.probe_at_s
        waiting = self._cursor < self.stream.end or bool(self._again)
        for path in self.carriers:
            if (waiting or path.copies) and path.free_at < at:
                at = path.free_at
            if path.reordering_s and path.missing:
                at = min(at, self._judgement_at(path))
        for path in self.paths:
            if path.outstanding:
                late_at = path.late_at
                at = min(at, path.overdue_at() if late_at is None else late_at)
        return at

    def _judgement_at(self, path: PacedPath) -> float:
        for late in path.missing.values():  # in the order of `noticed_at`, nearly
            if not late.lost:
                return late.noticed_at + path.reordering_s
        return INFINITY

    def on_timer(self, now: float) -> None:
        """Repair packets that have been missing too long, and judge paths that do not answer."""
        self._check_patience(now)
        for index, path in enumerate(self.paths):
            if path.reordering_s and path.missing and self._judgement_at(path) <= now:
                self._judge(path, now)
            if path.outstanding and path.overdue_at() <= now:
                self._on_late_answer(index, now)

    def _on_late_answer(self, index: int, now: float) -> None:
        """Probe a path whose answer is late. Meanwhile other paths carry the data."""
        path, health = self.paths[index], self.paths[index].health
        was_suspect = health.belief is Belief.SUSPECT
        silent_s = now - (path.oldest_in_flight_s or now)
        others = any(other.health.belief is Belief.UP for other in self.paths if other is not path)
        if self.path_set.judge(index, now) is Belief.DOWN:
            self.timeouts += was_suspect
            path.told_down = True
            detail = f"no answer for {silent_s:.6f} s, which is {silent_s - path.srtt_s:.6f} s more than its RTT"
            self.changes.append(PathChange(path_id=path.path_id, up=False, detail=detail))
        path.late_at = None
        self._reshare()
        if others:
            self._abandon(path, now)

    # -- sending ------------------------------------------------------------------------------------------------------

    def fill(self, now: float, out: list[Datagram]) -> None:
        """Append the packets that may depart within a packet time, in the order of departure, and the due probes."""
        if self.path_set.probe_at_s <= now:
            for index in self.path_set.due_probes(now, idle=self.idle):
                self._probe(self.paths[index], now, out)
        stream = self.stream
        while self.carriers:
            if len(self.carriers) == 1:
                path = self.carriers[0]
                at = path.free_at if path.free_at > now else now
                if at > now + path.lookahead_s or not (self._again or self._cursor < stream.end or path.copies):
                    return
                self._send_next(path, at, out)
                continue
            best: PacedPath | None = None
            soonest = INFINITY
            work = self._again or self._cursor < stream.end
            for path in self.carriers:
                if work or path.copies:
                    at = path.free_at if path.free_at > now else now
                    if at < soonest and at <= now + path.lookahead_s:
                        best, soonest = path, at
            if best is None:
                return
            self._send_next(best, soonest, out)

    def _send_next(self, path: PacedPath, at: float, out: list[Datagram]) -> None:
        """Send a repair if one waits, else a new piece, else a copy."""
        end = self.stream.end
        left: int | None = None
        if self._again:
            piece = self._again.popleft()
            if piece.done:
                return
            if self._cursor == end and len(self._again) < MOST_DOUBLED:
                piece.path_id = path.path_id
                self._copy(piece)
        elif self._cursor < end:
            piece = self._cut()
            piece.path_id = path.path_id
            left = self._left_on(path, at)
            self._tail.append(piece)
            if piece.stop == end:
                for tail in self._tail:
                    self._copy(tail)
                self._tail.clear()
        else:
            piece = path.copies.popleft()
            if piece.done:
                return
        self._send(path, piece, at, left, out)

    def _copy(self, piece: Piece) -> None:
        """Queue a second transmission of a piece, on the next path that carries data, or on the only one."""
        count = len(self.paths)
        for step in range(1, count + 1):
            path = self.paths[(piece.path_id + step) % count]
            if path in self.carriers:
                path.copies.append(piece)
                return

    def _probe(self, path: PacedPath, now: float, out: list[Datagram]) -> None:
        """Ask a silent path for a report: with data if no path answers, else with an empty packet."""
        alone = self.path_set.none_up
        self.probes += 1
        if path.health.probes > 1:
            self.timeouts += alone  # with other paths up, a probe may precede the answer to the last one
            if path.rtt.srtt_s is None and not path.told_down:
                path.told_down = True
                self.changes.append(PathChange(path_id=path.path_id, up=False, detail="it has never answered"))
        at = max(now, path.last_departure)
        if alone and (oldest := self._oldest(2)):
            for piece in oldest:
                self._send(path, piece, at, None, out)
                at = max(at, path.last_departure)
            return
        self._emit(path, None, b"", LAST, at, None, out)

    def _oldest(self, count: int) -> list[Piece]:
        """Return the first pieces that were sent and have not arrived."""
        found: list[Piece] = []
        for piece in self._pieces:
            if not piece.done:
                found.append(piece)
                if len(found) == count:
                    break
        return found
