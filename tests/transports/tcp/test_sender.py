"""What the sending half lets onto the wire: windows, round by round and after a pause, and all of it in any weather."""

from itertools import pairwise
from random import Random

import pytest

from bicoastal.transports.congestion.base import Ack
from bicoastal.transports.congestion.reno import Reno
from helpers.tcp_pair import CLIENT, RATE_BPS, RTT_S, SERVER, Pair, lose_data, rounds, whole_segments


def flights(pair: Pair) -> list[int]:
    return [len(flight) for flight in rounds([packet for packet in pair.sent() if not packet.repair], RTT_S / 2)]


@pytest.mark.parametrize("initial_window", [1, 4, 10])
def test_the_first_flight_is_the_initial_window(initial_window: int) -> None:
    pair = Pair(initial_window_segments=initial_window).connect()
    pair.send(whole_segments(30))
    assert len(pair.sent()) == initial_window  # RFC 6928: 10 by default


def test_a_first_flight_of_jumbo_segments_is_what_the_peer_s_first_window_holds() -> None:
    pair = Pair(mtu=9000).connect()
    pair.send(bytes(1_000_000))
    assert len(pair.sent()) == 65535 // 8948


@pytest.mark.parametrize(
    ("limit", "ack_every", "sizes"),
    [
        (1, 2, [10, 15, 23, 35, 53, 80]),  # RFC 5681 §3.1: a segment per ACK, an ACK per two segments
        (1, 1, [10, 20, 40, 80, 160, 320]),
        (2, 2, [10, 20, 40, 80, 160, 320]),  # RFC 3465 §2.2
        (2, 1, [10, 20, 40, 80, 160, 320]),
    ],
)
def test_slow_start_round_by_round(limit: int, ack_every: int, sizes: list[int]) -> None:
    pair = Pair(byte_count_limit=limit, ack_every=ack_every, quick_acks=0, delayed_ack_s=0.0).connect()
    pair.send(whole_segments(1500))
    pair.run()
    assert flights(pair)[:6] == sizes
    assert pair.repairs() == []


def test_a_round_begins_with_the_first_acknowledgement_of_data_sent_after_the_one_before_began() -> None:
    """And not with the last of the flight before: the pause between two flights belongs to no round (`Ack`)."""
    begun: list[tuple[float, bool]] = []

    class Watched(Reno):
        def on_ack(self, ack: Ack) -> None:
            begun.append((ack.now, ack.round_started))
            super().on_ack(ack)

    pair = Pair(
        lambda mss_bytes: Watched(mss_bytes=mss_bytes),
        quick_acks=0,
        delayed_ack_s=0.0,
        rate_bps=1e9,
    ).connect()
    pair.send(whole_segments(70))  # flights of 10, 20 and 40
    pair.run()
    after_pause = [True] + [after - before > RTT_S / 2 for (before, _), (after, _) in pairwise(begun)]
    assert [yes for _, yes in begun] == after_pause
    assert sum(after_pause) == 3


@pytest.mark.parametrize(("limit", "growth"), [(1, 1.5), (2, 2.0)])
def test_slow_start_grows_by_the_same_factor_on_a_wire_with_a_rate(limit: int, growth: float) -> None:
    pair = Pair(byte_count_limit=limit, quick_acks=0, rate_bps=10e9).connect()
    pair.send(whole_segments(3000))
    pair.run()
    sizes = flights(pair)[:-1]
    assert sizes[0] == 10
    # give or take the segment at a flight's end whose acknowledgement is delayed
    assert all(abs(after - growth * before) <= 2 for before, after in pairwise(sizes[:8]))
    assert sizes[7] / sizes[3] == pytest.approx(growth**4, rel=0.03)


def test_congestion_avoidance_adds_a_segment_per_round() -> None:
    pair = Pair(lose=lose_data(100), quick_acks=0, ack_every=1, rate_bps=1e9).connect()
    pair.send(whole_segments(3000))
    pair.run()
    after = [packet for packet in pair.sent() if packet.at_s > pair.repairs()[0].at_s + 2 * RTT_S]
    sizes = [len(flight) for flight in rounds(after, RTT_S / 2)][1:-1]
    assert len(sizes) > 10
    assert {after - before for before, after in pairwise(sizes)} == {1}  # RFC 5681 §3.1


def test_a_window_that_the_application_does_not_fill_does_not_grow() -> None:
    pair = Pair().connect()
    for number in range(20):
        pair.send(whole_segments(3), message_id=number)
        pair.run(until=pair.now + 2 * RTT_S)
    assert pair.window() == 10
    pair = Pair(after_idle="keep", ack_every=1).connect()
    pair.send(whole_segments(200))
    pair.run()
    window = pair.window()
    assert window > 100
    for number in range(20):
        pair.send(whole_segments(3), message_id=2 + number)
        pair.run(until=pair.now + 2 * RTT_S)
    assert pair.window() == window


@pytest.mark.parametrize("policy", ["keep", "decay", "restart"])
def test_the_window_after_idle_time_is_what_the_policy_says(policy: str) -> None:
    pair = Pair(after_idle=policy).connect()
    pair.send(whole_segments(600))
    pair.run()
    window = int(pair.window())
    assert window > 300
    rto_s = 0.27  # SRTT + min_rto
    pair.run(until=pair.now + 2.5 * rto_s)
    idle_s = pair.now - pair.sent()[-1].at_s
    begin_s = pair.now
    pair.send(whole_segments(2000), message_id=2)
    first = len(pair.sent(since_s=begin_s))
    if policy == "restart":
        assert first == 10  # RFC 5681 §4.1
    elif policy == "keep":
        assert first == window
    else:
        assert window // 8 <= first <= window // 4  # RFC 2861 §3.2: halved for each RTO, of which there are 2 or 3
        assert 2 <= idle_s / rto_s < 4


def test_a_short_pause_changes_no_window() -> None:
    pair = Pair(after_idle="restart").connect()
    pair.send(whole_segments(600))
    pair.run()
    window = int(pair.window())
    pair.now = pair.sent()[-1].at_s + 0.15
    begin_s = pair.now
    pair.send(whole_segments(2000), message_id=2)
    assert len(pair.sent(since_s=begin_s)) == window


def test_nothing_is_due_when_everything_is_acknowledged() -> None:
    pair = Pair(lose=lose_data(5, 17)).connect()
    pair.send(whole_segments(40))
    pair.run()
    assert pair.client.get_timer() is pair.server.get_timer() is None
    assert pair.client.sample(pair.now).in_flight_bytes == 0


@pytest.mark.parametrize("congestion", ["reno", "cubic", "adaptive"])
@pytest.mark.parametrize("seed", range(4))
def test_every_octet_arrives_whatever_the_wire_does(congestion: str, seed: int) -> None:
    random = Random(seed)
    data = {CLIENT: random.randbytes(400_000), SERVER: random.randbytes(150_000)}
    pair = Pair(
        congestion,
        rate_bps=RATE_BPS,
        lose=lambda packet: random.random() < 0.05,
        late=lambda packet: random.random() * 0.05 if random.random() < 0.1 else 0.0,
        octets=True,
    )
    for role, octets in data.items():
        pair.send(octets, role)
    pair.run()
    assert [octets for _, octets in pair.received(SERVER)] == [data[CLIENT]]
    assert [octets for _, octets in pair.received(CLIENT)] == [data[SERVER]]
    assert pair.failures(CLIENT) == pair.failures(SERVER) == []
    for role in (CLIENT, SERVER):
        assert pair.ends[role].sample(pair.now).in_flight_bytes == 0
        assert pair.ends[role].get_timer() is None
