"""What the sending half does about loss, delay and reordering, seen on the wire between two whole endpoints."""

from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from tcp_pair import CLIENT, FOREVER, FRAME, MSS, RTT_S, SERVER, Packet, Pair, lose_data, rounds
from transports.tcp.segment import ACK

RATE_BPS = 100e6  # a full segment every 0.12 ms
MIN_RTO_S = 0.2


def segments(count: int) -> bytes:
    """Return a message that fills `count` segments."""
    return bytes(count * MSS - FRAME)


def lose_first(start: int, times: int = 1) -> Callable[[Packet], bool]:
    """Lose the first `times` transmissions of the client's segment `start`, counted from 0."""
    seen = [0]

    def lose(packet: Packet) -> bool:
        if packet.role == CLIENT and packet.data is not None and packet.start == start * MSS:
            seen[0] += 1
            return seen[0] <= times
        return False

    return lose


def transmissions(pair: Pair, start: int) -> list[float]:
    """Return when segment `start` was sent."""
    return [packet.at_s for packet in pair.sent() if packet.start == start * MSS]


def acknowledged(pair: Pair, count: int) -> float:
    """Return when the client first learned that exactly `count` segments are there."""
    ack = next(ack for ack in pair.acks() if ack.segment.acknowledgement == pair.iss[CLIENT] + 1 + count * MSS)
    assert ack.arrives_s is not None
    return ack.arrives_s


def sacked_segments(pair: Pair, packet: Packet) -> float:
    return sum(right - left for left, right in packet.segment.sack_blocks) / MSS


def flights(pair: Pair) -> list[int]:
    return [len(flight) for flight in rounds([packet for packet in pair.sent() if not packet.repair], RTT_S / 2)]


# -- windows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("initial_window", [1, 4, 10])
def test_the_first_flight_is_the_initial_window(initial_window: int) -> None:
    pair = Pair(initial_window_segments=initial_window).connect()
    pair.send(segments(30))
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
    pair.send(segments(1500))
    pair.run()
    assert flights(pair)[:6] == sizes
    assert pair.repairs() == []


@pytest.mark.parametrize(("limit", "growth"), [(1, 1.5), (2, 2.0)])
def test_slow_start_grows_by_the_same_factor_on_a_wire_with_a_rate(limit: int, growth: float) -> None:
    pair = Pair(byte_count_limit=limit, quick_acks=0, rate_bps=10e9).connect()
    pair.send(segments(3000))
    pair.run()
    sizes = flights(pair)[:-1]
    assert sizes[0] == 10
    # give or take the segment at a flight's end whose acknowledgement is delayed
    assert all(abs(after - growth * before) <= 2 for before, after in pairwise(sizes[:8]))
    assert sizes[7] / sizes[3] == pytest.approx(growth**4, rel=0.03)


def test_congestion_avoidance_adds_a_segment_per_round() -> None:
    pair = Pair(lose=lose_data(100), quick_acks=0, ack_every=1, rate_bps=1e9).connect()
    pair.send(segments(3000))
    pair.run()
    after = [packet for packet in pair.sent() if packet.at_s > pair.repairs()[0].at_s + 2 * RTT_S]
    sizes = [len(flight) for flight in rounds(after, RTT_S / 2)][1:-1]
    assert len(sizes) > 10
    assert {after - before for before, after in pairwise(sizes)} == {1}  # RFC 5681 §3.1


def test_a_window_that_the_application_does_not_fill_does_not_grow() -> None:
    pair = Pair().connect()
    for number in range(20):
        pair.send(segments(3), message_id=number)
        pair.run(until=pair.now + 2 * RTT_S)
    assert pair.window() == 10
    pair = Pair(after_idle="keep", ack_every=1).connect()
    pair.send(segments(200))
    pair.run()
    window = pair.window()
    assert window > 100
    for number in range(20):
        pair.send(segments(3), message_id=2 + number)
        pair.run(until=pair.now + 2 * RTT_S)
    assert pair.window() == window


@pytest.mark.parametrize(("policy", "share"), [("keep", 1.0), ("decay", None), ("restart", None)])
def test_the_window_after_idle_time_is_what_the_policy_says(policy: str, share: float | None) -> None:
    pair = Pair(after_idle=policy).connect()
    pair.send(segments(600))
    pair.run()
    window = int(pair.window())
    assert window > 300
    rto_s = 0.27  # SRTT + min_rto
    pair.run(until=pair.now + 2.5 * rto_s)
    idle_s = pair.now - pair.sent()[-1].at_s
    begin_s = pair.now
    pair.send(segments(2000), message_id=2)
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
    pair.send(segments(600))
    pair.run()
    window = int(pair.window())
    pair.now = pair.sent()[-1].at_s + 0.15
    begin_s = pair.now
    pair.send(segments(2000), message_id=2)
    assert len(pair.sent(since_s=begin_s)) == window


