"""The model of one direction of a link: it takes a packet and returns its arrivals.

The times of a packet are calculated when it is submitted. Queue and transmitter are one number, the time at which the
transmitter becomes idle; the backlog is the integral of the rate from now until then. No event is needed in between, so
a packet takes little time. Two things can still happen to a packet afterwards:

- An outage. `submit` drops packets during an outage, and the queue is empty after it. `survives`, called at the arrival
  of a packet, tells whether an outage has lost it on its way. So an outage that was known at submission and one that is
  announced later have the same effect.
- A capacity step that becomes known only when an iteration begins. Packets accepted before `begin_iteration` keep their
  times, and the step follows them. Steps are exact when `begin_iteration` is called as soon as the beginning is known,
  since the gap before it is longer than any queue.
"""

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from bicoastal.wan.loss import Bernoulli, Packet
from bicoastal.wan.randomness import Rng
from bicoastal.wan.schedule import CapacityTrace, Outage, RateStep
from bicoastal.wan.topology import LinkSpec
from bicoastal.wan.units import INFINITY


class Arrival(NamedTuple):
    """The arrival of a packet, or of a copy of it, at the far end of the link.

    at_s: when its last bit arrives. corrupt: the place of its flipped bit, as a fraction in [0, 1) of the packet; None
    for an intact packet.
    """

    at_s: float
    corrupt: float | None


_STEPS_AT_ONCE = 64  # of a capacity trace
_NOTHING: tuple[Arrival, ...] = ()
_new = tuple.__new__  # the constructor of NamedTuple is a Python function, which takes twice the time


class _Change(NamedTuple):
    """A future change: a new rate (bytes/s), or an outage that ends at `dark_until_s`."""

    at_s: float
    order: int
    bytes_per_s: float
    dark_until_s: float | None


