"""A connection from its first SYN on, judged by scapy and by the rules of RFC 9293, 7323, 5961 and 6298."""

from collections.abc import Callable
from dataclasses import fields
from random import Random

import pytest
from scapy.layers.inet import IP, TCP

from tcp_pair import (
    CLIENT,
    DELAY_S,
    FRAME,
    MSS,
    MTU,
    ROLES,
    RTT_S,
    SERVER,
    Packet,
    Pair,
    addresses,
    dissect,
    lose_data,
    options,
    rounds,
)
from transports.base import Counters, EndpointContext, PathView
from transports.events import Connected, Failed
from transports.tcp.parameters import TcpParameters
from transports.tcp.registration import RENO
from transports.tcp.segment import ACK, FIN, PSH, RST, SYN

U32 = 1 << 32


def payload(size: int, seed: int = 0) -> bytes:
    return Random(seed).randbytes(size)


def filler(size: int) -> bytes:
    """Return octets that any stream may hold: empty messages, one after another."""
    return bytes(size)


def whole_segments(count: int) -> bytes:
    """Return a message that fills `count` segments."""
    return payload(count * MSS - FRAME)


def handshakes(pair: Pair, role: str) -> list[Packet]:
    return [packet for packet in pair.packets if packet.role == role and packet.segment.flags & SYN]


def connections(pair: Pair) -> list[tuple[float, str]]:
    return [(at_s, role) for at_s, role, event in pair.events if isinstance(event, Connected)]


# -- the handshake -----------------------------------------------------------------------------------------------------


def test_scapy_reads_the_handshake() -> None:
    pair = Pair(start_s=1.5).connect()
    syn, syn_ack, ack = (dissect(packet.segment)[TCP] for packet in pair.packets)
    assert (str(syn.flags), syn.seq, syn.ack, syn.window) == ("S", 1000, 0, 65535)
    assert options(syn) == {"MSS": MTU - 40, "SAckOK": b"", "Timestamp": (5000 + 1500, 0), "WScale": 14}
    assert (str(syn_ack.flags), syn_ack.seq, syn_ack.ack, syn_ack.window) == ("SA", 9000, 1001, 65535)
    assert options(syn_ack) == {"MSS": MTU - 40, "SAckOK": b"", "Timestamp": (70000 + 1530, 6500), "WScale": 14}
    assert (str(ack.flags), ack.seq, ack.ack) == ("A", 1001, 9001)
    assert options(ack) == {"Timestamp": (6560, 71530)}  # RFC 7323 §3.2: in every segment, and nothing that a SYN has
    assert (syn.sport, syn.dport) == (syn_ack.dport, syn_ack.sport)
    assert connections(pair) == [(pytest.approx(1.56), CLIENT), (pytest.approx(1.59), SERVER)]


def test_a_server_speaks_only_when_spoken_to() -> None:
    pair = Pair()
    assert pair.server.datagrams_to_send(0.0) == []
    assert pair.server.get_timer() is None


@pytest.mark.parametrize("mtu", [576, 1500, 9000])
def test_the_maximum_segment_size_leaves_room_for_both_headers(mtu: int) -> None:
    pair = Pair(mtu=mtu).connect()
    assert options(dissect(pair.packets[0].segment)[TCP])["MSS"] == mtu - 40  # RFC 6691: whatever the options


def test_the_syn_is_repeated_after_1_2_4_s_and_so_on_and_then_the_client_gives_up() -> None:
    pair = Pair(lose=lambda packet: True)
    pair.run()
    # RFC 6298 §2.1, §5.5; a minute is the most: §2.5
    assert [packet.at_s for packet in pair.packets] == [0, 1, 3, 7, 15, 31, 63, 123]
    (failure,) = pair.failures()
    assert failure[0] == 183 >= 3 * 60  # RFC 9293 §3.8.3
    assert "does not answer" in failure[1]
    assert connections(pair) == []
    assert pair.client.get_timer() is None


def test_a_server_whose_syn_acks_vanish_gives_up_too() -> None:
    pair = Pair(lose=lambda packet: packet.role == SERVER or packet.number > 0)
    pair.run()
    assert [packet.at_s for packet in handshakes(pair, SERVER)] == pytest.approx(
        [DELAY_S + after_s for after_s in (0, 1, 3, 7, 15, 31, 63, 123)]
    )
    assert len(pair.failures(SERVER)) == 1


