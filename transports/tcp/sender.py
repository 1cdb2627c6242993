"""TCP's sending half: what it may send now, and how it reacts to acknowledgements and to timeouts.

Works in unbounded stream offsets; the connection maps them to sequence numbers. Loss is found by RACK-TLP (RFC 8985),
the window after a loss is governed by PRR (RFC 9937), the timeout by RFC 6298.
"""

from typing import NamedTuple

from bicoastal.transports.congestion.base import Ack, CongestionControl, pacing_ahead_s
from bicoastal.transports.recovery.copies import RepairCopies
from bicoastal.transports.recovery.rack import Rack, SentPacket
from bicoastal.transports.recovery.ranges import Range
from bicoastal.transports.recovery.rtt import RttEstimator
from bicoastal.transports.recovery.scoreboard import Scoreboard
from bicoastal.transports.tcp.episode import LossEpisode
from bicoastal.transports.tcp.timers import TailLossProbe, TailTimers
from bicoastal.wan.units import INFINITY

ECHO_ERROR_S = 0.001
"""By how much the time that a timestamp echo stands for may be off: a tick of the clock that made it."""

MAX_TIMEOUTS = 15
"""Successive timeouts without an acknowledgement before the connection gives up, as kernels do (tcp_retries2)."""


class Transmission(NamedTuple):
    """A segment to build and send: offsets [start, stop), when it leaves, and whether it carries data sent before."""

    start: int
    stop: int
    depart_at: float
    repair: bool


