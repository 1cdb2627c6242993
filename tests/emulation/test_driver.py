"""The loop: order at one instant, lazy timers, departures, and machines that never let time pass."""

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.emulation.clock import VirtualClock
from bicoastal.emulation.driver import (
    APPLICATION,
    ARRIVAL,
    DEPARTURE,
    SAMPLING,
    TIMER,
    Driver,
    EventQueue,
    Port,
    SpinningError,
)
from bicoastal.transports.base import Datagram, Machine
from bicoastal.transports.events import Event, Notice


class Scripted(Machine):
    """A machine whose next timer and datagrams the test sets."""

    def __init__(self) -> None:
        self.timer: float | None = None
        self.outbox: list[Datagram] = []
        self.fired: list[float] = []
        self.received: list[tuple[Datagram, float]] = []
        self.events: deque[Event] = deque()
        self.after_timer: list[float | None] = []

    def receive_datagram(self, datagram: Datagram, now: float) -> None:
        self.received.append((datagram, now))

    def datagrams_to_send(self, now: float) -> list[Datagram]:
        out, self.outbox = self.outbox, []
        return out

    def get_timer(self) -> float | None:
        return self.timer

    def handle_timer(self, now: float) -> None:
        self.fired.append(now)
        self.timer = self.after_timer.pop(0) if self.after_timer else None

    def next_event(self) -> Event | None:
        return self.events.popleft() if self.events else None


def make() -> tuple[Driver, Scripted, Port, list[tuple[Event, float]]]:
    driver, machine = Driver(VirtualClock()), Scripted()
    heard: list[tuple[Event, float]] = []
    port = Port(driver, "machine", machine, lambda port, event, now: heard.append((event, now)))
    return driver, machine, port, heard


def test_events_at_one_instant_happen_by_kind_then_in_the_order_asked_for() -> None:
    driver = Driver(VirtualClock())
    happened: list[str] = []
    for priority, name in (
        (SAMPLING, "sample"),
        (TIMER, "timer"),
        (ARRIVAL, "a"),
        (APPLICATION, "app"),
        (ARRIVAL, "b"),
    ):
        driver.at(1.0, priority, lambda what, now: happened.append(what), name)
    driver.at(0.5, SAMPLING, lambda what, now: happened.append(what), "earlier")
    driver.run()
    assert happened == ["earlier", "a", "b", "timer", "app", "sample"]


def test_stop_leaves_the_rest_undone_until_run_is_called_again() -> None:
    driver = Driver(VirtualClock())
    happened: list[float] = []
    driver.at(1.0, ARRIVAL, lambda _, now: (happened.append(now), driver.stop()), None)
    driver.at(2.0, ARRIVAL, lambda _, now: happened.append(now), None)
    driver.run()
    assert happened == [1.0]


def test_a_datagram_is_carried_when_its_departure_comes_and_not_before() -> None:
    driver, machine, port, _ = make()
    carried: list[tuple[int, float]] = []
    port.routes = {0: lambda datagram, now: carried.append((datagram.wire_bytes, now))}
    machine.outbox = [Datagram(0, b"", 1, 0.0), Datagram(0, b"", 2, 0.25), Datagram(0, b"", 3, 0.5)]
    driver.at(0.0, APPLICATION, lambda _, now: port.pump(now), None)
    driver.run()
    assert carried == [(1, 0.0), (2, 0.25), (3, 0.5)]


def test_a_timer_put_off_fires_once_at_its_new_time_and_one_brought_forward_at_once() -> None:
    driver, machine, port, _ = make()
    machine.timer = 1.0
    driver.at(0.0, APPLICATION, lambda _, now: port.pump(now), None)

    def put_off(_: object, now: float) -> None:
        machine.timer = 3.0
        port.pump(now)

    def bring_forward(_: object, now: float) -> None:
        machine.timer = 2.25
        port.pump(now)

    driver.at(0.5, APPLICATION, put_off, None)
    driver.at(2.0, APPLICATION, bring_forward, None)
    driver.run()
    assert machine.fired == [2.25]


def test_events_of_a_machine_reach_its_listener_with_their_time() -> None:
    driver, machine, port, heard = make()
    machine.events.extend([Notice(kind="one"), Notice(kind="two")])
    driver.at(1.5, ARRIVAL, port.receive, Datagram(0, b"x", 21, 1.0))
    driver.run()
    assert heard == [(Notice(kind="one"), 1.5), (Notice(kind="two"), 1.5)]
    assert machine.received[0][1] == 1.5


def test_a_machine_that_never_lets_time_pass_is_named_instead_of_spinning_for_ever() -> None:
    driver, machine, port, _ = make()
    machine.timer = 1.0
    machine.after_timer = [1.0] * 1_000_000
    driver.at(0.0, APPLICATION, lambda _, now: port.pump(now), None)
    with pytest.raises(SpinningError, match="machine set its timer"):
        driver.run()


class Creeping(Scripted):
    """A machine whose timer is always `step_s` later; it says something at every `says_every`-th, or never at 0."""

    def __init__(self, step_s: float, says_every: int = 0, *, when_asked: bool = False) -> None:
        super().__init__()
        self.timer = 0.0
        self.step_s = step_s
        self.says_every = says_every
        self.when_asked = when_asked
        self.handled = 0

    def get_timer(self) -> float | None:
        if self.when_asked:
            self.timer += self.step_s
        return self.timer

    def handle_timer(self, now: float) -> None:
        self.handled += 1
        self.timer = now + self.step_s
        if self.says_every and self.handled % self.says_every == 0:
            self.events.append(Notice(kind="still here"))


