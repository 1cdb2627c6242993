from itertools import pairwise
from random import Random
from typing import Any

import pytest

from bicoastal.transports.quic import connection as quic_connection
from bicoastal.transports.quic.path_connection import ACK_DELAY_S
from bicoastal.transports.registry import Registry
from helpers.quic_pair import DELAY_S, RTT_S, Departure, QuicPair

MESSAGE = Random(1).randbytes(400_000)
WINDOW = 1000  # packets: more than any message here, so that a burst leaves at once


def _data(departure: Departure) -> bool:
    return departure.role == "client" and departure.burst_left is not None


def _burst_pair(lose: Any = lambda departure: False, **parameters: Any) -> QuicPair:
    return QuicPair(lose=lose, initial_window_segments=WINDOW, **parameters)


def test_messages_of_both_ends_arrive_as_they_were_whatever_their_size() -> None:
    pair = QuicPair()
    sizes = [0, 1, 1423, 1424, 1425, 60_000]
    for number, size in enumerate(sizes):
        for role in ("client", "server"):
            pair.send(role, (number << 60) | number, MESSAGE[:size])
    pair.run_until(lambda: len(pair.received) == 2 * len(sizes))
    for (_, number), (data, _) in pair.received.items():
        assert data == MESSAGE[: sizes[number & 0xFF]]


def test_more_messages_than_streams_may_be_open_go_through() -> None:
    pair = QuicPair()
    for number in range(700):  # aioquic allows 128 at first
        pair.send("client", number, b"x" * number)
    pair.run_until(lambda: len(pair.received) == 700)
    pair.run_for(1.0)
    assert pair.client.sample(pair.now).in_flight_bytes == 0
    for number in range(700, 900):
        pair.carry(b"later", number)


def test_a_connection_outlives_hours_of_silence_and_is_silent_itself() -> None:
    pair = QuicPair()
    pair.carry(MESSAGE)
    pair.run_for(10.0)
    sent = len(pair.departures)
    pair.run_for(4 * 3600.0)
    assert len(pair.departures) == sent
    pair.carry(MESSAGE, 2)


def test_a_lost_packet_costs_a_round_trip_and_is_sent_once_more() -> None:
    lossless_s = _burst_pair().carry(MESSAGE)
    lost: list[Departure] = []

    def lose(departure: Departure) -> bool:
        if _data(departure) and departure.burst_left == 100 and not lost:
            lost.append(departure)
        return lost[-1:] == [departure]

    pair = _burst_pair(lose)
    assert pair.carry(MESSAGE) < lossless_s + RTT_S
    counters = pair.client.counters()
    assert (counters.repairs, counters.timeouts, counters.spurious) == (1, 0, 0)


@pytest.mark.parametrize("count", [1, 3, 10])
def test_a_lost_tail_is_repaired_by_probes(count: int) -> None:
    def lose(departure: Departure) -> bool:
        return _data(departure) and departure.burst_left is not None and departure.burst_left < count

    pair = _burst_pair(lose)
    took_s = pair.carry(MESSAGE)
    # a PTO after the last packet left, a round trip for what the probes did not carry, half of one for it to arrive
    assert took_s < RTT_S * (2 if count < 3 else 3) + 0.080
    counters = pair.client.counters()
    assert counters.repairs == count
    assert counters.timeouts == 1


