"""A message over many QUIC connections at once, one per path: what is lost on one is sent again on any.

The message is cut into symbols as paths ask for them, so each path takes what its window and its pace let through.
Every symbol tells where it belongs, and needs no other to be understood.
"""

from collections import deque
from collections.abc import Sequence

from bicoastal.transports.base import Counters, Datagram, Endpoint, EndpointContext, Sample, sum_counters
from bicoastal.transports.events import Buffer, Connected, Event, Failed, MessageReceived
from bicoastal.transports.multipath.health_policies import MPQUIC_HEALTH
from bicoastal.transports.multipath.mpquic_messages import Assembler, Outbox
from bicoastal.transports.paths.health import Belief, PathHealth
from bicoastal.transports.paths.path_set import PathSet, sum_samples
from bicoastal.transports.quic.credentials import Credentials, credentials_of
from bicoastal.transports.quic.endpoint import MAX_MESSAGE_ID, QuicParameters
from bicoastal.transports.quic.path_connection import PathConnection
from bicoastal.transports.quic.symbols import Symbol
from bicoastal.wan.checks import FieldError
from bicoastal.wan.units import INFINITY


class MpQuicEndpoint(Endpoint):
    """One end of a bundle of QUIC connections.

    credentials: the server's, or at the client its certificate; by default what `credentials_of` makes of the context.
    Raises ValueError when a path's MTU is too small for QUIC.
    """

    def __init__(
        self, context: EndpointContext, parameters: QuicParameters, *, credentials: Credentials | None = None
    ) -> None:
        self._links = [
            PathConnection(
                role=context.role,
                view=view,
                rng=context.rng,
                credentials=credentials or credentials_of(context),
                make_congestion=parameters.controller(),
                continuous=True,
            )
            for view in context.paths
        ]
        self._places = {link.path_id: place for place, link in enumerate(self._links)}
        for link in self._links:
            link.source = self._next_symbol
        self._rates_bps = [0.0] * len(self._links)
        self._delays_s = [0.0] * len(self._links)
        self._timers = [INFINITY] * len(self._links)
        self._touched: set[int] = set()  # paths on which something has happened since they were last asked
        self._news = True  # all are to be asked
        self._paths = PathSet([PathHealth(MPQUIC_HEALTH, link) for link in self._links])
        self._outbox = Outbox()
        self._assembler = Assembler()
        self._after_idle = parameters.after_idle
        self._events: deque[Event] = deque()
        self._failed = False
        self._rejected = 0

    # -- verbs ---------------------------------------------------------------------------------------------------------

    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        """Queue a message. See `Endpoint.send_message`."""
        if not 0 <= message_id <= MAX_MESSAGE_ID:
            raise FieldError("message_id", f"{message_id} is not an unsigned 64-bit integer")
        if self._outbox.idle:
            for link in self._links:
                link.begin_burst(now, len(data) // len(self._links), after_idle=self._after_idle)
        self._outbox.add(message_id, data)
        self._news = True

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        """Take a UDP payload."""
        place = self._places.get(datagram.path_id)
        if place is None:
            self._rejected += 1
            return
        self._links[place].receive(bytes(datagram.payload), now)
        self._after(place, now)

    def datagrams_to_send(self, now: float) -> Sequence[Datagram]:
        """Return what may leave: on the paths on which something has happened, or on all when there is news for all."""
        out: list[Datagram] = []
        while self._touched or self._news:
            places = range(len(self._links)) if self._news else sorted(self._touched)
            self._touched.clear()
            self._news = False
            if self._outbox.waiting_bytes:
                self._measure()
            for place in places:
                link = self._links[place]
                was_ready = link.ready
                out += link.datagrams_to_send(now)
                if link.ready and not was_ready:  # a client's handshake is over once it has sent its part
                    self._after(place, now)
                self._timers[place] = self._timer_of(place)
        return out

    def _timer_of(self, place: int) -> float:
        timer = self._links[place].get_timer()
        overdue_at_s = self._paths.overdue_at_s(place)
        return overdue_at_s if timer is None or overdue_at_s < timer else timer

    def get_timer(self) -> float | None:
        """Return when something is due."""
        at = min(*self._timers, self._paths.probe_at_s, self._paths.waits_until_s)
        return None if at == INFINITY else at

    def handle_timer(self, now: float) -> None:
        """Serve the timers that have expired: of the connections, of paths that are silent, and of probes."""
        paths = self._paths
        for place, link in enumerate(self._links):
            if self._timers[place] > now:
                continue
            timer = link.get_timer()
            if timer is not None and timer <= now:
                link.handle_timer(now)
            if paths.overdue_at_s(place) <= now and paths.judge(place, now) is Belief.DOWN:
                self._news = True  # the others repeat what it carries
                link.declare_lost(now)
            self._after(place, now)
            self._timers[place] = self._timer_of(place)
        if paths.probe_at_s <= now:
            probed = paths.due_probes(now)
            for place in probed:
                self._links[place].probe(now)
            for place in probed:
                self._after(place, now)
        self._see_whether_connected(now)

    def next_event(self) -> Event | None:
        """Return the oldest event."""
        return self._events.popleft() if self._events else None

    def counters(self) -> Counters:
        """Return the sum over all paths."""
        return sum_counters(link.counters() for link in self._links) + Counters(rejected=self._rejected)

    def sample(self, now: float) -> Sample:
        """Return windows, flights and paces of all paths together, and the shortest smoothed RTT."""
        return sum_samples(
            Sample(
                cwnd_bytes=link.congestion.cwnd_bytes,
                in_flight_bytes=float(link.in_flight_bytes),
                pacing_rate_bps=link.pacing_rate_bps,
                srtt_s=link.rtt.srtt_s,
            )
            for link in self._links
        )

    # -- what has come ------------------------------------------------------------------------------------------------

    def _after(self, place: int, now: float) -> None:
        """Pass on what has come of a datagram or a timer on one path."""
        link = self._links[place]
        self._touched.add(place)
        self._take_reports(link)
        if place in self._paths.unsettled:
            self._paths.advance(place, now, ready=link.ready, confirmed=link.confirmed, rtt_s=link.rtt_s)
        for symbol in link.take_symbols():
            message = self._assembler.take(symbol)
            if message is not None:
                self._events.append(MessageReceived(message_id=message[0], data=message[1]))
        if self._assembler.failure:
            link.refuse(self._assembler.failure)
            self._fail(self._assembler.failure)
        if self._paths.on_heard(place, link.last_heard_s) is Belief.DOWN:
            self._news = True
        if link.failure:
            is_last = self._paths.fail(place, link.failure, now)
            if link.in_flight_bytes:
                link.declare_lost(now)
                self._take_reports(link)
            if is_last:
                self._fail(link.failure)
        self._see_whether_connected(now)

    def _take_reports(self, link: PathConnection) -> None:
        for report in link.take_reports():
            self._outbox.report(report)
            if not report.acked:
                self._news = True  # any path may repair it

    def _fail(self, reason: str) -> None:
        if not self._failed:
            self._failed = True
            self._events.append(Failed(reason=reason))

    def _see_whether_connected(self, now: float) -> None:
        if self._paths.begins(now):
            self._news = True
            self._events.append(Connected())

    # -- scheduling ---------------------------------------------------------------------------------------------------

    def _next_symbol(self, path_id: int, depart_at: float) -> Symbol | None:
        """Return what a path is to send next, None when there is nothing, or others are sooner done with it."""
        place = self._places[path_id]
        outbox = self._outbox
        if not outbox.waiting_bytes or not self._paths.begun or not self._paths.healths[place].usable:
            return None
        rates_bps = self._rates_bps
        total_bps = sum(rates_bps)
        # only near the end can the others be sooner: what waits is less than they carry while a symbol is on its way
        if 8 * outbox.waiting_bytes < total_bps * self._delays_s[place] and self._others_are_sooner(place):
            return None
        return outbox.next_symbol(
            self._links[place].symbol_bytes, share=rates_bps[place] / total_bps if total_bps else 1.0
        )

    def _measure(self) -> None:
        """Note what every path carries (what window and pace both let through, 0 if it is not used) and its delay."""
        for place, link in enumerate(self._links):
            srtt_s = link.rtt.srtt_s
            self._delays_s[place] = (srtt_s or 0.0) / 2
            self._rates_bps[place] = 0.0
            if srtt_s and self._paths.healths[place].usable:
                by_window_bps = 8 * link.congestion.cwnd_bytes / srtt_s
                pace_bps = link.pacing_rate_bps
                self._rates_bps[place] = by_window_bps if pace_bps is None else min(by_window_bps, pace_bps)

    def _others_are_sooner(self, place: int) -> bool:
        """Tell whether the other paths deliver all that waits before a symbol on this one would arrive.

        Earliest completion first (Lim et al., "ECF: an MPTCP path scheduler to manage heterogeneous paths", CoNEXT
        2017), with pace in the place of round trips per window. One of the others must have something in flight: its
        acknowledgement will have that path asked, so that what waits is not left to paths that each defer to another.
        """
        rate_bps = rate_times_delay = 0.0
        flying = False
        for other, other_bps in enumerate(self._rates_bps):
            if other != place and other_bps:
                rate_bps += other_bps
                rate_times_delay += other_bps * self._delays_s[other]
                flying = flying or self._links[other].in_flight_bytes > 0
        if not flying:
            return False
        return (8 * self._outbox.waiting_bytes + rate_times_delay) / rate_bps < self._delays_s[place]
