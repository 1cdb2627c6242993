"""The interface of the paced senders, and what they share: the stream, its pieces and the counters."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from bicoastal.transports.base import Datagram, PathView
from bicoastal.transports.events import Buffer
from bicoastal.transports.paced.paced_path import MissingPacket, PacedPath, Piece, SentPacket
from bicoastal.transports.paced.packets import DATA_OVERHEAD_BYTES, LAST, Data, Report
from bicoastal.transports.paths.health import Belief
from bicoastal.transports.paths.path_set import PathSet
from bicoastal.transports.stream import OutgoingStream
from bicoastal.wan.checks import FieldError

_new = tuple.__new__

EXACT_PER_PATH = 12  # the last packets of a burst, per path, are counted exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class PathChange:
    """A path has stopped answering, or answers again."""

    path_id: int
    up: bool
    detail: str


class PacedSender(ABC):
    """Paced transmission of a stream over one or more paths.

    give_up_s: the sender fails if data is in flight and nothing has arrived for this time. failure: the reason of a
    failure, one sentence, else empty. changes: changes of the paths, for the endpoint to report.
    Raises ValueError when a path's MTU leaves no room for data.
    """

    def __init__(self, views: Sequence[PathView], *, give_up_s: float, ack_delay_s: float = 0.0) -> None:
        self.paths = [PacedPath(view, ack_delay_s=ack_delay_s) for view in views]
        self.path_set = PathSet([path.health for path in self.paths])
        self.room_bytes = min(view.mtu_bytes for view in views) - DATA_OVERHEAD_BYTES
        if self.room_bytes < 1:
            raise FieldError("mtu_bytes", f"{min(view.mtu_bytes for view in views)} leaves no room for data")
        self.carriers: list[PacedPath] = []  # the paths that carry data: those that are up, else the suspects
        self.stream = OutgoingStream()
        self.token = 0
        self.failure = ""
        self.changes: deque[PathChange] = deque()
        self.packets = self.repairs = self.probes = self.timeouts = self.spurious = 0
        self.in_flight_bytes = 0
        self._give_up_s = give_up_s
        self._waiting_since: float | None = None  # since when an arrival is awaited

    @abstractmethod
    def on_report(self, report: Report, now: float) -> None:
        """Process a report of the far end on what has arrived."""

    @abstractmethod
    def fill(self, now: float, out: list[Datagram]) -> None:
        """Append to `out` the packets that are due."""

    @abstractmethod
    def timer(self) -> float:
        """Return when the next action is due, or infinity."""

    @abstractmethod
    def on_timer(self, now: float) -> None:
        """Handle the expired timers, except for sending."""

    def begin(self, now: float) -> None:
        """Start sending: the handshake is complete."""
        if self.stream.end:
            self.offer(now)

    def offer(self, now: float) -> None:
        """Note that the stream has grown."""
        if self._waiting_since is None:
            self._waiting_since = now

    @property
    def idle(self) -> bool:
        """Whether all octets of the stream are known to have arrived."""
        return self.stream.released == self.stream.end

    def set_rate(self, path_id: int, rate_bps: float, overhead_bytes: int) -> None:
        """Set a path's rate from its next packet on, with `overhead_bytes` counted on top of each IP packet."""
        self.paths[path_id].set_rate(rate_bps, overhead_bytes)
        self._reshare()

    def path_answers(self, path_id: int, now: float) -> None:
        """Note that a packet of the far end has arrived on the path: the path can be used."""
        path = self.paths[path_id]
        path.late_at = None
        if path_id in self.path_set.unsettled:
            self.path_set.advance(path_id, now, ready=True, confirmed=True)
        if self.path_set.on_heard(path_id, now) is None:
            return
        if path.told_down:
            path.told_down = False
            self.changes.append(PathChange(path_id=path_id, up=True, detail="it answers again"))
        self._reshare()

    def _reshare(self) -> None:
        up = [path for path in self.paths if path.health.belief is Belief.UP]
        self.carriers = up or [path for path in self.paths if path.health.belief is Belief.SUSPECT]
        total_bps = sum(path.rate_bps for path in self.carriers)
        for path in self.carriers:
            path.share = path.rate_bps / total_bps if total_bps else 0.0

    def _progress(self, now: float) -> None:
        """Note that new data has arrived at the far end."""
        self._waiting_since = None if self.idle else now

    def _check_patience(self, now: float) -> None:
        if self._waiting_since is not None and now - self._waiting_since > self._give_up_s:
            self.failure = f"nothing has arrived at the far end for {self._give_up_s:g} s"