def test_the_burst_is_counted_down_to_nothing() -> None:
    pair = _burst_pair()
    pair.carry(MESSAGE)
    left = [d.burst_left for d in pair.departures if _data(d)]
    assert left == list(range(len(left) - 1, -1, -1))
    assert len(left) == -(-(len(MESSAGE) + 8) // 1437)  # 1500 less 28 (IP, UDP), 13 (QUIC), 16 (tag), 6 (frame)


def test_a_window_is_paced_over_a_round_trip_and_departures_never_go_back() -> None:
    pair = QuicPair(initial_window_segments=100, congestion="reno")
    pair.carry(MESSAGE[:130_000])
    departures = [d.at_s for d in pair.departures if d.role == "client"]
    assert departures == sorted(departures)
    data = [d.at_s for d in pair.departures if _data(d)]
    span_s = data[-1] - data[0]
    # 2 × cwnd / srtt in slow start: 91 packets of a window of 100 take 91/200 of a round trip
    assert span_s == pytest.approx(RTT_S * len(data) / 200, rel=0.05)
    gaps = [b - a for a, b in pairwise(data)]
    assert max(gaps) < 3 * span_s / len(data)


def test_ten_packets_in_disorder_do_not_look_like_loss_for_long() -> None:
    draw = Random(2)
    pair = _burst_pair()
    pair.late = lambda departure: 0.004 * draw.random() if _data(departure) else 0.0
    for number in range(10):
        pair.carry(MESSAGE, number)
    before = pair.client.counters()
    for number in range(10, 20):
        pair.carry(MESSAGE, number)
    after = pair.client.counters()
    assert before.spurious > 0
    assert after.spurious == before.spurious  # it has learned how late packets are here
    assert after.repairs == before.repairs


def test_many_losses_leave_many_gaps_and_each_is_repaired_about_once() -> None:
    draw = Random(4)
    pair = QuicPair(lose=lambda d: _data(d) and draw.random() < 0.1, initial_window_segments=2000)
    data = Random(2).randbytes(3_000_000)
    pair.carry(data)
    lost_at_least = 0.08 * len(data) / 1437
    assert lost_at_least < pair.client.counters().repairs < 0.13 * len(data) / 1437
    assert pair.client.counters().spurious <= 2  # with 200 gaps where an ACK frame tells of 32 ranges


def test_acknowledgements_are_few() -> None:
    pair = _burst_pair()
    data = Random(2).randbytes(2_000_000)
    pair.carry(data)
    acknowledgements = len(pair.sent("server"))
    assert acknowledgements < len([d for d in pair.departures if _data(d)]) / 9  # one in 16, quick ones at first
    assert ACK_DELAY_S < DELAY_S / 10


@pytest.mark.parametrize("role", ["client", "server"])
def test_keys_are_updated_in_mid_message_and_nothing_is_lost_by_it(role: str) -> None:
    pair = _burst_pair()
    pair.run_for(RTT_S)  # until the handshake is confirmed at both ends
    connections = [pair.ends[end]._link._connection for end in ("client", "server")]  # type: ignore[attr-defined]
    before = [connection._keys[0].secret for connection in connections]
    for updates in (1, 2):
        pair.send("client", 2 * updates, MESSAGE)
        pair.send("server", 2 * updates + 1, MESSAGE)
        pair.run_for(0.3 * RTT_S)
        connections[role == "server"].request_key_update()
        pair.run_until(lambda updates=updates: len(pair.received) == 2 * updates)  # type: ignore[misc]
        pair.run_for(1.0)
    assert all(connection._keys[0].secret != secret for connection, secret in zip(connections, before, strict=True))
    assert all(connection._aioquic.keys.recv.key_phase == 0 for connection in connections)  # twice over
    for end in (pair.client, pair.server):
        counters = end.counters()
        assert (counters.rejected, counters.repairs) == (0, 0)


def test_keys_are_updated_before_they_wear_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert quic_connection.KEY_LIMIT_PACKETS <= 1 << 23  # RFC 9001 §6.6, for AES-GCM
    monkeypatch.setattr(quic_connection, "KEY_LIMIT_PACKETS", 1000)
    pair = _burst_pair()
    secrets = set()
    for number in range(10):
        pair.carry(MESSAGE, number)
        secrets.add(pair.server._link._connection._keys[0].secret)  # type: ignore[attr-defined]
    assert 2 <= len(secrets) <= 4
    assert pair.client.counters().repairs == 0


@pytest.mark.parametrize("message_id", [-1, 1 << 64])
def test_an_identifier_that_64_bits_cannot_hold_is_refused(message_id: int) -> None:
    pair = QuicPair()
    with pytest.raises(ValueError, match="message_id"):
        pair.client.send_message(message_id, b"", pair.now)


def test_parameters_are_checked_and_named() -> None:
    spec = Registry.installed().resolve("quic")
    with pytest.raises(ValueError, match="initial_window_segments: 0 is less than 1"):
        spec.make_parameters({"initial_window_segments": 0})
    with pytest.raises(ValueError, match="congestion: 'vegas' is not one of cubic, reno, adaptive"):
        spec.make_parameters({"congestion": "vegas"})


@pytest.mark.parametrize("congestion", ["cubic", "reno"])
def test_slow_start_doubles_however_few_acknowledgements_tell_of_it(congestion: str) -> None:
    pair = QuicPair(congestion=congestion)
    begun_s = pair.now
    pair.carry(MESSAGE)
    rounds = [0] * 8
    for departure in pair.departures:
        if _data(departure):
            rounds[int((departure.at_s - begun_s) / (RTT_S + ACK_DELAY_S))] += 1
    assert rounds[0] == 10  # RFC 9002 §7.2
    assert [count / before for before, count in pairwise(rounds[:4])] == pytest.approx([2.0] * 3, rel=0.15)  # §7.3.1