@pytest.mark.parametrize("lost", [CLIENT, SERVER])
def test_a_lost_syn_costs_a_second_the_initial_window_and_a_timeout_of_three_seconds(lost: str) -> None:
    pair = Pair(lose=lambda packet: packet.role == lost and packet.number == 0)
    pair.send(whole_segments(7))
    pair.send(whole_segments(7), SERVER)
    pair.run()
    assert connections(pair) == [(pytest.approx(1 + RTT_S), CLIENT), (pytest.approx(1 + 1.5 * RTT_S), SERVER)]
    for role in ROLES if lost == SERVER else [CLIENT]:  # the server cannot know of a SYN that never came
        sizes = [len(flight) for flight in rounds(pair.sent(role), RTT_S / 2)]
        assert sizes == [1, 2, 4]  # RFC 5681 §3.1: the initial window is one segment
    pair = Pair(lose=lambda packet: (packet.role == lost and packet.number == 0) or packet.data is not None)
    pair.send(payload(100))
    pair.run(until=20.0)
    probe, first = pair.repairs()[:2]
    assert probe.at_s - pair.sent()[0].at_s == pytest.approx(1)  # RFC 8985 §7.2, without a sample
    assert first.at_s - probe.at_s == pytest.approx(3)  # RFC 6298 §5.7


def test_a_syn_that_the_network_duplicates_costs_no_window() -> None:
    pair = Pair()
    pair.run(until=1.2 * DELAY_S)
    pair.inject(SERVER, handshakes(pair, CLIENT)[0].segment)
    pair.send(whole_segments(7), SERVER)
    pair.run()
    assert len(handshakes(pair, SERVER)) == 2
    assert [len(flight) for flight in rounds(pair.sent(SERVER), RTT_S / 2)] == [7]


def test_a_lost_syn_ack_is_repaired_by_whoever_is_first() -> None:
    pair = Pair(lose=lambda packet: packet.role == SERVER and packet.number == 0)
    pair.send(payload(5000))
    pair.run()
    # the client's second SYN leaves at 1 s; the server's second SYN-ACK at 1.03 s, by its timer or upon that SYN
    assert connections(pair)[0] == (pytest.approx(1 + RTT_S), CLIENT)
    assert len(connections(pair)) == 2
    assert [data for _, data in pair.received()] == [payload(5000)]


def test_a_lost_acknowledgement_of_the_syn_ack_is_drawn_out_by_another_syn_ack() -> None:
    pair = Pair(lose=lambda packet: packet.role == CLIENT and packet.number == 1)
    pair.run()
    assert [packet.at_s for packet in handshakes(pair, SERVER)] == pytest.approx([DELAY_S, DELAY_S + 1])
    assert connections(pair) == [(pytest.approx(RTT_S), CLIENT), (pytest.approx(DELAY_S + 1 + RTT_S), SERVER)]


def test_where_that_acknowledgement_is_lost_the_first_data_opens_the_connection_and_is_kept() -> None:
    pair = Pair(lose=lambda packet: packet.role == CLIENT and packet.number == 1)
    pair.run(until=1.2 * RTT_S)
    pair.send(payload(3 * MSS))
    pair.run()
    assert connections(pair)[1] == (pytest.approx(1.2 * RTT_S + DELAY_S), SERVER)
    assert pair.received() == [(pytest.approx(1.2 * RTT_S + DELAY_S), payload(3 * MSS))]
    assert pair.repairs() == []


def test_an_acknowledgement_of_something_else_does_not_open_the_connection() -> None:
    pair = Pair()
    pair.run(until=1.5 * DELAY_S)
    for ack in (-1, 1, 5000):
        pair.inject(SERVER, pair.forge(CLIENT, ACK, ack=ack))
    assert connections(pair) == []
    pair.inject(SERVER, pair.forge(CLIENT, ACK, ack=0))
    assert connections(pair) == [(1.5 * DELAY_S, SERVER)]


def test_a_syn_ack_of_another_connection_is_refused_and_counted() -> None:
    pair = Pair()
    pair.run(until=0.001)
    handshake = {"mss": 1460, "window_scale": 7, "sack_permitted": True}
    stray = Pair(client_bits=(77, 0))
    stray.run(until=DELAY_S)
    (syn_ack,) = handshakes(stray, SERVER)
    assert pair.inject(CLIENT, syn_ack.segment) == []
    assert pair.client.counters().rejected == 1
    assert connections(pair) == []
    assert {name: getattr(syn_ack.segment, name) for name in handshake} == {**handshake, "window_scale": 14}


