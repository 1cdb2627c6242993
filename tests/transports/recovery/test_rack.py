"""RACK's rules, each by its section of RFC 8985."""

from bicoastal.transports.recovery.rack import Rack, SentPacket
from bicoastal.wan.units import INFINITY

RTT_S = 0.060
SIZE = 1000


def send(rack: Rack, number: int, sent_s: float) -> SentPacket:
    packet = SentPacket(number * SIZE, (number + 1) * SIZE)
    packet.sent_s, packet.transmissions = sent_s, 1
    rack.sent(packet)
    return packet


def resend(rack: Rack, packet: SentPacket, sent_s: float) -> None:
    packet.lost, packet.sent_s, packet.transmissions = False, sent_s, packet.transmissions + 1
    packet.retransmitted_s = min(packet.retransmitted_s, sent_s)
    rack.sent(packet)


def deliver(rack: Rack, packet: SentPacket, now: float, *, ambiguous: bool = False, original: bool = False) -> None:
    packet.done = True
    rack.delivered(packet, now, RTT_S, ambiguous=ambiguous or original, original=original)


def test_without_a_later_delivery_nothing_is_lost() -> None:
    rack = Rack()
    packets = [send(rack, n, 0.001 * n) for n in range(10)]
    assert rack.detect(10.0, 0.0) == []
    deliver(rack, packets[0], 10.0)
    assert rack.detect(10.0, 0.0) == []  # §6.2 step 5: only what was sent before the delivered one


def test_what_was_sent_earlier_than_a_delivered_packet_waits_out_the_window_then_is_lost() -> None:
    rack = Rack()
    packets = [send(rack, n, 0.001 * n) for n in range(4)]
    now = 0.003 + RTT_S
    deliver(rack, packets[3], now)
    assert rack.detect(now, 0.015) == []
    # packet 0 is due at its sending time + RACK.rtt + reo_wnd
    assert abs(rack.deadline - (0.0 + RTT_S + 0.015)) < 1e-12
    assert rack.detect(rack.deadline, 0.015) == [packets[0]]
    assert rack.detect(0.002 + RTT_S + 0.0151, 0.015) == [packets[1], packets[2]]
    assert rack.deadline == INFINITY


def test_of_packets_sent_at_one_instant_the_lower_offset_counts_as_sent_before() -> None:
    rack = Rack()
    first, second, third = (send(rack, n, 1.0) for n in range(3))
    deliver(rack, second, 1.0 + RTT_S)
    assert rack.detect(1.0 + RTT_S, 0.0) == [first]
    assert not third.lost


def test_the_window_is_zero_until_reordering_is_seen_once_three_segments_are_sacked_or_in_recovery() -> None:
    rack = Rack()
    arguments = {"min_rtt_s": RTT_S, "srtt_s": RTT_S}
    assert rack.window_s(**arguments, in_recovery=False, sacked_segments=2) == RTT_S / 4
    assert rack.window_s(**arguments, in_recovery=False, sacked_segments=3) == 0.0
    assert rack.window_s(**arguments, in_recovery=True, sacked_segments=0) == 0.0
    packets = [send(rack, n, 0.001 * n) for n in range(2)]
    deliver(rack, packets[1], 0.1)
    deliver(rack, packets[0], 0.1)  # §6.2 step 3: below the furthest, never sent again
    assert rack.reordering_seen
    assert rack.window_s(**arguments, in_recovery=True, sacked_segments=9) == RTT_S / 4


def test_each_round_with_a_dsack_widens_the_window_by_a_quarter_up_to_srtt_for_sixteen_recoveries() -> None:
    rack = Rack()
    rack.reordering_seen = True
    arguments = {"min_rtt_s": RTT_S, "srtt_s": 0.070, "in_recovery": True, "sacked_segments": 9}
    rack.duplicate_reported(una=1000, next_offset=5000)
    rack.duplicate_reported(una=2000, next_offset=6000)  # the same round
    assert rack.window_s(**arguments) == 2 * RTT_S / 4
    for una in (6000, 12000, 18000, 24000):
        rack.duplicate_reported(una=una, next_offset=una + 5000)
    assert rack.window_s(**arguments) == 0.070
    for _ in range(16):
        rack.recovery_ended()
    assert rack.window_s(**arguments) == RTT_S / 4


