"""TCP's sending half: what may go now, what an acknowledgement tells, and the timers that watch over both.

Works in unbounded stream offsets; the connection maps them to sequence numbers. Loss is found by RACK-TLP (RFC 8985),
the window after a loss is governed by PRR (RFC 9937), the timeout by RFC 6298.
"""

from typing import NamedTuple

from transports.congestion.base import Ack, CongestionControl, pacing_ahead_s
from transports.recovery.copies import RepairCopies
from transports.recovery.prr import ProportionalRateReduction
from transports.recovery.rack import INFINITY, Rack, SentPacket
from transports.recovery.ranges import Range
from transports.recovery.rtt import RttEstimator
from transports.recovery.scoreboard import Scoreboard
from transports.recovery.undo import LossMarks

SILENCE = 1.5
"""How many round trips without a single acknowledgement of a burst mean that the path, not a packet, is gone."""

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
        self.board = Scoreboard()
        self.next_offset = self.end = self.window_edge = 0
        self.repairs = self.probes = self.timeouts = self.spurious = 0
        self.failure = ""
        self._rack = Rack()
        self._prr = ProportionalRateReduction(mss_bytes=mss_bytes)
        self._copies = RepairCopies()
        self._after_idle = after_idle
        self._max_ack_delay_s = max_ack_delay_s
        # a loss episode: fast recovery, or what follows a timeout
        self._in_recovery = self._in_timeout = False
        self._recovery_stop = 0
        self._recovery_window = 0.0  # what PRR allows
        self._marks = LossMarks()
        # rounds and limits
        self._round_stop = 0
        self._round_flight = self._last_flight = 0  # the most that was in flight in this round, and in the one before
        self._limited_stop = 0  # data below was sent while the window, not the application, held the sender back
        self._burst_s = 0.0  # when the present burst's first packet left
        self._last_sent_s = -INFINITY
        self._last_ack_s = 0.0
        self._next_departure_s = 0.0
        # timers
        self._rto_at = self._probe_at = self._expiry_at = self._pace_at = INFINITY
        self._probe_stop: int | None = None  # TLP.end_seq
        self._probe_is_repair = False
        self._probed = SentPacket(0, 0)  # what the last probe repeated
        self._probe_extra = 0  # what a probe may exceed the window by
        self._backoffs = 0
        self._expiries = 0
        self._expiry_floor = 0.0

    # -- the application and the timers --------------------------------------------------------------------------------

    def offer(self, end: int, now: float) -> None:
        """The stream now reaches to `end`."""
        if self.next_offset == self.board.una:
            if self._last_sent_s > -INFINITY:
                idle_s = now - self._last_sent_s
                self.congestion.restart_after_idle(now, idle_s, self.rtt.rto_s, policy=self._after_idle)
                self._marks.clear()
                if idle_s > self.rtt.rto_s:
                    self._copies.forget()
            self.congestion.on_burst(now, end - self.end)
            self._next_departure_s = now
        self.end = end

    def timer(self) -> float:
        """Return when `on_timer` is due (inf: never)."""
        return min(
            self._rto_at, self._probe_at, self._expiry_at, self._pace_at, self._copies.due_s, self._rack.deadline
        )

    def on_timer(self, now: float) -> None:
        """Do whatever is due."""
        if self._rack.deadline <= now:
            self._detect(now)
        if self._pace_at <= now:
            self._pace_at = INFINITY
        if self._expiry_at <= now:
            self._expire(now)
        if self._probe_at <= now:
            self._probe(now)
        if self._rto_at <= now:
            self._time_out(now)

    # -- acknowledgements ----------------------------------------------------------------------------------------------

    def on_ack(self, ack: int, blocks: tuple[Range, ...], now: float, echoed_s: float | None) -> None:
        """Take an acknowledgement up to `ack` with SACK `blocks` (offsets).

        echoed_s: the time its timestamp echo stands for, rounded down to the timestamp's tick; None without one.
        """
        board = self.board
        acked_bytes = ack - board.una
        before = board.delivered_bytes
        newest: SentPacket | None = None
        if acked_bytes:
            newest = self._take_delivered(board.acknowledge(ack), now, echoed_s, None)
            self._backoffs = 0
        if blocks:
            if _is_duplicate_report(blocks, ack):
                self._take_duplicate_report(*blocks[0])
                blocks = blocks[1:]
            if len(blocks) > 1:
                blocks = tuple(sorted(blocks))  # by offset: where ACKs were lost, news in two blocks is no reordering
            # no echo: a SACKed segment's timestamp is not echoed before the hole is filled (RFC 7323 §4.3)
            newest = self._take_delivered(board.select(blocks, self.next_offset), now, None, newest)
        delivered = board.delivered_bytes - before
        rtt_s = newest_sent_s = None
        if newest is not None:
            newest_sent_s = newest.sent_s
            if newest.transmissions == 1:
                rtt_s = now - newest.sent_s
                self.rtt.sample(rtt_s, now)
            self._expiries = 0
            self._expiry_floor = 0.0
        watched = board.sacked_segments or self._in_recovery or self._rack.deadline < INFINITY
        lost = self._detect(now, delivered) if watched else 0
        if self._probe_stop is not None and ack >= self._probe_stop:
            self._end_probe(now)
        if self._in_recovery:
            if ack >= self._recovery_stop:
                self._end_recovery(now)
            elif not self._in_timeout and not self.congestion.governs_recovery:
                self._recovery_window = self._prr.on_ack(
                    delivered_bytes=delivered,
                    in_flight_bytes=board.in_flight,
                    lost_bytes=lost,
                    advanced=acked_bytes > 0,
                )
        if not (delivered or lost):
            return
        round_started = delivered > 0 and ack >= self._round_stop
        if round_started:
            self._round_stop = self.next_offset
            self._last_flight, self._round_flight = self._round_flight, board.in_flight
        self.congestion.on_ack(
            Ack(
                now,
                acked_bytes,
                delivered,
                lost,
                board.in_flight,
                rtt_s,
                round_started,
                ack <= self._limited_stop,
                self._in_recovery and not self._in_timeout,
                newest_sent_s,
            )
        )
        if delivered:
            self._last_ack_s = now
            self._arm(now)

    def _take_delivered(
        self, packets: list[SentPacket], now: float, echoed_s: float | None, newest: SentPacket | None
    ) -> SentPacket | None:
        """Tell RACK and the loss marks what was delivered; return the packet sent last among it and `newest`."""
        min_rtt_s = self.rtt.min_rtt_s
        for packet in packets:
            again = packet.transmissions > 1
            # an echo older than the latest transmission: an earlier one has arrived (RFC 8985 §6.2 step 2)
            earlier = again and echoed_s is not None and echoed_s < packet.sent_s - ECHO_ERROR_S
            self._rack.delivered(packet, now, min_rtt_s, ambiguous=earlier)
            if earlier and echoed_s is not None and echoed_s < packet.retransmitted_s - ECHO_ERROR_S:
                self._take_original(packet)
            elif packet.lost and not again:
                self._disprove(packet.start)
            if newest is None or packet.order > newest.order:
                newest = packet
        return newest

    def _take_original(self, packet: SentPacket) -> None:
        """The first transmission of a repaired packet has arrived: the repair was needless (RFC 3522 §3.2)."""
        if self._probe_is_repair and packet.stop == self._probe_stop:
            self._probe_stop = None  # nothing was lost that the probe could have mended
        self._disprove(packet.start)
        if self._in_timeout:
            self._undo()  # one is proof enough that the timeout came too soon (RFC 4015 §3.2)

    def _take_duplicate_report(self, start: int, stop: int) -> None:
        if self._copies.expected(start):
            return
        self.spurious += 1
        self._rack.duplicate_reported(self.board.una, self.next_offset)
        if self._probe_is_repair and stop == self._probe_stop:
            self._probe_stop = None  # the probe's original had arrived (RFC 8985 §7.4.2)
        self._disprove(start, once=True)

    def _disprove(self, start: int, *, once: bool = False) -> None:
        """A packet was not lost after all. Once that is so for all of an episode, the episode is taken back.

        Also when it is over: the DSACK of a repair comes after the acknowledgement of all that was sent before it.
        """
        if self._marks.disprove(start, once=once):
            self._undo()

    def _undo(self) -> None:
        self._marks.clear()
        self.congestion.undo()
        self._rack.restore(self.board.restore())
        self._leave_episode()

    # -- loss ----------------------------------------------------------------------------------------------------------

    def _detect(self, now: float, delivered: int = 0) -> int:
        rtt = self.rtt
        window_s = self._rack.window_s(
            rtt.min_rtt_s,
            rtt.srtt_s or 0.0,
            in_recovery=self._in_recovery,
            sacked_segments=self.board.sacked_segments,
        )
        lost = self._rack.detect(now, window_s)
        return self._take_lost(lost, now, delivered) if lost else 0

    def _take_lost(self, lost: list[SentPacket], now: float, delivered: int = 0) -> int:
        before = self.board.in_flight
        size = self.board.lose(lost)
        self._mark(lost)
        self.congestion.on_loss(now, size, before, lost[-1].sent_s)
        if not self._in_recovery:
            self._begin_recovery(now, before + delivered)
        return size

    def _begin_recovery(self, now: float, in_flight: int) -> None:
        """Enter fast recovery. in_flight: before the acknowledgement that shows the loss."""
        self._in_recovery = True
        self._recovery_stop = self.next_offset
        self.congestion.on_congestion(now, self._flight(in_flight))
        self._prr.on_enter(in_flight_bytes=in_flight, ssthresh_bytes=self.congestion.ssthresh_bytes)
        self._recovery_window = self.board.in_flight + self.mss_bytes  # the first repair goes at once (RFC 9937 §6)
        self._probe_at = INFINITY

    def _end_recovery(self, now: float) -> None:
        if not self._in_timeout:
            self.congestion.on_recovery_end(now)
        self._leave_episode()
        self._rack.recovery_ended()

    def _mark(self, lost: list[SentPacket]) -> None:
        if not self._in_recovery:
            self._marks.clear()  # those of an episode before
        self._marks.add(lost)

    def _leave_episode(self) -> None:
        self._in_recovery = self._in_timeout = False
        self._round_flight = self._last_flight = self.board.in_flight

    def _flight(self, in_flight: int) -> int:
        """Return the FlightSize that a reduction starts from: the most in flight in this round and the one before.

        At a burst's tail hardly anything is in flight when a loss shows, yet the window that served the burst is what
        congestion has to reduce: RFC 7661 §4.4.1 takes max(pipeACK, LossFlightSize), kernels take cwnd.
        """
        return max(in_flight, self._round_flight, self._last_flight)

    def _time_out(self, now: float) -> None:
        if self.board.una == self.next_offset:
            self._rto_at = INFINITY
            return
        self.timeouts += 1
        self._backoffs += 1
        if self._backoffs > MAX_TIMEOUTS:
            self.failure = f"no acknowledgement after {MAX_TIMEOUTS} timeouts"
            self._rto_at = INFINITY
            return
        self.rtt.back_off()
        self._lose_everything(now)
        self._rto_at = now + self.rtt.rto_s

    def _lose_everything(self, now: float) -> None:
        """Take all that is in flight as lost; the first is sent at once, the rest as the window allows (§6.3)."""
        before = self.board.in_flight
        lost = self._rack.expire(INFINITY)
        self.board.lose(lost)
        self._mark(lost)
        self.congestion.on_timeout(now, self._flight(before), first=not self._in_timeout)
        self._in_recovery = self._in_timeout = True
        self._recovery_stop = self.next_offset
        self._probe_stop = None
        self._probe_at = self._expiry_at = INFINITY
        self._next_departure_s = now

    # -- the tail ------------------------------------------------------------------------------------------------------

    def _arm(self, now: float) -> None:
        self._probe_at = self._expiry_at = INFINITY
        if self.board.una == self.next_offset:
            self._rto_at = INFINITY
            return
        last_s = max(now, self._last_sent_s)
        self._rto_at = last_s + self.rtt.rto_s  # RFC 6298 §5.3
        timeout = self.congestion.repair_timeout()
        if timeout is not None:
            oldest = self._rack.oldest()
            if oldest is not None:
                due_s = max(oldest.sent_s + timeout.expected_s, self._last_ack_s) + timeout.margin_s
                self._expiry_at = max(due_s, self._expiry_floor)
        elif not (self._in_recovery or self.board.sacked_segments or self._probe_stop is not None):
            self._probe_at = min(last_s + self._probe_timeout_s(), self._rto_at)  # RFC 8985 §7.2: instead of the RTO

    def _probe_timeout_s(self) -> float:
        if self.rtt.srtt_s is None:
            return 1.0  # RFC 8985 §7.2
        timeout_s = 2 * self.rtt.srtt_s
        if self.board.in_flight <= self.mss_bytes:
            timeout_s += self._max_ack_delay_s
        return timeout_s

    def _probe(self, now: float) -> None:
        """Send a tail loss probe: new data if there is any, else the last segment again (RFC 8985 §7.3)."""
        self._probe_at = INFINITY
        if self._probe_stop is not None or self.board.una == self.next_offset:
            return
        self.probes += 1
        self._rto_at = now + self.rtt.rto_s
        self._probe_extra = self.mss_bytes
        fresh = self._fresh_bytes()
        self._probe_is_repair = not fresh
        if self._probe_is_repair:
            packet = self._probed = self.board.last()
            if not packet.lost and not packet.done:
                packet.lost = True
                self.board.lose([packet])
        self._probe_stop = self.next_offset + fresh

    def _end_probe(self, now: float) -> None:
        """All that was sent before the probe is acknowledged, and the original of what it repeated has not shown.

        So the probe mended a loss, and that is congestion. RFC 8985 §7.4.2 waits for one more ACK, lest the original be
        behind the probe; between bursts that is long, so the answer comes now, and a DSACK takes it back.
        """
        self._probe_stop = None
        if self._probe_is_repair and not self._in_recovery:
            self._mark([self._probed])
            in_flight = self.board.in_flight + self.mss_bytes
            self.congestion.on_loss(now, self.mss_bytes, in_flight, now)
            self.congestion.on_congestion(now, self._flight(in_flight))
            self.congestion.on_recovery_end(now)
            self._leave_episode()

    def _expire(self, now: float) -> None:
        """Take as lost what has gone unacknowledged for longer than the algorithm's repair timeout.

        As long as acknowledgements of this burst have been coming. When none has, the path, not a packet, may be gone:
        then everything counts as lost, and goes again one by one, as after a retransmission timeout.
        """
        timeout, oldest = self.congestion.repair_timeout(), self._rack.oldest()
        if timeout is None or oldest is None:
            self._expiry_at = INFINITY
            return
        silent = self._expiries > 0 or self._rack.newest_sent_s < self._burst_s
        many = self.board.in_flight > self.congestion.initial_window_bytes  # fewer may go again on no evidence
        if silent and many:
            gone_s = oldest.sent_s + SILENCE * timeout.expected_s
            if now < gone_s:
                self._expiry_at = self._expiry_floor = gone_s
                return
            self._lose_everything(now)
        elif lost := self._rack.expire(now - timeout.expected_s):
            self._take_lost(lost, now)
        self.probes += 1
        self._expiries += 1
        self._expiry_floor = now + (timeout.expected_s + timeout.margin_s) * 2 ** min(self._expiries, 16)
        self._arm(now)

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
        window = congestion.cwnd_bytes
        if self._in_recovery and not self._in_timeout and not congestion.governs_recovery:
            window = self._recovery_window
        window += self._probe_extra
        self._probe_extra = 0
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
            self._round_flight = max(self._round_flight, board.in_flight)
            self._last_sent_s = out[-1].depart_at
            if self._rto_at == INFINITY or self.next_offset == self.end:
                self._arm(now)
            else:
                self._rto_at = max(self._rto_at, self._last_sent_s + self.rtt.rto_s)
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
        if self._in_recovery:
            self._prr.on_sent(packet.stop - packet.start)


def _is_duplicate_report(blocks: tuple[Range, ...], ack: int) -> bool:
    """Tell whether the first block is a DSACK: the acknowledgement or the next block covers it (RFC 2883 §4)."""
    start, stop = blocks[0]
    return stop <= ack or (len(blocks) > 1 and blocks[1][0] <= start and stop <= blocks[1][1])