class Link:
    """One direction of a `LinkSpec`: drop-tail queue, transmitter, wire.

    back: the direction from `b` to `a`. stream: gives an independent random stream for a name ("loss", "jitter",
    "reorder", "duplicate", "corrupt"); the draws of one do not change another.

    `now` must not decrease from one call to the next; this is not checked, to save time.

    Counters: packets (submitted), bytes (accepted, framing included), lost (on the wire, by the loss process),
    dropped_queue, dropped_outage, duplicated, corrupted, reordered; always
    packets + duplicated = delivered + lost + dropped_queue + dropped_outage.
    """

    __slots__ = (
        "_anchored",
        "_busy_until",
        "_bytes_per_s",
        "_corrupt",
        "_corrupt_rng",
        "_dark_until",
        "_delay_s",
        "_duplicate",
        "_framing_bytes",
        "_horizon",
        "_jitter",
        "_jitter_s",
        "_last_arrival",
        "_limit_bytes",
        "_lost",
        "_order",
        "_outages",
        "_pending",
        "_plain",
        "_reorder",
        "_reorder_delay_s",
        "_s_per_byte",
        "_trace",
        "_trace_until",
        "bytes",
        "corrupted",
        "dropped_outage",
        "dropped_queue",
        "duplicated",
        "lost",
        "packets",
        "reordered",
        "spec",
    )

    def __init__(self, spec: LinkSpec, *, back: bool, stream: Callable[[str], Rng]) -> None:
        self.spec = spec
        self.packets = self.bytes = self.lost = self.dropped_queue = self.dropped_outage = 0
        self.duplicated = self.corrupted = self.reordered = 0

        self._framing_bytes = spec.framing_bytes
        # Sizes are whole bytes: half of one keeps a rounding error from refusing the packet that just fits.
        self._limit_bytes = spec.queue_limit_bytes + 0.5
        self._delay_s = spec.delay_s
        self._busy_until = 0.0
        self._set_rate(spec.rate_bps / 8)

        loss = spec.loss_of(back=back)
        self._lost = None if loss.mean_loss == 0.0 else loss.start(stream("loss")).lost
        self._jitter_s = spec.jitter_s
        self._jitter = stream("jitter").random if spec.jitter_s else None
        self._last_arrival = 0.0
        self._reorder = _chance(spec.reorder, stream, "reorder")
        self._reorder_delay_s = spec.reorder_delay_s
        self._duplicate = _chance(spec.duplicate, stream, "duplicate")
        self._corrupt_rng = stream("corrupt") if spec.corrupt else None
        self._corrupt = Bernoulli(probability=spec.corrupt).start(self._corrupt_rng) if self._corrupt_rng else None
        self._plain = not (self._jitter or self._reorder or self._duplicate or self._corrupt)

        self._pending: list[_Change] = []  # sorted by time
        self._order = 0
        self._outages: list[tuple[float, float]] = []
        self._dark_until = 0.0
        self._horizon = INFINITY  # until this time the rate is constant and there is no outage
        self._trace: Iterator[tuple[float, float]] | None = None
        self._trace_until = INFINITY  # until this time the steps of a capacity trace are pending
        self._anchored: dict[int, list[RateStep | Outage]] = {}
        for event in spec.events:
            if isinstance(event, CapacityTrace):
                self._trace = event.changes()
                self._read_trace()
            elif event.iteration is None:
                self._announce(event, event.at_s)
            else:
                self._anchored.setdefault(event.iteration, []).append(event)

    @property
    def delivered(self) -> int:
        """Packets and copies that have arrived or will arrive, as far as is known now."""
        return self.packets + self.duplicated - self.lost - self.dropped_queue - self.dropped_outage

    def submit(self, packet: Packet, now: float) -> Sequence[Arrival]:
        """Offer a packet at `now` and return its arrivals: none when it is lost or dropped, two when duplicated.

        An idle transmitter accepts any packet; a busy one drops it when it does not fit behind the backlog.
        """
        self.packets += 1
        size = packet.wire_bytes + self._framing_bytes
        busy_until = self._busy_until
        if busy_until > now:
            finish = busy_until + size * self._s_per_byte
            if finish > self._horizon:
                return self._submit_across(packet, size, now)
            if (busy_until - now) * self._bytes_per_s + size > self._limit_bytes:
                self.dropped_queue += 1
                return _NOTHING
        else:
            finish = now + size * self._s_per_byte
            if finish > self._horizon:
                return self._submit_across(packet, size, now)
        self._busy_until = finish
        self.bytes += size
        if self._plain:
            if self._lost is not None and self._lost(packet, now):
                self.lost += 1
                return _NOTHING
            return (_new(Arrival, (finish + self._delay_s, None)),)
        return self._impair(packet, now, finish)

    def survives(self, submitted_s: float, arrives_s: float) -> bool:
        """Return, at its arrival, whether a packet met no outage on the link; a lost one is counted.

        Call it once for each `Arrival`, unless the link's specification has no outages.
        """
        for begins, ends in self._outages:
            if arrives_s >= begins and submitted_s < ends:
                self.dropped_outage += 1
                return False
        return True

    def backlog_bytes(self, now: float) -> float:
        """Return the bytes that wait, with the rest of the packet in transmission and framing."""
        if self._busy_until > self._horizon or now > self._horizon:
            self._advance(now)
        return self._bytes_until_idle(now)

    def begin_iteration(self, iteration: int, begins_s: float) -> None:
        """Announce that `iteration` of the first job begins at `begins_s`, now or later: its events get their times.

        See the module's text for the effect of a step on packets that are already queued.
        """
        for event in self._anchored.pop(iteration, ()):
            self._announce(event, begins_s + event.at_s)

    def _read_trace(self) -> None:
        """Make some further steps of the capacity trace pending."""
        self._trace_until = INFINITY
        if self._trace is not None:
            for at_s, rate_bps in islice(self._trace, _STEPS_AT_ONCE):
                self._order += 1
                insort(self._pending, _Change(at_s, self._order, rate_bps / 8, None))
                self._trace_until = at_s
        if self._pending and self._horizon > self._pending[0].at_s:
            self._horizon = self._pending[0].at_s

    def _announce(self, event: RateStep | Outage, at_s: float) -> None:
        self._order += 1
        if isinstance(event, RateStep):
            change = _Change(max(at_s, self._busy_until), self._order, event.rate_bps / 8, None)
        else:
            change = _Change(at_s, self._order, 0.0, at_s + event.duration_s)
            self._outages.append((at_s, at_s + event.duration_s))
        insort(self._pending, change)
        self._horizon = min(self._horizon, change.at_s)

    def _set_rate(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._s_per_byte = 1.0 / bytes_per_s

    def _advance(self, now: float) -> None:
        """Apply the changes up to `now`."""
        pending = self._pending
        while pending and pending[0].at_s <= now:
            if self._trace_until <= now:
                self._read_trace()
            change = pending.pop(0)
            if change.dark_until_s is None:
                self._set_rate(change.bytes_per_s)
            else:
                self._dark_until = max(self._dark_until, change.dark_until_s)
                self._busy_until = min(self._busy_until, change.at_s)  # the queue is flushed
                self._last_arrival = change.at_s  # and no packet is left on the wire that could be overtaken
        if now < self._dark_until:
            self._horizon = -INFINITY
        else:
            self._horizon = pending[0].at_s if pending else INFINITY

    def _bytes_until_idle(self, now: float) -> float:
        """Integrate the rate from `now` until the transmitter becomes idle."""
        total, since, rate = 0.0, now, self._bytes_per_s
        until = self._busy_until
        for change in self._pending:
            if change.at_s >= until:
                break
            if change.dark_until_s is None:
                if change.at_s > since:
                    total += (change.at_s - since) * rate
                    since = change.at_s
                rate = change.bytes_per_s
        return total + max(0.0, until - since) * rate

    def _finish(self, start: float, size: float) -> float:
        """Return when a transmission of `size` bytes that starts at `start` ends, at the rates to come."""
        finish = self._finish_by_pending(start, size)
        while finish > self._trace_until:
            self._read_trace()
            finish = self._finish_by_pending(start, size)
        return finish

    def _finish_by_pending(self, start: float, size: float) -> float:
        since, rate = start, self._bytes_per_s
        for change in self._pending:
            if change.dark_until_s is not None:
                continue  # the packets in it are lost, so their times do not matter
            if change.at_s > since:
                if (change.at_s - since) * rate >= size:
                    break
                size -= (change.at_s - since) * rate
                since = change.at_s
            rate = change.bytes_per_s
        return since + size / rate

    def _submit_across(self, packet: Packet, size: int, now: float) -> Sequence[Arrival]:
        """Submit a packet near a capacity step or an outage."""
        self._advance(now)
        if now < self._dark_until:
            self.dropped_outage += 1
            return _NOTHING
        start = now
        if self._busy_until > now:
            start = self._busy_until
            if self._bytes_until_idle(now) + size > self._limit_bytes:
                self.dropped_queue += 1
                return _NOTHING
        self._busy_until = finish = self._finish(start, size)
        self.bytes += size
        return self._impair(packet, now, finish)

    def _impair(self, packet: Packet, now: float, finish: float) -> Sequence[Arrival]:
        """Apply all impairments to a transmitted packet. A lost packet makes the same draws as any other."""
        at_s = finish + self._delay_s
        if self._jitter is not None:
            at_s += self._jitter_s * self._jitter()
        held_back = self._reorder is not None and self._reorder(packet, now)
        if held_back:
            at_s += self._reorder_delay_s
        twice = self._duplicate is not None and self._duplicate(packet, now)
        corrupt: float | None = None
        if self._corrupt_rng is not None and self._corrupt is not None and self._corrupt.lost(packet, now):
            corrupt = self._corrupt_rng.random()
        if self._lost is not None and self._lost(packet, now):
            self.lost += 1
            return _NOTHING
        if held_back:
            self.reordered += 1
        else:
            at_s = self._last_arrival = max(at_s, self._last_arrival)
        if corrupt is not None:
            self.corrupted += 1
        arrival = Arrival(at_s, corrupt)
        if twice:
            self.duplicated += 1
            return (arrival, arrival)
        return (arrival,)


def _chance(probability: float, stream: Callable[[str], Rng], name: str) -> Callable[[Packet, float], bool] | None:
    """Return a process that draws once for each True, or None when it would never return True."""
    return Bernoulli(probability=probability).start(stream(name)).lost if probability else None
