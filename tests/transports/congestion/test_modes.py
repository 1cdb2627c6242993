"""The table of transitions of the adaptive controller: each row happens, and nothing else can change the mode."""

import ast
from collections.abc import Callable
from inspect import getsource

import pytest

from bicoastal.transports.congestion import adaptive
from bicoastal.transports.congestion.adaptive import Adaptive
from bicoastal.transports.congestion.base import Ack
from bicoastal.transports.congestion.modes import (
    TRANSITIONS,
    Action,
    Event,
    ImpossibleTransitionError,
    Mode,
    ModeMachine,
)
from bicoastal.transports.quic.congestion import QuicAdaptive
from helpers.told_of_acks import tell

MSS = 8948
RTT_S = 0.060
SEGMENT_S = 0.003  # the bottleneck sends a segment in this time
HEAVY_BYTES = 40 * MSS  # lost in one round: more than chance explains, which is 32 segments


class Driver:
    """Drives a controller on a path, and keeps the time. All acknowledgements come at one rate."""

    def __init__(self, controller: type[Adaptive] = Adaptive) -> None:
        self.congestion = controller(mss_bytes=MSS)
        self.now = 0.0
        self.congestion.on_burst(self.now, 10**8)

    def ack(self, *, queue_s: float = 0.0, first: bool = False, segments: int = 1) -> None:
        """Acknowledge segments one segment time after the acknowledgement before."""
        self.now += SEGMENT_S
        rtt_s, size = RTT_S + queue_s, segments * MSS
        tell(self.congestion, Ack(self.now, size, size, 0, 0, rtt_s, first, True, False, self.now - rtt_s))

    def round(self, *, queue_s: float = 0.0, segments: int = 20) -> None:
        """Acknowledge a round trip's segments."""
        for n in range(segments):
            self.ack(queue_s=queue_s, first=n == 0)

    def lose(self, size: int = HEAVY_BYTES) -> None:
        """Lose packets that left a moment ago."""
        self.congestion.on_loss(self.now, size, 20 * MSS, self.now)

    def expire(self) -> None:
        """Let the retransmission timer expire."""
        self.congestion.on_timeout(self.now, 20 * MSS, first=True)

    def burst(self, pause_s: float = 1.0) -> None:
        """Begin another burst after a pause."""
        self.now += pause_s
        self.congestion.on_burst(self.now, 10**8)

    def show_rate(self) -> None:
        """Acknowledge one flight of startup, so slowly that a few segments show the rate."""
        self.now = RTT_S
        for n in range(10):
            self.now += SEGMENT_S
            tell(self.congestion, Ack(self.now, MSS, MSS, 0, 0, RTT_S, n == 0, False, False, 0.0))


def startup() -> Driver:
    """Return a controller without a rate."""
    return Driver()


def with_rate() -> Driver:
    """Return a controller in startup that knows the rate, with a window that does not cover it yet."""
    driver = Driver()
    driver.show_rate()
    return driver


def cruise() -> Driver:
    """Return a controller that cruises."""
    driver = with_rate()
    driver.burst()
    driver.round()
    driver.round()
    return driver


def compete() -> Driver:
    """Return a controller that competes, because the queue stood for two rounds."""
    driver = cruise()
    while driver.congestion.mode is Mode.CRUISE:
        assert driver.now < 5
        driver.round(queue_s=RTT_S / 2)
    return driver


def silent() -> Driver:
    """Return a controller that waits for an acknowledgement."""
    driver = cruise()
    driver.expire()
    return driver


def queue(driver: Driver) -> Driver:
    """Let others occupy the queue for so short a time that the mode stays."""
    for _ in range(25):
        driver.ack(queue_s=RTT_S / 2)
    return driver


def lose_one_in_a_full_queue(driver: Driver) -> None:
    """Lose a single packet, which only the queue beside it makes a congestion."""
    driver.lose(MSS)


def fill_the_path(driver: Driver) -> None:
    """Acknowledge full windows until slow start has covered the path."""
    while driver.congestion.mode is Mode.STARTUP:
        assert driver.now < 5
        driver.ack()


def keep_a_queue(driver: Driver) -> None:
    """Acknowledge rounds with a queue."""
    for _ in range(8):
        driver.round(queue_s=RTT_S / 2)


def drain_the_queue(driver: Driver) -> None:
    """Acknowledge rounds without a queue."""
    while driver.congestion.mode is Mode.COMPETE:
        assert driver.now < 5
        driver.round()


def probing() -> Driver:
    """Return a QUIC controller that cruises at a rate it was told, and probes."""
    driver = Driver(QuicAdaptive)
    driver.ack()
    driver.congestion.take_rate(8 * MSS / SEGMENT_S)
    driver.burst()
    return driver


def find_more_beside_a_queue(driver: Driver) -> None:
    """Acknowledge packets at a rate a little above the learned one while the round trip grows."""
    begun_s, rate_bps = driver.now, driver.congestion.learned_rate_bps
    assert rate_bps is not None
    for n in range(200):
        sent_s = begun_s + n * 8 * MSS / (1.05 * rate_bps)
        tell(driver.congestion, Ack(sent_s + 1.5 * RTT_S, MSS, MSS, 0, 0, 1.5 * RTT_S, False, True, False, sent_s))


