"""One end of an FEC-protected connection: a QUIC connection on every path, a sender and a receiver above them."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bicoastal.transports.base import Counters, Datagram, Endpoint, EndpointContext, Sample, sum_counters
from bicoastal.transports.coding.codes import ErasureCode
from bicoastal.transports.coding.redundancy import ALL_CODES, MESSAGES_PER_STEP
from bicoastal.transports.events import Buffer, Connected, Event, Failed, MessageReceived, Notice
from bicoastal.transports.multipath.coded_path import CodedPath
from bicoastal.transports.multipath.fec_receiver import FIRST_PATIENCE_S, FecReceiver
from bicoastal.transports.multipath.fec_sender import FecSender, RedundancyPolicy
from bicoastal.transports.multipath.fec_wire import (
    Announcement,
    ControlFrame,
    ControlReader,
    Done,
    FecProtocolError,
    MissingSymbols,
    encode_control,
    is_sounding,
    sounding_index,
)
from bicoastal.transports.multipath.health_policies import FEC_HEALTH
from bicoastal.transports.multipath.sounding import Sounding, SpreadMeter
from bicoastal.transports.paths.health import Belief, PathHealth
from bicoastal.transports.paths.path_set import PathSet, sum_samples
from bicoastal.transports.quic.credentials import Credentials, credentials_of
from bicoastal.transports.quic.endpoint import MAX_MESSAGE_ID, QuicParameters
from bicoastal.transports.quic.path_connection import PathConnection
from bicoastal.wan.checks import FieldError, check_not_negative, check_positive, check_probability, check_whole
from bicoastal.wan.units import INFINITY


@dataclass(frozen=True, slots=True, kw_only=True)
class FecParameters(QuicParameters):
    """What can be set on FEC-protected QUIC, besides QUIC's own.

    code: "auto" takes whichever needs least. messages_per_step, target: how many messages a step waits for in a trip,
    and the acceptable probability that any of them needs a second one. cover_paths: so many paths may fall silent
    besides. max_overhead: repair symbols per source symbol at most. tail_losses: losses in a row at the end of every
    path that are covered whatever has been measured, where that is cheap. initial_loss: what is assumed of a path of
    which nothing is known. max_message_bytes: of a message to be received. Raises ValueError naming the field.
    """

    congestion: Literal["cubic", "reno", "adaptive"] = "adaptive"
    code: Literal["auto", "xor", "reed-solomon", "raptorq"] = "auto"
    messages_per_step: float = MESSAGES_PER_STEP
    target: float = 0.01
    cover_paths: int = 0
    max_overhead: float = 1.0
    tail_losses: int = 10
    initial_loss: float = 3e-3
    max_message_bytes: int = 1 << 34

    def __post_init__(self) -> None:
        """Check the numbers."""
        QuicParameters.__post_init__(self)
        check_positive("messages_per_step", self.messages_per_step)
        check_probability("target", self.target)
        check_whole("cover_paths", self.cover_paths, 0)
        check_not_negative("max_overhead", self.max_overhead)
        check_whole("tail_losses", self.tail_losses, 0)
        check_probability("initial_loss", self.initial_loss)
        check_positive("initial_loss", self.initial_loss)
        check_whole("max_message_bytes", self.max_message_bytes, 1)

    @property
    def codes(self) -> tuple[ErasureCode, ...]:
        """Return the codes to choose from."""
        return tuple(code for code in ALL_CODES if self.code in ("auto", code.name))


class FecEndpoint(Endpoint):
    """One end of a connection over all its paths.

    credentials: the server's, or at the client its certificate; by default what `credentials_of` makes of the context.
    Raises ValueError when a path's MTU is too small for QUIC.
    """

    def __init__(
        self, context: EndpointContext, parameters: FecParameters, *, credentials: Credentials | None = None
    ) -> None:
        shared = credentials or credentials_of(context)
        self._links = [
            PathConnection(
                role=context.role,
                view=view,
                rng=context.rng,
                credentials=shared,
                make_congestion=parameters.controller(),
                continuous=True,
            )
            for view in context.paths
        ]
        self._names = [view.name for view in context.paths]
        self._paths = PathSet([PathHealth(FEC_HEALTH, link) for link in self._links])
        self._coded = [
            CodedPath(link, health, parameters.initial_loss)
            for link, health in zip(self._links, self._paths.healths, strict=True)
        ]
        self._readers = [ControlReader() for _ in self._links]
        self._protection = RedundancyPolicy(
            codes=parameters.codes,
            messages=parameters.messages_per_step,
            target=parameters.target,
            cover_paths=parameters.cover_paths,
            max_overhead=parameters.max_overhead,
            tail_losses=parameters.tail_losses,
        )
        self._sender = FecSender(
            self._paths, self._coded, self._protection, self._send_control, after_idle=parameters.after_idle
        )
        self._receiver = FecReceiver(max_message_bytes=parameters.max_message_bytes)
        for link in self._links:
            link.source = self._sender.pull
        self._timers = [link.get_timer() or INFINITY for link in self._links]
        self._silence_at = INFINITY
        self._soundings = [Sounding(link, self._sender.pull, wanted=context.role == "client") for link in self._links]
        self._meters = [SpreadMeter() for _ in self._links]
        self._events: deque[Event] = deque()
        self._waiting: list[tuple[int, Buffer]] = []
        self._failed = False
        self._plan = ""

    # -- verbs --------------------------------------------------------------------------------------------------------

    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        """Queue a message. See `Endpoint.send_message`."""
        if not 0 <= message_id <= MAX_MESSAGE_ID:
            raise FieldError("message_id", f"{message_id} is not an unsigned 64-bit integer")
        if not self._paths.begun or self._failed:
            self._waiting.append((message_id, data))
            return
        self._sender.offer(message_id, data, now)
        self._tell_plan()

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        """Take a UDP payload."""
        path_id = datagram.path_id
        self._links[path_id].receive(bytes(datagram.payload), now)
        self._after(path_id, now)

    def datagrams_to_send(self, now: float) -> Sequence[Datagram]:
        """Return what may leave, of all paths."""
        out: list[Datagram] = []
        if self._failed:
            return out
        for path_id, at in enumerate(self._timers):
            self._coded[path_id].stirred |= at <= now
        while stirred := [path_id for path_id, coded in enumerate(self._coded) if coded.stirred]:
            for path_id in stirred:
                link = self._links[path_id]
                self._coded[path_id].stirred = False
                was_ready = link.ready
                out += link.datagrams_to_send(now)
                self._timers[path_id] = link.get_timer() or INFINITY
                if link.ready and not was_ready:  # a client's handshake is over once it has sent its part
                    self._after(path_id, now)
        if self._silence_at == INFINITY:
            self._silence_at = self._sender.timer()
        return out

    def get_timer(self) -> float | None:
        """Return when something is due."""
        if self._failed:
            return None
        paths = self._paths
        at = min(*self._timers, self._silence_at, self._receiver.timer(), paths.waits_until_s, paths.probe_at_s)
        for path_id in paths.unsettled:
            at = min(at, self._soundings[path_id].timer())
        return None if at == INFINITY else at

    def handle_timer(self, now: float) -> None:
        """Serve the timers that have expired: of connections, probes, soundings, silent paths and the receiver."""
        paths = self._paths
        for path_id, at in enumerate(self._timers):
            if at <= now:
                self._links[path_id].handle_timer(now)
                self._after(path_id, now)
        if paths.probe_at_s <= now:
            probed = paths.due_probes(now)
            for path_id in probed:
                self._links[path_id].probe(now)
            for path_id in probed:
                self._after(path_id, now)
        for path_id in sorted(paths.unsettled):
            if self._soundings[path_id].timer() <= now:
                self._soundings[path_id].on_timer(now)
                self._after(path_id, now)
        if paths.waits_until_s <= now:
            self._see_whether_connected(now)
        if self._silence_at <= now:
            silent = self._sender.on_timer(now)
            self._silence_at = self._sender.timer()
            if silent:
                self._events.append(Notice(kind="fec-path-silent", detail=", ".join(self._names[at] for at in silent)))
        if self._receiver.timer() <= now:
            self._receiver.on_timer(now)
            self._pass_on()

    def next_event(self) -> Event | None:
        """Return the oldest event."""
        return self._events.popleft() if self._events else None

    def counters(self) -> Counters:
        """Return what has been counted, on all paths together."""
        return sum_counters(link.counters() for link in self._links) + Counters(rejected=self._receiver.rejected)

    def sample(self, now: float) -> Sample:
        """Return windows, bytes in flight and paces of all paths together, and the shortest smoothed RTT."""
        return sum_samples(
            Sample(
                cwnd_bytes=link.congestion.cwnd_bytes,
                in_flight_bytes=float(link.in_flight_bytes),
                pacing_rate_bps=link.congestion.pacing_rate_bps,
                srtt_s=link.rtt.srtt_s,
            )
            for link in self._links
        )

    # -- consequences -------------------------------------------------------------------------------------------------

    def _after(self, path_id: int, now: float) -> None:
        """Pass on what has come of a datagram or a timer on one path."""
        if self._failed:
            return
        link, coded = self._links[path_id], self._coded[path_id]
        coded.stirred = True
        if path_id in self._paths.unsettled:
            self._advance(path_id, now)
        if reports := link.take_reports():
            self._sender.on_reports(coded, reports, now)
        receiver = self._receiver
        try:
            for symbol in link.take_symbols():
                if is_sounding(symbol):
                    self._on_sounding(path_id, symbol, now)
                else:
                    receiver.on_symbol(symbol, now)
            if control := link.take_control():
                receiver.patience_s = max(FIRST_PATIENCE_S, 2 * max(each.rtt_s for each in self._links))
                for frame in self._readers[path_id].feed(control):
                    self._take(path_id, frame, now)
        except FecProtocolError as error:
            self._fail(f"the far end broke the protocol: {error}")
            return
        self._pass_on()
        if self._paths.on_heard(path_id, link.last_heard_s) is Belief.DOWN:
            self._events.append(Notice(kind="fec-path-back", detail=self._names[path_id]))
        if link.failure and path_id not in self._paths.failures:
            self._give_up(path_id, now)

    def _take(self, path_id: int, frame: ControlFrame, now: float) -> None:
        if isinstance(frame, Announcement):
            self._receiver.on_announcement(frame, now)
        elif isinstance(frame, Done):
            self._sender.on_done(frame.number)
        elif isinstance(frame, MissingSymbols):
            self._sender.on_missing(frame, now)
        else:
            self._soundings[path_id].on_spread(frame)

    def _on_sounding(self, path_id: int, octets: bytes, now: float) -> None:
        """Tell the far end how what sounds the path is spread."""
        spread = self._meters[path_id].on_sounding(sounding_index(octets), now, self._links[path_id].rtt_s)
        if spread is not None and self._links[path_id].ready:
            self._links[path_id].send_control(encode_control(spread))

    def _pass_on(self) -> None:
        """Hand over what the receiver has made."""
        receiver = self._receiver
        while receiver.messages:
            message_id, data = receiver.messages.popleft()
            self._events.append(MessageReceived(message_id=message_id, data=data))
        if receiver.control:
            for frame in receiver.control:
                self._send_control(frame)
            receiver.control.clear()

    def _send_control(self, frame: ControlFrame) -> None:
        """Put a frame on every path, so that no single loss delays it."""
        octets = encode_control(frame)
        for coded in self._coded:
            if coded.link.ready:
                coded.link.send_control(octets)
                coded.stirred = True

    # -- beginning and end --------------------------------------------------------------------------------------------

    def _advance(self, path_id: int, now: float) -> None:
        """Sound a path once it has connected; when that is over, it may carry symbols."""
        link, sounding = self._links[path_id], self._soundings[path_id]
        if link.ready and not sounding.begun:
            sounding.begin(now)
        over = sounding.over(now)
        self._paths.advance(
            path_id,
            now,
            ready=link.ready,
            confirmed=link.confirmed,
            measured=over,
            measured_by_s=sounding.ends_s,
            rtt_s=link.rtt_s,
        )
        self._see_whether_connected(now)

    def _see_whether_connected(self, now: float) -> None:
        if self._paths.begins(now):
            self._events.append(Connected())
            waiting, self._waiting = self._waiting, []
            for message_id, data in waiting:
                self.send_message(message_id, data, now)

    def _give_up(self, path_id: int, now: float) -> None:
        """Go on without a path whose connection has ended."""
        reason = self._links[path_id].failure
        if self._paths.fail(path_id, reason, now):
            self._fail(reason)
            return
        self._events.append(Notice(kind="fec-path-lost", detail=f"{self._names[path_id]}: {reason}"))
        self._sender.give_to_others(self._coded[path_id], now)
        self._see_whether_connected(now)

    def _fail(self, reason: str) -> None:
        self._failed = True
        self._events.append(Failed(reason=reason))

    def _tell_plan(self) -> None:
        """Say what is promised, whenever that changes."""
        planned = self._sender.planned
        if planned is None:
            return
        protection = self._protection
        plan = (
            f"{planned.code.name}: {planned.blocks} x ({planned.k} + {planned.r}); probability of a second trip in a "
            f"step of {protection.messages:,.0f} messages: {planned.step_failure:.1e}, "
            f"{'within' if planned.attained else 'which misses'} the target of {protection.target:.1e}"
        )
        if plan != self._plan:
            self._plan = plan
            self._events.append(Notice(kind="fec-plan", detail=plan))
