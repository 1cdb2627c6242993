"""A message over many QUIC connections at once, one per path: what is lost on one is sent again on any.

The message is cut into symbols as paths ask for them, so each path takes what its window and its pace let through.
Every symbol tells where it belongs, and needs no other to be understood.
"""

from collections import deque
from collections.abc import Sequence

from bicoastal.transports.base import Counters, Datagram, Endpoint, EndpointContext, Sample
from bicoastal.transports.events import Buffer, Connected, Event, Failed, MessageReceived
from bicoastal.transports.multipath.mpquic_messages import Assembler, Outbox
from bicoastal.transports.paths.liveness import PATIENCE_FOR_PATHS_S, LivenessProbes
from bicoastal.transports.quic.credentials import Credentials, credentials_of
from bicoastal.transports.quic.endpoint import MAX_MESSAGE_ID, QuicParameters
from bicoastal.transports.quic.path_connection import PathConnection, total_counters
from bicoastal.transports.quic.symbols import Symbol
from bicoastal.wan.units import INFINITY

SEEN_SHARE, UNSEEN_SHARE = 8, 1  # of a round trip, that an acknowledgement may be late
DOUBT_S = 0.002  # until silence is judged again, at first
LEAST_MARGIN_S = 0.002  # by how much, at least, an acknowledgement has to be late before a path counts as silent


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
        self._doubt_until_s = [-INFINITY] * len(self._links)  # no verdict on a path's silence before
        self._silent_since: list[float | None] = [None] * len(self._links)
        self._probes = LivenessProbes(self._links)
        self._outbox = Outbox()
        self._assembler = Assembler()
        self._after_idle = parameters.after_idle
        self._events: deque[Event] = deque()
        self._first_ready_s: float | None = None
        self._connected = self._failed = False
        self._rejected = 0

    # -- verbs ---------------------------------------------------------------------------------------------------------

    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        """Queue a message. See `Endpoint.send_message`."""
        if not 0 <= message_id <= MAX_MESSAGE_ID:
            raise ValueError(f"message_id: {message_id} is not an unsigned 64-bit integer")
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
        silence_at = self._silence_at(place)
        return silence_at if timer is None or silence_at < timer else timer

    def get_timer(self) -> float | None:
        """Return when something is due."""
        at = min(*self._timers, self._probes.at_s)
        if self._first_ready_s is not None and not self._connected:
            at = min(at, self._first_ready_s + PATIENCE_FOR_PATHS_S)
        return None if at == INFINITY else at

    def handle_timer(self, now: float) -> None:
        """Do what is due."""
        for place, link in enumerate(self._links):
            if self._timers[place] > now:
                continue
            timer = link.get_timer()
            if timer is not None and timer <= now:
                link.handle_timer(now)
            if self._silence_at(place) <= now:
                if self._others_answer(place, now):
                    self._silent_since[place] = now
                    self._probes.begin(place, now, (link.rtt.srtt_s or 0.0) + self._margin_s(place))
                    self._news = True
                    link.declare_lost(now)
                else:
                    self._doubt_until_s[place] = now + max(DOUBT_S, (now - self._expected_s(place)) / 8)
            self._after(place, now)
            self._timers[place] = self._timer_of(place)
        if self._probes.at_s <= now:
            for place in self._probes.ask(now):
                self._after(place, now)
        self._see_whether_connected(now)

    def next_event(self) -> Event | None:
        """Return the oldest event."""
        return self._events.popleft() if self._events else None

    def counters(self) -> Counters:
        """Return the sum over all paths."""
        return total_counters(self._links, rejected=self._rejected)

    def sample(self, now: float) -> Sample:
        """Return windows, flights and paces of all paths together, and the shortest smoothed RTT."""
        paces = [link.pacing_rate_bps for link in self._links]
        return Sample(
            cwnd_bytes=sum(link.congestion.cwnd_bytes for link in self._links),
            in_flight_bytes=float(sum(link.in_flight_bytes for link in self._links)),
            pacing_rate_bps=None if None in paces else sum(pace or 0.0 for pace in paces),
            srtt_s=min((link.rtt.srtt_s for link in self._links if link.rtt.srtt_s is not None), default=None),
        )

    # -- what has come ------------------------------------------------------------------------------------------------

    def _after(self, place: int, now: float) -> None:
        """Pass on what has come of a datagram or a timer on one path."""
        link = self._links[place]
        self._touched.add(place)
        self._take_reports(link)
        if place in self._probes.unsettled:
            self._probes.look(place, now, settled=link.confirmed)
        for symbol in link.take_symbols():
            message = self._assembler.take(symbol)
            if message is not None:
                self._events.append(MessageReceived(message_id=message[0], data=message[1]))
        if self._assembler.failure:
            link.refuse(self._assembler.failure)
            self._fail(self._assembler.failure)
        since = self._silent_since[place]
        if since is not None and link.last_heard_s >= since:
            self._silent_since[place] = None
            self._probes.end(place)
            self._news = True
        if link.failure:
            self._probes.end(place)
            if link.in_flight_bytes:
                link.declare_lost(now)
                self._take_reports(link)
            if all(other.failure for other in self._links):
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
        """Say so when every path that may yet connect has, or when one has waited long enough for the others."""
        if self._connected or not any(link.ready for link in self._links):
            return
        if self._first_ready_s is None:
            self._first_ready_s = now
        late = now >= self._first_ready_s + PATIENCE_FOR_PATHS_S
        if late or all(link.ready or link.failure for link in self._links):
            self._connected = self._news = True
            self._events.append(Connected())

    # -- silence ------------------------------------------------------------------------------------------------------

    def _silence_at(self, place: int) -> float:
        """Return when a path counts as silent: its oldest packet is overdue, and nothing else has come (inf: never).

        The others then repeat what it carries, and it is only probed until it answers. A path without a ready
        companion is left to its probe timer.
        """
        link = self._links[place]
        oldest_s, srtt_s = link.oldest_in_flight_s, link.rtt.srtt_s
        if oldest_s is None or srtt_s is None or self._silent_since[place] is not None or not link.ready:
            return INFINITY
        if not any(
            other.ready and self._silent_since[index] is None
            for index, other in enumerate(self._links)
            if index != place
        ):
            return INFINITY
        return max(self._expected_s(place) + self._margin_s(place), self._doubt_until_s[place])

    def _expected_s(self, place: int) -> float:
        """Return when something is to be heard of a path: of its oldest packet, or of the one after the last heard."""
        link = self._links[place]
        # while a queue fills, the mean lags behind the latest
        rtt_s = max(link.rtt.srtt_s or 0.0, link.latest_rtt_s)
        return max((link.oldest_in_flight_s or 0.0) + rtt_s, link.last_heard_s)

    def _margin_s(self, place: int) -> float:
        link = self._links[place]
        srtt_s = link.rtt.srtt_s or 0.0
        # as long as nothing has come back of what is in flight, a queue may have grown that nobody has seen yet
        unseen = link.last_heard_s < (link.oldest_in_flight_s or 0.0)
        share_s = srtt_s / (UNSEEN_SHARE if unseen else SEEN_SHARE)
        return link.peer_ack_delay_s + max(4 * link.rtt.rttvar_s, share_s, LEAST_MARGIN_S)

    def _others_answer(self, place: int, now: float) -> bool:
        """Tell whether another path has been heard although this one should have been, and not as late itself.

        When all are late, bursts that meet each other on their way are the likelier cause.
        """
        expected_s = self._expected_s(place)
        for index, other in enumerate(self._links):
            if index == place or not other.ready or other.last_heard_s < expected_s:
                continue
            lateness_s = max(other.latest_rtt_s - (other.rtt.srtt_s or 0.0), 0.0)
            if now >= expected_s + self._margin_s(place) + lateness_s:
                return True
        return False

    # -- scheduling ---------------------------------------------------------------------------------------------------

    def _next_symbol(self, path_id: int, depart_at: float) -> Symbol | None:
        """Return what a path is to send next, None when there is nothing, or others are sooner done with it."""
        place = self._places[path_id]
        outbox = self._outbox
        if not outbox.waiting_bytes or not self._connected or self._silent_since[place] is not None:
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
            if srtt_s and link.ready and self._silent_since[place] is None:
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