def test_repeated_syns_and_syn_acks_change_nothing() -> None:
    pair = Pair().connect()
    syn, syn_ack, _ = (packet.segment for packet in pair.packets)
    pair.send(payload(20 * MSS))
    pair.run(until=pair.now + 0.5 * RTT_S)
    for _ in range(2):
        (answer,) = pair.inject(CLIENT, syn_ack)
        assert (answer.segment.flags, answer.data) == (ACK, None)  # RFC 5961 §4.2
        (answer,) = pair.inject(SERVER, syn)
        assert (answer.segment.flags, answer.data) == (ACK, None)
    pair.run()
    assert len(connections(pair)) == 2
    assert [data for _, data in pair.received()] == [payload(20 * MSS)]
    assert pair.repairs() == []


def test_syn_acks_that_arrive_together_open_one_connection() -> None:
    pair = Pair()
    pair.run(until=1.5 * DELAY_S)
    (syn_ack,) = handshakes(pair, SERVER)
    for _ in range(3):
        pair.inject(CLIENT, syn_ack.segment)
    pair.send(payload(100))
    pair.run()
    assert len(connections(pair)) == 2
    assert [data for _, data in pair.received()] == [payload(100)]


def test_a_reset_that_acknowledges_the_syn_refuses_the_connection() -> None:
    pair = Pair()
    pair.run(until=1.5 * DELAY_S)
    reset = pair.forge(SERVER, RST | ACK, offset=-1, ack=1)
    assert pair.inject(CLIENT, reset) == []
    assert pair.failures() == []  # it acknowledges something else: RFC 9293 §3.10.7.3
    pair.inject(CLIENT, pair.forge(SERVER, RST, offset=-1, ack=0))
    assert pair.failures() == []  # it acknowledges nothing
    pair.inject(CLIENT, pair.forge(SERVER, RST | ACK, offset=-1, ack=0))
    ((_, reason),) = pair.failures()
    assert "refused" in reason
    assert pair.client.get_timer() is None


def test_both_ends_may_offer_data_before_the_handshake_ends() -> None:
    pair = Pair()
    pair.send(payload(40_000, 1), CLIENT)
    pair.send(payload(30_000, 2), SERVER)
    pair.run()
    assert [data for _, data in pair.received(SERVER)] == [payload(40_000, 1)]
    assert [data for _, data in pair.received(CLIENT)] == [payload(30_000, 2)]
    first = pair.sent(CLIENT)[0]
    assert first.at_s == pytest.approx(RTT_S)
    assert pair.sent(SERVER)[0].at_s == pytest.approx(1.5 * RTT_S)


def test_the_handshake_gives_the_first_rtt_sample_unless_it_had_to_be_repeated() -> None:
    pair = Pair().connect()
    for role in ROLES:
        assert pair.ends[role].sample(pair.now).srtt_s == pytest.approx(RTT_S)
    pair = Pair(lose=lambda packet: packet.number == 0)
    pair.run()
    assert len(connections(pair)) == 2
    for role in ROLES:
        assert pair.ends[role].sample(pair.now).srtt_s is None  # Karn's rule: RFC 6298 §3


# -- what the SYNs agree on --------------------------------------------------------------------------------------------


def strip(**missing: object) -> Callable[[Packet], bool]:
    """Take options out of every SYN, as some middleboxes do."""

    def change(packet: Packet) -> bool:
        if packet.segment.flags & SYN:
            for name, value in missing.items():
                setattr(packet.segment, name, value)
        return False

    return change


NO_SCALE = {"window_scale": None}
NO_STAMPS = {"timestamp_value": None, "timestamp_echo": None}
NO_SACK = {"sack_permitted": False}


@pytest.mark.parametrize("missing", [NO_SCALE, NO_STAMPS, NO_SACK, {"mss": None}, NO_SCALE | NO_STAMPS | NO_SACK])
def test_an_option_that_a_syn_lacks_is_not_used_and_the_data_arrives_all_the_same(missing: dict[str, object]) -> None:
    """RFC 7323 §2.2 and §3.2, RFC 2018 §2, RFC 9293 §3.7.1."""
    change = strip(**missing)
    pair = Pair(octets=True, lose=lambda packet: change(packet) or packet.data in (40, 41, 70)).connect()
    pair.send(payload(300_000, 1), CLIENT)
    pair.send(payload(200_000, 2), SERVER)
    pair.run()
    assert [data for _, data in pair.received(SERVER)] == [payload(300_000, 1)]
    assert [data for _, data in pair.received(CLIENT)] == [payload(200_000, 2)]
    known = [options(dissect(packet.segment)[TCP]) for packet in pair.packets]
    answer = options(dissect(handshakes(pair, SERVER)[0].segment)[TCP])
    assert any("SAck" in kinds for kinds in known) == ("sack_permitted" not in missing)
    assert any("Timestamp" in kinds for kinds in known) == ("timestamp_value" not in missing)
    assert ("WScale" in answer) == ("window_scale" not in missing)
    largest = max(packet.stop - packet.start for packet in pair.sent())
    if "mss" in missing:
        assert largest == 536 - 12  # RFC 9293 §3.7.1
    else:
        assert largest == MTU - 40 - (0 if "timestamp_value" in missing else 12)


