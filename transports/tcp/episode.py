"""A loss episode: from the first packet marked lost until what had been sent by then is acknowledged, or it is undone.

Fast recovery with PRR (RFC 9937), what follows a retransmission timeout (RFC 5681 §3.1, RFC 6298 §5), and taking either
back when it turns out to have been needless (RFC 3522, RFC 4015, RFC 8985 §7.4.2). Sizes are bytes, times seconds.
"""

from bicoastal.transports.congestion.base import CongestionControl
from bicoastal.transports.recovery.prr import ProportionalRateReduction
from bicoastal.transports.recovery.rack import Rack, SentPacket
from bicoastal.transports.recovery.scoreboard import Scoreboard
from bicoastal.transports.recovery.undo import LossMarks


class LossEpisode:
    """The sender's current loss episode, if there is one, and its calls of congestion control.

    active: an episode is open. timed_out: a timeout began it or happened in it. stop: its end, an acknowledged offset.
    """

    __slots__ = (
        "_board",
        "_congestion",
        "_flight_bytes",
        "_last_flight_bytes",
        "_marks",
        "_mss_bytes",
        "_prr",
        "_rack",
        "_reduced_order",
        "_window_bytes",
        "active",
        "stop",
        "timed_out",
    )

    def __init__(self, *, mss_bytes: int, congestion: CongestionControl, board: Scoreboard, rack: Rack) -> None:
        self.active = self.timed_out = False
        self.stop = 0
        self._mss_bytes = mss_bytes
        self._congestion = congestion
        self._board = board
        self._rack = rack
        self._prr = ProportionalRateReduction(mss_bytes=mss_bytes)
        self._window_bytes = 0.0  # what PRR allows
        self._reduced_order = 0  # of the last packet sent before the window was reduced
        self._marks = LossMarks()
        self._flight_bytes = self._last_flight_bytes = 0  # the most in flight in this round, and in the one before

    # -- notes from the sender -----------------------------------------------------------------------------------------

    def window_bytes(self) -> float:
        """Return what may be in flight: the congestion window, or PRR's where that governs."""
        if self.active and not self.timed_out and not self._congestion.governs_recovery:
            return self._window_bytes
        return self._congestion.cwnd_bytes

    def note_sent(self, size: int) -> None:
        """Note a transmission of `size` bytes in an active episode."""
        self._prr.on_sent(size)

    def note_flight(self) -> None:
        """Note that the bytes in flight have increased."""
        self._flight_bytes = max(self._flight_bytes, self._board.in_flight)

    def next_round(self) -> None:
        """Note that another round trip begins."""
        self._last_flight_bytes, self._flight_bytes = self._flight_bytes, self._board.in_flight

    def next_burst(self) -> None:
        """Note that a new burst begins after everything was acknowledged: earlier marks no longer count."""
        self._marks.clear()

    # -- loss ----------------------------------------------------------------------------------------------------------

    def lose(self, lost: list[SentPacket], now: float, sent_to: int, delivered: int = 0) -> int:
        """Take packets as lost, which begins fast recovery unless there is an episode already; return their bytes.

        What was sent since the window was reduced and is lost too, repair or new, shows that this was not enough: it
        begins another episode and reduces once more (RFC 5681 §4.3).

        sent_to: the first offset never sent. delivered: what the acknowledgement that showed the loss delivered.
        """
        before = self._board.in_flight
        size = self._board.lose(lost)
        if self.active and not self.timed_out and max(packet.order for packet in lost) > self._reduced_order:
            self._congestion.on_recovery_end(now)
            self._leave()
        self._mark(lost)
        self._congestion.on_loss(now, size, before, lost[-1].sent_s)
        if not self.active:
            self._begin_recovery(now, sent_to, before + delivered)
        return size

    def time_out(self, now: float, sent_to: int, sent_before_s: float) -> None:
        """Take as lost what was sent by then, and the first segment, after a timeout; slow start sends it again."""
        board = self._board
        before = board.in_flight
        lost = self._rack.expire(sent_before_s)
        first = board.first()
        if not (first.lost or first.done):
            first.lost = True
            lost.append(first)
        board.lose(lost)
        self._mark(lost)
        self._congestion.on_timeout(now, self._flight(before), first=not self.timed_out)
        self.active = self.timed_out = True
        self.stop = sent_to

    def mended_by_probe(self, packet: SentPacket, now: float) -> None:
        """Reduce the window because a probe repaired the loss of `packet`; the episode ends at once (§7.4.2).

        Another burst may have begun by then, and idle time has decayed its window. The decayed window is reduced.
        """
        if self.active:
            return
        self._mark([packet])
        in_flight = self._board.in_flight + self._mss_bytes
        self._congestion.on_loss(now, self._mss_bytes, in_flight, now)
        self._congestion.on_congestion(now, self._flight(in_flight))
        self._congestion.on_recovery_end(now)
        self._leave()

    def _begin_recovery(self, now: float, sent_to: int, in_flight: int) -> None:
        """Enter fast recovery. in_flight: before the acknowledgement that shows the loss."""
        self.active = True
        self.stop = sent_to
        self._reduced_order = self._rack.sent_count
        self._congestion.on_congestion(now, self._flight(in_flight))
        self._prr.on_enter(in_flight_bytes=in_flight, ssthresh_bytes=self._congestion.ssthresh_bytes)
        self._window_bytes = self._board.in_flight + self._mss_bytes  # the first repair goes at once (RFC 9937 §6)

    def _mark(self, lost: list[SentPacket]) -> None:
        if not self.active:
            self._marks.clear()  # those of an episode before
        self._marks.add(lost)

    def _flight(self, in_flight: int) -> int:
        """Return the FlightSize that a reduction starts from: the most in flight in this round and the one before.

        At a burst's tail hardly anything is in flight when a loss shows, yet the window that served the burst is what
        congestion has to reduce: RFC 7661 §4.4.1 takes max(pipeACK, LossFlightSize), kernels take cwnd.
        """
        return max(in_flight, self._flight_bytes, self._last_flight_bytes)

    # -- the end of an episode -----------------------------------------------------------------------------------------

    def on_ack(self, ack: int, now: float, *, delivered: int, lost: int, advanced: bool) -> None:
        """Process an acknowledgement up to `ack` in an active episode: update the PRR window or end the episode."""
        if ack >= self.stop:
            if not self.timed_out:
                self._congestion.on_recovery_end(now)
            self._leave()
            self._rack.recovery_ended()
        elif not self.timed_out and not self._congestion.governs_recovery:
            self._window_bytes = self._prr.on_ack(
                delivered_bytes=delivered, in_flight_bytes=self._board.in_flight, lost_bytes=lost, advanced=advanced
            )

    def disprove(self, start: int, *, once: bool = False) -> None:
        """Note that the packet at `start` was not lost. Undo an episode when that holds for all its packets.

        It also works after the end of the episode. The DSACK of a repair comes after the acknowledgement of everything
        sent before it. once: only one transmission of the packet was needless.
        """
        if self._marks.disprove(start, once=once):
            self._undo()

    def disprove_timeout(self) -> None:
        """Note that an original arrived after its repair. One shows that a timeout was needless (RFC 4015 §3.2)."""
        if self.timed_out:
            self._undo()

    def _undo(self) -> None:
        self._marks.clear()
        self._congestion.undo()
        self._rack.restore(self._board.restore())
        self._leave()

    def _leave(self) -> None:
        self.active = self.timed_out = False
        self._flight_bytes = self._last_flight_bytes = self._board.in_flight
