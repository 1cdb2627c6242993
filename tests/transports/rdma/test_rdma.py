from itertools import pairwise
from random import Random

import numpy as np
import pytest

from bicoastal.transports.base import PathView
from bicoastal.transports.paced.packets import DATA_OVERHEAD_BYTES, NAK, Report
from bicoastal.transports.rdma.go_back_sender import GoBackSender
from helpers.paced_pair import DELAY_S, RTT_S, PacedPair, Sent, reports, topology

RATE_BPS = 1e9
MTU = 9000
GAP_S = MTU * 8 / RATE_BPS
ROOM = MTU - DATA_OVERHEAD_BYTES


def content(packets: int, seed: int = 0, room: int = ROOM) -> bytes:
    """Return octets that fill so many packets, with the 16 that frame a message."""
    return Random(seed).randbytes(packets * room - 16)


def lose_offsets(losses: dict[int, int], room: int = ROOM):  # type: ignore[no-untyped-def]
    """Lose the first `losses[n]` transmissions of the n-th piece."""
    left = dict(losses)

    def lose(sent: Sent) -> bool:
        if not sent.has_data:
            return False
        index = sent.frame.offset // room  # type: ignore[union-attr]
        if left.get(index, 0):
            left[index] -= 1
            return True
        return False

    return lose


def sender_completion_s(pair: PacedPair, data: bytes) -> float:
    """Return when the sender knows that all has arrived, since it began."""
    began = pair.send(data)
    pair.run(until=lambda: pair.ends["client"].sample(pair.now).in_flight_bytes == 0)
    return pair.now - began


# -- selective repeat by timeout ---------------------------------------------------------------------------------------


def test_a_loss_costs_exactly_one_timeout_of_three_round_trips() -> None:
    pair = PacedPair("rdma-sr", rate_bps=RATE_BPS, lose=lose_offsets({10: 1}))
    took_s = pair.carry(content(100))
    # The lost packet departs after 10 packet times; 3 RTT later it goes again.
    assert took_s == pytest.approx(10 * GAP_S + 3 * RTT_S + DELAY_S, abs=2 * GAP_S)
    assert pair.ends["client"].counters().timeouts == 1


@pytest.mark.parametrize("seed", range(6))
def test_completion_follows_the_closed_form_packet_by_packet(seed: int) -> None:
    """arXiv 2505.05366: X_i = i T_inj + (RTO + T_inj)(Y_i - 1), completion at the sender max X_i + RTT."""
    rng = Random(seed)
    count = 400
    losses = {index: 1 + (rng.random() < 0.2) for index in range(count) if rng.random() < 0.01}
    pair = PacedPair("rdma-sr", rate_bps=RATE_BPS, lose=lose_offsets(losses), ack_every=1)
    took_s = sender_completion_s(pair, content(count))
    tries = [1 + losses.get(index, 0) for index in range(count)]
    closed_s = max((i + 1) * GAP_S + (3 * RTT_S + GAP_S) * (y - 1) for i, y in enumerate(tries)) + RTT_S
    assert took_s == pytest.approx(closed_s, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "slowdown"), [(1e-4, 3.58), (1e-3, 3.79)])
def test_mean_slowdown_is_the_published_closed_form_s(loss: float, slowdown: float) -> None:
    """128 MiB in chunks of 4 KiB at 400 Gbit/s and 25 ms: ideal 27.68 ms (arXiv 2505.05366).

    The mean over few runs depends on how many of them happen to lose nothing. So the closed form is put to the very
    losses of each run, and its own mean, over many draws, is what the differences are added to (a control variate).
    """
    chunk, chunks, rtt_s = 4096, 32768, 0.025
    gap_s = chunk * 8 / 400e9
    ideal_s = chunks * gap_s + rtt_s
    assert ideal_s == pytest.approx(27.68e-3, rel=1e-3)

    def closed_s(extra: dict[int, int]) -> float:
        late = (i * gap_s + (3 * rtt_s + gap_s) * lost for i, lost in extra.items())
        return max([chunks * gap_s, *late]) + rtt_s

    rng = np.random.default_rng(1)

    def draw() -> dict[int, int]:
        tries = rng.geometric(1 - loss, size=chunks) - 1
        return {int(i): int(tries[i]) for i in np.flatnonzero(tries)}

    expected_s = float(np.mean([closed_s(draw()) for _ in range(4000)]))
    assert expected_s / ideal_s == pytest.approx(slowdown, rel=0.02)
    differences = []
    for _ in range(8):
        extra = draw()
        pair = PacedPair(
            "rdma-sr",
            lose=lose_offsets(extra, room=chunk),
            mtu_bytes=chunk + DATA_OVERHEAD_BYTES,
            network=topology(delay_s=rtt_s / 2),
            rate_bps=400e9 * (chunk + DATA_OVERHEAD_BYTES) / chunk,  # T_inj counts the chunk alone
        )
        differences.append(sender_completion_s(pair, content(chunks, room=chunk)) - closed_s(extra))
    mean_s = expected_s + sum(differences) / len(differences)
    assert mean_s / ideal_s == pytest.approx(slowdown, rel=0.05)


