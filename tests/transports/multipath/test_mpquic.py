from random import Random

from bicoastal.transports.multipath.health_policies import PATIENCE_FOR_PATHS_S
from helpers.quic_pair import RTT_S, Departure, QuicPair

MESSAGE = Random(1).randbytes(1_000_000)


def _pair(paths: int = 4, **named: object) -> QuicPair:
    return QuicPair("mpquic", paths=paths, initial_window_segments=2000, **named)  # type: ignore[arg-type]


def _data(departure: Departure) -> bool:
    return departure.role == "client" and departure.burst_left is not None


def test_every_path_has_a_connection_of_its_own_and_carries_its_share() -> None:
    pair = _pair()
    pair.carry(MESSAGE)
    shares = [sum(len(d.payload) for d in pair.sent("client", path) if _data(d)) for path in range(4)]
    assert sum(shares) > len(MESSAGE)
    assert max(shares) < 1.2 * min(shares)  # a path fills its window before the next is asked
    prefixes = {pair.sent("client", path)[-1].payload[1:9] for path in range(4)}
    assert len(prefixes) == 4  # connection identifiers


def test_messages_of_both_ends_arrive_as_they_were_whatever_their_size() -> None:
    pair = _pair(2)
    sizes = [0, 1, 1410, 1411, 1412, 60_000]
    for number, size in enumerate(sizes):
        for role in ("client", "server"):
            pair.send(role, (number << 60) | number, MESSAGE[:size])
    pair.run_until(lambda: len(pair.received) == 2 * len(sizes))
    for (_, number), (data, _) in pair.received.items():
        assert data == MESSAGE[: sizes[number & 0xFF]]


def test_what_one_path_loses_costs_a_round_trip_and_may_be_repaired_on_another() -> None:
    lossless_s = _pair().carry(MESSAGE)
    lost: list[Departure] = []

    def lose(departure: Departure) -> bool:
        if _data(departure) and departure.path_id == 2 and len(lost) < 5 and departure.number % 20 == 10:
            lost.append(departure)
        return departure in lost

    pair = _pair(lose=lose)
    assert pair.carry(MESSAGE) < lossless_s + RTT_S + 0.01
    counters = pair.client.counters()
    assert len(lost) == 5
    assert (counters.repairs, counters.timeouts, counters.spurious) == (5, 0, 0)


def test_a_path_that_dies_in_mid_burst_is_noticed_when_its_acknowledgements_are_late() -> None:
    pair = _pair()
    for number in range(5):
        pair.carry(MESSAGE, number)
        pair.run_for(1.0)
    usual_s = pair.carry(MESSAGE, 5)
    pair.run_for(1.0)
    dies_s = pair.now + 0.001
    pair.lose = lambda departure: departure.path_id == 1 and departure.at_s >= dies_s
    took_s = pair.carry(MESSAGE, 6)
    # a round trip until acknowledgements are due, one of patience since none of the burst has come, and another trip
    assert took_s < usual_s + 2 * RTT_S + 0.010
    pair.run_for(5.0)
    before = len([d for d in pair.sent("client", 1) if _data(d)])
    pair.carry(MESSAGE, 7)
    assert len([d for d in pair.sent("client", 1) if _data(d)]) == before  # nothing is entrusted to it
    pair.lose = lambda departure: False
    pair.run_for(60.0)
    pair.carry(MESSAGE, 8)
    assert len([d for d in pair.sent("client", 1) if _data(d)]) > before  # it has answered a probe


def test_a_path_that_is_dark_from_the_beginning_delays_the_others_by_no_more_than_their_patience() -> None:
    pair = QuicPair("mpquic", paths=3, lose=lambda departure: departure.path_id == 0)
    assert max(pair.connected.values()) < PATIENCE_FOR_PATHS_S + 2 * RTT_S
    pair.carry(MESSAGE)
    pair.run_for(200.0)
    pair.carry(MESSAGE, 2)
    assert not pair.failed


def test_it_fails_only_when_every_path_has() -> None:
    pair = QuicPair("mpquic", paths=2, lose=lambda departure: True, connect=False)
    pair.run_until(lambda: "client" in pair.failed)
    assert pair.failed["client"] == "the far end does not answer"


def test_a_slow_path_is_spared_the_last_symbols() -> None:
    pair = QuicPair("mpquic", paths=2, delays_s=(0.010, 0.100), initial_window_segments=2000)
    for number in range(3):
        pair.carry(MESSAGE, number)
        pair.run_for(1.0)
    alone = QuicPair("mpquic", paths=1, delays_s=(0.010,), initial_window_segments=2000)
    for number in range(3):
        alone.carry(MESSAGE, number)
        alone.run_for(1.0)
    # a window of 3 MB and a pace of one and a quarter windows per 20 ms bring all of it sooner than 100 ms
    assert pair.carry(MESSAGE, 9) < 1.1 * alone.carry(MESSAGE, 9)
