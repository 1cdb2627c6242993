"""The sender of b4: many paths, each paced at its rate; gaps are repaired as soon as they are reported.

- A repair goes ahead of new data. It is a packet with a number of its own, so losing it shows like any other loss.
- When nothing new is left, the last pieces are sent a second time, over another path where there is one, and so are
  repairs: no single loss at the tail costs more than a round trip, and none waits for a timer.
- What is still unanswered a round trip later, and a little, is asked about by a probe. A path whose answers stay out
  while it should be bringing many is taken to be dead: what was on its way there goes over the others.
- A gap that turns out to be reordering teaches the lane to wait that long before it repairs (as RFC 8985 §3.3.2 does).
"""

from collections import deque
from collections.abc import Sequence

from bicoastal.transports.base import Datagram, PathView
from bicoastal.transports.paced.lane import Lane, Piece, State
from bicoastal.transports.paced.packets import LAST, Report
from bicoastal.transports.paced.sending import PathChange, PieceSending
from bicoastal.wan.units import INFINITY

LATE_S = 0.003  # by how much an answer may be late for no reason of the path's
SHORTEST_PROBE_S, LONGEST_PROBE_S = 0.005, 2.0  # between two probes of a silent path
REORDERING_PERSISTS = 16  # losses after which reordering is forgotten: RFC 8985 §6.2 counts as many recoveries
PROBE_IDLE_S = 60.0  # for so long a dead path is probed when there is nothing to send
MOST_DOUBLINGS = 8  # of what counts as late
MOST_DOUBLED = 32  # repairs at the tail that are sent twice: what a burst of loss takes, not what a dead path held
FIRST_PROBE_S = 1.0  # after the handshake, of a path that took no part in it