def test_reports_never_trigger_a_repair() -> None:
    pair = PacedPair("rdma-sr", rate_bps=RATE_BPS, lose=lose_offsets({5: 1, 6: 1, 50: 1}))
    pair.carry(content(3000))
    again = [sent for sent in pair.data() if sent.burst_left is None]
    assert [sent.frame.offset // ROOM for sent in again] == [5, 6, 50]  # type: ignore[union-attr]
    for sent in again:
        first = next(other for other in pair.data() if other.frame.offset == sent.frame.offset)  # type: ignore[union-attr]
        assert sent.at_s - first.at_s >= 3 * RTT_S - 0.001


# -- go-back-N ---------------------------------------------------------------------------------------------------------


def test_go_back_n_sends_everything_from_the_lost_packet_on_again() -> None:
    pair = PacedPair("rdma-gbn", rate_bps=RATE_BPS, lose=lose_offsets({10: 1}))
    took_s = pair.carry(content(2000))
    order = [sent.frame.number for sent in pair.data()]  # type: ignore[union-attr]
    back = next(i for i, (a, b) in enumerate(pairwise(order)) if b < a)
    assert order[back + 1] == 10
    assert order[back + 1 :] == list(range(10, 2000))
    # One RTT's worth of packets was sent for nothing, and nothing else.
    wasted = len(order) - 2000
    assert wasted == pytest.approx(RTT_S / GAP_S, abs=3)
    assert took_s == pytest.approx(DELAY_S + (2000 + wasted) * GAP_S, abs=3 * GAP_S)
    assert pair.ends["client"].counters().timeouts == 0


def test_a_missing_packet_is_named_once() -> None:
    pair = PacedPair("rdma-gbn", rate_bps=RATE_BPS, lose=lose_offsets({10: 1}))
    pair.carry(content(2000))
    naks = [sent.frame for sent in reports(pair) if isinstance(sent.frame, Report) and sent.frame.flags & NAK]
    assert [nak.stop for nak in naks] == [10]


def test_a_repair_that_is_lost_waits_for_the_timeout() -> None:
    pair = PacedPair("rdma-gbn", rate_bps=RATE_BPS, lose=lose_offsets({10: 2}))
    pair.carry(content(2000))
    times = [sent.at_s for sent in pair.data() if sent.frame.number == 10]  # type: ignore[union-attr]
    assert len(times) == 3
    assert times[2] - times[1] == pytest.approx(3 * RTT_S, abs=0.002)
    assert pair.ends["client"].counters().timeouts == 1


def test_a_lost_tail_waits_for_the_timeout() -> None:
    pair = PacedPair("rdma-gbn", rate_bps=RATE_BPS, lose=lose_offsets({99: 1}))
    assert pair.carry(content(100)) == pytest.approx(99 * GAP_S + 3 * RTT_S + DELAY_S, abs=0.003)


def test_go_back_n_keeps_to_one_path() -> None:
    views = [PathView(path_id=index, name=f"p{index}", mtu_bytes=1500) for index in range(2)]
    with pytest.raises(ValueError, match="paths: go-back-N uses one, not 2"):
        GoBackSender(views, rto_rtts=3, give_up_s=1)


def test_no_loss_no_repair() -> None:
    for transport in ("rdma-gbn", "rdma-sr"):
        pair = PacedPair(transport, rate_bps=RATE_BPS)
        assert pair.carry(content(300)) == pytest.approx(DELAY_S + 299 * GAP_S, abs=1e-9)
        assert pair.ends["client"].counters().repairs == 0