def test_a_lost_repair_is_found_by_a_later_delivery() -> None:
    rack = Rack()
    first, second = send(rack, 0, 0.0), send(rack, 1, 0.001)
    deliver(rack, second, 0.061)
    assert rack.detect(0.061, 0.0) == [first]
    resend(rack, first, 0.061)
    third = send(rack, 2, 0.062)
    deliver(rack, third, 0.122)
    assert rack.detect(0.122, 0.0) == [first]


def test_an_acknowledgement_that_may_be_of_the_original_does_not_move_the_clock() -> None:
    rack = Rack()
    first = send(rack, 0, 0.0)
    resend(rack, first, 0.100)
    deliver(rack, first, 0.101)  # 1 ms after the repair: less than any RTT (§6.2 step 2)
    assert rack.newest_sent_s < 0
    second = send(rack, 1, 0.2)
    resend(rack, second, 0.3)
    deliver(rack, second, 0.4, ambiguous=True)  # the timestamp echo says so
    assert rack.newest_sent_s < 0


def test_expire_takes_what_was_sent_by_then_and_leaves_the_rest_in_flight() -> None:
    rack = Rack()
    packets = [send(rack, n, float(n)) for n in range(4)]
    packets[1].done = True
    assert rack.expire(2.0) == [packets[0], packets[2]]
    assert rack.oldest() is packets[3]
    assert rack.expire(2.0) == []
    assert rack.expire(3.0) == [packets[3]]


def test_of_a_repair_and_new_data_that_leave_together_the_one_sent_first_counts_as_sent_before() -> None:
    """The RFC breaks the tie by offset, because a sender may not remember the order; this one does."""
    rack = Rack()
    first, _ = send(rack, 0, 0.0), send(rack, 1, 0.0)
    new = send(rack, 2, 1.0)
    resend(rack, first, 1.0)
    deliver(rack, new, 1.0 + RTT_S)
    assert first not in rack.detect(1.0 + RTT_S, 0.0)
    deliver(rack, first, 1.0 + RTT_S)
    later = send(rack, 3, 2.0)
    resend(rack, later, 3.0)
    assert rack.detect(9.0, 0.0) == []


def test_an_original_that_arrives_after_its_repair_left_is_reordering_as_long_as_more_has_arrived() -> None:
    rack = Rack()
    first, second = send(rack, 0, 0.0), send(rack, 1, 0.001)
    deliver(rack, second, 0.061)
    resend(rack, first, 0.062)
    deliver(rack, first, 0.064, original=True)
    assert rack.reordering_seen
    rack = Rack()
    first, second = send(rack, 0, 0.0), send(rack, 1, 0.001)
    deliver(rack, second, 0.061)
    resend(rack, first, 0.062)
    deliver(rack, first, 0.124, ambiguous=True)  # it may just as well be the repair
    assert not rack.reordering_seen
    rack = Rack()
    only = send(rack, 0, 0.0)
    resend(rack, only, 0.5)
    deliver(rack, only, 0.6, original=True)  # late, but nothing has overtaken it
    assert not rack.reordering_seen


def test_packets_marked_too_soon_go_back_to_their_places_in_the_order_of_sending() -> None:
    rack = Rack()
    packets = [send(rack, n, 0.01 * n) for n in range(5)]
    for packet in (packets[1], packets[3]):
        packet.lost = True
    rack.detect(10.0, 0.0)
    for packet in (packets[3], packets[1]):
        packet.lost = False
    rack.restore([packets[3], packets[1]])
    deliver(rack, packets[4], 0.04 + RTT_S)
    assert rack.detect(10.0, 0.0) == packets[:4]


def test_a_packet_that_comes_late_does_not_set_the_clock_back() -> None:
    rack = Rack()
    packets = [send(rack, n, 0.001 * n) for n in range(4)]
    deliver(rack, packets[3], 0.003 + RTT_S)
    deliver(rack, packets[0], 0.003 + RTT_S)
    assert rack.newest_sent_s == 0.003
    assert rack.detect(0.1, 0.0) == packets[1:3]
