from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from bicoastal.transports.base import Datagram, PathView
from bicoastal.transports.events import MessageReceived
from bicoastal.transports.paced.packets import DATA_OVERHEAD_BYTES
from bicoastal.transports.paced.selective_sender import SelectiveSender
from helpers.paced_pair import DELAY_S, MTU, RTT_S, PacedPair, Sent

RATE_BPS = 1e9
GAP_S = MTU * 8 / RATE_BPS  # a full packet at the pace: 72 µs
ROOM = MTU - DATA_OVERHEAD_BYTES
LATE_S = 0.003 + 0.001  # what the sender grants an answer beyond the RTT: its own margin and the delay of a report


def content(packets: float, seed: int = 0) -> bytes:
    """Return octets that fill so many packets, with the 16 that frame a message."""
    return Random(seed).randbytes(round(packets * ROOM) - 16)


def nth_data(*numbers: int) -> Callable[[Sent], bool]:
    """Lose the client's n-th packets with data on each path, counted from 0."""
    counts: dict[tuple[str, int], int] = {}

    def lose(sent: Sent) -> bool:
        if not sent.has_data or sent.role != "client":
            return False
        index = counts[sent.role, sent.path_id] = counts.get((sent.role, sent.path_id), -1) + 1
        return index in numbers

    return lose


def test_a_message_takes_its_packets_times_and_one_way() -> None:
    pair = PacedPair(rate_bps=RATE_BPS)
    assert pair.carry(content(100)) == pytest.approx(DELAY_S + 99 * GAP_S, abs=1e-9)


def test_packets_depart_exactly_at_the_pace() -> None:
    pair = PacedPair(rate_bps=RATE_BPS)
    pair.carry(content(200))
    gaps = [b.at_s - a.at_s for a, b in pairwise(pair.data())]
    assert gaps[:199] == pytest.approx([GAP_S] * 199, abs=1e-12)


def test_several_paths_carry_a_message_together() -> None:
    pair = PacedPair(paths=4, rate_bps=RATE_BPS)
    assert pair.carry(content(400)) == pytest.approx(DELAY_S + 99 * GAP_S, abs=1e-9)
    first = [sent.path_id for sent in pair.data() if sent.burst_left is not None]
    assert [first.count(path_id) for path_id in range(4)] == [100] * 4


def test_the_last_new_packet_of_each_path_says_that_none_follows() -> None:
    pair = PacedPair(paths=4, rate_bps=RATE_BPS)
    pair.run(for_s=0.1)
    pair.carry(content(40))
    for path_id in range(4):
        left = [sent.burst_left for sent in pair.data() if sent.path_id == path_id and sent.burst_left is not None]
        assert left == list(range(9, -1, -1))


def test_packets_are_handed_out_at_most_one_packet_time_ahead() -> None:
    pair = PacedPair(rate_bps=RATE_BPS)
    pair.carry(content(100))
    assert max(sent.at_s - sent.handed_out_s for sent in pair.data()) <= GAP_S * (1 + 1e-9)


@pytest.mark.parametrize("factor", [0.1, 0.5, 2.0, 10.0])
def test_a_new_rate_holds_within_one_packet_time(factor: float) -> None:
    sender = SelectiveSender(
        [PathView(path_id=0, name="p", mtu_bytes=MTU)], ack_delay_s=0.001, tail_copies=0, give_up_s=60
    )
    sender.set_rate(0, RATE_BPS, 0)
    sender.path_answers(0, 0.0)
    sender.begin(0.0)
    sender.stream.append_message(1, content(100))
    sender.offer(0.0)
    out: list[Datagram] = []
    now = 0.0
    while len(out) < 10:
        sender.fill(now, out)
        now = sender.timer()
    changed_at = now - GAP_S / 2
    sender.set_rate(0, RATE_BPS * factor, 0)
    before = len(out)
    while len(out) < before + 10:
        now = max(changed_at, sender.timer())
        sender.fill(now, out)
    departures = [datagram.depart_at for datagram in out[before - 1 :]]
    gaps = [b - a for a, b in pairwise(departures)]
    assert departures[0] <= changed_at + GAP_S
    assert gaps == pytest.approx([max(GAP_S / factor, changed_at - departures[0]), *[GAP_S / factor] * 9], rel=1e-9)