def test_nothing_is_due_when_everything_is_acknowledged() -> None:
    pair = Pair(lose=lose_data(5, 17)).connect()
    pair.send(segments(40))
    pair.run()
    assert pair.client.get_timer() is pair.server.get_timer() is None
    assert pair.client.sample(pair.now).in_flight_bytes == 0


# -- loss within a flight ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate_bps", [None, RATE_BPS])
def test_a_loss_within_a_burst_is_repaired_upon_the_third_segment_beyond_it(rate_bps: float | None) -> None:
    pair = Pair(lose=lose_data(40), rate_bps=rate_bps).connect()
    pair.send(segments(200))
    pair.run()
    third = next(ack for ack in pair.acks() if sacked_segments(pair, ack) >= 3)
    assert transmissions(pair, 40)[1:] == [third.arrives_s]  # RFC 8985 §6.2: no reordering seen, three SACKed
    assert pair.client.counters().timeouts == pair.client.counters().probes == pair.client.counters().spurious == 0
    assert len(pair.received()) == 1


def test_a_repaired_loss_is_no_sign_of_reordering_so_the_next_one_is_not_waited_for_either() -> None:
    pair = Pair(lose=lambda packet: packet.role == CLIENT and packet.data in (40, 400), rate_bps=RATE_BPS).connect()
    pair.send(segments(800))
    pair.run()
    repairs = pair.repairs()
    assert len(repairs) == 2
    beyond = [ack for ack in pair.acks(since_s=repairs[0].at_s + 2 * RTT_S) if sacked_segments(pair, ack) >= 3]
    assert repairs[1].at_s == beyond[0].arrives_s


def test_with_less_than_three_segments_beyond_it_a_quarter_of_the_rtt_is_waited() -> None:
    pair = Pair(lose=lose_data(27), ack_every=1).connect()
    pair.send(segments(30))  # the last flight is 10 to 29: two follow the lost one
    pair.run()
    sent_s, repaired_s = transmissions(pair, 27)
    assert repaired_s == pytest.approx(sent_s + RTT_S + RTT_S / 4)  # RFC 8985 §6.2 step 4
    assert pair.client.counters().probes == pair.client.counters().timeouts == 0