class SelectiveSender(PieceSending):
    """Selective repeat on reports, over every path.

    ack_delay_s: how long the far end may wait before it reports. tail_copies: how many of the last packets of a burst,
    per path, are sent twice. give_up_s: as for `Sending`.
    """

    def __init__(self, views: Sequence[PathView], *, ack_delay_s: float, tail_copies: int, give_up_s: float) -> None:
        super().__init__(views, give_up_s=give_up_s)
        self._ack_delay_s = ack_delay_s
        self._tail: deque[Piece] = deque(maxlen=tail_copies * len(views))

    # -- what happens -------------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """The handshake is over on one path: the others are asked for."""
        for lane in self.lanes:
            if lane.state is not State.UP:
                lane.since = now
                lane.probe_at = now + FIRST_PROBE_S
        super().begin(now)

    def offer(self, now: float) -> None:
        """The stream has grown: paths that were given up while there was nothing to send are tried again."""
        super().offer(now)
        for lane in self.lanes:
            if lane.state is not State.UP and lane.probe_at == INFINITY:
                lane.probes, lane.probe_at = 0, now

    def on_report(self, report: Report, now: float) -> None:
        """Settle what the report covers; repair what is lost."""
        lane = self.lanes[report.path_id]
        arrived, mistaken = lane.take(report, now)
        if lane.state is not State.UP:
            self.path_answers(report.path_id, now)
        if mistaken:
            self._forgive(mistaken)
            if overtaken := [late.noticed_at for late in mistaken if late.overtaken]:
                lane.reordering_s = min(max(2 * lane.reordering_s, 1.25 * (now - min(overtaken))), lane.srtt_s)
                lane.sure_losses = 0
        self._settle(arrived, now, news=bool(mistaken))
        if lane.missing:
            self._judge(lane, now)

    def path_answers(self, path_id: int, now: float) -> None:
        """The path can be used: it takes what is on its way on paths that do not answer."""
        was_up = self.lanes[path_id].state is State.UP
        super().path_answers(path_id, now)
        if not was_up:
            for lane in self.lanes:
                if lane.state is not State.UP:
                    self._abandon(lane, now)

    def _judge(self, lane: Lane, now: float) -> None:
        """Tell losses from reordering, and forget those that were certain long ago."""
        patience_s = lane.reordering_s
        certain_s = patience_s + lane.srtt_s * 2.0 ** min(lane.doubt, MOST_DOUBLINGS)
        settled = []
        for number, late in lane.missing.items():
            waited_s = now - late.noticed_at
            if late.lost:
                if waited_s >= certain_s:
                    settled.append(number)
            elif now >= late.noticed_at + patience_s:  # as the timer computes it, to the bit
                late.lost = True
                self._lose(late.piece)
        for number in settled:
            del lane.missing[number]
        lane.sure_losses += len(settled)
        if lane.sure_losses >= REORDERING_PERSISTS:
            lane.sure_losses, lane.reordering_s = 0, 0.0
            for late in lane.missing.values():  # nobody would look at these again: without patience they are lost
                if not late.lost:
                    late.lost = True
                    self._lose(late.piece)

    def _abandon(self, lane: Lane, now: float) -> None:
        """Let other paths carry what is on its way on this one."""
        for piece in lane.give_up(now):
            self._lose(piece)

    # -- timers -------------------------------------------------------------------------------------------------------

    def timer(self) -> float:
        """Return when a packet may depart, an answer is late, or a probe is due."""
        at = INFINITY
        waiting = self._cursor < self.stream.end or bool(self._again)
        for lane in self.carriers:
            if (waiting or lane.copies) and lane.free_at < at:
                at = lane.free_at
            if lane.reordering_s and lane.missing:
                at = min(at, self._judgement_at(lane))
        for lane in self.lanes:
            at = min(at, lane.probe_at)
            if lane.outstanding and lane.state is not State.DOWN:
                late_at = lane.late_at
                if late_at is None:
                    late_at = self._late_at(lane)
                at = min(at, late_at)
        return at

    def _judgement_at(self, lane: Lane) -> float:
        for late in lane.missing.values():  # in the order in which they were noticed, within a report's distance
            if not late.lost:
                return late.noticed_at + lane.reordering_s
        return INFINITY

    def _late_at(self, lane: Lane) -> float:
        """Return when an answer is late: to the oldest packet, or to the probe after that."""
        if lane.late_at is None:
            lane.late_at = self._find_late_at(lane)
        return lane.late_at

    def _find_late_at(self, lane: Lane) -> float:
        srtt_s = lane.srtt_s
        varies_s = 4 * lane.rtt.rttvar_s
        margin_s = min(varies_s, srtt_s / 16)  # a path on which nothing queues varies little, after some samples
        wait_s = srtt_s + self._ack_delay_s + lane.gap_s + (margin_s if margin_s > LATE_S else LATE_S)
        if lane.doubt:
            wait_s *= 2.0 ** min(lane.doubt, MOST_DOUBLINGS)
        if lane.state is State.SUSPECT:
            return lane.since + wait_s
        return next(iter(lane.outstanding.values()))[1] + wait_s

    def on_timer(self, now: float) -> None:
        """Look after packets that are late, and paths that do not answer."""
        self._check_patience(now)
        for lane in self.lanes:
            if lane.reordering_s and lane.missing and self._judgement_at(lane) <= now:
                self._judge(lane, now)
            if lane.outstanding and lane.state is not State.DOWN and self._late_at(lane) <= now:
                self._silent(lane, now)

    def _silent(self, lane: Lane, now: float) -> None:
        """An answer is late: probe, and do not count on the path meanwhile."""
        sent = [sent_at for _, sent_at in lane.outstanding.values()]
        due_before = now - lane.srtt_s - self._ack_delay_s
        overdue = [sent_at for sent_at in sent if sent_at <= due_before]
        others = any(other.state is State.UP for other in self.lanes if other is not lane)
        # Packets that span two reports' time were to bring three; losing all of them by chance is next to impossible.
        report_s = self._ack_delay_s + lane.lookahead_s
        many = others and bool(overdue) and overdue[-1] - overdue[0] >= 2 * report_s
        if lane.state is State.SUSPECT or many:
            self.timeouts += lane.state is State.SUSPECT
            lane.state = State.DOWN
            lane.told_down = True
            silent_s = now - sent[0]
            detail = f"no answer for {silent_s:.6f} s, which is {silent_s - lane.srtt_s:.6f} s more than its RTT"
            self.changes.append(PathChange(path_id=lane.path_id, up=False, detail=detail))
        else:
            lane.state = State.SUSPECT
        lane.since = now
        lane.doubt += 1
        lane.late_at = None
        if lane.probe_at == INFINITY:
            lane.probe_at = now
        self._reshare()
        if others:
            self._abandon(lane, now)

    # -- sending ------------------------------------------------------------------------------------------------------

    def fill(self, now: float, out: list[Datagram]) -> None:
        """Hand out what may depart within a packet time, in the order of departure, and the probes that are due."""
        for lane in self.lanes:
            if lane.probe_at <= now:
                self._probe(lane, now, out)
        stream = self.stream
        while self.carriers:
            if len(self.carriers) == 1:
                lane = self.carriers[0]
                at = lane.free_at if lane.free_at > now else now
                if at > now + lane.lookahead_s or not (self._again or self._cursor < stream.end or lane.copies):
                    return
                self._send_next(lane, at, out)
                continue
            best: Lane | None = None
            soonest = INFINITY
            work = self._again or self._cursor < stream.end
            for lane in self.carriers:
                if work or lane.copies:
                    at = lane.free_at if lane.free_at > now else now
                    if at < soonest and at <= now + lane.lookahead_s:
                        best, soonest = lane, at
            if best is None:
                return
            self._send_next(best, soonest, out)

    def _send_next(self, lane: Lane, at: float, out: list[Datagram]) -> None:
        """Send a repair, or else something new, or else a copy."""
        end = self.stream.end
        left: int | None = None
        if self._again:
            piece = self._again.popleft()
            if piece.done:
                return
            if self._cursor == end and len(self._again) < MOST_DOUBLED:
                piece.path_id = lane.path_id
                self._copy(piece)
        elif self._cursor < end:
            piece = self._cut()
            piece.path_id = lane.path_id
            left = self._left_on(lane, at)
            self._tail.append(piece)
            if piece.stop == end:
                for tail in self._tail:
                    self._copy(tail)
                self._tail.clear()
        else:
            piece = lane.copies.popleft()
            if piece.done:
                return
        self._send(lane, piece, at, left, out)

    def _copy(self, piece: Piece) -> None:
        """Let a piece be sent a second time, over the next path that is up, or over the only one."""
        count = len(self.lanes)
        for step in range(1, count + 1):
            lane = self.lanes[(piece.path_id + step) % count]
            if lane in self.carriers:
                lane.copies.append(piece)
                return

    def _probe(self, lane: Lane, now: float, out: list[Datagram]) -> None:
        """Ask a silent path for a report: with data where no path answers, with nothing where others carry the data."""
        if self.idle and now - lane.since > PROBE_IDLE_S:
            lane.probe_at = INFINITY
            return
        alone = not any(other.state is State.UP for other in self.lanes)
        wait_s = lane.srtt_s * 1.25 if alone else lane.srtt_s / 2
        lane.probe_at = now + min(max(wait_s, SHORTEST_PROBE_S) * 1.5 ** min(lane.probes, 32), LONGEST_PROBE_S)
        lane.probes += 1
        self.probes += 1
        if lane.probes > 1:
            self.timeouts += alone  # elsewhere a probe follows before the answer to the one before it can come
            if lane.rtt.srtt_s is None and not lane.told_down:
                lane.told_down = True
                self.changes.append(PathChange(path_id=lane.path_id, up=False, detail="it has never answered"))
        at = max(now, lane.last_departure)
        if alone and (oldest := self._oldest(2)):
            for piece in oldest:
                self._send(lane, piece, at, None, out)
                at = max(at, lane.last_departure)
            return
        self._emit(lane, None, b"", LAST, at, None, out)

    def _oldest(self, count: int) -> list[Piece]:
        """Return the first pieces that were sent and have not arrived."""
        found: list[Piece] = []
        for piece in self._pieces:
            if not piece.done:
                found.append(piece)
                if len(found) == count:
                    break
        return found
