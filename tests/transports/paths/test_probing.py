"""A burst of losses that takes packets, not time, must not keep a path away while its siblings answer."""

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from bicoastal.transports.multipath.health_policies import LEAST_INTERVAL_S, PATIENCE_FOR_PATHS_S, TRIES
from bicoastal.transports.multipath.sounding import ROUNDS
from helpers.quic_pair import RTT_S, Departure, QuicPair, bottleneck

MESSAGE = Random(1).randbytes(1_000_000)
RATE_BPS = 1e9
BURST = 12  # packets: met by two for every doubling of the probe timer, more than ten seconds

both = pytest.mark.parametrize("transport", ["mpquic", "mpquic-fec"])


def burst(count: int, hit: Callable[[Departure], bool]) -> Callable[[Departure], bool]:
    """Return a `lose` that takes the first `count` of the datagrams that are `hit`."""
    left = [count]

    def lose(departure: Departure) -> bool:
        left[0] -= hit(departure)
        return hit(departure) and left[0] >= 0

    return lose


def shares(pair: QuicPair, number: int) -> list[float]:
    """Carry a message; return what went over each path, as a share of what the busiest one had."""
    begun_s = pair.now
    pair.carry(MESSAGE, number)
    octets = [sum(len(d.payload) for d in pair.sent("client", at) if d.at_s >= begun_s) for at in range(4)]
    return [each / max(octets) for each in octets]


@both
@pytest.mark.parametrize("role", ["client", "server"])
@pytest.mark.parametrize("after", [0, 1])
def test_a_burst_in_one_paths_handshake_costs_a_round_trip_per_packet(transport: str, role: str, after: int) -> None:
    lose = burst(BURST, lambda d: (d.role, d.path_id) == (role, 2) and d.number >= after)
    pair = QuicPair(transport, paths=4, lose=lose, late=bottleneck(RATE_BPS))
    rounds = BURST + 4 if transport == "mpquic" else ROUNDS + 2  # which are for the sounding
    assert max(pair.connected.values()) < rounds * RTT_S
    if after == 0:
        assert min(shares(pair, 1)) > 0.8, "all four were there when it began, and known"


@both
def test_a_dark_path_is_waited_for_so_long_and_asked_so_often(transport: str) -> None:
    pair = QuicPair(transport, paths=4, lose=lambda d: d.path_id == 0, late=bottleneck(RATE_BPS))
    assert max(pair.connected.values()) < PATIENCE_FOR_PATHS_S + 4 * RTT_S
    pair.run_for(60.0)
    asked = [d.at_s for d in pair.sent("client", 0)]
    apart = [later - at for at, later in pairwise(asked[: TRIES + 1])]
    assert min(apart) > 0.99 * RTT_S, "one datagram for each round trip of the others"
    assert asked[TRIES] < 3 * RTT_S + TRIES * 1.01 * RTT_S
    assert len(asked) < TRIES + 20, "then the probe timer is left, which doubles"
    pair.lose = lambda d: False
    pair.run_for(60.0)
    shares(pair, 1)
    assert min(shares(pair, 2)) > 0.5, "it has joined the others"


@both
def test_siblings_of_a_like_length_are_not_asked(transport: str) -> None:
    delays_s = 0.030, 0.031, 0.040
    together = QuicPair(transport, paths=3, delays_s=delays_s, late=bottleneck(RATE_BPS))
    together.run_for(2.0)
    for path_id, delay_s in enumerate(delays_s):
        alone = QuicPair(transport, delays_s=(delay_s,), late=bottleneck(RATE_BPS))
        alone.run_for(2.0)
        for role in ("client", "server"):
            assert len(together.sent(role, path_id)) == len(alone.sent(role))


@both
def test_longer_siblings_of_very_short_paths_are_given_time(transport: str) -> None:
    pair = QuicPair(transport, paths=2, delays_s=(0.0001, 0.040))
    asked = [d.at_s for d in pair.sent("client", 1) if d.at_s < 0.080]
    assert asked == pytest.approx([0.0, LEAST_INTERVAL_S], abs=1e-3)


@both
def test_a_path_whose_last_acknowledgements_were_lost_is_back_before_the_next_message(transport: str) -> None:
    pair = QuicPair(transport, paths=4, late=bottleneck(RATE_BPS), initial_window_segments=200)
    for number in range(3):
        pair.carry(MESSAGE, number)
        pair.run_for(2.0)
    window_bytes = pair.client.sample(pair.now).cwnd_bytes
    from_s = pair.now + 0.5 * RTT_S + 0.0015  # most of this message's acknowledgements get through
    pair.lose = burst(2 * BURST, lambda d: (d.role, d.path_id) == ("server", 1) and d.at_s > from_s)
    pair.carry(MESSAGE, 3)
    pair.run_for(2.0)
    assert not pair.lose(pair.sent("server", 1)[-1]), "the burst is over"
    assert min(shares(pair, 4)) > 0.8, "it has answered meanwhile"
    assert pair.client.sample(pair.now).cwnd_bytes == pytest.approx(window_bytes, rel=0.3)