WAYS: dict[tuple[Mode, Event], tuple[Callable[[], Driver], Callable[[Driver], None]]] = {
    (Mode.STARTUP, Event.BURST): (with_rate, Driver.burst),
    (Mode.STARTUP, Event.RATE_FOUND): (with_rate, fill_the_path),
    (Mode.STARTUP, Event.CONGESTION): (with_rate, Driver.lose),
    (Mode.STARTUP, Event.EARLY_LOSS): (startup, Driver.lose),
    (Mode.STARTUP, Event.TIMEOUT): (startup, Driver.expire),
    (Mode.CRUISE, Event.BURST): (cruise, Driver.burst),
    (Mode.CRUISE, Event.PROBE_REFUTED): (probing, find_more_beside_a_queue),
    (Mode.CRUISE, Event.OVERLOAD): (cruise, Driver.lose),
    (Mode.CRUISE, Event.QUEUE_STANDS): (cruise, keep_a_queue),
    (Mode.CRUISE, Event.CONGESTION): (lambda: queue(cruise()), lose_one_in_a_full_queue),
    (Mode.CRUISE, Event.TIMEOUT): (cruise, Driver.expire),
    (Mode.COMPETE, Event.BURST): (compete, Driver.burst),
    (Mode.COMPETE, Event.QUEUE_DRAINED): (compete, drain_the_queue),
    (Mode.COMPETE, Event.CONGESTION): (compete, Driver.lose),
    (Mode.COMPETE, Event.TIMEOUT): (compete, Driver.expire),
    (Mode.SILENT, Event.BURST): (silent, Driver.burst),
    (Mode.SILENT, Event.RESUMED): (silent, Driver.ack),
    (Mode.SILENT, Event.OVERLOAD): (silent, Driver.lose),
    (Mode.SILENT, Event.CONGESTION): (lambda: stop(queue(cruise())), lose_one_in_a_full_queue),
    (Mode.SILENT, Event.TIMEOUT): (silent, Driver.expire),
}
"""How each row comes about: what leads to its mode, and what then makes its event."""


def stop(driver: Driver) -> Driver:
    """Let the retransmission timer expire."""
    driver.expire()
    return driver


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Mode, Event, Mode, Action]]:
    """Record the transitions that any controller takes."""
    rows: list[tuple[Mode, Event, Mode, Action]] = []
    take = ModeMachine.take

    def recording(machine: ModeMachine, event: Event) -> Action:
        before = machine.mode
        action = take(machine, event)
        rows.append((before, event, machine.mode, action))
        return action

    monkeypatch.setattr(ModeMachine, "take", recording)
    return rows


@pytest.mark.parametrize("row", TRANSITIONS, ids=lambda row: f"{row.mode.value}-{row.event.name.lower()}")
def test_each_row_of_the_table_happens(
    row: tuple[Mode, Event, Mode, Action], taken: list[tuple[Mode, Event, Mode, Action]]
) -> None:
    begin, act = WAYS[row[0], row[1]]
    driver = begin()
    assert driver.congestion.mode is row[0]
    del taken[:]
    act(driver)
    assert taken[0] == row


def test_each_pair_of_mode_and_event_has_one_row() -> None:
    pairs = [(row.mode, row.event) for row in TRANSITIONS]
    assert len(pairs) == len(set(pairs))
    assert set(WAYS) == set(pairs)


def machine_in(mode: Mode) -> ModeMachine:
    """Return a machine that rows of the table have led to a mode."""
    ways: dict[Mode, list[Event]] = {Mode.STARTUP: []}
    for _ in Mode:
        for row in TRANSITIONS:
            if row.mode in ways:
                ways.setdefault(row.to, [*ways[row.mode], row.event])
    machine = ModeMachine()
    for event in ways[mode]:
        machine.take(event)
    return machine


@pytest.mark.parametrize("mode", Mode)
def test_each_mode_is_reachable_and_an_event_without_a_row_changes_nothing(mode: Mode) -> None:
    machine = machine_in(mode)
    for event in set(Event) - {row.event for row in TRANSITIONS if row.mode is mode}:
        with pytest.raises(ImpossibleTransitionError, match=f"{event.name} in mode {mode.name}"):
            machine.take(event)
        assert machine.mode is mode


def test_the_mode_cannot_be_set_without_the_table() -> None:
    with pytest.raises(AttributeError):
        ModeMachine().mode = Mode.CRUISE  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Adaptive(mss_bytes=MSS).mode = Mode.CRUISE  # type: ignore[misc]


def test_window_and_pacing_rate_are_set_in_one_method() -> None:
    setters = {
        method.name
        for method in ast.walk(ast.parse(getsource(adaptive)))
        if isinstance(method, ast.FunctionDef)
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and node.attr in ("cwnd_bytes", "ssthresh_bytes", "pacing_rate_bps")
    }
    assert setters == {"_set"}
