"""What a multipath transport is built on: one QUIC connection per path, as a scheduler sees it.

A `PathConnection` carries two things. Symbols go in DATAGRAM frames (RFC 9221): unreliable, unordered, and each one's
fate is reported. Control octets go on a stream: reliable, in order. The scheduler above it is asked for a symbol
whenever window and pace let another packet leave, so that nothing is committed to a path earlier than need be.

The owner calls, as the driver calls the owner: `receive` or `handle_timer`, then `take_symbols`, `take_reports` and
`take_control`, then `datagrams_to_send` of every path (an event on one path may free a symbol for another), and at
last `get_timer`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from bicoastal.transports.base import Counters, Datagram
from bicoastal.transports.congestion.base import CongestionControl
from bicoastal.transports.events import Buffer
from bicoastal.transports.recovery.rtt import RttEstimator


class Symbol(NamedTuple):
    """What one DATAGRAM frame is to carry; at most `PathConnection.symbol_bytes` long.

    tag: comes back in the report of this symbol's fate. repair: it repeats, or protects, what was sent before.
    burst_left: how many more first transmissions follow in this burst on this path (`Datagram.burst_left`).
    """

    data: Buffer
    tag: int
    repair: bool = False
    burst_left: int | None = None


class Report(NamedTuple):
    """What became of a symbol: acknowledged, or taken for lost (`acked` False). sent_s: when it left.

    A symbol that was taken for lost and is acknowledged after all gets a second report, with `acked` True.
    """

    tag: int
    acked: bool
    sent_s: float


SymbolSource = Callable[[int, float], Symbol | None]
"""(path_id, when it would leave) -> the next symbol for that path, or None when there is nothing for it now."""


class PathConnection(ABC):
    """One end of a QUIC connection over one path.

    symbol_bytes: the most data a symbol can have. ready: the handshake is over. failure: why the connection ended, as
    one sentence; empty as long as it has not. congestion: the controller, of which `cwnd_bytes` and
    `pacing_rate_bps` are to be read. rtt: smoothed RTT, its variation and minimum. Sizes are bytes of UDP payload.
    source: asked for symbols by `datagrams_to_send`; set by the owner before the first call.
    pace_bps: bit/s of UDP payload at which packets leave; None leaves the pace to the congestion controller.
    """

    path_id: int
    symbol_bytes: int
    ready: bool
    failure: str
    congestion: CongestionControl
    rtt: RttEstimator
    source: SymbolSource | None
    pace_bps: float | None

    @abstractmethod
    def receive(self, octets: bytes, now: float) -> None:
        """Take the payload of a UDP datagram. What is malformed or fails a check is dropped and counted."""

    @abstractmethod
    def datagrams_to_send(self, now: float) -> list[Datagram]:
        """Return, and forget, the packets that may leave now or within the pacing horizon (`depart_at`)."""

    @abstractmethod
    def get_timer(self) -> float | None:
        """Return when `handle_timer` is due."""

    @abstractmethod
    def handle_timer(self, now: float) -> None:
        """Do what is due."""

    @abstractmethod
    def send_control(self, data: bytes) -> None:
        """Queue octets on the control stream; they leave with the next `datagrams_to_send`, before any symbol."""

    @abstractmethod
    def take_symbols(self) -> list[bytes]:
        """Return, and forget, the symbols that arrived, in the order of their arrival."""

    @abstractmethod
    def take_control(self) -> bytes:
        """Return, and forget, the octets that arrived on the peer's control stream, in order."""

    @abstractmethod
    def take_reports(self) -> list[Report]:
        """Return, and forget, what has become of symbols since the last call."""

    @property
    @abstractmethod
    def in_flight_bytes(self) -> int:
        """What has left (or is committed to leave) and is neither acknowledged nor taken for lost."""

    @property
    @abstractmethod
    def oldest_in_flight_s(self) -> float | None:
        """When the packet that has waited longest for its acknowledgement left; None when nothing is in flight."""

    @abstractmethod
    def awaited(self, after_s: float, until_s: float) -> tuple[int, float, float]:
        """Return how many packets in flight left after `after_s` and until `until_s`, and when the first and last did.

        (0, inf, -inf) when none did.
        """

    @property
    @abstractmethod
    def last_heard_s(self) -> float:
        """When the last genuine packet arrived on this path; -inf before the first."""

    @abstractmethod
    def declare_lost(self, now: float, *, congestion: bool = False) -> None:
        """Take all symbols in flight for lost at once: the owner has decided that no acknowledgement is to be expected.

        They are reported, and no longer count as in flight. The connection goes on probing the path on its own timer.
        congestion: the controller is to know, as of other losses; that a path has gone dark is no sign of it.
        """

    @abstractmethod
    def counters(self) -> Counters:
        """Return what has been counted so far."""