class Sender:
    """The sending half of one connection.

    next_offset: the first offset never sent (SND.NXT). end: the end of what the application has offered. window_edge:
    the offset up to which the peer allows data. failure: why it gave up, empty as long as it has not.
    """

    def __init__(
        self,
        *,
        mss_bytes: int,
        congestion: CongestionControl,
        rtt: RttEstimator,
        after_idle: str,
        max_ack_delay_s: float,
    ) -> None:
        self.mss_bytes = mss_bytes
        self.congestion = congestion
        self.rtt = rtt
        congestion.follow(rtt.data)
        self.board = Scoreboard()
        self.next_offset = self.end = self.window_edge = 0
        self.repairs = self.probes = self.timeouts = self.spurious = 0
        self.failure = ""
        self._rack = Rack()
        self._copies = RepairCopies()
        self._episode = LossEpisode(mss_bytes=mss_bytes, congestion=congestion, board=self.board, rack=self._rack)
        self._timers = TailTimers(
            mss_bytes=mss_bytes,
            max_ack_delay_s=max_ack_delay_s,
            congestion=congestion,
            rtt=rtt,
            rack=self._rack,
            board=self.board,
        )
        self._probe = TailLossProbe()
        self._extra = 0  # what may exceed the window: a probe, or the first repair after a timeout
        self._after_idle = after_idle
        self._backoffs = 0  # timeouts since the last cumulative acknowledgement
        self._round_stop = 0  # the acknowledgement of what is beyond begins another round trip
        self._limited_stop = 0  # data below was sent while the window, not the application, held the sender back
        self._burst_s = 0.0  # when the present burst's first packet left
        self._last_sent_s = -INFINITY
        self._next_departure_s = 0.0
        self._pace_at = INFINITY

    # -- the application and the timers --------------------------------------------------------------------------------

    def begin_with_one_segment(self) -> None:
        """A SYN was lost: the initial window is one segment (RFC 5681 §3.1)."""
        self.congestion.cwnd_bytes = float(self.mss_bytes)

    def offer(self, end: int, now: float) -> None:
        """The stream now reaches to `end`."""
        if self.next_offset == self.board.una:
            if self._last_sent_s > -INFINITY:
                idle_s = now - self._last_sent_s
                self.congestion.restart_after_idle(now, idle_s, self.rtt.rto_s, policy=self._after_idle)
                self._episode.next_burst()
                if idle_s > self.rtt.rto_s:
                    self._copies.forget()
            self.congestion.on_burst(now, end - self.end)
            self._next_departure_s = now
        self.end = end

    def timer(self) -> float:
        """Return when `on_timer` is due (inf: never)."""
        timers = self._timers
        return min(
            timers.rto_at, timers.probe_at, timers.expiry_at, self._pace_at, self._copies.due_s, self._rack.deadline
        )

    def on_timer(self, now: float) -> None:
        """Do whatever is due."""
        if self._rack.deadline <= now:
            self._detect(now)
        if self._pace_at <= now:
            self._pace_at = INFINITY
        if self._timers.expiry_at <= now:
            self._expire(now)
        if self._timers.probe_at <= now:
            self._send_probe(now)
        if self._timers.rto_at <= now:
            self._time_out(now)

    # -- acknowledgements ----------------------------------------------------------------------------------------------

    def on_ack(self, ack: int, blocks: tuple[Range, ...], now: float, echoed_s: float | None) -> None:
        """Take an acknowledgement up to `ack` with SACK `blocks` (offsets).

        echoed_s: the time its timestamp echo stands for, rounded down to the timestamp's tick; None without one.
        """
        board, episode = self.board, self._episode
        acked_bytes = ack - board.una
        before = board.delivered_bytes
        newest: SentPacket | None = None
        if acked_bytes:
            edge = board.una
            newest = self._take_delivered(board.acknowledge(ack), now, echoed_s, edge, None)
            self._backoffs = 0
        if blocks:
            if _is_duplicate_report(blocks, ack):
                self._take_duplicate_report(*blocks[0])
                blocks = blocks[1:]
            if len(blocks) > 1:
                blocks = tuple(sorted(blocks))  # by offset: where ACKs were lost, news in two blocks is no reordering
            # no echo: a SACKed segment's timestamp is not echoed before the hole is filled (RFC 7323 §4.3)
            newest = self._take_delivered(board.select(blocks, self.next_offset), now, None, -1, newest)
        delivered = board.delivered_bytes - before
        newest_sent_s = None
        if newest is not None:
            newest_sent_s = newest.sent_s
            if newest.transmissions == 1:
                self.rtt.sample(now - newest.sent_s, now)
            self._timers.answered(now)
        watched = board.sacked_segments or episode.active or self._rack.deadline < INFINITY
        lost = self._detect(now, delivered) if watched else 0
        mended = self._probe.acknowledged(ack)
        if mended is not None:
            episode.mended_by_probe(mended, now)
        if episode.active:
            episode.on_ack(ack, now, delivered=delivered, lost=lost, advanced=acked_bytes > 0)
        if not (delivered or lost):
            return
        round_started = delivered > 0 and ack > self._round_stop
        if round_started:
            self._round_stop = self.next_offset
            episode.next_round()
        self.congestion.on_ack(
            Ack(
                now,
                acked_bytes,
                delivered,
                lost,
                board.in_flight,
                self.rtt.publish(),
                round_started,
                ack <= self._limited_stop,
                episode.active and not episode.timed_out,
                newest_sent_s,
            )
        )
        if delivered:
            self._arm(now, answered=True)

    def _take_delivered(
        self, packets: list[SentPacket], now: float, echoed_s: float | None, edge: int, newest: SentPacket | None
    ) -> SentPacket | None:
        """Tell RACK and the episode what was delivered; return the packet sent last among it and `newest`.

        The echo is the timestamp of the first segment that the acknowledgement answers, which is the one at the old
        left edge, `edge` (RFC 7323 §4.3). Of those beyond, it is a lower bound.
        """
        min_rtt_s = self.rtt.min_rtt_s
        for packet in packets:
            again = packet.transmissions > 1
            # an echo older than the latest transmission: an earlier one may have arrived (RFC 8985 §6.2 step 2)
            earlier = again and echoed_s is not None and echoed_s < packet.sent_s - ECHO_ERROR_S
            proven = earlier and packet.start == edge
            self._rack.delivered(packet, now, min_rtt_s, ambiguous=earlier, original=proven)
            if proven and echoed_s is not None and echoed_s < packet.retransmitted_s - ECHO_ERROR_S:
                self._take_original(packet)
            elif packet.lost and not again:
                self._episode.disprove(packet.start)
            if newest is None or packet.order > newest.order:
                newest = packet
        return newest

    def _take_original(self, packet: SentPacket) -> None:
        """The first transmission of a repaired packet has arrived: the repair was needless (RFC 3522 §3.2)."""
        self._probe.original_arrived(packet.stop)
        self._episode.disprove(packet.start)
        self._episode.disprove_timeout()

    def _take_duplicate_report(self, start: int, stop: int) -> None:
        if self._copies.expected(start):
            return
        self.spurious += 1
        self._rack.duplicate_reported(self.board.una, self.next_offset)
        self._probe.original_arrived(stop)
        self._episode.disprove(start, once=True)

    # -- loss ----------------------------------------------------------------------------------------------------------

    def _detect(self, now: float, delivered: int = 0) -> int:
        lost = self._rack.detect(now, self._reordering_s())
        return self._take_lost(lost, now, delivered) if lost else 0

    def _reordering_s(self) -> float:
        rtt = self.rtt
        return self._rack.window_s(
            rtt.min_rtt_s,
            rtt.srtt_s or 0.0,
            in_recovery=self._episode.active,
            sacked_segments=self.board.sacked_segments,
        )

    def _take_lost(self, lost: list[SentPacket], now: float, delivered: int = 0) -> int:
        self._timers.probe_at = INFINITY
        return self._episode.lose(lost, now, self.next_offset, delivered)

    # -- silence -------------------------------------------------------------------------------------------------------

    def _arm(self, now: float, *, answered: bool) -> None:
        if self.board.una == self.next_offset:
            self._timers.stop()
        else:
            heard = self._episode.active or self.board.sacked_segments or self._probe.pending
            self._timers.arm(now, self._last_sent_s, may_probe=not heard, answered=answered)

    def _time_out(self, now: float) -> None:
        timers = self._timers
        if self.board.una == self.next_offset:
            timers.stop()
            return
        self.timeouts += 1
        self._backoffs += 1
        if self._backoffs > MAX_TIMEOUTS:
            self.failure = f"no acknowledgement after {MAX_TIMEOUTS} timeouts"
            timers.stop()
            return
        self.rtt.back_off()
        self._lose_all(now, now - self._rack.rtt_s - self._reordering_s())  # RFC 8985 §6.3
        timers.stop()
        timers.restart_rto(now)

    def _lose_all(self, now: float, sent_before_s: float = INFINITY) -> None:
        """Take what was sent by a time, and the first segment, as lost; send that one at once (RFC 6298 §5.4)."""
        self._episode.time_out(now, self.next_offset, sent_before_s)
        self._extra = self.board.in_flight
        self._probe.cancel()
        self._next_departure_s = now

    def _send_probe(self, now: float) -> None:
        """Send a tail loss probe: new data if there is any, else the last segment again (RFC 8985 §7.3)."""
        self._timers.probe_at = INFINITY
        if self._probe.pending or self.board.una == self.next_offset:
            return
        self.probes += 1
        self._timers.restart_rto(now)
        self._extra = self.mss_bytes
        fresh = self._fresh_bytes()
        again = None if fresh else self.board.last()
        if again is not None and not (again.lost or again.done):
            again.lost = True
            self.board.lose([again])
        self._probe.begin(self.next_offset + fresh, again)

    def _expire(self, now: float) -> None:
        """Repair what the algorithm's repair timeout says is lost: a probe of the path as much as a repair."""
        lost = self._timers.expire(now, self._burst_s)
        if lost is None:
            self._lose_all(now)
        elif lost:
            self._take_lost(lost, now)
        else:
            return
        self.probes += 1
        self._arm(now, answered=True)  # the retransmission timeout is for what this does not mend

    # -- sending -------------------------------------------------------------------------------------------------------

    def transmissions(self, now: float) -> list[Transmission]:
        """Return what may leave now: repairs first, then new data, within window, pace and the peer's window."""
        out: list[Transmission] = []
        board, congestion, mss = self.board, self.congestion, self.mss_bytes
        if board.una == self.end:
            self._copies.cancel()
            return out
        for copied in self._copies.take(now):
            self.repairs += 1
            out.append(Transmission(copied.start, copied.stop, now, True))
        window = self._episode.window_bytes() if self._episode.active else congestion.cwnd_bytes
        window += self._extra
        self._extra = 0
        pace, ahead_s = congestion.pacing_rate_bps, pacing_ahead_s(self.rtt.srtt_s or 0.0)
        depart_at, fresh = now, 0
        while True:
            if pace is not None:
                depart_at = max(now, self._next_departure_s)
                if depart_at > now + ahead_s:
                    self._pace_at = depart_at - ahead_s / 2
                    break
            packet = board.next_lost()
            if packet is None:
                fresh = self._fresh_bytes()
                if not fresh:
                    break
            if board.in_flight + mss > window and board.in_flight:
                self._limited_stop = self.next_offset
                break
            transmission = self._send_new(fresh, depart_at) if packet is None else self._resend(packet, depart_at)
            out.append(transmission)
            if pace is not None:
                self._next_departure_s = depart_at + 8 * (transmission.stop - transmission.start) / pace
        if out:
            self._episode.note_flight()
            self._last_sent_s = out[-1].depart_at
            if self._timers.rto_at == INFINITY or self.next_offset == self.end:
                self._arm(now, answered=False)
        return out

    def _fresh_bytes(self) -> int:
        """Return how much the next segment of new data holds: 0 when there is none, or the peer has no room for it.

        The peer's window never cuts a segment short (RFC 9293 §3.8.6.2.1), unless nothing is outstanding and the window
        is less than a segment. There is no persist timer (§3.8.6.1): the receiver never closes its window, since it
        passes octets on at once, and every ACK that moves `una` tells of at least one unit of room.
        """
        offered, mss = self.end - self.next_offset, self.mss_bytes
        room = min(offered, self.window_edge - self.next_offset)
        if room >= mss:
            return mss
        return max(room, 0) if room == offered or self.board.una == self.next_offset else 0

    def _send_new(self, size: int, depart_at: float) -> Transmission:
        start = self.next_offset
        stop = start + size
        packet = SentPacket(start, stop)
        if self.board.in_flight == 0:
            self._burst_s = depart_at
        self._book(packet, depart_at)
        self.board.add(packet)
        self.next_offset = stop
        return Transmission(start, stop, depart_at, False)

    def _resend(self, packet: SentPacket, depart_at: float) -> Transmission:
        packet.retransmitted_s = min(packet.retransmitted_s, depart_at)
        self.repairs += 1
        self._book(packet, depart_at)
        self.board.resent(packet)
        after_s = self.congestion.duplicate_repair_after_s
        if after_s is not None:
            self._copies.plan(packet, depart_at + after_s)
        return Transmission(packet.start, packet.stop, depart_at, True)

    def _book(self, packet: SentPacket, depart_at: float) -> None:
        packet.sent_s = depart_at
        packet.transmissions += 1
        self._rack.sent(packet)
        if self._episode.active:
            self._episode.note_sent(packet.stop - packet.start)


def _is_duplicate_report(blocks: tuple[Range, ...], ack: int) -> bool:
    """Tell whether the first block is a DSACK: the acknowledgement or the next block covers it (RFC 2883 §4)."""
    start, stop = blocks[0]
    return stop <= ack or (len(blocks) > 1 and blocks[1][0] <= start and stop <= blocks[1][1])
