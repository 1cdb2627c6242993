"""The three-way handshake, its losses and its repeats, judged by scapy and by RFC 9293, 6298 and 5961."""

import pytest
from scapy.layers.inet import TCP

from bicoastal.transports.events import Connected
from bicoastal.transports.tcp.segment import ACK, RST
from helpers.tcp_pair import (
    CLIENT,
    DELAY_S,
    MSS,
    MTU,
    ROLES,
    RTT_S,
    SERVER,
    Pair,
    dissect,
    options,
    payload,
    rounds,
    whole_segments,
)


def connections(pair: Pair) -> list[tuple[float, str]]:
    return [(at_s, role) for at_s, role, event in pair.events if isinstance(event, Connected)]


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


def test_a_server_sends_nothing_before_the_first_syn() -> None:
    pair = Pair()
    assert pair.server.datagrams_to_send(0.0) == []
    assert pair.server.get_timer() is None


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
    assert [packet.at_s for packet in pair.handshakes(SERVER)] == pytest.approx(
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
    pair.inject(SERVER, pair.handshakes(CLIENT)[0].segment)
    pair.send(whole_segments(7), SERVER)
    pair.run()
    assert len(pair.handshakes(SERVER)) == 2
    assert [len(flight) for flight in rounds(pair.sent(SERVER), RTT_S / 2)] == [7]


def test_the_end_whose_timer_ends_first_repairs_a_lost_syn_ack() -> None:
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
    assert [packet.at_s for packet in pair.handshakes(SERVER)] == pytest.approx([DELAY_S, DELAY_S + 1])
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
    stray = Pair(client_bits=(77, 0))
    stray.run(until=DELAY_S)
    (syn_ack,) = stray.handshakes(SERVER)
    segment = syn_ack.segment
    assert (segment.mss, segment.window_scale, segment.sack_permitted) == (MTU - 40, 14, True)  # nothing else is wrong
    assert pair.inject(CLIENT, syn_ack.segment) == []
    assert pair.client.counters().rejected == 1
    assert connections(pair) == []


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
    (syn_ack,) = pair.handshakes(SERVER)
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
