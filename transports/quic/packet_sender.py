"""Sends packets after the handshake: streams first, then symbols, as congestion window and pace allow."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from bicoastal.transports.congestion.base import pacing_ahead_s
from bicoastal.transports.congestion.loss_based import LossBased
from bicoastal.transports.quic.aioquic_private import QuicStream
from bicoastal.transports.quic.sent_packets import Cargo, SentPacket, SentPackets
from bicoastal.transports.quic.streams import OutgoingControl, OutgoingStream
from bicoastal.transports.quic.symbols import SymbolOutcome, SymbolSource
from bicoastal.transports.recovery.ranges import Range
from bicoastal.wan.units import INFINITY

SLOW_START_PACE, PACE = 2.0, 1.25  # of cwnd per srtt: slow start doubles it in a round; RFC 9002 §7.7 names 1.25
SYMBOL_HEADER_BYTES = 1  # a DATAGRAM frame without length, to the end of its packet (RFC 9221 §4)
_DATAGRAM, _PING = b"\x30", b"\x01"

Seal = Callable[[bytes], tuple[int, bytes]]
"""Frames of a packet -> its number and its octets, protected."""


class Outgoing(NamedTuple):
    """A UDP payload to send: when it leaves, and `Datagram.burst_left`."""

    data: bytes
    depart_at: float
    burst_left: int | None = None


class Credit(Protocol):
    """How much new stream data the peer still takes on the whole connection (RFC 9000 §4.1)."""

    def credit_left(self) -> int:
        """Return the octets left."""

    def use_credit(self, size: int) -> None:
        """Use some of the credit."""


class SymbolCargo:
    """The cargo of packets that carry a symbol. It collects the outcomes."""

    __slots__ = ("outcomes",)

    def __init__(self) -> None:
        self.outcomes: list[SymbolOutcome] = []

    def on_acked(self, packet: SentPacket) -> None:
        """Report a symbol as arrived."""
        self.outcomes.append(SymbolOutcome(packet.span[0], True, packet.sent_s))

    def on_lost(self, packet: SentPacket) -> None:
        """Report a symbol as lost."""
        self.outcomes.append(SymbolOutcome(packet.span[0], False, packet.sent_s))


class Ping:
    """The cargo of a probe that carries nothing."""

    def on_acked(self, packet: SentPacket) -> None:
        """Do nothing: a PING carries no data."""

    def on_lost(self, packet: SentPacket) -> None:
        """Do nothing: the probe timer sends another PING."""


class PacketSender:
    """The sending half of a connection over one path.

    datagram_bytes: the largest UDP payload. pace_bps: overrides the controller's pace; bit/s of UDP payload.
    pace_at: when the next packet may be handed out (inf: the pace holds nothing back). last_departure_s: when the last
    one leaves. packets, repairs, probes: as in `transports.base.Counters`.
    """

    def __init__(self, *, path_id: int, sent: SentPackets, datagram_bytes: int, credit: Credit, seal: Seal) -> None:
        self.sent = sent
        self.symbols = SymbolCargo()
        self.source: SymbolSource | None = None
        self.pace_bps: float | None = None
        self.pace_at = INFINITY
        self.last_departure_s = self._next_departure_s = -INFINITY
        self.packets = self.repairs = self.probes = 0
        self._path_id = path_id
        self._datagram_bytes = datagram_bytes
        self._credit = credit
        self._seal = seal
        self._out: list[Outgoing] = []
        self._streams: list[tuple[QuicStream, OutgoingStream]] = []
        self._ping = Ping()
        self._more_symbols = False  # the source had one when last asked

    def add(self, stream: QuicStream, outgoing: OutgoingStream) -> None:
        """Send the data of a stream from now on."""
        self._streams.append((stream, outgoing))

    def finished(self) -> bool:
        """Forget the streams that are acknowledged as a whole; tell whether there were any."""
        left = [entry for entry in self._streams if not entry[1].is_finished]
        found = len(left) < len(self._streams)
        self._streams = left
        return found

    @property
    def stopped(self) -> bool:
        """Tell whether the peer has refused a stream."""
        return any(outgoing.stopped for _, outgoing in self._streams)

    def fill(self, now: float) -> list[Outgoing]:
        """Return the packets that may leave now or within the pacing horizon."""
        sent = self.sent
        pace_bps = self.rate_bps()
        ahead_s = pacing_ahead_s(sent.rtt.srtt_s or 0.0)
        self.pace_at = INFINITY
        while True:
            stream, start, stop = self._waiting()
            if stream is None and self.source is None and not sent.probes:
                break
            depart_at = max(now, self._next_departure_s)
            if pace_bps is not None and depart_at > now + ahead_s:
                self.pace_at = depart_at - ahead_s / 2
                break
            if not sent.room(self._datagram_bytes, limits=stream is not None or self._more_symbols):
                break
            if stream is not None:
                self._put_stream(stream, start, stop, depart_at)
            elif not self._put_symbol(depart_at):
                break
            self.last_departure_s = self._next_departure_s = depart_at
            if pace_bps is not None:
                self._next_departure_s += 8 * len(self._out[-1].data) / pace_bps
        out, self._out = self._out, []
        return out

    def rate_bps(self) -> float | None:
        """Return the pace of UDP payload; None: no round trip is known yet, so the initial window leaves at once.

        A loss-based controller has no pace of its own and is given one (RFC 9002 §7.7). Another controller
        that sets no pace wants none.
        """
        if self.pace_bps is not None:
            return self.pace_bps
        congestion = self.sent.congestion
        if congestion.pacing_rate_bps is not None:
            return congestion.pacing_rate_bps
        srtt_s = self.sent.rtt.srtt_s
        if not srtt_s or not isinstance(congestion, LossBased):
            return None
        gain = SLOW_START_PACE if congestion.cwnd_bytes < congestion.ssthresh_bytes else PACE
        return gain * 8 * congestion.cwnd_bytes / srtt_s

    def _waiting(self) -> tuple[OutgoingStream | None, int, int]:
        """Return the stream to serve next and the octets of it to send: repairs first, then in order of creation."""
        fresh: tuple[OutgoingStream | None, int, int] = (None, 0, 0)
        for stream, outgoing in self._streams:
            if outgoing.has_repairs:
                return outgoing, *outgoing.next_range(0)
            if fresh[0] is None and outgoing.fresh < outgoing.end and not stream.is_blocked:
                limit = min(stream.max_stream_data_remote, outgoing.fresh + self._credit.credit_left())
                start, stop = outgoing.next_range(limit)
                if stop > start:
                    fresh = outgoing, start, stop
        return fresh

    def _put_stream(self, stream: OutgoingStream, start: int, stop: int, depart_at: float) -> None:
        is_fresh = start == stream.fresh
        packet = self._put(stream.frame(start, stop), depart_at, stream, (start, stop))
        if is_fresh:
            self._credit.use_credit(stop - start)
            is_data = not isinstance(stream, OutgoingControl)
            left = sum(other.fresh_packets for _, other in self._streams) if is_data else None
            self._out.append(Outgoing(packet, depart_at, left))
        else:
            self.repairs += 1
            self._out.append(Outgoing(packet, depart_at))

    def _put_symbol(self, depart_at: float) -> bool:
        """Send a symbol, or a PING where a probe is due and there is none; tell whether anything was sent."""
        symbol = self.source(self._path_id, depart_at) if self.source is not None else None
        self._more_symbols = symbol is not None
        if symbol is not None:
            span = symbol.tag, symbol.tag
            packet = self._put(_DATAGRAM + symbol.data, depart_at, self.symbols, span)
            self.repairs += symbol.repair
            self._out.append(Outgoing(packet, depart_at, symbol.burst_left))
        elif self.sent.probes:
            self._out.append(Outgoing(self._put(_PING, depart_at, self._ping), depart_at))
            self.probes += 1
        else:
            return False
        return True

    def _put(self, frames: bytes, depart_at: float, cargo: Cargo, span: Range = (0, 0)) -> bytes:
        number, packet = self._seal(frames)
        self.sent.add(SentPacket(number, depart_at, len(packet), cargo, span=span))
        self.packets += 1
        return packet
