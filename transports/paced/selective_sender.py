"""Selective repeat over many paths, each paced at its rate; gaps are repaired as soon as they are reported.

- A repair goes ahead of new data. It is a packet with a number of its own, so losing it shows like any other loss.
- When nothing new is left, the last pieces are sent a second time, over another path where there is one, and so are
  repairs: no single loss at the tail costs more than a round trip, and none waits for a timer.
- A probe asks for what is unanswered after a round trip and a margin. A path from which several answers are late is
  down: other paths carry what was on its way there.
- A gap that turns out to be reordering teaches the path to wait that long before it repairs (as RFC 8985 §3.3.2 does).
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

REORDERING_PERSISTS = 16  # losses after which reordering is forgotten: RFC 8985 §6.2 counts as many recoveries
MOST_DOUBLINGS = PACED_HEALTH.lateness.most_doublings  # of what counts as late
MOST_DOUBLED = 32  # repairs at the tail that are sent twice: what a burst of loss takes, not what a dead path held
FIRST_PROBE_S = 1.0  # after the handshake, of a path that took no part in it


class SelectiveSender(PieceSender):
    """Selective repeat on reports, over every path.

    ack_delay_s: how long the far end may wait before it reports. tail_copies: how many of the last packets of a burst,
    per path, are sent twice. give_up_s: as for `PacedSender`.
    """

    def __init__(self, views: Sequence[PathView], *, ack_delay_s: float, tail_copies: int, give_up_s: float) -> None:
        super().__init__(views, give_up_s=give_up_s, ack_delay_s=ack_delay_s)
        self._tail: deque[Piece] = deque(maxlen=tail_copies * len(views))

    # -- what happens -------------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """The handshake is over on one path: the others are asked for."""
        self.path_set.probe_others(now, FIRST_PROBE_S)
        super().begin(now)

    def offer(self, now: float) -> None:
        """The stream has grown: paths that were given up while there was nothing to send are tried again."""
        super().offer(now)
        for index, path in enumerate(self.paths):
            if path.health.belief is not Belief.UP and path.health.probe_at_s == INFINITY:
                self.path_set.probe_from(index, now)

    def on_report(self, report: Report, now: float) -> None:
        """Settle what the report covers; repair what is lost."""
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
        """The path can be used: it takes what is on its way on paths that do not answer."""
        was_up = self.paths[path_id].health.belief is Belief.UP
        super().path_answers(path_id, now)
        if not was_up:
            for path in self.paths:
                if path.health.belief is not Belief.UP:
                    self._abandon(path, now)

    def _judge(self, path: PacedPath, now: float) -> None:
        """Tell losses from reordering, and forget those that were certain long ago."""
        patience_s = path.reordering_s
        certain_s = patience_s + path.srtt_s * 2.0 ** min(path.health.late_answers, MOST_DOUBLINGS)
        settled = []
        for number, late in path.missing.items():
            waited_s = now - late.noticed_at
            if late.lost:
                if waited_s >= certain_s:
                    settled.append(number)
            elif now >= late.noticed_at + patience_s:  # as the timer computes it, to the bit
                late.lost = True
                self._lose(late.piece)
        for number in settled:
            del path.missing[number]
        path.sure_losses += len(settled)
        if path.sure_losses >= REORDERING_PERSISTS:
            path.sure_losses, path.reordering_s = 0, 0.0
            for late in path.missing.values():  # without patience they are lost at once, and no timer judges them again
                if not late.lost:
                    late.lost = True
                    self._lose(late.piece)

    def _abandon(self, path: PacedPath, now: float) -> None:
        """Let other paths carry what is on its way on this one."""
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
        for late in path.missing.values():  # in the order in which they were noticed, within a report's distance
            if not late.lost:
                return late.noticed_at + path.reordering_s
        return INFINITY

    def on_timer(self, now: float) -> None:
        """Repair packets that are missing for too long, and judge paths that do not answer."""
        self._check_patience(now)
        for index, path in enumerate(self.paths):
            if path.reordering_s and path.missing and self._judgement_at(path) <= now:
                self._judge(path, now)
            if path.outstanding and path.overdue_at() <= now:
                self._on_late_answer(index, now)

    def _on_late_answer(self, index: int, now: float) -> None:
        """Probe a path whose answer is late, and let others carry the data meanwhile."""
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
        """Hand out what may depart within a packet time, in the order of departure, and the probes that are due."""
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
        """Send a repair, or else something new, or else a copy."""
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
        """Let a piece be sent a second time, over the next path that is up, or over the only one."""
        count = len(self.paths)
        for step in range(1, count + 1):
            path = self.paths[(piece.path_id + step) % count]
            if path in self.carriers:
                path.copies.append(piece)
                return

    def _probe(self, path: PacedPath, now: float, out: list[Datagram]) -> None:
        """Ask a silent path for a report: with data where no path answers, with nothing where others carry the data."""
        alone = self.path_set.none_up
        self.probes += 1
        if path.health.probes > 1:
            self.timeouts += alone  # elsewhere a probe follows before the answer to the one before it can come
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
