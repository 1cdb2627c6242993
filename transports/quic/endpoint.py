"""QUIC over one path as an endpoint: every message on a stream of its own."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from bicoastal.transports.base import Counters, Datagram, Endpoint, EndpointContext, Sample
from bicoastal.transports.congestion.base import CongestionControl
from bicoastal.transports.events import Buffer, Connected, Event, Failed, MessageReceived
from bicoastal.transports.quic.congestion import QuicAdaptive, QuicCubic, QuicReno
from bicoastal.transports.quic.credentials import Credentials, credentials_of
from bicoastal.transports.quic.path_connection import PathConnection
from bicoastal.wan.checks import FieldError

MAX_MESSAGE_ID = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QuicParameters:
    """What can be set on every QUIC.

    congestion: "cubic" (RFC 9438, with HyStart++, RFC 9406), "reno" or "adaptive", the same as TCP's here.
    initial_window_segments: full-sized packets in the initial window (RFC 9002 §7.2).
    after_idle: what happens to the window between bursts. "keep": nothing (RFC 9002 has no rule but pacing, §7.7).
    "decay": RFC 2861, as in Linux's TCP. "restart": RFC 5681 §4.1.
    Raises FieldError.
    """

    congestion: Literal["cubic", "reno", "adaptive"] = "cubic"
    initial_window_segments: int = 10
    after_idle: Literal["keep", "decay", "restart"] = "keep"

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.initial_window_segments < 1:
            raise FieldError("initial_window_segments", f"{self.initial_window_segments} is less than 1")

    def controller(self) -> Callable[[int], CongestionControl]:
        """Return what makes a congestion controller for packets of `mss_bytes`."""

        def make(mss_bytes: int) -> CongestionControl:
            if self.congestion == "reno":
                return QuicReno(mss_bytes=mss_bytes, initial_window_segments=self.initial_window_segments)
            if self.congestion == "adaptive":
                return QuicAdaptive(mss_bytes=mss_bytes, initial_window_segments=self.initial_window_segments)
            return QuicCubic(mss_bytes=mss_bytes, initial_window_segments=self.initial_window_segments)

        return make


class QuicEndpoint(Endpoint):
    """One end of a QUIC connection over one path.

    credentials: the server's, or at the client its certificate; by default what `credentials_of` makes of the context.
    Raises ValueError when the path's MTU is too small for QUIC.
    """

    def __init__(
        self, context: EndpointContext, parameters: QuicParameters, *, credentials: Credentials | None = None
    ) -> None:
        self._link = PathConnection(
            role=context.role,
            view=context.paths[0],
            rng=context.rng,
            credentials=credentials or credentials_of(context),
            make_congestion=parameters.controller(),
            continuous=False,
        )
        self._after_idle = parameters.after_idle
        self._waiting: list[tuple[int, Buffer]] = []
        self._events: deque[Event] = deque()
        self._connected = self._failed = False

    def send_message(self, message_id: int, data: Buffer, now: float) -> None:
        """Queue a message. See `Endpoint.send_message`."""
        if not 0 <= message_id <= MAX_MESSAGE_ID:
            raise FieldError("message_id", f"{message_id} is not an unsigned 64-bit integer")
        if self._connected and not self._failed:
            self._link.begin_burst(now, len(data), after_idle=self._after_idle)
            self._link.send_message(message_id, data)
        else:
            self._waiting.append((message_id, data))

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        """Take a UDP payload."""
        self._link.receive(bytes(datagram.payload), now)
        self._after(now)

    def datagrams_to_send(self, now: float) -> Sequence[Datagram]:
        """Return what may leave."""
        datagrams = self._link.datagrams_to_send(now)
        if not self._connected and self._link.ready:  # a client's handshake is over once it has sent its part
            self._after(now)
            datagrams += self._link.datagrams_to_send(now)
        return datagrams

    def get_timer(self) -> float | None:
        """Return when something is due."""
        return self._link.get_timer()

    def handle_timer(self, now: float) -> None:
        """Do what is due."""
        self._link.handle_timer(now)
        self._after(now)

    def next_event(self) -> Event | None:
        """Return the oldest event."""
        return self._events.popleft() if self._events else None

    def counters(self) -> Counters:
        """Return what has been counted."""
        return self._link.counters()

    def sample(self, now: float) -> Sample:
        """Return window, flight, pace and smoothed RTT."""
        link = self._link
        return Sample(
            cwnd_bytes=link.congestion.cwnd_bytes,
            in_flight_bytes=float(link.in_flight_bytes),
            pacing_rate_bps=link.pacing_rate_bps,
            srtt_s=link.rtt.srtt_s,
        )

    def _after(self, now: float) -> None:
        """Pass on what has come of a datagram or a timer."""
        link = self._link
        if link.ready and not self._connected:
            self._connected = True
            self._events.append(Connected())
            waiting, self._waiting = self._waiting, []
            for message_id, data in waiting:
                self.send_message(message_id, data, now)
        for message_id, data in link.take_messages():
            self._events.append(MessageReceived(message_id=message_id, data=data))
        if link.failure and not self._failed:
            self._failed = True
            self._events.append(Failed(reason=link.failure))
