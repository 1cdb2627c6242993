"""Timestamps on the wire: their clock, their echoes, and protection against wrapped numbers (RFC 7323)."""

from bicoastal.transports.tcp.segment import ACK
from helpers.tcp_pair import CLIENT, DELAY_S, MSS, RTT_S, SERVER, U32, Pair, filler, payload, whole_segments


def test_timestamps_wrap_in_mid_transfer() -> None:
    pair = Pair(client_bits=(1, U32 - 150), server_bits=(2, U32 - 170), lose=lambda packet: packet.data in (5, 33))
    pair.send(payload(200_000, 1), CLIENT)
    pair.send(payload(200_000, 2), SERVER)
    pair.run()
    stamps = [packet.segment.timestamp_value for packet in pair.packets]
    assert max(stamps) > U32 - 50
    assert min(stamps) < 50
    assert [data for _, data in pair.received(SERVER)] == [payload(200_000, 1)]
    assert [data for _, data in pair.received(CLIENT)] == [payload(200_000, 2)]
    assert len(pair.repairs(CLIENT)) == len(pair.repairs(SERVER)) == 2


def test_the_timestamp_clock_ticks_once_per_millisecond_and_echoes_come_back() -> None:
    pair = Pair().connect()
    pair.send(whole_segments(1))
    pair.run(until=pair.now + RTT_S)
    (data,), ack = pair.sent(), pair.acks()[-1]
    assert data.segment.timestamp_value == 5000 + int(data.at_s * 1000)
    assert ack.segment.timestamp_echo == data.segment.timestamp_value
    assert data.segment.timestamp_echo == 70000 + int(DELAY_S * 1000)  # of the SYN-ACK


def test_the_echo_stays_with_the_segment_before_the_hole() -> None:
    """RFC 7323 §4.3: a segment beyond a hole does not move the echo; the one that fills the hole does."""
    pair = Pair().connect()
    start_s = pair.now
    pair.inject(SERVER, pair.forge(CLIENT, ACK, offset=0, payload=filler(MSS)))
    pair.run(until=start_s + 0.010)
    (answer,) = pair.inject(SERVER, pair.forge(CLIENT, ACK, offset=2 * MSS, payload=filler(MSS)))
    assert answer.segment.timestamp_echo == 5000 + int(start_s * 1000)
    pair.run(until=start_s + 0.020)
    (answer,) = pair.inject(SERVER, pair.forge(CLIENT, ACK, offset=MSS, payload=filler(MSS)))
    assert answer.segment.timestamp_echo == 5000 + int((start_s + 0.020) * 1000)


def test_the_echo_of_a_delayed_acknowledgement_is_that_of_the_first_segment() -> None:
    """RFC 7323 §4.3, case (A): so the delay shows in the round trip that the sender measures."""
    pair = Pair(quick_acks=0, ack_every=3).connect()
    start_s = pair.now
    answers = []
    for number in range(3):
        pair.run(until=start_s + 0.010 * number)
        answers += pair.inject(SERVER, pair.forge(CLIENT, ACK, offset=number * MSS, payload=filler(MSS)))
    (answer,) = answers
    assert answer.segment.acknowledgement == pair.iss[CLIENT] + 1 + 3 * MSS
    assert answer.segment.timestamp_echo == 5000 + int(start_s * 1000)


def test_echoes_around_holes_are_those_of_rfc_7323() -> None:
    """RFC 7323 §4.3: segments A C B E D, stamped 1 3 2 5 4, are answered with echoes 1 1 2 2 4."""
    pair = Pair().connect()
    start_s = pair.now
    pair.run(until=start_s + 0.1)
    echoes = []
    for number, stamp in ((0, 1), (2, 3), (1, 2), (4, 5), (3, 4)):
        age_ms = int(pair.now / 0.001) - int(start_s * 1000) - 10 * stamp
        (answer,) = pair.inject(
            SERVER, pair.forge(CLIENT, ACK, offset=number * MSS, age_ms=age_ms, payload=filler(MSS))
        )
        echoes.append((answer.segment.timestamp_echo - 5000 - int(start_s * 1000)) // 10)
    assert echoes == [1, 1, 2, 2, 4]


def test_an_old_timestamp_is_dropped_and_acknowledged() -> None:
    pair = Pair().connect()
    pair.run(until=1.0)
    pair.inject(SERVER, pair.forge(CLIENT, ACK, payload=filler(100)))
    before = pair.server.receiver.next_offset
    (answer,) = pair.inject(SERVER, pair.forge(CLIENT, ACK, offset=100, age_ms=1, payload=filler(100)))
    assert answer.segment.flags == ACK  # RFC 7323 §5.3 R1
    assert pair.server.receiver.next_offset == before
    pair.inject(SERVER, pair.forge(CLIENT, ACK, offset=100, payload=filler(100)))
    assert pair.server.receiver.next_offset == before + 100


def test_an_original_behind_its_repair_is_reported_as_a_duplicate_although_its_timestamp_is_old() -> None:
    pair = Pair().connect()
    pair.run(until=1.0)
    pair.inject(SERVER, pair.forge(CLIENT, ACK, payload=filler(100)))
    (answer,) = pair.inject(SERVER, pair.forge(CLIENT, ACK, age_ms=90, payload=filler(100)))
    base = pair.iss[CLIENT] + 1
    assert answer.segment.sack_blocks == ((base, base + 100),)  # RFC 2883 §4
    assert answer.segment.acknowledgement == base + 100


def test_paws_counts_modulo_2_to_the_32() -> None:
    pair = Pair(client_bits=(1000, U32 - 500)).connect()
    pair.run(until=1.0)  # the clock has wrapped
    pair.inject(SERVER, pair.forge(CLIENT, ACK, payload=filler(100)))
    pair.inject(SERVER, pair.forge(CLIENT, ACK, offset=100, age_ms=700, payload=filler(100)))
    assert pair.server.receiver.next_offset == 100
    pair.inject(SERVER, pair.forge(CLIENT, ACK, offset=100, age_ms=-700, payload=filler(100)))
    assert pair.server.receiver.next_offset == 200


def test_a_segment_without_timestamps_is_dropped() -> None:
    pair = Pair().connect()
    bare = pair.forge(CLIENT, ACK, payload=filler(100), timestamp_value=None, timestamp_echo=None)
    assert pair.inject(SERVER, bare) == []
    assert pair.server.receiver.next_offset == 0
    assert pair.server.counters().rejected == 1  # RFC 7323 §3.2


def test_a_segment_that_is_refused_does_not_set_the_timestamp_clock() -> None:
    pair = Pair("reno")
    pair.connect()
    pair.send(bytes(20_000))
    pair.run()
    far_ahead_ms = -(2**31 - 65536)
    pair.inject(SERVER, pair.forge(CLIENT, ACK, offset=-5000, ack=9_999_999, age_ms=far_ahead_ms))
    pair.inject(SERVER, pair.forge(CLIENT, ACK, offset=-5000, ack=0, age_ms=far_ahead_ms))
    pair.send(bytes(20_000), message_id=2)
    pair.run()
    assert [data for _, data in pair.received()] == [bytes(20_000)] * 2
