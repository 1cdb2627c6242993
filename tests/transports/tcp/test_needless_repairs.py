"""Delay and reordering that look like loss: what the sender takes back, and what it learns (RFC 4015, 2883, 8985)."""

from random import Random

import pytest

from bicoastal.transports.tcp.segment import ACK
from helpers.tcp_pair import CLIENT, MSS, RATE_BPS, RTT_S, SERVER, Pair, lose_data, whole_segments


@pytest.mark.parametrize(("spike_s", "timeouts"), [(0.7, 1), (1.3, 2), (2.2, 3)])
@pytest.mark.parametrize("congestion", ["reno", "cubic"])
def test_a_delay_spike_costs_a_repair_per_timeout_and_no_window(congestion: str, spike_s: float, timeouts: int) -> None:
    """RFC 3522 and RFC 4015: the first acknowledgement echoes a time before the repair, so nothing was lost."""
    pair = Pair(congestion, rate_bps=RATE_BPS).connect()
    pair.send(whole_segments(800))
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
    pair.send(whole_segments(30))
    pair.run()
    assert pair.client.counters().timeouts == 1
    assert pair.client.sender.congestion.ssthresh_bytes == 10 * MSS


def test_two_repairs_that_one_delayed_acknowledgement_answers_are_no_proof_of_a_needless_timeout() -> None:
    """Its echo is the first one's timestamp (RFC 7323 §4.3): that the second was sent later proves nothing."""
    pair = Pair(ack_every=1, quick_acks=0, lose=lose_data(*range(10, 31))).connect()
    pair.send(whole_segments(30))  # the probe is lost, too
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
    pair.send(whole_segments(300))
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
    pair.send(whole_segments(400))
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
    pair.send(whole_segments(400))
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
    pair.send(whole_segments(4000))
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
    pair.send(whole_segments(6000))
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
    pair.send(whole_segments(4000))
    pair.run()
    lost = sum(packet.arrives_s is None for packet in pair.sent())
    assert lost >= 8
    assert lost <= pair.client.counters().repairs <= lost + 5
    assert pair.client.counters().timeouts == 0
    assert len(pair.received()) == 1


def test_duplicated_packets_are_no_repairs_of_ours() -> None:
    pair = Pair(rate_bps=RATE_BPS).connect()
    pair.send(whole_segments(100))
    pair.run(until=pair.now + 2 * RTT_S)
    data = pair.sent()[3].segment
    window = pair.window()
    (answer,) = pair.inject(SERVER, data)
    assert answer.segment.sack_blocks[0] == (data.sequence, data.sequence + MSS)  # RFC 2883 §4
    pair.run()
    assert pair.window() >= window
    assert pair.repairs() == []
