"""One end of a connection: handshake, sender, receiver, and the agent that asks for its rates."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bicoastal.transports.b4.agent import CONTROLLER, Agent
from bicoastal.transports.base import Counters, Datagram, Endpoint, EndpointContext, Sample
from bicoastal.transports.events import Buffer, Connected, Event, Failed, MessageReceived, Notice
from bicoastal.transports.paced.paced_sender import PacedSender
from bicoastal.transports.paced.packets import (
    RATE_UNIT_BPS,
    Data,
    Frame,
    Hello,
    MalformedFrameError,
    Report,
    Welcome,
    decode,
)
from bicoastal.transports.paced.receiver import Receiving
from bicoastal.transports.paths.path_set import sum_samples
from bicoastal.transports.stream import StreamError
from bicoastal.wan.units import INFINITY

FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 8.0
MAX_HANDSHAKE_TRIES = 12


@dataclass(slots=True)
class _Offer:
    """The rate at which the far end may send on a path, as HELLOs and reports carry it."""

    rate_units: int = 0
    overhead_bytes: int = 0


class B4Endpoint(Endpoint):
    """One end of a connection over all its paths.

    agent: at the client, it asks the controller for rates; None if rates are fixed, and at the server, which gets its
    rates from the client. rate_bps: the rate of each path until another one is given.
    """

    def __init__(
        self,
        context: EndpointContext,
        *,
        sender: PacedSender,
        receiver: Receiving,
        agent: Agent | None,
        rate_bps: float,
    ) -> None:
        self._client = context.role == "client"
        self._sender = sender
        self._path_set = sender.path_set
        self._receiver = receiver
        self._agent = agent
        self._token = context.rng.getrandbits(64) if self._client else 0
        sender.token = self._token
        self._dead = False
        self._events: deque[Event] = deque()
        self._outbox: list[Datagram] = []
        self._hello_at = 0.0 if self._client else INFINITY
        self._hello_tries = 0
        self._offers = [_Offer() for _ in context.paths]
        for path in sender.paths:
            self._pace(path.path_id, rate_bps, 0)
            self._offers[path.path_id] = _Offer(rate_units=max(1, int(rate_bps / RATE_UNIT_BPS)))
        self._timer: float | None = None  # None: it must be computed again
        self._control_packets = 0
        self._rejected = 0

    # -- verbs --------------------------------------------------------------------------------------------------------

    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        """Queue a message. See `Endpoint.send_message`."""
        self._timer = None
        sender = self._sender
        sender.stream.append_message(message_id, data)
        if self._agent is not None:
            self._agent.demand(sender.stream.end - sender.stream.released, now)
        if self._path_set.begun:
            sender.offer(now)

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        """Process a frame, as an object or as octets, or a message of the controller."""
        self._timer = None
        path_id = datagram.path_id
        if path_id < 0:
            self._on_control(datagram, now)
            return
        try:
            frame = decode(datagram.payload)
        except MalformedFrameError:
            self._rejected += 1
            return
        if self._dead:
            return
        if frame.token != self._token and not self._take_token(frame):
            self._rejected += 1
            return
        kind = type(frame)
        if kind is Data:
            self._on_data(path_id, frame, now)  # type: ignore[arg-type]
        elif kind is Report:
            self._on_report(frame, now)  # type: ignore[arg-type]
        elif isinstance(frame, Hello) and not self._client:
            self._on_hello(path_id, frame, now)
        elif isinstance(frame, Welcome) and self._client:
            self._on_welcome(path_id, frame, now)
        else:
            self._rejected += 1

    def datagrams_to_send(self, now: float) -> Sequence[Datagram]:
        """Return the due datagrams: HELLOs and answers, messages to the controller, reports, then data."""
        self._timer = None
        if self._dead:
            out, self._outbox = self._outbox, []
            return out
        if self._hello_at <= now:
            self._send_hellos(now)
        out, self._outbox = self._outbox, []
        if self._agent is not None:
            out += self._agent.messages(now)
        if self._receiver.timer() <= now:
            for report in self._receiver.reports(now, self._token):
                path, offer = self._sender.paths[report.path_id], self._offers[report.path_id]
                told = report._replace(rate_units=offer.rate_units, overhead_bytes=offer.overhead_bytes)
                out.append(Datagram(report.path_id, told, told.wire_bytes, max(now, path.last_departure)))
                self._control_packets += 1
        if self._path_set.begun:
            self._sender.fill(now, out)
        return out

    def get_timer(self) -> float | None:
        """Return when the next action is due; None if there is none."""
        if self._timer is None:
            self._timer = self._find_timer()
        return None if self._timer == INFINITY else self._timer

    def _find_timer(self) -> float:
        if self._dead:
            return INFINITY
        at = self._receiver.timer()
        at = min(at, self._hello_at)
        if self._path_set.begun and (due_at := self._sender.timer()) < at:
            at = due_at
        if self._agent is not None and (due_at := self._agent.timer()) < at:
            at = due_at
        return at

    def handle_timer(self, now: float) -> None:
        """Handle the expired timers of the agent and of the sender."""
        self._timer = None
        if self._dead:
            return
        if self._agent is not None and self._agent.timer() <= now:
            self._agent.on_timer(now)
            self._after_agent(now)
        if self._path_set.begun:
            self._sender.on_timer(now)
            self._after_sender(now)

    def next_event(self) -> Event | None:
        """Return the oldest event."""
        return self._events.popleft() if self._events else None

    def counters(self) -> Counters:
        """Return the counters of the sender and of this end."""
        sender = self._sender
        return Counters(
            packets=sender.packets + self._control_packets,
            repairs=sender.repairs,
            probes=sender.probes,
            timeouts=sender.timeouts,
            spurious=sender.spurious,
            rejected=self._rejected,
        )

    def sample(self, now: float) -> Sample:
        """Return the bytes in flight, the rate of all paths together, and the shortest smoothed RTT."""
        paths = sum_samples(
            Sample(pacing_rate_bps=each.rate_bps, srtt_s=each.rtt.srtt_s) for each in self._sender.paths
        )
        return replace(paths, in_flight_bytes=float(self._sender.in_flight_bytes))

    # -- the handshake ------------------------------------------------------------------------------------------------

    def _send_hellos(self, now: float) -> None:
        """Send a HELLO on every path."""
        if not self._hello_tries and self._agent is not None:
            self._agent.begin(now)
        self._hello_tries += 1
        if self._hello_tries > MAX_HANDSHAKE_TRIES:
            self._fail("the far end does not answer")
            return
        self._hello_at = now + min(FIRST_RETRY_S * 2.0 ** (self._hello_tries - 1), LONGEST_RETRY_S)
        for path_id, offer in enumerate(self._offers):
            hello = Hello(self._token, int(now * 1e9), offer.rate_units, offer.overhead_bytes)
            self._put(path_id, hello, now)

    def _take_token(self, frame: Frame) -> bool:
        """Take the token of the first HELLO. Return whether it was taken."""
        if self._client or self._path_set.begun or not isinstance(frame, Hello):
            return False
        self._token = self._sender.token = frame.token
        return True

    def _on_hello(self, path_id: int, hello: Hello, now: float) -> None:
        self._apply_rate(path_id, hello.rate_units, hello.overhead_bytes)
        self._put(path_id, Welcome(self._token, hello.stamp), now)
        self._sender.path_answers(path_id, now)
        self._connect_if_ready(now)

    def _on_welcome(self, path_id: int, welcome: Welcome, now: float) -> None:
        rtt_s = now - welcome.stamp * 1e-9
        path = self._sender.paths[path_id]
        if rtt_s > 0 and path.rtt.srtt_s is None:
            path.rtt.sample(rtt_s, now)
        self._heard(path_id, now)
        self._after_sender(now)

    def _heard(self, path_id: int, now: float) -> None:
        """Note that a valid frame of the far end has arrived."""
        self._hello_at = INFINITY
        self._sender.path_answers(path_id, now)
        self._connect_if_ready(now)

    def _connect_if_ready(self, now: float) -> None:
        """Connect if a path is ready, and the agent has a grant or waits for one no longer."""
        if (self._agent is None or self._agent.ready) and self._path_set.begins(now):
            self._events.append(Connected())
            self._sender.begin(now)

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def _on_data(self, path_id: int, packet: Data, now: float) -> None:
        if not self._path_set.any_ready:
            self._heard(path_id, now)
        try:
            complete = self._receiver.on_data(path_id, packet, now)
        except StreamError as error:
            self._fail(str(error))
            return
        if complete:
            for message_id, data in self._receiver.messages():
                self._events.append(MessageReceived(message_id=message_id, data=data))
        if self._agent is not None and packet.payload:
            self._agent.receiving(now)

    def _on_report(self, report: Report, now: float) -> None:
        if report.path_id >= len(self._sender.paths):
            self._rejected += 1
            return
        if not self._client and report.rate_units:
            self._apply_rate(report.path_id, report.rate_units, report.overhead_bytes)
        self._sender.on_report(report, now)
        self._after_sender(now)

    def _on_control(self, datagram: Datagram, now: float) -> None:
        if self._agent is None or datagram.path_id != CONTROLLER or not self._agent.receive(datagram.payload, now):
            self._rejected += 1
            return
        self._after_agent(now)

    # -- after a change ------------------------------------------------------------------------------------------------

    def _after_agent(self, now: float) -> None:
        """Apply the rates of the agent, and pass on its notices."""
        agent = self._agent
        if agent is None:
            return
        while agent.notices:
            self._events.append(agent.notices.popleft())
        if agent.changed:
            agent.changed = False
            for path_id, share in enumerate(agent.shares):
                self._pace(path_id, share.forward_bps, share.overhead_bytes)
                self._offers[path_id] = _Offer(max(1, int(share.back_bps / RATE_UNIT_BPS)), share.overhead_bytes)
        self._connect_if_ready(now)

    def _after_sender(self, now: float) -> None:
        """Report changes of the paths, the end of a burst, and a failure."""
        sender, agent = self._sender, self._agent
        while sender.changes:
            change = sender.changes.popleft()
            name = sender.paths[change.path_id].view.name
            kind = "b4-path-up" if change.up else "b4-path-down"
            self._events.append(Notice(kind=kind, detail=f"{name}: {change.detail}"))
            if agent is not None:
                agent.path(change.path_id, up=change.up, now=now)
        if agent is not None and agent.demanding and sender.idle:
            agent.demand(0, now)
        if sender.failure and not self._dead:
            self._fail(sender.failure)

    def _apply_rate(self, path_id: int, rate_units: int, overhead_bytes: int) -> None:
        path = self._sender.paths[path_id]
        rate_bps = float(rate_units * RATE_UNIT_BPS)
        if rate_bps != path.rate_bps or overhead_bytes != path.overhead_bytes:
            self._pace(path_id, rate_bps, overhead_bytes)

    def _pace(self, path_id: int, rate_bps: float, overhead_bytes: int) -> None:
        self._sender.set_rate(path_id, rate_bps, overhead_bytes)

    def _put(self, path_id: int, frame: Hello | Welcome, now: float) -> None:
        path = self._sender.paths[path_id]
        self._outbox.append(Datagram(path_id, frame, frame.wire_bytes, max(now, path.last_departure)))
        self._control_packets += 1

    def _fail(self, reason: str) -> None:
        self._dead = True
        self._events.append(Failed(reason=reason))
