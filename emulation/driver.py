"""The only loop that pumps a machine, whatever the clock and whatever carries the datagrams.

Everything that is going to happen stands in one heap, ordered by (time, priority, sequence): two events at the same
instant happen by kind, then in the order in which they were asked for, so a run is a function of its inputs alone.

What comes one after another anyway, as packets do across a wire, waits in a lane, and only its first stands in the
heap: the heap then grows with the number of links and machines, not with the packets on their way.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import Any

from emulation.clock import Clock
from transports.base import Datagram, Machine
from transports.events import Event

ARRIVAL, DEPARTURE, TIMER, APPLICATION, SAMPLING = range(5)

Transmit = Callable[[Datagram, float], None]
Action = Callable[[Any, float], None]
Lane = deque["Entry"]
Entry = tuple[float, int, int, Action, Any, Lane | None]
SPIN_LIMIT = 10_000


class SpinningError(Exception):
    """A machine asked for its timer again and again at one instant; the message names it."""


class Port:
    """A machine and its surroundings: where its datagrams go, who hears of its events, when its timer is due.

    routes: path_id -> what carries a datagram on. wire_bytes counts what left through here; carriers add to it.
    """

    __slots__ = (
        "_armed_at",
        "_departing",
        "_driver",
        "_fires",
        "_fires_at",
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
        self._departing: defaultdict[int, Lane] = defaultdict(deque)  # per path: depart_at never decreases along one
        self._armed_at = float("inf")
        self._fires = 0
        self._fires_at = -1.0

    def receive(self, datagram: Datagram, now: float) -> None:
        """Hand an arriving datagram to the machine, and do what follows from it."""
        self.machine.receive_datagram(datagram, now)
        self.pump(now)

    def pump(self, now: float) -> None:
        """Ask the machine what it wants: datagrams out, events up, the timer set."""
        machine = self.machine
        for datagram in machine.datagrams_to_send(now):
            if datagram.depart_at > now:
                lane = self._departing[datagram.path_id]
                self._driver.at_in(lane, datagram.depart_at, DEPARTURE, self._release, datagram)
            else:
                self.routes[datagram.path_id](datagram, now)
        while (event := machine.next_event()) is not None:
            self.on_event(self, event, now)
        timer = machine.get_timer()
        if timer is not None and timer < self._armed_at:
            self._armed_at = timer
            self._driver.at(timer, TIMER, self._fire, timer)

    def _release(self, datagram: Datagram, now: float) -> None:
        self.routes[datagram.path_id](datagram, now)

    def _fire(self, armed_at: float, now: float) -> None:
        if armed_at != self._armed_at:
            return  # an earlier timer has taken this one's place
        self._armed_at = float("inf")
        timer = self.machine.get_timer()
        if timer is None:
            return
        if timer > now:  # it was put off after it had been armed; most are
            self._armed_at = timer
            self._driver.at(timer, TIMER, self._fire, timer)
            return
        if now > self._fires_at:
            self._fires_at, self._fires = now, 0
        self._fires += 1
        if self._fires > SPIN_LIMIT:
            raise SpinningError(f"{self.name} set its timer {SPIN_LIMIT} times without letting time pass, at {now} s")
        self.machine.handle_timer(now)
        self.pump(now)


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

    def at_in(self, lane: Lane, at_s: float, priority: int, action: Action, argument: Any) -> None:
        """Let `action(argument, now)` happen at `at_s`, as `at` does, behind what already waits in `lane`.

        Faster where times seldom decrease along a lane; when one does, it happens in its turn all the same. A lane is
        an empty `deque` to begin with, and has one priority for all that goes through it.
        """
        entry = (at_s, priority, self._next(), action, argument, lane)
        if not lane:
            lane.append(entry)
            heappush(self._heap, entry)
        elif at_s >= lane[-1][0]:
            lane.append(entry)
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
        now = clock.now()
        while heap and not self._stopped:
            at_s = heap[0][0]
            if at_s > now:
                if not clock.wait_until(at_s):
                    continue
                now = clock.now()
            _, _, _, action, argument, lane = heap[0]
            if lane is None:
                heappop(heap)
            else:
                lane.popleft()
                if lane:
                    heapreplace(heap, lane[0])
                else:
                    heappop(heap)
            action(argument, now)
