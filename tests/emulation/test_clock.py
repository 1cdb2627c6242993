"""Virtual time passes in a wait, and never decreases."""

from bicoastal.emulation.clock import VirtualClock


def test_waiting_is_over_at_once_and_exactly_at_the_time_waited_for() -> None:
    clock = VirtualClock()
    clock.start()
    assert clock.now() == 0
    assert clock.wait_until(1e-9)
    assert clock.now() == 1e-9
    assert clock.wait_until(86_400.1)
    assert clock.now() == 86_400.1


def test_waiting_for_the_past_changes_nothing() -> None:
    clock = VirtualClock()
    clock.wait_until(2.0)
    assert clock.wait_until(1.0)
    assert clock.now() == 2.0


def test_start_makes_the_present_moment_zero() -> None:
    clock = VirtualClock()
    clock.wait_until(5.0)
    clock.start()
    assert clock.now() == 0
