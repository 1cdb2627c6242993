"""How loss within a flight is found, repaired and paid for (RFC 8985, 9937, 5681), seen between two endpoints."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from bicoastal.transports.tcp.segment import ACK
from helpers.tcp_pair import CLIENT, MSS, RATE_BPS, RTT_S, SERVER, Packet, Pair, lose_data, whole_segments


def lose_first(start: int, times: int = 1) -> Callable[[Packet], bool]:
    """Lose the first `times` transmissions of the client's segment `start`, counted from 0."""
    seen = [0]

    def lose(packet: Packet) -> bool:
        if packet.role == CLIENT and packet.data is not None and packet.start == start * MSS:
            seen[0] += 1
            return seen[0] <= times
        return False

    return lose


def sacked_segments(pair: Pair, packet: Packet) -> float:
    return sum(right - left for left, right in packet.segment.sack_blocks) / MSS


def in_flight(pair: Pair, at_s: float) -> int:
    """Return how many bytes the client had sent before `at_s` that were not acknowledged by then."""
    acked = max(ack.segment.acknowledgement for ack in pair.acks() if (ack.arrives_s or 9.0) <= at_s)
    return max(packet.stop for packet in pair.sent() if packet.at_s < at_s) - (acked - pair.iss[CLIENT] - 1)


@pytest.mark.parametrize("rate_bps", [None, RATE_BPS])
def test_a_loss_within_a_burst_is_repaired_upon_the_third_segment_beyond_it(rate_bps: float | None) -> None:
    pair = Pair(lose=lose_data(40), rate_bps=rate_bps).connect()
    pair.send(whole_segments(200))
    pair.run()
    third = next(ack for ack in pair.acks() if sacked_segments(pair, ack) >= 3)
    assert pair.transmissions(40)[1:] == [third.arrives_s]  # RFC 8985 §6.2: no reordering seen, three SACKed
    assert pair.client.counters().timeouts == pair.client.counters().probes == pair.client.counters().spurious == 0
    assert len(pair.received()) == 1


def test_a_repaired_loss_is_no_sign_of_reordering_so_the_next_one_is_not_waited_for_either() -> None:
    pair = Pair(lose=lambda packet: packet.role == CLIENT and packet.data in (40, 400), rate_bps=RATE_BPS).connect()
    pair.send(whole_segments(800))
    pair.run()
    repairs = pair.repairs()
    assert len(repairs) == 2
    beyond = [ack for ack in pair.acks(since_s=repairs[0].at_s + 2 * RTT_S) if sacked_segments(pair, ack) >= 3]
    assert repairs[1].at_s == beyond[0].arrives_s


def test_with_less_than_three_segments_beyond_it_a_quarter_of_the_rtt_is_waited() -> None:
    pair = Pair(lose=lose_data(27), ack_every=1).connect()
    pair.send(whole_segments(30))  # the last flight is 10 to 29: two follow the lost one
    pair.run()
    sent_s, repaired_s = pair.transmissions(27)
    assert repaired_s == pytest.approx(sent_s + RTT_S + RTT_S / 4)  # RFC 8985 §6.2 step 4
    assert pair.client.counters().probes == pair.client.counters().timeouts == 0


def test_every_hole_of_a_burst_is_repaired_once_and_the_window_halved_once() -> None:
    lost = [60, 61, 62, 70, 75, 76, 90, 91, 92, 93]
    pair = Pair(lose=lose_data(*lost), rate_bps=RATE_BPS).connect()
    pair.send(whole_segments(300))
    pair.run(stop=lambda: bool(pair.repairs()))
    flight_bytes = in_flight(pair, pair.repairs()[0].at_s)
    pair.run()
    assert sorted(packet.start // MSS for packet in pair.repairs()) == lost
    # RFC 5681 §3.1 (4), §4.3
    assert pair.client.sender.congestion.ssthresh_bytes == pytest.approx(flight_bytes / 2, rel=0.05)
    assert pair.client.counters().timeouts == 0
    assert len(pair.received()) == 1


@pytest.mark.parametrize("times", [2, 3, 4])
def test_a_lost_repair_is_repaired_a_round_trip_later_without_a_timeout(times: int) -> None:
    pair = Pair(lose=lose_first(40, times), rate_bps=RATE_BPS).connect()
    pair.send(whole_segments(600))
    pair.run()
    sent = pair.transmissions(40)
    assert len(sent) == times + 1
    assert all(RTT_S < later - earlier < 1.2 * RTT_S for earlier, later in pairwise(sent))
    assert pair.client.counters().timeouts == 0


def test_a_repair_that_leaves_together_with_new_data_is_not_taken_for_lost_when_that_data_arrives() -> None:
    """All acknowledgements of a flight arrive at one instant: new data and the repair after it leave at the same time.

    Breaking the tie by offset, as RFC 8985's RACK_sent_after() does, would put the repair before the new data.
    """
    pair = Pair(lose=lose_data(5)).connect()
    pair.send(whole_segments(20))
    pair.run()
    repaired_s = pair.transmissions(5)[1]
    assert [packet.start // MSS for packet in pair.sent() if packet.at_s == repaired_s][-2:] == [19, 5]
    assert len(pair.repairs()) == 1
    assert pair.client.counters().spurious == 0


def test_news_in_two_blocks_of_one_acknowledgement_is_no_sign_of_reordering() -> None:
    """The acknowledgement between them was lost; RFC 2018 §4 puts the later block first."""
    pair = Pair(ack_every=1).connect()
    pair.send(whole_segments(10))
    pair.lose = lambda packet: packet.role == SERVER
    pair.run(until=pair.now + 1.05 * RTT_S)
    base = pair.iss[CLIENT] + 1
    blocks = tuple((base + left * MSS, base + right * MSS) for left, right in ((8, 10), (1, 4), (5, 6)))
    pair.inject(CLIENT, pair.forge(SERVER, ACK, ack=0, sack_blocks=blocks))
    assert pair.transmissions(0)[1:] == [pair.now]  # six are SACKed: without reordering nothing is waited for


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
    pair.send(whole_segments(900))
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
    pair.send(whole_segments(900))
    pair.run()
    begin_s, end_s = recovery(pair)
    acks = [ack for ack in pair.acks() if ack.arrives_s is not None and begin_s < ack.arrives_s < end_s]
    sent = [packet.at_s for packet in pair.sent() if packet.at_s > begin_s]
    counts: dict[str, list[int]] = {"held": [], "moving": []}
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
    pair.send(whole_segments(2000))
    pair.run(stop=lambda: bool(pair.repairs()))
    flight_bytes = in_flight(pair, pair.transmissions(299)[1])
    window = pair.window()
    pair.run(stop=lambda: pair.window() != window)  # PRR governs until then
    assert pair.window() == pytest.approx(share * flight_bytes / MSS, rel=0.05)  # RFC 5681 §3.1 (4), RFC 9438 §4.6
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
    pair.send(whole_segments(3000))
    pair.run(stop=lambda: bool(pair.repairs()))
    threshold = pair.client.sender.congestion.ssthresh_bytes
    before = threshold / share
    pair.run(until=pair.now + 3 * RTT_S)
    reductions = 1 if second == "another of the same flight" else 2
    ends = pair.client.sender.congestion.ssthresh_bytes
    assert ends == pytest.approx(before * share**reductions, rel=0.08)
    assert pair.client.counters().timeouts == pair.client.counters().spurious == 0