class PieceSender(PacedSender):
    """The base of the selective-repeat senders: a piece is sent, each time with a new packet number, until it arrives.

    All pieces have one size, which fits the path with the smallest MTU. So a repair can use any path.
    """

    def __init__(self, views: Sequence[PathView], *, give_up_s: float, ack_delay_s: float = 0.0) -> None:
        super().__init__(views, give_up_s=give_up_s, ack_delay_s=ack_delay_s)
        self._cursor = 0  # the stream below this offset has been cut into pieces
        self._pieces: deque[Piece] = deque()  # in the order of the stream; the first has not arrived
        self._again: deque[Piece] = deque()  # lost, to be sent again

    def _settle(self, arrived: Sequence[SentPacket], now: float, *, news: bool = False) -> None:
        """Note arrivals. news: whether the report has already shown a new arrival."""
        for piece, _ in arrived:
            if piece is None:
                continue
            piece.flying -= 1
            self.in_flight_bytes -= piece.stop - piece.start
            if not piece.done:
                piece.done = news = True
        if not news:
            return
        pieces, released = self._pieces, -1
        while pieces and pieces[0].done:
            released = pieces.popleft().stop
        if released >= 0:
            self.stream.release(released)
        self._progress(now)

    def _forgive(self, mistaken: Sequence[MissingPacket]) -> None:
        """Note that packets which counted as lost have arrived. `_lose` has already updated the counts."""
        self.spurious += len(mistaken)
        for late in mistaken:
            if late.piece is not None:
                late.piece.done = True

    def _lose(self, piece: Piece | None) -> None:
        """Note a lost transmission. Its piece is sent again, unless another transmission of it is in flight."""
        if piece is None:
            return
        piece.flying -= 1
        self.in_flight_bytes -= piece.stop - piece.start
        if not piece.done and not piece.flying:
            self._again.append(piece)

    def _cut(self) -> Piece:
        """Return the next new piece of the stream."""
        start = self._cursor
        self._cursor = stop = min(start + self.room_bytes, self.stream.end)
        piece = Piece(start, stop)
        self._pieces.append(piece)
        return piece

    def _left_on(self, path: PacedPath, at: float) -> int:
        """Return how many more new packets of the burst this path will carry after the present one.

        at: when the present packet departs; no path can send one earlier. The number is exact near the end of the
        burst. Before that it is the path's share of the packets that are left.
        """
        left = -(-(self.stream.end - self._cursor) // self.room_bytes)
        carriers = self.carriers
        if len(carriers) == 1:
            return left
        if left > EXACT_PER_PATH * len(carriers):
            return int(left * path.share)
        size = self.room_bytes + DATA_OVERHEAD_BYTES
        gaps = [(size + other.overhead_bytes) * other.s_per_byte for other in carriers]
        times = [max(other.free_at, at) for other in carriers]
        mine = carriers.index(path)
        times[mine] = at + gaps[mine]
        count = 0
        for _ in range(left):
            first = min(times)
            index = times.index(first)
            times[index] = first + gaps[index]
            count += index == mine
        return count

    def _send(self, path: PacedPath, piece: Piece, at: float, left: int | None, out: list[Datagram]) -> None:
        """Append a transmission of a piece that departs at `at`."""
        start, size = piece.start, piece.stop - piece.start
        if piece.tries:
            self.repairs += 1
        piece.tries += 1
        piece.flying += 1
        piece.path_id = path.path_id
        self.in_flight_bytes += size
        flags = LAST if self._cursor == self.stream.end and not self._again else 0
        self._emit(path, piece, self.stream.read(start, size), flags, at, left, out)
        path.departed(at, size)

    def _emit(  # noqa: PLR0917 (keywords cost time, and this runs once per packet)
        self, path: PacedPath, piece: Piece | None, payload: Buffer, flags: int, at: float, left: int | None,
        out: list[Datagram],
    ) -> None:  # fmt: skip
        number = path.next_number
        path.next_number = number + 1
        outstanding = path.outstanding
        if not outstanding:
            path.late_at = None
        outstanding[number] = (piece, at)
        offset = 0 if piece is None else piece.start
        # tuple.__new__: NamedTuple's own constructors are Python functions, half as fast
        frame = _new(Data, (self.token, flags, number, number - path.floor(), offset, payload))
        out.append(_new(Datagram, (path.path_id, frame, DATA_OVERHEAD_BYTES + len(payload), at, 0, left)))
        self.packets += 1
