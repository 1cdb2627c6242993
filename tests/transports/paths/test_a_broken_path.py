"""One path breaks under each transport with many paths: the shared machine notices, the others carry on, it comes back.

The same assertions hold for all three, because all three ask `PathHealth`.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from bicoastal.transports.b4.endpoint import B4Endpoint
from bicoastal.transports.events import MessageReceived
from bicoastal.transports.multipath.fec_endpoint import FecEndpoint
from bicoastal.transports.multipath.mpquic_endpoint import MpQuicEndpoint
from bicoastal.transports.paths.health import Belief, PathHealth
from helpers.paced_pair import PacedPair
from helpers.quic_pair import RTT_S, QuicPair, bottleneck

PATHS, BROKEN = 3, 1
MESSAGE = Random(1).randbytes(4_000_000)
RATE_BPS = 1e9
NOTICED_RTTS = 3.0  # after the break: a round trip until an answer is due, a margin, and for FEC a second look


class QuicUnderTest:
    """A pair of QUIC endpoints over three paths."""

    def __init__(self, transport: str) -> None:
        self.pair = QuicPair(transport, paths=PATHS, initial_window_segments=200, late=bottleneck(RATE_BPS))

    def break_path(self, breaks_s: float, mends_s: float) -> None:
        self.pair.lose = lambda d: d.path_id == BROKEN and breaks_s <= d.at_s < mends_s

    def begin(self, number: int) -> Callable[[], bool]:
        self.pair.send("client", number, MESSAGE)
        return lambda: ("server", number) in self.pair.received

    def step(self) -> None:
        self.pair.step()

    def run_for(self, duration_s: float) -> None:
        self.pair.run_for(duration_s)

    def octets_sent(self, since_s: float) -> int:
        return sum(len(d.payload) for d in self.pair.sent("client", BROKEN) if d.at_s >= since_s)

    def arrived(self, number: int) -> bytes:
        return self.pair.received["server", number][0]

    @property
    def client(self) -> Any:
        return self.pair.client


class PacedUnderTest:
    """A pair of paced endpoints over three paths."""

    def __init__(self, transport: str) -> None:
        self.pair = PacedPair(transport, paths=PATHS, rate_bps=RATE_BPS)

    def break_path(self, breaks_s: float, mends_s: float) -> None:
        self.pair.lose = lambda sent: sent.path_id == BROKEN and breaks_s <= sent.at_s < mends_s

    def begin(self, number: int) -> Callable[[], bool]:
        self.pair.send(MESSAGE, number)
        return lambda: number in self._received

    def step(self) -> None:
        self.pair.run(for_s=0.001)

    def run_for(self, duration_s: float) -> None:
        self.pair.run(for_s=duration_s)

    def octets_sent(self, since_s: float) -> int:
        return sum(len(sent.frame.payload) for sent in self.pair.data(since=since_s) if sent.path_id == BROKEN)  # type: ignore[union-attr]

    def arrived(self, number: int) -> bytes:
        return self._received[number]

    @property
    def _received(self) -> dict[int, bytes]:
        return {event.message_id: bytes(event.data) for _, event in self.pair.of(MessageReceived)}

    @property
    def client(self) -> Any:
        return self.pair.ends["client"]


def healths(endpoint: Any) -> tuple[PathHealth, ...]:
    """Return what the endpoint believes of its paths."""
    if isinstance(endpoint, B4Endpoint):
        return endpoint._path_set.healths
    assert isinstance(endpoint, MpQuicEndpoint | FecEndpoint)
    return endpoint._paths.healths


@pytest.mark.parametrize(
    ("under_test", "transport"),
    [(QuicUnderTest, "mpquic"), (QuicUnderTest, "mpquic-fec"), (PacedUnderTest, "b4")],
    ids=["mpquic", "mpquic-fec", "b4"],
)
def test_a_broken_path_is_noticed_replaced_and_used_again(
    under_test: type[QuicUnderTest] | type[PacedUnderTest], transport: str
) -> None:
    run = under_test(transport)
    for number in range(3):  # so that every path knows its round trip and its rate
        done = run.begin(number)
        while not done():
            run.step()
        run.run_for(1.0)
    paths = healths(run.client)
    assert [path.belief for path in paths] == [Belief.UP] * PATHS

    breaks_s = run.pair.now + 0.005  # in the middle of the next message
    mends_s = breaks_s + 2.0
    run.break_path(breaks_s, mends_s)
    done = run.begin(3)
    noticed_s = None
    while not done():
        run.step()
        assert run.pair.now < mends_s, "the other paths carry the message while this one is broken"
        if noticed_s is None and paths[BROKEN].belief is Belief.DOWN:
            noticed_s = run.pair.now
    while noticed_s is None and run.pair.now < breaks_s + NOTICED_RTTS * RTT_S:  # FEC may repair it sooner
        run.step()
        if paths[BROKEN].belief is Belief.DOWN:
            noticed_s = run.pair.now
    assert noticed_s is not None, "the shared machine has noticed the silence"
    assert noticed_s < breaks_s + NOTICED_RTTS * RTT_S
    assert run.arrived(3) == MESSAGE, "the other paths have carried the message"
    assert [path.belief for path in paths if path is not paths[BROKEN]] == [Belief.UP] * (PATHS - 1)
    assert paths[BROKEN].probe_at_s < float("inf"), "and it is probed"

    run.run_for(mends_s + 2.0 - run.pair.now)
    assert paths[BROKEN].belief is Belief.UP, "a probe was answered"
    begun_s = run.pair.now
    done = run.begin(4)
    while not done():
        run.step()
    assert run.arrived(4) == MESSAGE
    assert run.octets_sent(begun_s) > len(MESSAGE) // (PATHS * 4), "it carries its share again"