@pytest.mark.parametrize("octets", [False, True])
def test_windows_that_are_not_scaled_stay_within_16_bits(octets: bool) -> None:
    change = strip(**NO_SCALE)
    in_flight = []

    def look(packet: Packet) -> bool:
        if packet.role == CLIENT and packet.data is not None:
            in_flight.append(packet.stop - pair.client.sender.board.una)
        return change(packet)

    pair = Pair(octets=octets, lose=look, initial_window_segments=100).connect()
    pair.send(payload(1_000_000))
    pair.run()
    assert 60_000 < max(in_flight) <= 65535
    assert {packet.segment.window for packet in pair.acks()} == {65535}
    assert pair.repairs() == []


def test_a_smaller_segment_of_the_peer_s_reaches_the_window_and_its_recovery() -> None:
    """RFC 5681 counts in SMSS, and RFC 9293 §3.7.1 makes that the peer's."""
    pair = Pair(mtu=9000, server_mtu=1500, ack_every=1, quick_acks=0, rate_bps=100e6, lose=lose_data(100)).connect()
    pair.send(whole_segments(900))
    assert len(pair.sent()) == 10
    assert {packet.stop - packet.start for packet in pair.sent()} == {MSS}
    pair.run(stop=lambda: bool(pair.repairs()))
    assert pair.client.sender.congestion.mss_bytes == MSS
    (first,) = pair.repairs()
    begin_s, end_s = first.at_s, first.at_s + RTT_S
    pair.run(until=end_s)
    sent = [packet.at_s for packet in pair.sent() if packet.at_s > begin_s]
    answers = sum(begin_s < (ack.arrives_s or 0.0) <= end_s for ack in pair.acks())
    assert len(sent) == pytest.approx(answers / 2, rel=0.05)
    assert max(sent.count(at_s) for at_s in sent) == 1  # RFC 9937: one for every two that arrive, not six at a time


@pytest.mark.parametrize(("mtu", "segments"), [(1500, 10), (9000, 2), (4000, 3), (576, 10)])
def test_the_initial_window_keeps_to_rfc_6928_where_asked_to(mtu: int, segments: int) -> None:
    """RFC 6928 §2: min(10 MSS, max(2 MSS, 14600 bytes))."""
    pair = Pair(mtu=mtu, initial_window_bounded=True).connect()
    pair.send(bytes(1_000_000))
    assert len(pair.sent()) == segments