def test_a_lost_packet_is_repaired_one_round_trip_after_its_gap_shows() -> None:
    pair = PacedPair(rate_bps=RATE_BPS, lose=nth_data(10))
    pair.carry(content(2000))
    piece = pair.data()[10].frame.offset
    original, repair = [sent for sent in pair.data() if sent.frame.offset == piece]
    # The next packet shows the gap; the repair goes out in the next slot after the report.
    assert 0 <= repair.at_s - (original.at_s + GAP_S + RTT_S) <= 2 * GAP_S
    assert repair.burst_left is None
    assert pair.ends["client"].counters().repairs == 3  # and two copies at the tail


def test_a_lost_repair_is_repaired_as_any_packet_is() -> None:
    lost: list[int] = []

    def lose(sent: Sent) -> bool:
        if sent.has_data and sent.frame.offset == 10 * ROOM and len(lost) < 2:
            lost.append(sent.number)
            return True
        return False

    pair = PacedPair(rate_bps=RATE_BPS, lose=lose)
    pair.carry(content(4000))
    times = [sent.at_s for sent in pair.data() if sent.frame.offset == 10 * ROOM]
    assert len(times) == 3
    assert times[2] - times[1] <= RTT_S + 4 * GAP_S
    assert pair.ends["client"].counters().timeouts == 0


@pytest.mark.parametrize("paths", [1, 4])
@pytest.mark.parametrize("count", [1, 2])
def test_losing_the_last_packets_costs_next_to_nothing(paths: int, count: int) -> None:
    def lose(sent: Sent) -> bool:
        return sent.burst_left is not None and sent.burst_left < count

    pair = PacedPair(paths=paths, rate_bps=RATE_BPS, lose=lose)
    pair.run(for_s=0.1)
    took_s = pair.carry(content(100 * paths))
    assert took_s <= DELAY_S + 99 * GAP_S + (2 * count + 1) * GAP_S
    pair.run(for_s=1.0)
    assert pair.ends["client"].counters().timeouts == 0


@pytest.mark.parametrize("count", [3, 10, 50])
def test_losing_more_of_the_tail_costs_one_round_trip(count: int) -> None:
    def lose(sent: Sent) -> bool:
        return sent.burst_left is not None and sent.burst_left < count

    pair = PacedPair(rate_bps=RATE_BPS, lose=lose)
    assert pair.carry(content(200)) <= DELAY_S + 199 * GAP_S + RTT_S + (count + 4) * GAP_S
    assert pair.ends["client"].counters().timeouts == 0


def test_losing_the_tail_with_its_copies_costs_a_round_trip_and_a_little() -> None:
    lost = 0

    def lose(sent: Sent) -> bool:
        nonlocal lost
        gone = sent.has_data and sent.frame.offset >= 98 * ROOM and lost < 4
        lost += gone
        return gone

    pair = PacedPair(rate_bps=RATE_BPS, lose=lose)
    took_s = pair.carry(content(100))
    assert lost == 4
    # The last packet that was answered is due first; the probe carries the two oldest that are not.
    assert took_s <= DELAY_S + 101 * GAP_S + RTT_S + LATE_S + 3 * GAP_S + 0.001
    assert pair.ends["client"].counters().probes == 1


def test_without_copies_the_probe_alone_covers_the_tail() -> None:
    pair = PacedPair(rate_bps=RATE_BPS, tail_copies=0, lose=nth_data(99))
    assert pair.carry(content(100)) <= DELAY_S + 99 * GAP_S + RTT_S + LATE_S + 0.001
    assert pair.ends["client"].counters().probes == 1


def test_losing_reports_costs_nothing() -> None:
    rng = Random(3)
    pair = PacedPair(
        rate_bps=RATE_BPS, lose=lambda sent: sent.role == "server" and rng.random() < 0.3 and sent.number > 0
    )
    assert pair.carry(content(1500)) == pytest.approx(DELAY_S + 1499 * GAP_S, abs=1e-9)
    assert pair.ends["client"].counters().repairs <= 2 + 2 * pair.ends["client"].counters().probes


def test_a_path_that_falls_silent_gives_its_packets_to_the_others() -> None:
    dark_s = 0.5

    def lose(sent: Sent) -> bool:
        return sent.path_id == 1 and sent.at_s > dark_s

    pair = PacedPair(paths=3, rate_bps=RATE_BPS, lose=lose)
    pair.run(for_s=dark_s - 0.1 - pair.now)
    packets = 9000
    took_s = pair.carry(content(packets))
    ((down_s, detail),) = pair.notices("b4-path-down")
    assert "plane1" in detail
    assert down_s - dark_s <= DELAY_S + LATE_S + 0.001  # the last answer was on its way for as long
    assert not [sent for sent in pair.data(since=down_s + GAP_S) if sent.path_id == 1]
    # What was sent into the dark is at most what a path carries in the time, and goes over the two others.
    wasted = (down_s - dark_s) / GAP_S
    before = 3 * 0.1 / GAP_S
    left = packets - before - 2 * wasted
    assert took_s <= 0.1 + (down_s - dark_s) + (left + RTT_S / GAP_S) / 2 * GAP_S + DELAY_S + 0.005


