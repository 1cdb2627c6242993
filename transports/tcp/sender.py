"""TCP's sending half: what is in flight, what is lost, what may go now, and the timers that watch over it.

Works in unbounded stream offsets; the connection maps them to sequence numbers. Loss is found by RACK-TLP (RFC 8985),
the window after a loss is governed by PRR (RFC 9937), the timeout by RFC 6298.
"""

from bisect import bisect_left
from heapq import heappop, heappush
from typing import NamedTuple

from transports.congestion.base import Ack, CongestionControl
from transports.recovery.delivery_rate import DeliveryRate
from transports.recovery.prr import ProportionalRateReduction
from transports.recovery.rack import INFINITY, Rack, SentPacket
from transports.recovery.ranges import RangeSet
from transports.recovery.rtt import RttEstimator

PACING_AHEAD_S = 0.001
"""How far ahead paced packets are handed out: little enough that a repair never waits long behind them."""

SILENCE = 1.5
"""How many round trips without a single acknowledgement of a burst mean that the path, not a packet, is gone."""

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

    `next_offset` is the first offset never sent (SND.NXT), `una` the first not acknowledged (SND.UNA), `end` the end
    of what the application has offered, `window_edge` the offset up to which the peer allows data.
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
        self.rack = Rack()
        self.una = self.next_offset = self.end = 0
        self.window_edge = 0
        self.in_flight = 0
        self.repairs = self.probes = self.timeouts = self.spurious = self.segments = 0
        self.in_recovery = False
        self.failure = ""
        self._after_idle = after_idle
        self._max_ack_delay_s = max_ack_delay_s
        self._rate = DeliveryRate()
        self._prr = ProportionalRateReduction(mss_bytes=mss_bytes)
        self._sacked = RangeSet()
        self._packets: list[SentPacket] = []  # by offset; those before _head are acknowledged
        self._starts: list[int] = []
        self._head = 0
        self._sacked_segments = 0
        self._lost: list[tuple[int, SentPacket]] = []  # heap by offset: what is to be sent again
        self._copies: list[tuple[float, int, SentPacket]] = []  # heap by time: second copies of repairs
        self._copied: set[int] = set()  # offsets of repairs that were sent twice on purpose
        self._recovery_stop = 0
        self._in_timeout = False
        self._window_bytes = 0.0  # what PRR allows during recovery
        self._round_stop = 0
        self._limited_stop = 0
        self._undo_repairs = 0
        self._last_sent_s = -INFINITY
        self._next_departure_s = 0.0
        self._rto_at = self._probe_at = self._expiry_at = self._pace_at = self._copy_at = INFINITY
        self._probe_extra = 0
        self._burst_s = 0.0
        self._probe_stop: int | None = None  # TLP.end_seq
        self._probe_is_repair = False
        self._backoffs = 0
        self._expiries = 0
        self._expiry_floor = 0.0
        self._last_ack_s = 0.0

    # -- the application and the timers -------------------------------------------------------------------------------

    def offer(self, end: int, now: float) -> None:
        """The stream now reaches to `end`."""
        if self.next_offset == self.una:
            idle_s = now - self._last_sent_s
            if self._last_sent_s > -INFINITY:
                self.congestion.restart_after_idle(now, idle_s, self.rtt.rto_s, policy=self._after_idle)
            self.congestion.on_burst(now, end - self.end)
            self._next_departure_s = now
        self.end = end

    def timer(self) -> float:
        """Return when `on_timer` is due (inf: never)."""
        return min(self._rto_at, self._probe_at, self._expiry_at, self._pace_at, self._copy_at, self.rack.deadline)

    def on_timer(self, now: float) -> None:
        """Do whatever is due."""
        if self.rack.deadline <= now:
            self._detect(now)
        if self._pace_at <= now:
            self._pace_at = INFINITY
        if self._expiry_at <= now:
            self._expire(now)
        if self._probe_at <= now:
            self._probe(now)
        if self._rto_at <= now:
            self._time_out(now)

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    def on_ack(self, ack: int, blocks: tuple[tuple[int, int], ...], now: float, echoed_s: float | None) -> None:
        """Take an acknowledgement up to `ack` with SACK `blocks` (offsets).

        echoed_s: the time its timestamp echo stands for, rounded down to the timestamp's tick; None without one.
        """
        prior_in_flight = self.in_flight
        before = self._rate.delivered
        newest: SentPacket | None = None
        acked_bytes = 0
        if ack > self.una:
            acked_bytes = ack - self.una
            newest = self._acknowledge(ack, now, echoed_s)
        if blocks:
            newest = self._select(ack, blocks, now, newest)
        delivered = self._rate.delivered - before
        rate_bps = rtt_s = newest_sent_s = None
        rate_app_limited = False
        if newest is not None:
            newest_sent_s = newest.sent_s
            if newest.transmissions == 1:
                rtt_s = now - newest.sent_s
                self.rtt.sample(rtt_s, now)
            rate_bps = self._rate.sample(newest, now)
            rate_app_limited = newest.app_limited
            self._expiries = 0
            self._expiry_floor = 0.0
        if acked_bytes:
            self._backoffs = 0
        lost = self._detect(now) if self._sacked_segments or self._prolonged else 0
        if self._probe_stop is not None:
            self._end_probe(ack, now)
        round_started = False
        if ack >= self._round_stop and delivered:
            round_started = True
            self._round_stop = self.next_offset
        if self.in_recovery:
            if self.una >= self._recovery_stop:
                self._end_recovery(now)
            elif not self._in_timeout and not self.congestion.governs_recovery:
                self._window_bytes = self._prr.on_ack(
                    delivered_bytes=delivered, in_flight_bytes=self.in_flight, lost_bytes=lost, advanced=acked_bytes > 0
                )
        if delivered or lost:
            self.congestion.on_ack(
                Ack(
                    now,
                    acked_bytes,
                    delivered,
                    lost,
                    self.in_flight,
                    prior_in_flight,
                    rtt_s,
                    round_started,
                    ack <= self._limited_stop,
                    self.in_recovery and not self._in_timeout,
                    rate_bps,
                    rate_app_limited,
                    newest_sent_s,
                )
            )
        if acked_bytes or delivered:
            self._last_ack_s = now
            self._arm(now)

    def _acknowledge(self, ack: int, now: float, echoed_s: float | None) -> SentPacket | None:
        packets, head, newest = self._packets, self._head, None
        delivered = 0
        while head < len(packets):
            packet = packets[head]
            if packet.stop > ack:
                break
            head += 1
            if packet.done:
                self._sacked_segments -= 1
                continue
            delivered += packet.stop - packet.start
            packet.done = True
            if not packet.lost:
                self.in_flight -= packet.stop - packet.start
            newest = self._note_delivery(packet, now, echoed_s, newest)
        self.una = ack
        self._rate.delivered += delivered
        self._head = head
        if head > 4096 and 2 * head > len(packets):
            del packets[:head], self._starts[:head]
            self._head = 0
        if self._sacked.total:
            self._sacked.discard_below(ack)
        return newest

    def _select(
        self, ack: int, blocks: tuple[tuple[int, int], ...], now: float, newest: SentPacket | None
    ) -> SentPacket | None:
        first_start, first_stop = blocks[0]
        if first_stop <= ack or (len(blocks) > 1 and blocks[1][0] <= first_start and first_stop <= blocks[1][1]):
            self._take_duplicate_report(first_start)  # RFC 2883 §4: a first block that is covered already is a DSACK
            blocks = blocks[1:]
        starts, packets = self._starts, self._packets
        for left, right in blocks:
            if right <= ack or left >= right or right > self.next_offset:
                continue
            for start, stop in self._sacked.add(max(left, ack), right):
                index = bisect_left(starts, start, self._head)
                while index < len(packets) and packets[index].stop <= stop:
                    packet = packets[index]
                    index += 1
                    if packet.done:
                        continue
                    packet.done = True
                    size = packet.stop - packet.start
                    self._rate.delivered += size
                    self._sacked_segments += 1
                    if not packet.lost:
                        self.in_flight -= size
                    # no echo: a SACKed segment's timestamp is not echoed before the hole is filled (RFC 7323 §4.3)
                    newest = self._note_delivery(packet, now, None, newest)
        return newest

    def _note_delivery(
        self, packet: SentPacket, now: float, echoed_s: float | None, newest: SentPacket | None
    ) -> SentPacket:
        again = packet.transmissions > 1
        # the echo is older than the repair: what arrived is the original, so the repair was needless (RFC 3522 §3.2)
        original = again and echoed_s is not None and echoed_s < packet.retransmitted_s - 0.001
        self.rack.delivered(packet, now, self.rtt.min_rtt_s, ambiguous=original)
        if original:
            self._take_spurious(now)
        elif packet.lost and not again:
            self._take_spurious(now)  # it was marked lost, and arrived before its repair was even sent
        if newest is None or (packet.sent_s, packet.stop) > (newest.sent_s, newest.stop):
            return packet
        return newest

    def _take_duplicate_report(self, start: int) -> None:
        if start in self._copied:
            self._copied.discard(start)  # one of two copies was bound to be needless
            return
        self.spurious += 1
        self.rack.duplicate_reported(self.una, self.next_offset)
        self._undo_repairs -= 1
        if self._probe_is_repair:
            self._probe_stop = None  # the probe's original had arrived (RFC 8985 §7.4.2)

    def _take_spurious(self, now: float) -> None:
        self._undo_repairs -= 1
        if self.in_recovery and self._undo_repairs <= 0:
            self.congestion.undo()
            self.in_recovery = self._in_timeout = False
            self._restore()

    def _restore(self) -> None:
        """Put back in flight what was marked lost but not sent again: it was only late."""
        late = [packet for _, packet in self._lost if packet.lost and not packet.done]
        self._lost.clear()
        for packet in late:
            packet.lost = False
            self.in_flight += packet.stop - packet.start
        self.rack.restore(late)

    # -- loss ---------------------------------------------------------------------------------------------------------

    @property
    def _prolonged(self) -> bool:
        return self.in_recovery or self.rack.deadline < INFINITY

    def _detect(self, now: float) -> int:
        rack, rtt = self.rack, self.rtt
        window_s = rack.window_s(
            rtt.min_rtt_s, rtt.srtt_s or 0.0, in_recovery=self.in_recovery, sacked_segments=self._sacked_segments
        )
        lost = rack.detect(now, window_s)
        return self._take_lost(lost, now) if lost else 0

    def _take_lost(self, lost: list[SentPacket], now: float) -> int:
        size = 0
        for packet in lost:
            size += packet.stop - packet.start
            heappush(self._lost, (packet.start, packet))
        before = self.in_flight
        self.in_flight -= size
        self._undo_repairs += len(lost)
        self.congestion.on_loss(now, size, before, lost[-1].sent_s)
        if not self.in_recovery:
            self._begin_recovery(now, before)
        return size

    def _begin_recovery(self, now: float, in_flight: int) -> None:
        self.in_recovery = True
        self._recovery_stop = self.next_offset
        self.congestion.on_congestion(now, in_flight)
        self._prr.on_enter(in_flight_bytes=in_flight, ssthresh_bytes=self.congestion.ssthresh_bytes)
        self._window_bytes = self.in_flight + self.mss_bytes  # the first repair goes at once (RFC 9937 §6)
        self._probe_at = INFINITY

    def _end_recovery(self, now: float) -> None:
        if not self._in_timeout:
            self.congestion.on_recovery_end(now)
        self.in_recovery = self._in_timeout = False
        self._undo_repairs = 0
        self.rack.recovery_ended()

    def _time_out(self, now: float) -> None:
        if self.una == self.next_offset:
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
        before = self.in_flight
        lost = self.rack.expire(INFINITY)
        for packet in lost:
            self.in_flight -= packet.stop - packet.start
            heappush(self._lost, (packet.start, packet))
        self._undo_repairs += len(lost)
        self.congestion.on_timeout(now, before, first=not self._in_timeout)
        self.in_recovery = self._in_timeout = True
        self._recovery_stop = self.next_offset
        self._probe_stop = None
        self._probe_at = self._expiry_at = INFINITY
        self._next_departure_s = now

    # -- the tail -----------------------------------------------------------------------------------------------------

    def _arm(self, now: float) -> None:
        if self.una == self.next_offset:
            self._rto_at = self._probe_at = self._expiry_at = INFINITY
            return
        last_s = max(now, self._last_sent_s)
        self._rto_at = last_s + self.rtt.rto_s  # RFC 6298 §5.3
        timeout = self.congestion.repair_timeout()
        if timeout is not None:
            oldest = self.rack.oldest()
            self._probe_at = self._expiry_at = INFINITY
            if oldest is not None:
                due_s = oldest.sent_s + timeout.expected_s
                self._expiry_at = max(due_s, self._last_ack_s) + timeout.margin_s
                self._expiry_at = max(self._expiry_at, self._expiry_floor)
        elif self.in_recovery or self._sacked_segments or self._probe_stop is not None:
            self._probe_at = INFINITY
        else:
            self._probe_at = last_s + self._probe_timeout_s()
            if self._probe_at >= self._rto_at:
                self._probe_at = INFINITY

    def _probe_timeout_s(self) -> float:
        if self.rtt.srtt_s is None:
            return 1.0  # RFC 8985 §7.2
        timeout_s = 2 * self.rtt.srtt_s
        if self.in_flight <= self.mss_bytes:
            timeout_s += self._max_ack_delay_s
        return timeout_s

    def _probe(self, now: float) -> None:
        """Send a tail loss probe: new data if there is any, else the last segment again (RFC 8985 §7.3)."""
        self._probe_at = INFINITY
        if self._probe_stop is not None or self.una == self.next_offset:
            return
        self.probes += 1
        self._rto_at = now + self.rtt.rto_s
        if self.next_offset < self.end and self.window_edge > self.next_offset:
            self._probe_is_repair = False
            self._window_bytes = max(self._window_bytes, self.in_flight + self.mss_bytes)
            self._probe_extra = self.mss_bytes
        else:
            packet = self._packets[-1]
            self._probe_is_repair = True
            if not packet.lost and not packet.done:
                self.in_flight -= packet.stop - packet.start
                packet.lost = True
            heappush(self._lost, (packet.start, packet))
            self._probe_extra = self.mss_bytes
        self._probe_stop = self.next_offset

    def _end_probe(self, ack: int, now: float) -> None:
        if self._probe_stop is None or ack < self._probe_stop:
            return
        self._probe_stop = None
        if self._probe_is_repair and not self.in_recovery:
            # no DSACK came with it: the probe mended a loss, which counts as congestion (RFC 8985 §7.4.2)
            self.congestion.on_loss(now, self.mss_bytes, self.in_flight, now)
            self.congestion.on_congestion(now, self.in_flight + self.mss_bytes)
            self.congestion.on_recovery_end(now)

    def _expire(self, now: float) -> None:
        """Take as lost what has gone unacknowledged for longer than the algorithm's repair timeout.

        As long as acknowledgements of this flight have been coming. When none has, the path, not a packet, may be
        gone: then everything counts as lost, and goes again one by one, as after a retransmission timeout.
        """
        timeout = self.congestion.repair_timeout()
        if timeout is None:
            self._expiry_at = INFINITY
            return
        oldest = self.rack.oldest()
        if oldest is None:
            self._expiry_at = INFINITY
            return
        silent = self._expiries > 0 or self.rack.newest_sent_s < self._burst_s
        if silent and self.in_flight > 10 * self.mss_bytes:  # less than an initial window may go again on no evidence
            if now < oldest.sent_s + SILENCE * timeout.expected_s:
                self._expiry_at = self._expiry_floor = oldest.sent_s + SILENCE * timeout.expected_s
                return
            self._lose_everything(now)
        else:
            lost = self.rack.expire(now - timeout.expected_s)
            if lost:
                self._take_lost(lost, now)
        self.probes += 1
        self._expiries += 1
        self._expiry_floor = now + (timeout.expected_s + timeout.margin_s) * 2 ** min(self._expiries, 16)
        self._arm(now)

    # -- sending ------------------------------------------------------------------------------------------------------

    def transmissions(self, now: float) -> list[Transmission]:
        """Return what may leave now: repairs first, then new data, within window, pace and the peer's window."""
        out: list[Transmission] = []
        congestion, mss = self.congestion, self.mss_bytes
        if self.una == self.end:
            self._copies.clear()
            self._copied.clear()
            self._copy_at = INFINITY
            return out
        cwnd = congestion.cwnd_bytes
        if self.in_recovery and not self._in_timeout and not congestion.governs_recovery:
            cwnd = self._window_bytes
        cwnd += self._probe_extra
        pace = congestion.pacing_rate_bps
        horizon = now + PACING_AHEAD_S
        if self._copies:
            self._send_copies(now, out)
        lost, end = self._lost, min(self.end, self.window_edge)
        while True:
            depart_at = now
            if pace is not None:
                depart_at = max(now, self._next_departure_s)
                if depart_at > horizon:
                    self._pace_at = depart_at - PACING_AHEAD_S / 2
                    break
            packet = None
            while lost:
                packet = lost[0][1]
                if not packet.done and packet.lost:
                    break
                heappop(lost)
                packet = None
            if packet is None and end - self.next_offset < min(mss, self.end - self.next_offset):
                break  # the peer's window has no room for a full segment: none is cut short (RFC 9293 §3.8.6.2.1)
            if packet is None and self.next_offset >= end:
                if self.next_offset >= self.end:
                    self._rate.application_limited(self.in_flight)
                break
            if self.in_flight + mss > cwnd and self.in_flight:
                self._limited_stop = self.next_offset
                break
            if packet is not None:
                heappop(lost)
                out.append(self._resend(packet, depart_at))
            else:
                out.append(self._send_new(end, depart_at))
            if pace is not None:
                self._next_departure_s = depart_at + 8 * (out[-1].stop - out[-1].start) / pace
        self._probe_extra = 0
        if out:
            self._last_sent_s = out[-1].depart_at
            self._arm_after_sending(now)
        return out

    def _send_new(self, end: int, depart_at: float) -> Transmission:
        start = self.next_offset
        stop = min(start + self.mss_bytes, end)
        packet = SentPacket(start, stop)
        if self.in_flight == 0:
            self._burst_s = depart_at
        self._packets.append(packet)
        self._starts.append(start)
        self.next_offset = stop
        self._book(packet, depart_at)
        return Transmission(start, stop, depart_at, False)

    def _resend(self, packet: SentPacket, depart_at: float) -> Transmission:
        packet.lost = False
        packet.retransmitted_s = min(packet.retransmitted_s, depart_at)
        self.repairs += 1
        self._book(packet, depart_at)
        after_s = self.congestion.duplicate_repair_after_s
        if after_s is not None:
            heappush(self._copies, (depart_at + after_s, packet.start, packet))
            self._copy_at = self._copies[0][0]
        return Transmission(packet.start, packet.stop, depart_at, True)

    def _book(self, packet: SentPacket, depart_at: float) -> None:
        packet.sent_s = depart_at
        packet.transmissions += 1
        self._rate.sent(packet, self.in_flight)
        self.in_flight += packet.stop - packet.start
        self.segments += 1
        self.rack.sent(packet)
        if self.in_recovery:
            self._prr.on_sent(packet.stop - packet.start)

    def _send_copies(self, now: float, out: list[Transmission]) -> None:
        copies = self._copies
        while copies and copies[0][0] <= now:
            _, _, packet = heappop(copies)
            if not packet.done and not packet.lost:
                self.repairs += 1
                self.segments += 1
                self._copied.add(packet.start)
                out.append(Transmission(packet.start, packet.stop, now, True))
        self._copy_at = copies[0][0] if copies else INFINITY

    def _arm_after_sending(self, now: float) -> None:
        if self._rto_at == INFINITY or self.next_offset == self.end:
            self._arm(now)
        else:
            self._rto_at = max(self._rto_at, self._last_sent_s + self.rtt.rto_s)
