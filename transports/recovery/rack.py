"""RACK: a packet is lost when one sent sufficiently later has been delivered (RFC 8985 §6)."""

from collections import deque

from bicoastal.wan.units import INFINITY

REORDERING_RTTS = 1 / 4  # the reordering window before any DSACK, in least round trips (RFC 8985 §6.2 step 4)
SHOWN_BY = 3  # segments reported behind a loss that make a reordering window needless (RFC 8985 §6.2 step 4)


class SentPacket:
    """A segment that was sent. Offsets are stream offsets [start, stop); times are seconds.

    transmissions: how often it was sent. retransmitted_s: when it was sent a second time, inf if never. order: place of
    its latest transmission among all of the connection's.
    """

    __slots__ = (
        "done",
        "lost",
        "order",
        "retransmitted_s",
        "sent_s",
        "start",
        "stop",
        "transmissions",
    )

    def __init__(self, start: int, stop: int) -> None:
        self.start = start
        self.stop = stop
        self.sent_s = 0.0
        self.retransmitted_s = INFINITY
        self.transmissions = 0
        self.order = 0
        self.done = False  # acknowledged, cumulatively or selectively
        self.lost = False  # marked lost and not sent again since


class Rack:
    """The packets in flight in the order of their transmission, and the clock that the delivered ones set.

    RFC 8985 §6.2 compares times of sending and breaks ties by sequence number, which is wrong where a repair leaves at
    the same instant as new data before it. Here the order itself is known.

    sent_count: transmissions so far, and so the `order` of the latest.
    `deadline` is when `detect` must be called again although no acknowledgement has come (inf: never).
    """

    __slots__ = (
        "_furthest",
        "_mult",
        "_newest",
        "_order",
        "_persist_rounds",
        "_round_stop",
        "deadline",
        "newest_sent_s",
        "reordering_seen",
        "rtt_s",
        "sent_count",
    )

    def __init__(self) -> None:
        self._order: deque[tuple[float, int, SentPacket]] = deque()
        self.newest_sent_s = -1.0  # RACK.xmit_ts
        self._newest = 0  # its place in the order of sending, instead of RACK.end_seq
        self.sent_count = 0
        self.rtt_s = 0.0  # RACK.rtt
        self.reordering_seen = False
        self.deadline = INFINITY
        self._furthest = 0  # RACK.fack
        self._mult = 1  # RACK.reo_wnd_mult
        self._persist_rounds = 0
        self._round_stop = -1

    def sent(self, packet: SentPacket) -> None:
        """Note a transmission: `packet.sent_s` and `transmissions` are set already."""
        self.sent_count = number = self.sent_count + 1
        packet.order = number
        self._order.append((packet.sent_s, number, packet))

    def delivered(
        self, packet: SentPacket, now: float, min_rtt_s: float, *, ambiguous: bool, original: bool = False
    ) -> None:
        """Note that a packet was delivered (RFC 8985 §6.2 steps 2 and 3).

        ambiguous: it was sent more than once, and by the timestamp echo it may be an earlier copy that is acknowledged.
        original: the echo says that it is. That is reordering too, although the RFC, which does without such proof,
        counts packets that were sent once only.
        """
        if packet.stop > self._furthest:
            self._furthest = packet.stop
        elif packet.stop < self._furthest and (packet.transmissions == 1 or original):
            self.reordering_seen = True
        rtt_s = now - packet.sent_s
        if packet.transmissions > 1 and (ambiguous or rtt_s < min_rtt_s):
            return
        self.rtt_s = rtt_s
        if packet.order > self._newest:
            self._newest = packet.order
            self.newest_sent_s = packet.sent_s

    def duplicate_reported(self, una: int, next_offset: int) -> None:
        """Widen the reordering window, at most once per round: a DSACK showed a needless repair (§6.2 step 4)."""
        if una > self._round_stop:
            self._round_stop = next_offset
            self._mult = min(self._mult + 1, 20)
            self._persist_rounds = 16

    def recovery_ended(self) -> None:
        """Forget the widened window after 16 recoveries without a DSACK (§6.2 step 4)."""
        self._persist_rounds -= 1
        if self._persist_rounds <= 0:
            self._mult = 1

    def window_s(self, min_rtt_s: float, srtt_s: float, *, in_recovery: bool, sacked_segments: int) -> float:
        """Return the reordering window in seconds (§6.2 step 4)."""
        if not self.reordering_seen and (in_recovery or sacked_segments >= SHOWN_BY):
            return 0.0
        return min(self._mult * min_rtt_s * REORDERING_RTTS, srtt_s)

    def detect(self, now: float, window_s: float) -> list[SentPacket]:
        """Return the packets that are lost by now, in the order they were sent, and set `deadline` (§6.2 step 5)."""
        order = self._order
        lost: list[SentPacket] = []
        self.deadline = INFINITY
        newest = self._newest
        while order:
            sent_s, number, packet = order[0]
            if packet.done or packet.lost or packet.order != number:
                order.popleft()
                continue
            if number >= newest:
                break
            due_s = sent_s + self.rtt_s + window_s
            if due_s > now:
                self.deadline = due_s
                break
            order.popleft()
            packet.lost = True
            lost.append(packet)
        return lost

    def oldest(self) -> SentPacket | None:
        """Return the packet in flight that has waited longest for an acknowledgement."""
        order = self._order
        while order:
            _, number, packet = order[0]
            if packet.done or packet.lost or packet.order != number:
                order.popleft()
                continue
            return packet
        return None

    def expire(self, sent_before_s: float) -> list[SentPacket]:
        """Mark lost, and return, every packet in flight that was sent at or before `sent_before_s`."""
        expired: list[SentPacket] = []
        while (packet := self.oldest()) is not None and packet.sent_s <= sent_before_s:
            self._order.popleft()
            packet.lost = True
            expired.append(packet)
        return expired

    def restore(self, packets: list[SentPacket]) -> None:
        """Put back packets that were marked lost too soon. They keep their place in the order of sending."""
        entries = [(packet.sent_s, packet.order, packet) for packet in packets]
        self._order = deque(sorted([*self._order, *entries], key=lambda entry: entry[1]))
