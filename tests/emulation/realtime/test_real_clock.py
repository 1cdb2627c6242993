"""Real time: descriptors are served during a wait, and time never decreases."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from bicoastal.emulation.driver import APPLICATION, SAMPLING, TIMER, Driver
from bicoastal.emulation.realtime.real_clock import RealClock

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_seconds_are_those_of_the_monotonic_clock_since_the_epoch() -> None:
    clock = RealClock()
    clock.start()
    assert clock.now() == pytest.approx(0.0, abs=0.05)
    clock.epoch_s = time.monotonic() + 10.0
    assert clock.now() == pytest.approx(-10.0, abs=0.05)


def test_waiting_takes_as_long_as_it_should() -> None:
    clock = RealClock()
    due_s = clock.now() + 0.02
    assert clock.wait_until(due_s)
    assert clock.now() >= due_s
    assert clock.lateness.summary().count == 1
    assert clock.lateness.max_s < 1.0


def test_what_arrives_first_is_served_and_the_waiting_is_not_over(pair: Pair) -> None:
    clock = RealClock()
    served: list[tuple[bytes, float]] = []
    clock.on_readable(pair[0].fileno(), lambda now: served.append((pair[0].recv(9), now)))
    pair[1].send(b"first")
    before_s, due_s = clock.now(), clock.now() + 60.0
    assert not clock.wait_until(due_s)
    ((what, at_s),) = served
    assert what == b"first"
    assert before_s <= at_s <= clock.now() < due_s
    assert clock.lateness.summary().count == 0  # nothing was due


def test_descriptors_are_served_once_when_the_time_is_overdue(pair: Pair) -> None:
    clock = RealClock()
    served: list[int] = []
    clock.on_readable(pair[0].fileno(), lambda now: served.append(1))  # it leaves the octets where they are
    pair[1].send(b"x")
    assert clock.wait_until(clock.now() - 0.5)
    assert served == [1]
    assert clock.lateness.max_s == pytest.approx(0.5, abs=0.2)


def test_a_writable_descriptor_is_served_until_it_is_removed(pair: Pair) -> None:
    clock = RealClock()
    served: list[str] = []
    clock.on_writable(pair[0].fileno(), lambda now: served.append("written"))
    assert not clock.wait_until(clock.now() + 60.0)
    clock.on_writable(pair[0].fileno(), None)
    clock.on_writable(pair[0].fileno(), None)  # not watched: no matter
    assert clock.wait_until(clock.now() + 0.001)
    assert served == ["written"]


def test_a_served_descriptor_may_remove_the_next_one(pair: Pair) -> None:
    clock = RealClock()
    served: list[str] = []
    with pair[0], pair[1]:
        for end, other in (pair, pair[::-1]):

            def ready(now: float, end: socket.socket = end, other: socket.socket = other) -> None:
                served.append("one")
                clock.on_readable(other.fileno(), None)
                clock.on_readable(end.fileno(), None)

            clock.on_readable(end.fileno(), ready)
            other.send(b"x")
        assert not clock.wait_until(clock.now() + 60.0)
    assert served == ["one"]


def test_a_descriptor_that_select_cannot_take_is_refused() -> None:
    clock = RealClock()
    for descriptor in (-1, 1024):
        with pytest.raises(ValueError, match=rf"^descriptor: {descriptor} is beyond 1023, the last for select$"):
            clock.on_readable(descriptor, lambda now: None)


def test_the_times_given_to_callbacks_never_decrease(pair: Pair) -> None:
    """Events for the past, for the same instant and for later, while a thread keeps a descriptor busy."""
    clock = RealClock()
    driver = Driver(clock)
    rng = Random(3)
    told: list[float] = []
    left = 2000

    def served(now: float) -> None:
        pair[0].recv(64)
        told.append(now)
        driver.at(now + rng.uniform(-1e-4, 3e-4), TIMER, due, None)

    def due(_: object, now: float) -> None:
        nonlocal left
        told.append(now)
        left -= 1
        if left <= 0:
            driver.stop()
        else:
            driver.at(now + rng.choice([-1.0, 0.0, 1e-5, 2e-4]), rng.choice([APPLICATION, SAMPLING, TIMER]), due, None)

    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            pair[1].send(bytes(64))
            time.sleep(2e-4)

    clock.on_readable(pair[0].fileno(), served)
    driver.at(clock.now(), APPLICATION, due, None)
    writing = threading.Thread(target=write)
    writing.start()
    try:
        driver.run()
    finally:
        stop.set()
        writing.join()
    assert len(told) >= 2000
    assert all(earlier <= later for earlier, later in pairwise(told))


def test_nothing_happens_before_its_time_and_in_its_order() -> None:
    clock = RealClock()
    driver = Driver(clock)
    happened: list[tuple[int, float]] = []
    base_s = clock.now()

    def act(number: int, now: float) -> None:
        happened.append((number, now))
        if number == 3:
            driver.stop()

    for number in (3, 1, 0, 2):
        driver.at(base_s + 0.01 * number, APPLICATION, act, number)
    driver.run()
    assert [number for number, _ in happened] == [0, 1, 2, 3]
    assert all(now >= base_s + 0.01 * number for number, now in happened)


def test_a_busy_descriptor_does_not_delay_due_events() -> None:
    clock = RealClock()
    driver = Driver(clock)
    read, write = os.pipe()
    served: list[float] = []
    clock.on_readable(read, served.append)  # never read: ready at all times
    os.write(write, b"x")
    driver.at(clock.now() + 0.02, APPLICATION, lambda _, now: driver.stop(), None)
    driver.run()
    os.close(read)
    os.close(write)
    assert served
