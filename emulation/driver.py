"""The only loop that pumps a machine, whatever the clock and whatever carries the datagrams.

Everything that is going to happen stands in one heap, ordered by (time, priority, sequence): two events at the same
instant happen by kind, then in the order in which they were asked for, so a run is a function of its inputs alone.

What comes one after another anyway, as packets do across a wire, waits in a queue, and only its first stands in the
heap: the heap then grows with the number of links and machines, not with the packets on their way.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Any

from bicoastal.emulation.clock import Clock
from bicoastal.transports.base import Datagram, Machine
from bicoastal.transports.events import Event

ARRIVAL, DEPARTURE, TIMER, APPLICATION, SAMPLING = range(5)

Transmit = Callable[[Datagram, float], None]
Action = Callable[[Any, float], None]
EventQueue = deque["Entry"]
Entry = tuple[float, int, int, Action, Any, EventQueue | None]
SPIN_LIMIT = 10_000  # timers at one instant
EVENT_LIMIT = 100_000  # events at one instant
# Timers so close to one another that nobody would live to see the end of the run: (how many, within seconds). One for
# each full packet of a terabit per second is still within the first; the second is for those between which the machine
# neither heard nor said anything.
TIMER_LIMIT = 100_000, 1e-3
IDLE_TIMER_LIMIT = 10_000, 0.1


class SpinningError(Exception):
    """A machine wants to be asked again and again while hardly any time passes; the message names it."""


class _Allowance:
    """Counts what happens, and says when it happens too often: more than `most` times within `within_s`."""

    __slots__ = ("_count", "_most", "_since_s", "_within_s")

    def __init__(self, most: int, within_s: float) -> None:
        self._most = most
        self._within_s = within_s
        self._since_s = float("-inf")
        self._count = 0

    def exceeded(self, now: float) -> bool:
        """Count one more."""
        if now - self._since_s > self._within_s:
            self._since_s, self._count = now, 0
        self._count += 1
        return self._count > self._most


class Port:
    """A machine and its surroundings: where its datagrams go, who hears of its events, when its timer is due.

    routes: path_id -> what carries a datagram on. wire_bytes counts what left through here; carriers add to it.
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
        self._armed_at = float("inf")
        self._received_since_timer = False  # anything since the last timer
        self._events = _Allowance(EVENT_LIMIT, 0.0)
        self._instant_timers = _Allowance(SPIN_LIMIT, 0.0)
        self._timers = _Allowance(*TIMER_LIMIT)
        self._idle_timers = _Allowance(*IDLE_TIMER_LIMIT)

    def receive(self, datagram: Datagram, now: float) -> None:
        """Hand an arriving datagram to the machine, and do what follows from it."""
        self._received_since_timer = True
        self.machine.receive_datagram(datagram, now)
        self.pump(now)

    def pump(self, now: float) -> bool:
        """Ask the machine what it wants: datagrams out, events up, the timer set. Return whether it said anything.

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
            return  # an earlier timer has taken this one's place
        self._armed_at = float("inf")
        timer = self.machine.get_timer()
        if timer is None:
            return
        produced = False
        if timer > now:  # it was put off after it had been armed; most are
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
                f"{self.name} set its timer {most} times for nothing within {within_s:g} s, at {now:.9f} s"
            )
        self._received_since_timer = False


class Driver:
    """The heap and the loop. `at` may be called at any time, `run` until somebody calls `stop`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._heap: list[Entry] = []
        self._next = count().__next__
        self._stopped = False

    def at(self, at_s: float, priority: int, action: Action, argument: Any) -> None:
        """Let `action(argument, now)` happen at `at_s`."""
        heappush(self._heap, (at_s, priority, self._next(), action, argument, None))

    def at_in(self, queue: EventQueue, at_s: float, priority: int, action: Action, argument: Any) -> None:
        """Let `action(argument, now)` happen at `at_s`, as `at` does, behind what already waits in `queue`.

        Faster where times seldom decrease along a queue; when one does, it happens in its turn all the same. A queue is
        an empty `deque` to begin with, and has one priority for all that goes through it.
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
        """Leave `run` after the present event."""
        self._stopped = True

    def run(self) -> None:
        """Let things happen in their order until `stop`, or until nothing more is going to.

        Raises SpinningError, and whatever an action raises.
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
                now = clock.now()  # what was served while waiting has seen later times than the last event
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