# -- sequence numbers and timestamps -----------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [frozenset(), frozenset({3, 40, 41, 95})])
@pytest.mark.parametrize("short_of_the_top", [0, 1, 1448, 60_000])
def test_sequence_numbers_wrap_in_mid_transfer(short_of_the_top: int, lost: frozenset[int]) -> None:
    pair = Pair(
        client_bits=(U32 - 1 - short_of_the_top, 0),
        server_bits=(U32 - 1 - short_of_the_top // 2, 0),
        lose=lambda packet: packet.data in lost,
        octets=True,
    )
    pair.send(payload(150_000, 1), CLIENT)
    pair.send(payload(140_000, 2), SERVER)
    pair.run()
    assert [data for _, data in pair.received(SERVER)] == [payload(150_000, 1)]
    assert [data for _, data in pair.received(CLIENT)] == [payload(140_000, 2)]
    assert len(pair.repairs(CLIENT)) == len(pair.repairs(SERVER)) == len(lost)
    assert max(packet.segment.sequence for packet in pair.packets) > U32 - 2 - short_of_the_top
    assert min(packet.segment.sequence for packet in pair.sent()) < 150_000


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


# -- segments that do not belong ---------------------------------------------------------------------------------------


def test_an_acknowledgement_of_data_never_sent_is_dropped_counted_and_answered() -> None:
    pair = Pair().connect()
    pair.send(payload(2 * MSS))
    (answer,) = pair.inject(CLIENT, pair.forge(SERVER, ACK, ack=2 * MSS + FRAME + 1, payload=filler(10)))
    assert answer.segment.flags == ACK  # RFC 9293 §3.10.7.4
    assert pair.client.counters().rejected == 1
    assert pair.client.receiver.next_offset == 0
    pair.run()
    assert [data for _, data in pair.received()] == [payload(2 * MSS)]


@pytest.mark.parametrize("offset", [-5000, 1 << 30])
def test_nothing_is_taken_from_a_segment_outside_of_the_window_but_it_is_answered(offset: int) -> None:
    """RFC 9293 §3.10.7.4, first check: the acknowledgement in it, too, may be forged or stale."""
    pair = Pair().connect()
    pair.send(payload(5 * MSS))
    (answer,) = pair.inject(CLIENT, pair.forge(SERVER, ACK, offset=offset, ack=5 * MSS))
    assert answer.segment.flags == ACK
    assert pair.client.sender.board.una == 0
    assert pair.client.counters().rejected == (offset > 0)
    pair.run()
    assert [data for _, data in pair.received()] == [payload(5 * MSS)]


def test_selective_acknowledgements_of_data_never_sent_are_ignored() -> None:
    pair = Pair().connect()
    pair.send(whole_segments(4))
    edges = [(pair.iss[CLIENT] + 1 + left, pair.iss[CLIENT] + 1 + right) for left, right in ((MSS, 99 * MSS), (9, 9))]
    pair.inject(CLIENT, pair.forge(SERVER, ACK, sack_blocks=tuple(edges)))
    assert pair.client.sample(pair.now).in_flight_bytes == 4 * MSS
    pair.run()
    assert [data for _, data in pair.received()] == [whole_segments(4)]
    assert pair.repairs() == []


def test_a_reset_counts_only_at_exactly_the_expected_number() -> None:
    """RFC 5961 §3.2: elsewhere in the window it is challenged, outside of it ignored."""
    pair = Pair().connect()
    pair.send(payload(100))
    pair.run()
    expected = pair.server.receiver.next_offset
    window = pair.server.receiver.window_bytes
    for offset in (expected + 1, expected + window - 1):
        (answer,) = pair.inject(SERVER, pair.forge(CLIENT, RST, offset=offset))
        assert (answer.segment.flags, answer.data) == (ACK, None)
    for offset in (expected - 1, expected + window):
        assert pair.inject(SERVER, pair.forge(CLIENT, RST, offset=offset)) == []
    assert pair.failures(SERVER) == []
    assert pair.inject(SERVER, pair.forge(CLIENT, RST, offset=expected)) == []
    ((_, reason),) = pair.failures(SERVER)
    assert "reset" in reason
    assert pair.server.get_timer() is None


def test_a_fin_counts_only_in_order() -> None:
    pair = Pair().connect()
    (answer,) = pair.inject(SERVER, pair.forge(CLIENT, FIN | ACK, offset=1))
    assert answer.segment.flags == ACK
    assert pair.failures(SERVER) == []
    pair.inject(SERVER, pair.forge(CLIENT, FIN | ACK))
    ((_, reason),) = pair.failures(SERVER)
    assert "closed" in reason


@pytest.mark.parametrize("cut", [slice(0, 19), slice(0, 25), slice(0, -1), slice(1, None)])
def test_damaged_octets_are_dropped_and_counted(cut: slice) -> None:
    pair = Pair().connect()
    octets = bytes(pair.forge(CLIENT, ACK, payload=filler(100)))
    assert pair.inject(SERVER, octets[cut]) == []
    assert pair.server.counters().rejected == 1
    pair.inject(SERVER, octets)
    assert pair.server.receiver.next_offset == 100


def test_a_stream_that_makes_no_sense_ends_the_connection_with_its_reason() -> None:
    pair = Pair().connect()
    pair.inject(SERVER, pair.forge(CLIENT, ACK | PSH, payload=b"\xff" * FRAME))
    ((_, reason),) = pair.failures(SERVER)
    assert "message" in reason


def test_after_the_end_nothing_is_sent_and_nothing_comes_of_what_arrives() -> None:
    pair = Pair().connect()
    pair.inject(SERVER, pair.forge(CLIENT, RST))
    pair.send(payload(100), SERVER)
    assert pair.inject(SERVER, pair.forge(CLIENT, ACK, payload=filler(100))) == []
    assert pair.server.get_timer() is None
    assert sum(isinstance(event, Failed) for _, _, event in pair.events) == 1


# -- what is on the wire -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mtu", [576, 1500, 9000])
def test_scapy_finds_every_segment_of_a_lossy_exchange_well_formed(mtu: int) -> None:
    random = Random(mtu)
    pair = Pair(
        "cubic",
        mtu=mtu,
        lose=lambda packet: random.random() < 0.05,
        late=lambda packet: 0.004 if random.random() < 0.1 else 0.0,
        octets=True,
    )
    size = 60 * mtu
    pair.send(payload(size, 1), CLIENT, 7)
    pair.send(payload(size, 2), SERVER, 8)
    pair.run()
    assert [data for _, data in pair.received(SERVER)] == [payload(size, 1)]
    assert [data for _, data in pair.received(CLIENT)] == [payload(size, 2)]
    seen_sack = 0
    for packet in pair.packets:
        ip = dissect(packet.segment)
        tcp, data = ip[TCP], bytes(packet.segment.payload)
        assert len(ip) == packet.wire_bytes <= mtu
        assert bytes(tcp.payload) == data
        known = options(tcp)
        assert "Timestamp" in known
        flags = str(tcp.flags)
        assert set(flags) <= set("SAP")
        assert ("S" in flags) == ("MSS" in known) == ("WScale" in known) == ("SAckOK" in known)
        assert ("A" in flags) == (packet.number > 0 or packet.role == SERVER) or flags == "S"
        if "SAck" in known:
            seen_sack += 1
            assert not data  # a full segment has no room for them
            assert len(known["SAck"]) <= 6  # three blocks beside timestamps: RFC 2018 §3
        claimed = tcp.chksum
        source, destination = addresses(packet.segment.four_tuple)
        del tcp.chksum
        assert IP(bytes(IP(src=source, dst=destination, proto=6) / tcp))[TCP].chksum == claimed
    assert seen_sack > 10


def test_the_end_of_what_is_offered_is_pushed() -> None:
    pair = Pair().connect()
    pair.send(whole_segments(3))
    pair.run()
    assert [bool(packet.segment.flags & PSH) for packet in pair.sent()] == [False, False, True]


def test_packets_tell_how_many_of_their_burst_are_to_come_and_repairs_do_not() -> None:
    pair = Pair(lose=lambda packet: packet.role == CLIENT and packet.data == 5).connect()
    pair.send(payload(19 * MSS + 100))
    pair.run()
    first = [packet.burst_left for packet in pair.sent() if not packet.repair]
    assert first == list(range(19, -1, -1))
    assert [packet.burst_left for packet in pair.repairs()] == [None]
    assert all(packet.burst_left is None for packet in pair.acks())


def test_sizes_on_the_wire_are_those_of_the_octets() -> None:
    pair = Pair(lose=lambda packet: packet.data in (3, 9)).connect()
    pair.send(payload(50_000))
    pair.run()
    assert all(packet.wire_bytes == 20 + len(bytes(packet.segment)) for packet in pair.packets)


def test_encoded_and_unencoded_segments_make_the_same_exchange() -> None:
    def exchange(octets: bool) -> list[tuple[float, str, bytes]]:
        pair = Pair("cubic", lose=lambda packet: packet.number % 17 == 9, octets=octets)
        pair.send(payload(100_000, 1), CLIENT)
        pair.send(payload(50_000, 2), SERVER)
        pair.run()
        return [(packet.at_s, packet.role, bytes(packet.segment)) for packet in pair.packets]

    assert exchange(False) == exchange(True)


def test_the_same_bits_make_the_same_exchange_and_others_only_shift_its_numbers() -> None:
    def exchange(bits: tuple[int, int]) -> list[tuple[float, str, int, int]]:
        pair = Pair(client_bits=bits, lose=lambda packet: packet.number % 13 == 7)
        pair.send(payload(100_000))
        pair.run()
        return [(packet.at_s, packet.role, packet.start, packet.stop) for packet in pair.packets]

    assert exchange((1, 2)) == exchange((1, 2)) == exchange((U32 - 3, U32 - 50))


# -- acknowledgements --------------------------------------------------------------------------------------------------


def test_every_second_segment_is_acknowledged() -> None:
    pair = Pair(quick_acks=0).connect()
    pair.send(whole_segments(10))
    pair.run(until=pair.now + 0.9 * DELAY_S)
    begin_s = pair.now
    pair.run()
    acks = [packet.segment.acknowledgement - pair.iss[CLIENT] - 1 for packet in pair.acks(since_s=begin_s)]
    assert acks == [2 * MSS, 4 * MSS, 6 * MSS, 8 * MSS, 10 * MSS]  # RFC 5681 §4.2


def test_each_of_the_first_segments_is_acknowledged_at_once() -> None:
    pair = Pair(quick_acks=4).connect()
    begin_s = pair.now
    pair.send(whole_segments(10))
    pair.run()
    acks = [packet.segment.acknowledgement - pair.iss[CLIENT] - 1 for packet in pair.acks(since_s=begin_s)]
    assert acks == [MSS, 2 * MSS, 3 * MSS, 4 * MSS, 6 * MSS, 8 * MSS, 10 * MSS]


@pytest.mark.parametrize("delayed_ack_s", [0.040, 0.010])
def test_an_odd_segment_is_acknowledged_after_the_delay(delayed_ack_s: float) -> None:
    pair = Pair(quick_acks=0, delayed_ack_s=delayed_ack_s, initial_window_segments=1).connect()
    begin_s = pair.now
    pair.send(whole_segments(2))  # the window holds the second back, so the first is not the end of the message
    pair.run()
    assert pair.acks(since_s=begin_s)[0].at_s == pytest.approx(begin_s + DELAY_S + delayed_ack_s)


def test_data_going_the_other_way_carries_the_acknowledgement() -> None:
    pair = Pair(quick_acks=0, initial_window_segments=1).connect()
    begin_s = pair.now
    pair.send(whole_segments(2))
    pair.run(until=begin_s + DELAY_S + 0.010)  # the first is here, and its acknowledgement is being delayed
    pair.send(payload(100), SERVER)
    (answer,) = pair.sent(SERVER)
    assert answer.segment.acknowledgement == pair.iss[CLIENT] + 1 + MSS
    pair.run(until=pair.now + 0.040)
    assert pair.acks(since_s=begin_s) == []


def test_where_data_may_go_it_carries_the_acknowledgement_that_is_due() -> None:
    pair = Pair().connect()
    pair.send(whole_segments(50), SERVER)
    answers = pair.inject(SERVER, pair.forge(CLIENT, ACK, ack=2 * MSS, payload=filler(MSS)))
    assert len(answers) >= 2
    assert all(packet.data is not None for packet in answers)
    assert {packet.segment.acknowledgement for packet in answers} == {pair.iss[CLIENT] + 1 + MSS}


def test_sack_blocks_go_at_once_and_alone_even_where_data_is_waiting() -> None:
    pair = Pair().connect()
    pair.send(whole_segments(50), SERVER)
    hole = pair.forge(CLIENT, ACK, offset=MSS, ack=2 * MSS, payload=filler(MSS))
    alone, *data = pair.inject(SERVER, hole)
    base = pair.iss[CLIENT] + 1
    assert (alone.data, alone.segment.sack_blocks) == (None, ((base + MSS, base + 2 * MSS),))
    assert len(data) >= 2
    assert all(packet.segment.sack_blocks == () for packet in data)


def test_with_ack_every_1_there_is_one_acknowledgement_per_segment() -> None:
    pair = Pair(quick_acks=0, ack_every=1).connect()
    begin_s = pair.now
    pair.send(whole_segments(10))
    pair.run()
    assert len(pair.acks(since_s=begin_s)) == 10


# -- the peer's window -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "shift"), [(65535, 0), (65536, 1), (1 << 20, 5), (1 << 29, 14), (1 << 30, 14)])
def test_the_window_scale_is_the_least_that_tells_the_largest_window(most: int, shift: int) -> None:
    pair = Pair(max_receive_window_bytes=most).connect()
    assert options(dissect(pair.packets[0].segment)[TCP])["WScale"] == shift  # RFC 7323 §2.3: at most 14
    assert most >> shift <= 65536


@pytest.mark.parametrize("window", [10_000, 65535, 200_000])
def test_no_more_is_in_flight_than_the_peer_allows(window: int) -> None:
    in_flight = []

    def look(packet: Packet) -> bool:
        if packet.role == CLIENT and packet.data is not None:
            in_flight.append(packet.stop - pair.client.sender.board.una)
        return False

    pair = Pair(receive_window_bytes=min(window, 65535), max_receive_window_bytes=window, lose=look).connect()
    pair.send(payload(2_000_000))
    pair.run()
    assert 0.8 * window < max(in_flight) <= window
    assert [data for _, data in pair.received()] == [payload(2_000_000)]
    assert pair.repairs() == []


def test_the_peer_s_window_never_cuts_a_segment_short() -> None:
    """RFC 9293 §3.8.6.2.1: a sender avoids the silly window."""
    pair = Pair(receive_window_bytes=5 * MSS + 700, max_receive_window_bytes=5 * MSS + 700).connect()
    pair.send(whole_segments(60))
    pair.run()
    assert {packet.stop - packet.start for packet in pair.sent()} == {MSS}
    assert [data for _, data in pair.received()] == [whole_segments(60)]


def test_a_window_of_less_than_a_segment_is_used_as_it_is() -> None:
    pair = Pair(receive_window_bytes=1000, max_receive_window_bytes=1000, quick_acks=0).connect()
    pair.send(payload(9_984))
    pair.run()
    assert [data for _, data in pair.received()] == [payload(9_984)]
    assert {packet.stop - packet.start for packet in pair.sent()} == {1000}


def test_the_receive_window_keeps_ahead_of_a_sender_that_doubles() -> None:
    pair = Pair().connect()
    pair.send(payload(8_000_000))
    pair.run()
    flights = {round(packet.at_s, 3): 0 for packet in pair.sent()}
    for packet in pair.sent():
        flights[round(packet.at_s, 3)] += 1
    sizes = list(flights.values())
    assert sizes[:9] == [10, 20, 40, 80, 160, 320, 640, 1280, 2560]


# -- messages ----------------------------------------------------------------------------------------------------------


def test_messages_arrive_once_in_order_and_whole() -> None:
    pair = Pair("cubic", lose=lambda packet: packet.number % 11 == 6).connect()
    sizes = [0, 1, MSS - FRAME, MSS - FRAME + 1, 70_000, 0, 3]
    for number, size in enumerate(sizes):
        pair.send(payload(size, number), message_id=2**64 - 1 - number)
    pair.run()
    assert [data for _, data in pair.received()] == [payload(size, number) for number, size in enumerate(sizes)]
    ids = [event.message_id for _, role, event in pair.events if role == SERVER and hasattr(event, "message_id")]
    assert ids == [2**64 - 1 - number for number in range(len(sizes))]


@pytest.mark.parametrize("message_id", [-1, 2**64])
def test_an_identifier_that_is_no_u64_is_refused(message_id: int) -> None:
    pair = Pair().connect()
    with pytest.raises(ValueError, match="message_id"):
        pair.client.send_message(message_id, b"", pair.now)


def test_a_clean_transfer_repairs_probes_and_rejects_nothing() -> None:
    pair = Pair("cubic").connect()
    pair.send(payload(500_000))
    pair.run()
    counters = pair.client.counters()
    assert counters == Counters(packets=len(pair.sent(CLIENT, data=False)))
    assert {field.name: getattr(pair.server.counters(), field.name) for field in fields(Counters)}["rejected"] == 0


# -- parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("initial_window_segments", 0),
        ("byte_count_limit", 0),
        ("ack_every", 0),
        ("quick_acks", -1),
        ("after_idle", "sometimes"),
        ("min_rto_s", 0.0),
        ("min_rto_s", 61.0),
        ("min_rto_s", float("nan")),
        ("delayed_ack_s", -0.001),
        ("delayed_ack_s", 0.5),
        ("max_ack_delay_s", -0.001),
        ("max_ack_delay_s", 1.5),
        ("reduces", "cwnd"),
        ("receive_window_bytes", 0),
        ("receive_window_bytes", 16383),
        ("max_receive_window_bytes", 65534),
        ("max_receive_window_bytes", (1 << 30) + 1),
    ],
)
def test_parameters_are_checked_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        TcpParameters(**{name: value})


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"min_rto_s": 60.0},
        {"delayed_ack_s": 0.0},
        {"receive_window_bytes": 1, "max_receive_window_bytes": 65535},
        {"receive_window_bytes": 16384},
    ],
)
def test_whatever_parameters_are_accepted_a_connection_can_be_made_with(parameters: dict[str, object]) -> None:
    pair = Pair(**parameters).connect()
    pair.send(payload(3000))
    pair.run()
    assert [data for _, data in pair.received()] == [payload(3000)]


def test_a_path_without_room_for_data_is_refused() -> None:
    path = PathView(path_id=0, name="narrow", mtu_bytes=52)
    assert RENO.make_endpoint is not None
    with pytest.raises(ValueError, match=r"^mtu_bytes: 52"):
        RENO.make_endpoint(
            EndpointContext(role=CLIENT, flow="f", paths=[path], rng=Random(1), parameters=TcpParameters())
        )


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