def creep(machine: Creeping, until_s: float, *, hears_every_s: float = 0.0) -> None:
    driver = Driver(VirtualClock())
    port = Port(driver, "creeper", machine, lambda port, event, now: None)
    driver.at(0.0, APPLICATION, lambda _, now: port.pump(now), None)
    driver.at(until_s, APPLICATION, lambda _, now: driver.stop(), None)
    if hears_every_s:
        for number in range(round(until_s / hears_every_s)):
            driver.at(number * hears_every_s, ARRIVAL, port.receive, Datagram(0, b"", 28, 0.0))
    driver.run()


@pytest.mark.parametrize("says_every", [0, 1, 2])
@pytest.mark.parametrize("when_asked", [False, True])
def test_a_timer_that_creeps_by_nanoseconds_is_named_instead_of_running_for_ever(
    says_every: int, when_asked: bool
) -> None:
    with pytest.raises(
        SpinningError, match=r"^creeper set its timer \d+ times( without effect)? within 0\.\d+ s, at 0\.000"
    ):
        creep(Creeping(1e-9, says_every, when_asked=when_asked), 300.0)


def test_timers_for_nothing_are_stopped_long_before_those_that_do_something() -> None:
    with pytest.raises(SpinningError, match=r"^creeper set its timer 10000 times without effect within 0\.1 s"):
        creep(Creeping(1e-6), 300.0)
    busy = Creeping(1e-6, says_every=1)
    creep(busy, 0.05)
    assert busy.handled == pytest.approx(50_000, rel=0.01)


def test_a_machine_that_receives_datagrams_between_timers_may_have_more() -> None:
    listening = Creeping(1e-6)
    creep(listening, 0.05, hears_every_s=1e-6)
    assert listening.handled == pytest.approx(50_000, rel=0.01)


def test_a_timer_every_hundred_microseconds_is_allowed() -> None:
    patient = Creeping(1e-4)
    creep(patient, 10.0)
    assert patient.handled == pytest.approx(100_000, rel=0.01)


def test_events_that_never_end_are_stopped_and_their_machine_named() -> None:
    driver, machine, port, heard = make()
    machine.next_event = lambda: Notice(kind="again")
    driver.at(1.0, APPLICATION, lambda _, now: port.pump(now), None)
    with pytest.raises(SpinningError, match=r"^machine had 100000 events without letting time pass, at 1\.0+ s$"):
        driver.run()
    assert len(heard) == 100_000


def test_many_events_spread_over_time_are_allowed() -> None:
    driver, machine, port, heard = make()
    for number in range(3):
        driver.at(float(number), APPLICATION, lambda _, now: machine.events.extend([Notice(kind="x")] * 50_000), None)
        driver.at(float(number), SAMPLING, lambda _, now: port.pump(now), None)
    driver.run()
    assert len(heard) == 150_000


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.sampled_from([ARRIVAL, DEPARTURE, TIMER])), max_size=60)
)
def test_events_in_queues_happen_in_the_order_of_one_heap(asked: list[tuple[int, int, int]]) -> None:
    """Against a stable sort by (time, priority): queues save work and do not change the order."""
    driver = Driver(VirtualClock())
    queues: list[tuple[deque[Any], int]] = [(deque(), ARRIVAL), (deque(), DEPARTURE)]
    happened: list[int] = []
    for number, (at_s, queue, priority) in enumerate(asked):
        if queue < len(queues) and queues[queue][1] == priority:
            driver.at_in(queues[queue][0], at_s, priority, lambda what, now: happened.append(what), number)
        else:
            driver.at(at_s, priority, lambda what, now: happened.append(what), number)
    driver.run()
    assert happened == sorted(range(len(asked)), key=lambda number: (asked[number][0], asked[number][2]))


def test_an_event_may_add_to_its_own_queue() -> None:
    driver = Driver(VirtualClock())
    queue: EventQueue = deque()
    happened: list[tuple[str, float]] = []

    def hop(name: str, now: float) -> None:
        happened.append((name, now))
        if now < 3:
            driver.at_in(queue, now + 1, ARRIVAL, hop, name)

    driver.at_in(queue, 1.0, ARRIVAL, hop, "a")
    driver.at_in(queue, 1.5, ARRIVAL, hop, "b")
    driver.run()
    assert happened == [("a", 1.0), ("b", 1.5), ("a", 2.0), ("b", 2.5), ("a", 3.0), ("b", 3.5)]


def test_departures_on_one_path_do_not_wait_for_those_on_another() -> None:
    driver, machine, port, _ = make()
    carried: list[tuple[int, float]] = []
    port.routes = dict.fromkeys((0, 1), lambda datagram, now: carried.append((datagram.path_id, now)))
    machine.outbox = [Datagram(0, b"", 1, 0.5), Datagram(1, b"", 1, 0.25), Datagram(0, b"", 1, 0.75)]
    driver.at(0.0, APPLICATION, lambda _, now: port.pump(now), None)
    driver.run()
    assert carried == [(1, 0.25), (0, 0.5), (0, 0.75)]