def test_a_path_that_comes_back_is_used_again() -> None:
    def lose(sent: Sent) -> bool:
        return sent.path_id == 1 and 0.5 < sent.at_s < 0.9

    pair = PacedPair(paths=2, rate_bps=RATE_BPS, lose=lose)
    pair.run(for_s=0.45 - pair.now)
    pair.carry(content(20000))
    ((up_s, _),) = pair.notices("b4-path-up")
    assert 0.9 < up_s <= 0.9 + 0.5 + RTT_S
    assert [sent for sent in pair.data(since=up_s) if sent.path_id == 1]


def test_an_only_path_is_waited_for_and_what_it_lost_sent_again() -> None:
    pair = PacedPair(rate_bps=RATE_BPS, lose=lambda sent: 0.1 < sent.at_s < 3.0)
    pair.run(for_s=0.09 - pair.now)
    took_s = pair.carry(content(500))
    assert 2.9 < took_s < 2.9 + 2.1 + RTT_S
    probes = [sent for sent in pair.sent if sent.role == "client" and 0.2 < sent.at_s < 3.0]
    assert len(probes) < 60


def test_it_gives_up_with_a_reason_when_nothing_ever_arrives() -> None:
    pair = PacedPair(rate_bps=RATE_BPS, give_up_s=5.0, lose=lambda sent: sent.at_s > 0.1)
    pair.run(for_s=1.0)
    pair.send(content(10))
    with pytest.raises(AssertionError, match="nothing has arrived at the far end for 5 s"):
        pair.run(for_s=60.0)


def test_reordering_is_learned_and_then_not_repaired() -> None:
    rng = Random(5)
    pair = PacedPair(
        rate_bps=RATE_BPS, late=lambda sent: 0.004 if sent.role == "client" and rng.random() < 0.02 else 0.0
    )
    pair.carry(content(3000), 1)
    learned = pair.ends["client"].counters().spurious
    assert learned >= 1
    pair.carry(content(3000), 2)
    assert pair.ends["client"].counters().spurious - learned <= 2


def test_silence_teaches_nothing_about_reordering() -> None:
    mute = [True]
    lose_one = nth_data(1500)

    def lose(sent: Sent) -> bool:
        if sent.role == "server" and sent.path_id == 1 and mute[0] and 0.105 < sent.at_s < 0.3:
            return True
        return not mute[0] and lose_one(sent)

    pair = PacedPair(paths=2, rate_bps=RATE_BPS, lose=lose)
    pair.run(for_s=0.1 - pair.now)
    pair.carry(content(200), 1)
    pair.run(for_s=2.0)
    assert pair.ends["client"].counters().spurious > 0  # what the silent path had brought all the same
    mute[0] = False
    since = pair.now
    pair.carry(content(6000), 2)
    lost = [sent for sent in pair.data(since=since) if sent.path_id == 1][1500]
    repair = [sent for sent in pair.data(since=since) if sent.frame.offset == lost.frame.offset][1]
    assert repair.at_s - lost.at_s <= RTT_S + 4 * GAP_S


def test_nothing_is_sent_once_all_has_arrived() -> None:
    pair = PacedPair(paths=2, rate_bps=RATE_BPS)
    pair.carry(content(50))
    pair.run(for_s=1.0)
    silent_since = pair.now
    pair.run(for_s=100.0)
    assert not [sent for sent in pair.sent if sent.at_s > silent_since]


def test_both_ends_send_at_once() -> None:
    pair = PacedPair(rate_bps=RATE_BPS)
    pair.send(content(300, seed=1), 7, "server")
    took_s = pair.carry(content(300, seed=2))
    assert took_s <= DELAY_S + 301 * GAP_S
    pair.run(until=lambda: pair.of(MessageReceived, "client"))
    ((_, event),) = pair.of(MessageReceived, "client")
    assert (event.message_id, bytes(event.data)) == (7, content(300, seed=1))


def test_a_path_too_narrow_for_data_is_refused() -> None:
    with pytest.raises(ValueError, match="mtu_bytes: 60 leaves no room"):
        SelectiveSender([PathView(path_id=0, name="p", mtu_bytes=60)], ack_delay_s=0, tail_copies=0, give_up_s=1)