def test_every_hole_of_a_burst_is_repaired_once_and_the_window_halved_once() -> None:
    lost = [60, 61, 62, 70, 75, 76, 90, 91, 92, 93]
    pair = Pair(lose=lose_data(*lost), rate_bps=RATE_BPS).connect()
    pair.send(segments(300))
    pair.run()
    assert sorted(packet.start // MSS for packet in pair.repairs()) == lost
    assert pair.client.counters().timeouts == 0
    assert len(pair.received()) == 1


@pytest.mark.parametrize("times", [2, 3, 4])
def test_a_lost_repair_is_repaired_a_round_trip_later_without_a_timeout(times: int) -> None:
    pair = Pair(lose=lose_first(40, times), rate_bps=RATE_BPS).connect()
    pair.send(segments(600))
    pair.run()
    sent = transmissions(pair, 40)
    assert len(sent) == times + 1
    assert all(RTT_S < later - earlier < 1.2 * RTT_S for earlier, later in pairwise(sent))
    assert pair.client.counters().timeouts == 0


def test_a_repair_that_leaves_together_with_new_data_is_not_taken_for_lost_when_that_data_arrives() -> None:
    """All acknowledgements of a flight arrive at one instant: new data and the repair after it leave at the same time.

    Breaking the tie by offset, as RFC 8985's RACK_sent_after() does, would put the repair before the new data.
    """
    pair = Pair(lose=lose_data(5)).connect()
    pair.send(segments(20))
    pair.run()
    repaired_s = transmissions(pair, 5)[1]
    assert [packet.start // MSS for packet in pair.sent() if packet.at_s == repaired_s][-2:] == [19, 5]
    assert len(pair.repairs()) == 1
    assert pair.client.counters().spurious == 0


def test_news_in_two_blocks_of_one_acknowledgement_is_no_sign_of_reordering() -> None:
    """The acknowledgement between them was lost; RFC 2018 §4 puts the later block first."""
    pair = Pair(ack_every=1).connect()
    pair.send(segments(10))
    pair.lose = lambda packet: packet.role == SERVER
    pair.run(until=pair.now + 1.05 * RTT_S)
    base = pair.iss[CLIENT] + 1
    blocks = tuple((base + left * MSS, base + right * MSS) for left, right in ((8, 10), (1, 4), (5, 6)))
    pair.inject(CLIENT, pair.forge(SERVER, ACK, ack=0, sack_blocks=blocks))
    assert transmissions(pair, 0)[1:] == [pair.now]  # six are SACKed: without reordering nothing is waited for


# -- recovery ----------------------------------------------------------------------------------------------------------


def recovery(pair: Pair) -> tuple[float, float]:
    """Return when the client learned of the first loss, and when of everything sent until then having arrived."""
    first = pair.repairs()[0]
    most = max(packet.stop for packet in pair.sent() if packet.at_s <= first.at_s)
    over = next(ack for ack in pair.acks() if ack.segment.acknowledgement - pair.iss[CLIENT] - 1 >= most)
    assert over.arrives_s is not None
    return first.at_s, over.arrives_s


@pytest.mark.parametrize(("congestion", "share"), [("reno", 0.5), ("cubic", 0.7)])
@pytest.mark.parametrize("losses", [1, 10])
def test_recovery_spreads_what_it_sends_over_the_acknowledgements(congestion: str, share: float, losses: int) -> None:
    """RFC 9937: in proportion to what arrives, no burst, no silence, and ssthresh is in flight at the end."""
    lose = lose_data(*range(100, 100 + 2 * losses, 2))
    pair = Pair(congestion, lose=lose, rate_bps=RATE_BPS, ack_every=1, quick_acks=0).connect()
    pair.send(segments(900))
    pair.run()
    begin_s, end_s = recovery(pair)
    arrivals = [ack.arrives_s for ack in pair.acks() if ack.arrives_s and begin_s < ack.arrives_s <= end_s]
    sent = [packet.at_s for packet in pair.sent() if begin_s < packet.at_s < end_s]
    per_ack = [sum(earlier <= at_s < later for at_s in sent) for earlier, later in pairwise([*arrivals, end_s])]
    assert max(per_ack) <= 2
    flight = len(arrivals) + losses  # nearly: each arrival is acknowledged
    assert len(sent) == pytest.approx(share * flight, rel=0.12)
    idle = [later - earlier for earlier, later in pairwise(sent)]
    wait = [later - earlier for earlier, later in pairwise(arrivals)]
    assert max(idle) <= max(wait) + 4 * MSS * 8 / RATE_BPS
    assert pair.client.counters().timeouts == 0


def test_where_most_of_a_flight_is_lost_one_segment_goes_for_each_that_arrives_then_two() -> None:
    """Below ssthresh PRR conserves packets (CRB), and goes as slow start does while una moves (SSRB): RFC 9937 §6.2."""
    pair = Pair(lose=lose_data(*range(100, 170)), rate_bps=RATE_BPS, ack_every=1, quick_acks=0).connect()
    pair.send(segments(900))
    pair.run()
    begin_s, end_s = recovery(pair)
    acks = [ack for ack in pair.acks() if ack.arrives_s is not None and begin_s < ack.arrives_s < end_s]
    sent = [packet.at_s for packet in pair.sent() if packet.at_s > begin_s]
    counts = {"held": [], "moving": []}
    for earlier, later in pairwise(acks):
        moved = later.segment.acknowledgement > earlier.segment.acknowledgement
        assert later.arrives_s is not None
        counts["moving" if moved else "held"].append(sum(at_s == later.arrives_s for at_s in sent))
    assert max(counts["held"]) == 1
    assert sum(counts["held"]) >= 0.9 * len(counts["held"])
    assert max(counts["moving"]) == 2
    assert pair.client.counters().timeouts == 0
    assert sorted(packet.start // MSS for packet in pair.repairs()) == list(range(100, 170))


@pytest.mark.parametrize(("congestion", "share"), [("reno", 0.5), ("cubic", 0.7)])
def test_the_window_after_recovery_is_its_share_of_what_was_in_flight(congestion: str, share: float) -> None:
    pair = Pair(congestion, lose=lose_data(299), rate_bps=RATE_BPS, ack_every=1, quick_acks=0).connect()
    pair.send(segments(2000))
    pair.run(stop=lambda: bool(pair.repairs()))
    before_s = transmissions(pair, 299)[1] - 0.001
    acked = max(ack.segment.acknowledgement for ack in pair.acks() if (ack.arrives_s or 9.0) <= before_s)
    in_flight = max(packet.stop for packet in pair.sent() if packet.at_s <= before_s) - (acked - pair.iss[CLIENT] - 1)
    window = pair.window()
    pair.run(stop=lambda: pair.window() != window)  # PRR governs until then
    assert pair.window() == pytest.approx(share * in_flight / MSS, rel=0.05)  # RFC 5681 §3.1 (4), RFC 9438 §4.6
    assert pair.client.sender.congestion.ssthresh_bytes == pytest.approx(pair.window() * MSS, rel=0.02)


@pytest.mark.parametrize(("congestion", "share"), [("reno", 0.5), ("cubic", 0.7)])
@pytest.mark.parametrize("second", ["the repair", "new data", "another of the same flight"])
def test_losses_in_successive_windows_lower_it_twice(congestion: str, share: float, second: str) -> None:
    """RFC 5681 §4.3: so does the loss of a repair. Several in one window count once (§4.3, RFC 6582 §3.2)."""
    spared = {"count": 1}

    def lose(packet: Packet) -> bool:
        if packet.role == SERVER or packet.data is None:
            return False
        if packet.start == 300 * MSS:
            return not packet.repair or (second == "the repair" and len(pair.repairs()) == 1)
        if second == "new data" and pair.repairs() and not packet.repair:
            spared["count"] -= 1
            return spared["count"] == 0
        return second == "another of the same flight" and packet.start == 310 * MSS and not packet.repair

    pair = Pair(congestion, lose=lose, rate_bps=RATE_BPS, ack_every=1, quick_acks=0).connect()
    pair.send(segments(3000))
    pair.run(stop=lambda: bool(pair.repairs()))
    threshold = pair.client.sender.congestion.ssthresh_bytes
    before = threshold / share
    pair.run(until=pair.now + 3 * RTT_S)
    reductions = 1 if second == "another of the same flight" else 2
    ends = pair.client.sender.congestion.ssthresh_bytes
    assert ends == pytest.approx(before * share**reductions, rel=0.08)
    assert pair.client.counters().timeouts == pair.client.counters().spurious == 0


# -- the tail: RFC 8985 §7 ---------------------------------------------------------------------------------------------


def test_a_lost_tail_is_probed_two_round_trips_after_the_last_acknowledgement() -> None:
    pair = Pair(lose=lose_data(48, 49), ack_every=1).connect()
    pair.send(segments(50))
    pair.run()
    last = acknowledged(pair, 48)
    assert transmissions(pair, 49)[1:] == [pytest.approx(last + 2 * RTT_S)]
    # the probe's SACK shows that the other one is lost, too
    assert transmissions(pair, 48)[1:] == [pytest.approx(last + 3 * RTT_S)]
    assert (pair.client.counters().probes, pair.client.counters().timeouts) == (1, 0)


def test_a_single_outstanding_segment_is_given_the_time_of_a_delayed_acknowledgement() -> None:
    pair = Pair(lose=lose_data(49), ack_every=1).connect()
    pair.send(segments(50))
    pair.run()
    last = acknowledged(pair, 49)
    assert transmissions(pair, 49)[1:] == [pytest.approx(last + RTT_S + MIN_RTO_S)]  # 200 ms more, but not past the RTO


def test_a_sender_that_knows_the_receiver_s_delay_probes_sooner() -> None:
    pair = Pair(lose=lose_data(49), ack_every=1, max_ack_delay_s=0.040).connect()
    pair.send(segments(50))
    pair.run()
    last = acknowledged(pair, 49)
    assert transmissions(pair, 49)[1:] == [pytest.approx(last + 2 * RTT_S + 0.040)]


@pytest.mark.parametrize(("congestion", "share"), [("reno", 0.5), ("cubic", 0.7)])
@pytest.mark.parametrize("paused_s", [0.0, 0.6])
def test_a_probe_that_mends_a_loss_counts_as_congestion_once_anything_beyond_is_acknowledged(
    congestion: str, share: float, paused_s: float
) -> None:
    """RFC 8985 §7.4.2, and by then a pause has decayed the window: 0.6 s are two timeouts of 0.26 s."""
    pair = Pair(congestion, lose=lose_data(149), ack_every=1, quick_acks=0, rate_bps=1e9).connect()
    pair.send(segments(150))  # flights of 10, 20, 40, 80
    pair.run()
    before = pair.window()
    assert before == pytest.approx(160, abs=2)
    assert pair.client.sender.congestion.ssthresh_bytes == FOREVER
    pair.run(until=pair.now + paused_s)
    pair.send(segments(10))
    pair.run()
    share_left = share / 4 if paused_s else share
    assert pair.window() == pytest.approx(share_left * before, abs=1)
    assert pair.client.sender.congestion.ssthresh_bytes == pytest.approx(share_left * before * MSS, rel=0.01)
    assert (pair.client.counters().probes, pair.client.counters().timeouts) == (1, 0)


@pytest.mark.parametrize("late_s", [0.3, 0.35])
def test_a_probe_whose_original_was_only_late_changes_no_window(late_s: float) -> None:
    """Whether the original arrives before the probe or after it."""
    pair = Pair(ack_every=1, late=lambda packet: late_s if packet.role == CLIENT and packet.data == 49 else 0.0)
    pair.connect()
    pair.send(segments(50))
    pair.run()
    pair.send(segments(2))
    pair.run()
    original, probe = (packet for packet in pair.sent() if packet.stop == 50 * MSS)
    assert original.arrives_s is not None
    assert probe.arrives_s is not None
    assert (original.arrives_s > probe.arrives_s) == (late_s == 0.35)
    assert (pair.client.counters().probes, pair.client.counters().timeouts) == (1, 0)
    assert pair.window() >= 50  # slow start: every byte acknowledged
    assert pair.client.sender.congestion.ssthresh_bytes == float("inf")


def test_a_probe_whose_original_s_acknowledgement_was_lost_changes_no_window() -> None:
    lost: list[Packet] = []

    def lose(packet: Packet) -> bool:
        if packet.role == SERVER and packet.segment.acknowledgement == pair.iss[CLIENT] + 1 + 50 * MSS and not lost:
            lost.append(packet)
            return True
        return False

    pair = Pair(ack_every=1)
    pair.lose = lose
    pair.connect()
    pair.send(segments(50))
    pair.run()
    assert len(lost) == 1
    assert pair.client.counters().probes == 1
    assert pair.client.sender.congestion.ssthresh_bytes == float("inf")
    assert pair.client.counters().spurious == 1  # the DSACK told


def test_a_probe_carries_new_data_where_there_is_some_even_beyond_the_window() -> None:
    pair = Pair(ack_every=1).connect()
    pair.send(segments(40))
    begin_s = pair.now
    pair.late = lambda packet: 0.08 if packet.role == SERVER else 0.0  # all acknowledgements come after the probe
    pair.run(until=begin_s + 2.1 * RTT_S)
    assert [packet.start // MSS for packet in pair.sent()] == list(range(11))
    assert pair.sent()[10].at_s == pytest.approx(begin_s + 2 * RTT_S)
    pair.run()
    assert pair.repairs() == []
    assert pair.client.counters().probes == 1
    assert pair.window() >= 40


def test_there_is_one_probe_and_then_a_timeout() -> None:
    pair = Pair(ack_every=1).connect()
    pair.send(segments(5))
    begin_s = pair.now
    pair.lose = lambda packet: packet.role == SERVER and packet.at_s < begin_s + 0.4
    pair.run()
    probe, first = pair.repairs()[:2]
    assert (probe.start // MSS, first.start // MSS) == (4, 0)
    assert probe.at_s == pytest.approx(begin_s + 2 * RTT_S)
    assert first.at_s == pytest.approx(probe.at_s + RTT_S + MIN_RTO_S)
    assert (pair.client.counters().probes, pair.client.counters().timeouts) == (1, 1)


def test_on_a_long_path_the_probe_goes_when_the_timeout_would() -> None:
    """RFC 8985 §7.2: the probe is not later than the RTO would be, and goes instead of it."""
    pair = Pair(delay_s=0.25, lose=lose_data(9), ack_every=1).connect()
    pair.run(until=3.0)
    pair.send(segments(10))
    pair.run()
    last = acknowledged(pair, 9)
    (repair,) = pair.repairs()
    assert last + 0.5 < repair.at_s < last + 2 * 0.5
    assert (pair.client.counters().probes, pair.client.counters().timeouts) == (1, 0)


def test_adaptive_repairs_a_lost_tail_soon_after_a_round_trip_burst_after_burst() -> None:
    """It sends the repair twice, and does not take the report of the second one for a sign of its impatience."""
    pair = Pair("adaptive", rate_bps=RATE_BPS).connect()
    waits = []
    for number in range(12):
        begin_s = pair.now
        pair.send(segments(1000), message_id=number)
        pair.run()
        if number:
            (lost,) = (packet for packet in pair.sent(since_s=begin_s) if packet.arrives_s is None)
            again = [packet.at_s for packet in pair.repairs() if packet.start == lost.start]
            assert len(again) == 2
            waits.append(again[0] - lost.at_s)
        pair.lose = lambda packet: packet.role == CLIENT and packet.burst_left == 0
        pair.run(until=pair.now + 1.0)
    assert max(waits) < 1.3 * RTT_S  # RFC 8985's probe would come after 2
    assert max(waits) < min(waits) + 0.1 * RTT_S
    assert pair.client.counters().timeouts == 0


# -- the retransmission timeout: RFC 6298 ------------------------------------------------------------------------------


def cut_off(pair: Pair, until_s: float) -> None:
    """Lose everything, both ways, up to a time."""
    pair.lose = lambda packet: packet.at_s < until_s


def test_timeouts_double_send_one_segment_each_and_then_slow_start_repairs_everything_once() -> None:
    pair = Pair(ack_every=1, quick_acks=0, lose=lose_data(*range(10, 34))).connect()
    pair.send(segments(30))  # 10 are acknowledged, and 20 in flight
    pair.run()
    begin_s = pair.sent()[29].at_s
    probe, *rest = pair.repairs()
    assert probe.at_s == pytest.approx(begin_s + 2 * RTT_S)
    rto_s = RTT_S + MIN_RTO_S
    timeouts = [probe.at_s + rto_s * (2**n - 1) for n in (1, 2, 3, 4)]
    assert [packet.at_s for packet in rest[:4]] == pytest.approx(timeouts)  # RFC 6298 §5.5
    assert {packet.start // MSS for packet in rest[:4]} == {10}  # §5.4: the earliest that is not acknowledged
    # data packets 31 to 34 were those four; the last of them arrived
    assert pair.client.counters().timeouts == 4
    after = [len(flight) for flight in rounds(rest[4:], RTT_S / 2)]
    assert after == [2, 4, 8, 5]  # slow start from one segment, with L = 1: RFC 5681 §3.1, RFC 3465 §2.3
    assert sorted(packet.start // MSS for packet in rest[3:]) == list(range(10, 30))
    assert len(pair.received()) == 1


def test_a_timeout_halves_what_was_in_flight_once_however_often_it_is_repeated() -> None:
    pair = Pair(ack_every=1, quick_acks=0, lose=lose_data(*range(10, 34))).connect()
    pair.send(segments(30))
    pair.run(until=3.0)
    assert pair.client.counters().timeouts >= 3
    assert pair.window() == 1  # RFC 5681 §3.1
    assert pair.client.sender.congestion.ssthresh_bytes == 10 * MSS  # of the 20 that were in flight


def test_the_timeout_is_srtt_plus_four_variations_where_that_is_more_than_the_floor() -> None:
    pair = Pair(ack_every=1, delay_s=0.2, min_rto_s=0.001).connect()  # RTTVAR is half of the first sample, 0.4 s
    pair.send(segments(2))
    begin_s = pair.now
    pair.lose = lambda packet: packet.role == SERVER and packet.at_s < begin_s + 3.0
    pair.run()
    probe, first = pair.repairs()[:2]
    assert probe.at_s == pytest.approx(begin_s + 2 * 0.4)
    assert first.at_s == pytest.approx(probe.at_s + 0.4 + 4 * 0.2)  # RFC 6298 §2.2


def test_an_acknowledgement_ends_the_back_off() -> None:
    pair = Pair(ack_every=1).connect()
    pair.send(segments(5))
    pair.run(until=pair.now + 2 * RTT_S)
    begin_s = pair.now
    cut_off(pair, begin_s + 3.0)
    pair.send(segments(5), message_id=2)
    pair.run()
    assert pair.client.counters().timeouts >= 3
    pair.send(segments(5), message_id=3)
    pair.run()
    begin_s = pair.now
    cut_off(pair, begin_s + 1.0)
    pair.send(segments(2), message_id=4)
    pair.run()
    probe, first = (packet for packet in pair.repairs() if begin_s < packet.at_s < begin_s + 0.5)
    assert first.at_s - probe.at_s == pytest.approx(RTT_S + MIN_RTO_S, abs=0.01)


def test_data_that_goes_on_being_sent_puts_off_no_timeout_and_is_not_taken_for_lost_by_it() -> None:
    """RFC 6298 §5.1: only a timer that does not run is started; RFC 8985 §6.3: what has just been sent may arrive."""
    pair = Pair(ack_every=1).connect()
    pair.send(bytes(100 - FRAME), message_id=99)
    pair.run()
    begin_s = pair.now
    pair.lose = lambda packet: packet.role == CLIENT
    for number in range(7):
        pair.run(until=begin_s + 0.1 * number)
        assert pair.client.counters().timeouts == (number > 5)
        pair.send(bytes(100 - FRAME), message_id=number)
    rto_s = pair.client.sender.rtt.srtt_s + MIN_RTO_S
    probe, first = pair.repairs()
    assert probe.at_s == pytest.approx(begin_s + rto_s)  # RFC 8985 §7.2: instead of the timeout
    assert (first.start, first.at_s) == (100, pytest.approx(begin_s + 2 * rto_s))
    assert pair.client.sample(pair.now).in_flight_bytes == 200  # that repair, and what was sent 20 ms before it


def test_after_fifteen_timeouts_without_an_answer_the_connection_is_given_up() -> None:
    pair = Pair().connect()
    pair.lose = lambda packet: True
    pair.send(segments(5))
    pair.run()
    (failure,) = pair.failures()
    assert "15 timeouts" in failure[1]
    gaps = [later - earlier for earlier, later in pairwise(packet.at_s for packet in pair.repairs()[1:])]
    assert len(gaps) == 14
    assert gaps[-1] == pytest.approx(60)  # RFC 6298 §2.5
    assert pair.client.get_timer() is None


def test_an_outage_of_both_directions_is_survived() -> None:
    pair = Pair(rate_bps=RATE_BPS).connect()
    pair.send(segments(1000))
    pair.run(until=pair.now + 4 * RTT_S)
    cut_off(pair, pair.now + 1.5)
    pair.run()
    assert len(pair.received()) == 1
    assert pair.client.counters().timeouts >= 2
    assert pair.client.counters().spurious <= 2


# -- what turns out to have been needless ------------------------------------------------------------------------------


@pytest.mark.parametrize(("spike_s", "timeouts"), [(0.7, 1), (1.3, 2), (2.2, 3)])
@pytest.mark.parametrize("congestion", ["reno", "cubic"])
def test_a_delay_spike_costs_a_repair_per_timeout_and_no_window(congestion: str, spike_s: float, timeouts: int) -> None:
    """RFC 3522 and RFC 4015: the first acknowledgement echoes a time before the repair, so nothing was lost."""
    pair = Pair(congestion, rate_bps=RATE_BPS).connect()
    pair.send(segments(800))
    pair.run(until=pair.now + 3.5 * RTT_S)
    window = pair.window()
    resumes_s = pair.now + spike_s
    pair.late = lambda packet: max(0.0, resumes_s - packet.at_s) if packet.role == SERVER else 0.0
    pair.run()
    counters = pair.client.counters()
    assert counters.timeouts == timeouts
    assert counters.repairs == timeouts
    assert pair.window() >= window
    assert pair.client.sender.congestion.ssthresh_bytes >= window * MSS
    assert len(pair.received()) == 1


def test_a_timeout_with_a_true_loss_is_not_taken_back() -> None:
    pair = Pair(ack_every=1, quick_acks=0, lose=lose_data(*range(10, 31))).connect()
    pair.send(segments(30))
    pair.run()
    assert pair.client.counters().timeouts == 1
    assert pair.client.sender.congestion.ssthresh_bytes == 10 * MSS


def test_two_repairs_that_one_delayed_acknowledgement_answers_are_no_proof_of_a_needless_timeout() -> None:
    """Its echo is the first one's timestamp (RFC 7323 §4.3): that the second was sent later proves nothing."""
    pair = Pair(ack_every=1, quick_acks=0, lose=lose_data(*range(10, 31))).connect()
    pair.send(segments(30))  # the probe is lost, too
    pair.run(stop=lambda: pair.client.counters().timeouts == 1 and pair.window() == 2)
    pair.run(until=pair.now)
    second, third = pair.repairs()[-2:]
    assert (second.start, third.start) == (11 * MSS, 12 * MSS)
    assert second.at_s == third.at_s == pair.now
    pair.lose = lambda packet: True
    pair.run(until=pair.now + 0.010)
    pair.inject(CLIENT, pair.forge(SERVER, ACK, ack=12 * MSS))
    fourth = next(repair for repair in pair.repairs() if repair.start == 13 * MSS)
    assert fourth.at_s == pair.now
    pair.run(until=pair.now + RTT_S)
    pair.inject(CLIENT, pair.forge(SERVER, ACK, ack=14 * MSS, timestamp_echo=third.segment.timestamp_value))
    assert pair.client.sender.congestion.ssthresh_bytes < float("inf")
    assert pair.window() < 10


def test_a_repair_that_reordering_provoked_is_taken_back_with_its_episode() -> None:
    pair = Pair(
        rate_bps=RATE_BPS,
        late=lambda packet: 0.004 if packet.role == CLIENT and packet.data == 60 else 0.0,
    ).connect()
    pair.send(segments(300))
    pair.run()
    assert len(pair.repairs()) == 1
    assert pair.client.counters().spurious == 1
    assert pair.client.sender.congestion.ssthresh_bytes == float("inf")
    assert pair.window() > 200


def test_where_echoes_cannot_tell_dsacks_do_though_the_episode_is_over() -> None:
    """The second of two late packets is SACKed, and a SACK has no echo; the DSACK of its repair ends the doubt."""
    pair = Pair(
        rate_bps=RATE_BPS,
        late=lambda packet: {60: 0.004, 62: 0.003}.get(packet.data or 0, 0.0) if packet.role == CLIENT else 0.0,
        ack_every=1,
        quick_acks=0,
    ).connect()
    pair.send(segments(400))
    pair.run()
    assert {packet.start // MSS for packet in pair.repairs()} == {60, 62}
    assert pair.client.counters().spurious == 2
    assert pair.client.sender.congestion.ssthresh_bytes == float("inf")


def test_a_needless_repair_does_not_excuse_a_true_loss_beside_it() -> None:
    """The late packet's original and its DSACK are evidence of one packet, not of two."""
    pair = Pair(
        rate_bps=RATE_BPS,
        lose=lose_data(80),
        late=lambda packet: 0.004 if packet.role == CLIENT and packet.data in (60, 90) else 0.0,
        ack_every=1,
        quick_acks=0,
    ).connect()
    pair.send(segments(400))
    pair.run()
    assert {60, 80} <= {packet.start // MSS for packet in pair.repairs()}
    assert pair.client.sender.congestion.ssthresh_bytes < 120 * MSS


@pytest.mark.parametrize("congestion", ["reno", "cubic"])
def test_reordering_is_learned_from_the_first_needless_repair(congestion: str) -> None:
    """One packet in 50 is 4 ms late: RACK then waits a quarter of the RTT, 15 ms (RFC 8985 §6.2 step 4)."""
    random = Random(1)
    pair = Pair(
        congestion,
        rate_bps=RATE_BPS,
        late=lambda packet: 0.004 if packet.role == CLIENT and random.random() < 0.02 else 0.0,
    ).connect()
    pair.send(segments(4000))
    pair.run()
    assert pair.client.counters().repairs <= 3
    assert pair.client.counters().timeouts == 0
    assert pair.window() > 100


def test_reordering_of_more_than_a_quarter_round_trip_widens_the_window_by_what_dsacks_tell() -> None:
    random = Random(3)
    pair = Pair(
        rate_bps=RATE_BPS,
        late=lambda packet: 0.025 if packet.role == CLIENT and random.random() < 0.02 else 0.0,
    ).connect()
    pair.send(segments(6000))
    pair.run()
    late = sum(packet.arrives_s is not None and packet.arrives_s > packet.at_s + 0.05 for packet in pair.sent())
    assert late > 80
    assert pair.client.counters().repairs < late / 4
    times = [packet.at_s for packet in pair.repairs()]
    assert times[-1] < pair.sent()[-1].at_s / 2  # once it is wide enough, there are no more
    assert pair.client.counters().timeouts == 0


def test_loss_among_reordering_is_still_repaired_without_a_timeout() -> None:
    random = Random(5)
    pair = Pair(
        "cubic",
        rate_bps=RATE_BPS,
        lose=lambda packet: packet.role == CLIENT and packet.data is not None and random.random() < 0.003,
        late=lambda packet: 0.004 if packet.role == CLIENT and random.random() < 0.02 else 0.0,
    ).connect()
    pair.send(segments(4000))
    pair.run()
    lost = sum(packet.arrives_s is None for packet in pair.sent())
    assert lost >= 8
    assert lost <= pair.client.counters().repairs <= lost + 5
    assert pair.client.counters().timeouts == 0
    assert len(pair.received()) == 1


def test_duplicated_packets_are_no_repairs_of_ours() -> None:
    pair = Pair(rate_bps=RATE_BPS).connect()
    pair.send(segments(100))
    pair.run(until=pair.now + 2 * RTT_S)
    data = pair.sent()[3].segment
    window = pair.window()
    (answer,) = pair.inject(SERVER, data)
    assert answer.segment.sack_blocks or answer.segment.flags == ACK
    pair.run()
    assert pair.window() >= window
    assert pair.repairs() == []


# -- any weather -------------------------------------------------------------------------------------------------------


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
