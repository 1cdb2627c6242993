"""The packets sent on one path: loss detection, congestion control and probes (RFC 9002).

An ACK costs time in proportion to the packets that it newly acknowledges. Only 1-RTT packets are kept here; aioquic
keeps those of the handshake. Where RFC 9002 leaves a choice, three rules are RACK's (RFC 8985 §6.2). Once reordering
has been seen, a loss is detected by time and not by a count of packets. That time grows with each spurious loss. The
window reduction of a spurious loss is undone.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from bicoastal.transports.congestion.base import Ack, CongestionControl
from bicoastal.transports.recovery.ranges import Range, RangeSet
from bicoastal.transports.recovery.rtt import RttEstimator
from bicoastal.wan.units import INFINITY

GRANULARITY_S = 0.001  # RFC 9002 §6.1.2
PACKET_THRESHOLD = 3  # RFC 9002 §6.1.1
INITIAL_RTT_S = 0.333  # RFC 9002 §6.2.2
PERSISTENT_PTOS = 3  # RFC 9002 §7.6.1
MAX_BACKOFF = 6  # a path that has gone silent is probed at least every 64 PTOs
PROBES = 2  # RFC 9002 §6.2.4
FORGET_ROUNDS = 4  # smoothed round trips for which a lost packet is kept, in case it was only late


class Cargo(Protocol):
    """What a packet carries. It is told whether the packet arrived."""

    def on_acked(self, packet: "SentPacket") -> None:
        """Take the acknowledgement of a packet. It may come after `on_lost`, which then was spurious."""

    def on_lost(self, packet: "SentPacket") -> None:
        """Take the loss of a packet."""


class SentPacket:
    """A sent packet: `size` octets of UDP payload that left at `sent_s` (seconds), with the part `span` of `cargo`.

    The cargo defines what a span counts. done: it is acknowledged. lost: it was declared lost.
    """

    __slots__ = ("cargo", "done", "lost", "number", "sent_s", "size", "span")

    def __init__(self, number: int, sent_s: float, size: int, cargo: Cargo, *, span: Range = (0, 0)) -> None:
        self.number = number
        self.sent_s = sent_s
        self.size = size
        self.cargo = cargo
        self.span = span
        self.done = False
        self.lost = False


class SentPackets:
    """The packets that one end has sent, and what acknowledgements tell of them.

    in_flight: octets sent and neither acknowledged nor declared lost. next_number: above every packet number sent.
    confirmed: the handshake is, so the probe timer runs (RFC 9002 §6.2.1). probes: packets that may leave now whatever
    the window says. last_sent_s: when the newest ack-eliciting packet leaves.
    """

    def __init__(self, *, congestion: CongestionControl, rtt: RttEstimator, peer_ack_delay_s: float = 0.025) -> None:
        self.congestion = congestion
        self.rtt = rtt
        congestion.follow(rtt.data)
        self.peer_ack_delay_s = peer_ack_delay_s
        self.in_flight = 0
        self.next_number = 0
        self.confirmed = False
        self.probes = 0
        self.last_sent_s = -INFINITY
        self.timeouts = self.spurious = 0
        self._packets: dict[int, SentPacket] = {}  # in flight, or lost and not yet forgotten
        self._order: deque[SentPacket] = deque()  # in flight; the first ones may be acknowledged or lost
        self._lost: deque[tuple[float, SentPacket]] = deque()  # when it was declared lost, and the packet
        self._acked = RangeSet()
        self._largest_acked = -1
        self.latest_rtt_s = 0.0
        self._loss_at = INFINITY
        self._backoffs = 0
        self._reordering_seen = False
        self._tolerance = 1  # RACK.reo_wnd_mult
        self._recovery_start = 0  # losses of packets below belong to the episode before
        self._episode: set[int] = set()  # packets lost in the present episode, without the spurious losses
        self._round_stop = 0
        self._limited_stop = 0

    # -- sending -------------------------------------------------------------------------------------------------------

    def add(self, packet: SentPacket) -> None:
        """Record an ack-eliciting packet; numbers and times of departure never decrease."""
        self._packets[packet.number] = packet
        self._order.append(packet)
        self.in_flight += packet.size
        self.last_sent_s = packet.sent_s
        self.next_number = packet.number + 1
        if self.probes:
            self.probes -= 1

    def room(self, size: int, *, limits: bool) -> bool:
        """Tell whether the window lets `size` octets leave. limits: there is more to send."""
        if self.in_flight + size <= self.congestion.cwnd_bytes or self.probes or not self.in_flight:
            return True
        if limits:
            self._limited_stop = self.next_number
        return False

    def awaited(self, after_s: float, until_s: float) -> tuple[int, float, float]:
        """Return how many packets in flight left after `after_s` and until `until_s`, and the first and last times."""
        count, first_s, last_s = 0, INFINITY, -INFINITY
        for packet in self._order:
            if packet.sent_s > until_s:
                break
            if packet.sent_s > after_s and not (packet.done or packet.lost):
                count += 1
                first_s, last_s = min(first_s, packet.sent_s), packet.sent_s
        return count, first_s, last_s

    def begin_burst(self, now: float, burst_bytes: int, *, after_idle: str) -> None:
        """Begin a burst of `burst_bytes` while nothing is in flight; `after_idle` as in `restart_after_idle`."""
        if self.last_sent_s > -INFINITY:
            self.congestion.restart_after_idle(now, now - self.last_sent_s, self.pto_s, policy=after_idle)
        self.congestion.on_burst(now, burst_bytes)

    def oldest(self) -> SentPacket | None:
        """Return the packet in flight that left first."""
        order = self._order
        while order:
            if not (order[0].done or order[0].lost):
                return order[0]
            order.popleft()
        return None

    # -- acknowledgements ----------------------------------------------------------------------------------------------

    def on_ack(self, ranges: Sequence[Range], delay_s: float, now: float) -> None:
        """Take an ACK frame: packet-number ranges, highest first.

        Raises ValueError when it acknowledges what was never sent (RFC 9000 §13.1).
        """
        largest = ranges[0][1] - 1
        if largest >= self.next_number:
            raise ValueError(f"packet {largest} was never sent")
        delivered = self._take(ranges, now)
        if not delivered:
            return
        newest = delivered[0]
        if newest.number == largest and now > newest.sent_s:
            self._sample(now - newest.sent_s, delay_s, now)
        self._largest_acked = max(self._largest_acked, largest)
        size = sum(packet.size for packet in delivered)
        lost_bytes = self._detect(now)
        self._backoffs = 0
        self.probes = 0
        round_started = newest.number >= self._round_stop
        if round_started:
            self._round_stop = self.next_number
        self.congestion.on_ack(
            Ack(
                now=now,
                acked_bytes=size,
                delivered_bytes=size,
                lost_bytes=lost_bytes,
                in_flight_bytes=self.in_flight,
                rtt_s=self.rtt.publish(),
                round_started=round_started,
                cwnd_limited=newest.number < self._limited_stop,
                in_recovery=newest.number < self._recovery_start,  # RFC 9002 §7.3.2: no growth for what was sent before
                newest_sent_s=newest.sent_s,
            )
        )

    def _take(self, ranges: Sequence[Range], now: float) -> list[SentPacket]:
        """Return the packets that are acknowledged for the first time, the newest first."""
        self._forget(now)
        oldest = self.oldest()
        floor = oldest.number if oldest is not None else self.next_number
        if self._lost:
            floor = min(floor, self._lost[0][1].number)
        acked, packets = self._acked, self._packets
        acked.discard_below(floor)
        delivered: list[SentPacket] = []
        late = False
        for start, stop in ranges:
            if stop <= floor:
                break
            for new_start, new_stop in reversed(acked.add(max(start, floor), stop)):
                for number in range(new_stop - 1, new_start - 1, -1):
                    packet = packets.pop(number, None)
                    if packet is None:
                        continue  # a packet that asked for no acknowledgement
                    packet.done = True
                    if packet.lost:
                        self._disprove(packet)
                    else:
                        self.in_flight -= packet.size
                        late = late or number < self._largest_acked
                    delivered.append(packet)
                    packet.cargo.on_acked(packet)
        if late:
            self._reordering_seen = True
        return delivered

    def _sample(self, rtt_s: float, delay_s: float, now: float) -> None:
        delay_s = min(delay_s, self.peer_ack_delay_s)
        if rtt_s - delay_s >= self.rtt.min_rtt_s:  # RFC 9002 §5.3
            rtt_s -= delay_s
        self.latest_rtt_s = rtt_s
        self.rtt.sample(rtt_s, now)

    # -- loss ----------------------------------------------------------------------------------------------------------

    def _window_s(self) -> float:
        """Return how much later than a round trip an acknowledgement may be."""
        srtt_s = self.rtt.srtt_s or INITIAL_RTT_S
        if not self._reordering_seen:
            return max(self.latest_rtt_s, srtt_s) / 8  # RFC 9002 §6.1.2: 9/8 of a round trip
        return min(self._tolerance * self.rtt.min_rtt_s / 4, srtt_s)  # RFC 8985 §6.2 step 4

    def _detect(self, now: float) -> int:
        """Declare packets lost that were sent long enough before an acknowledged one; return their octets."""
        self._loss_at = INFINITY
        largest = self._largest_acked
        packet = self.oldest()
        if packet is None or packet.number > largest:
            return 0
        patience_s = max(self.latest_rtt_s, self.rtt.srtt_s or INITIAL_RTT_S) + self._window_s()
        certain = -1 if self._reordering_seen else largest - PACKET_THRESHOLD
        lost: list[SentPacket] = []
        while packet is not None and packet.number < largest:
            if packet.number > certain and packet.sent_s + patience_s > now:
                self._loss_at = packet.sent_s + patience_s
                break
            self._order.popleft()
            lost.append(packet)
            self._give_up(packet, now)
            packet = self.oldest()
        return self._congested(lost, now) if lost else 0

    def _give_up(self, packet: SentPacket, now: float) -> None:
        packet.lost = True
        self.in_flight -= packet.size
        self._lost.append((now, packet))
        packet.cargo.on_lost(packet)

    def _congested(self, lost: Sequence[SentPacket], now: float) -> int:
        """Tell the controller of losses; return their octets."""
        size = sum(packet.size for packet in lost)
        newest = lost[-1]
        congestion = self.congestion
        congestion.on_loss(now, size, self.in_flight + size, newest.sent_s)
        if newest.number >= self._recovery_start:
            self._recovery_start = self.next_number
            self._episode.clear()
            congestion.on_congestion(now, int(congestion.cwnd_bytes))  # RFC 9002 §7.3.2, §B.6: of the window
            congestion.on_recovery_end(now)  # and at once: no gradual reduction
        self._episode.update(packet.number for packet in lost)
        if self._is_persistent(lost):
            congestion.on_timeout(now, self.in_flight + size, first=True)
        return size

    def _is_persistent(self, lost: Sequence[SentPacket]) -> bool:
        """Tell whether no packet sent within three PTOs arrived (RFC 9002 §7.6).

        A number missing in `lost` may be of a packet that was acknowledged, or asked for no acknowledgement. It ends
        the period.
        """
        if self.rtt.srtt_s is None:
            return False
        enough_s = PERSISTENT_PTOS * self.pto_s
        begin = previous = lost[0]
        for packet in lost:
            if packet.number > previous.number + 1:
                begin = packet
            elif packet.sent_s - begin.sent_s > enough_s:
                return True
            previous = packet
        return False

    def _disprove(self, packet: SentPacket) -> None:
        """Take the acknowledgement of a packet that was declared lost: the loss was spurious."""
        self.spurious += 1
        self._reordering_seen = True
        self._tolerance = min(self._tolerance + 1, 20)
        if packet.number in self._episode:
            self._episode.discard(packet.number)
            if not self._episode:
                self.congestion.undo()

    def _forget(self, now: float) -> None:
        before_s = now - FORGET_ROUNDS * max(self.rtt.srtt_s or INITIAL_RTT_S, GRANULARITY_S)
        while self._lost and self._lost[0][0] < before_s:
            self._packets.pop(self._lost.popleft()[1].number, None)

    def declare_lost(self, now: float, *, congestion: bool = False) -> None:
        """Declare all packets in flight lost, because the caller expects no acknowledgement of them, and allow a probe.

        congestion: tell the controller, as for other losses; a path that has gone silent is no sign of congestion.
        """
        lost: list[SentPacket] = []
        while (packet := self.oldest()) is not None:
            self._order.popleft()
            lost.append(packet)
            self._give_up(packet, now)
        if lost and congestion:
            self._congested(lost, now)
        self.probes = max(self.probes, 1)

    # -- time ----------------------------------------------------------------------------------------------------------

    @property
    def pto_s(self) -> float:
        """The probe timeout without back-off (RFC 9002 §6.2.1)."""
        srtt_s = self.rtt.srtt_s
        if srtt_s is None:
            return 2 * INITIAL_RTT_S + self.peer_ack_delay_s
        return srtt_s + max(4 * self.rtt.rttvar_s, GRANULARITY_S) + self.peer_ack_delay_s

    @property
    def probe_at(self) -> float:
        """When silence calls for a probe (inf: nothing is awaited)."""
        if not self.in_flight or not self.confirmed:
            return INFINITY
        return self.last_sent_s + self.pto_s * 2.0 ** min(self._backoffs, MAX_BACKOFF)

    def timer(self) -> float:
        """Return when `on_timer` is due (inf: never)."""
        return self._loss_at if self._loss_at < INFINITY else self.probe_at

    def on_timer(self, now: float) -> None:
        """Declare overdue packets lost, or else let probes leave with the data that has waited longest."""
        if self._loss_at <= now:
            self._detect(now)
        if self._loss_at == INFINITY and self.probe_at <= now:
            self.timeouts += 1
            self._backoffs += 1
            self.probe(now, PROBES)

    def probe(self, now: float, count: int = 1) -> None:
        """Let probes leave beyond the window; they carry the data that has waited longest."""
        self.probes = max(self.probes, count)
        for _ in range(count):
            oldest = self.oldest()
            if oldest is not None:
                self._order.popleft()
                self._give_up(oldest, now)  # no congestion event: only an acknowledgement shows one
