"""The only loop that calls machines, for every clock and for every carrier of datagrams.

All events of the future are in one heap, ordered by (time, priority, sequence). Two events at the same instant happen
in the order of their kinds, then in the order in which they were scheduled. So a run depends on its inputs alone.

Events that follow one another, such as packets on a link, wait in an event queue, and only the first of a queue is in
the heap. So the heap grows with the number of links and machines, and not with the number of packets on their way.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Any

from bicoastal.emulation.clock import Clock
from bicoastal.transports.base import Datagram, Machine
from bicoastal.transports.events import Event
from bicoastal.wan.units import INFINITY

ARRIVAL, DEPARTURE, TIMER, APPLICATION, SAMPLING = range(5)

Transmit = Callable[[Datagram, float], None]
Action = Callable[[Any, float], None]
EventQueue = deque["Entry"]
Entry = tuple[float, int, int, Action, Any, EventQueue | None]
SPIN_LIMIT = 10_000  # timers at one instant
EVENT_LIMIT = 100_000  # events at one instant
# So many timers within so many seconds that the run would not end in any useful time: (how many, within seconds). A
# timer for each full packet at 1 Tbit/s is still below the first limit. The second limit counts only timers between
# which the machine received and sent nothing.
TIMER_LIMIT = 100_000, 1e-3
IDLE_TIMER_LIMIT = 10_000, 0.1


class SpinningError(Exception):
    """A machine asks for ever more calls while hardly any time passes; the message names the machine."""


class _Allowance:
    """Counts events, and tells when there are more than `most` of them within `within_s` seconds."""

    __slots__ = ("_count", "_most", "_since_s", "_within_s")

    def __init__(self, most: int, within_s: float) -> None:
        self._most = most
        self._within_s = within_s
        self._since_s = -INFINITY
        self._count = 0

    def exceeded(self, now: float) -> bool:
        """Count one more event; return whether there are too many."""
        if now - self._since_s > self._within_s:
            self._since_s, self._count = now, 0
        self._count += 1
        return self._count > self._most


class Port:
    """Connects a machine with the run: its outgoing datagrams, its events and its timer.

    routes: for each path_id, the function that transmits a datagram. wire_bytes: bytes put on the wire here; the
    routes add to it.
    """

    __slots__ = (
        "_armed_at",
        "_departing",
        "_driver",
        "_events",
        "_idle_timers",
        "_instant_timers",
        "_received_since_timer",
        "_timers",
        "machine",
        "name",
        "on_event",
        "routes",
        "wire_bytes",
    )

    def __init__(
        self, driver: "Driver", name: str, machine: Machine, on_event: Callable[["Port", Event, float], None]
    ) -> None:
        self._driver = driver
        self.name = name
        self.machine = machine
        self.on_event = on_event
        self.routes: Mapping[int, Transmit] = {}
        self.wire_bytes = 0
        self._departing: defaultdict[int, EventQueue] = defaultdict(
            deque
        )  # per path: depart_at never decreases along one
        self._armed_at = INFINITY
        self._received_since_timer = False  # anything since the last timer
        self._events = _Allowance(EVENT_LIMIT, 0.0)
        self._instant_timers = _Allowance(SPIN_LIMIT, 0.0)
        self._timers = _Allowance(*TIMER_LIMIT)
        self._idle_timers = _Allowance(*IDLE_TIMER_LIMIT)

    def receive(self, datagram: Datagram, now: float) -> None:
        """Deliver a datagram to the machine, then handle what the machine wants to do."""
        self._received_since_timer = True
        self.machine.receive_datagram(datagram, now)
        self.pump(now)

    def pump(self, now: float) -> bool:
        """Send the machine's datagrams, report its events, set its timer. Return whether it had a datagram or an event.

        Raises SpinningError when its events do not end.
        """
        machine = self.machine
        datagrams = machine.datagrams_to_send(now)
        produced = bool(datagrams)
        for datagram in datagrams:
            if datagram.depart_at > now:
                queue = self._departing[datagram.path_id]
                self._driver.at_in(queue, datagram.depart_at, DEPARTURE, self._release, datagram)
            else:
                self.routes[datagram.path_id](datagram, now)
        while (event := machine.next_event()) is not None:
            produced = True
            if self._events.exceeded(now):
                raise SpinningError(f"{self.name} had {EVENT_LIMIT} events without letting time pass, at {now:.9f} s")
            self.on_event(self, event, now)
        timer = machine.get_timer()
        if timer is not None and timer < self._armed_at:
            self._armed_at = timer
            self._driver.at(timer, TIMER, self._fire, timer)
        return produced

    def _release(self, datagram: Datagram, now: float) -> None:
        self.routes[datagram.path_id](datagram, now)

    def _fire(self, armed_at: float, now: float) -> None:
        if armed_at != self._armed_at:
            return  # an earlier timer has replaced this one
        self._armed_at = INFINITY
        timer = self.machine.get_timer()
        if timer is None:
            return
        produced = False
        if timer > now:  # the machine moved it to a later time after it was set; most timers are moved
            self._armed_at = timer
            self._driver.at(timer, TIMER, self._fire, timer)
        else:
            self.machine.handle_timer(now)
            produced = self.pump(now)
        if self._instant_timers.exceeded(now):
            raise SpinningError(
                f"{self.name} set its timer {SPIN_LIMIT} times without letting time pass, at {now:.9f} s"
            )
        if self._timers.exceeded(now):
            most, within_s = TIMER_LIMIT
            raise SpinningError(f"{self.name} set its timer {most} times within {within_s:g} s, at {now:.9f} s")
        if not produced and not self._received_since_timer and self._idle_timers.exceeded(now):
            most, within_s = IDLE_TIMER_LIMIT
            raise SpinningError(
                f"{self.name} set its timer {most} times without effect within {within_s:g} s, at {now:.9f} s"
            )
        self._received_since_timer = False


class Driver:
    """The heap of future events and the loop that executes them, until `stop` is called."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._heap: list[Entry] = []
        self._next = count().__next__
        self._stopped = False

    def at(self, at_s: float, priority: int, action: Action, argument: Any) -> None:
        """Schedule `action(argument, now)` for `at_s`."""
        heappush(self._heap, (at_s, priority, self._next(), action, argument, None))

    def at_in(self, queue: EventQueue, at_s: float, priority: int, action: Action, argument: Any) -> None:
        """Schedule `action(argument, now)` for `at_s`, behind the events that already wait in `queue`.

        This is faster than `at` when times seldom decrease along a queue. A time that does decrease is still executed
        in its right order. A queue begins as an empty `deque`, and all its events have the same priority.
        """
        entry = (at_s, priority, self._next(), action, argument, queue)
        if not queue:
            queue.append(entry)
            heappush(self._heap, entry)
        elif at_s >= queue[-1][0]:
            queue.append(entry)
        else:
            heappush(self._heap, (*entry[:5], None))

    def stop(self) -> None:
        """Make `run` return after the present event."""
        self._stopped = True

    def run(self) -> None:
        """Execute events in their order until `stop` is called or no event is left.

        Raises SpinningError, and the exceptions of actions.
        """
        heap, clock = self._heap, self.clock
        passes_by_itself = clock.passes_by_itself
        now = clock.now()
        while heap and not self._stopped:
            at_s = heap[0][0]
            if at_s > now:
                if not clock.wait_until(at_s):
                    continue
                now = clock.now()
            elif passes_by_itself:
                now = clock.now()  # descriptors served while waiting have already seen later times than the last event
            _, _, _, action, argument, queue = heap[0]
            if queue is None:
                heappop(heap)
            else:
                queue.popleft()
                if queue:
                    heapreplace(heap, queue[0])
                else:
                    heappop(heap)
            action(argument, now)
