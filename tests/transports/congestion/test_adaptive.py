"""The adaptive controller on a simple bottleneck: a queue, a rate and a round trip."""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

import pytest

from bicoastal.transports.congestion.adaptive import Adaptive
from bicoastal.transports.congestion.base import Ack
from bicoastal.transports.congestion.modes import Mode
from helpers.told_of_acks import tell

MSS = 8948
WIRE = 9000 / 8948  # bytes on the wire per byte of payload
RATE_BPS = 1e9
RTT_S = 0.060
BDP = int(RATE_BPS / WIRE * RTT_S / 8)  # payload bytes


class Bottleneck:
    """A path that one controller sends bursts over; every packet is acknowledged, lost ones are repaired at once.

    occupied_s: queueing delay due to other senders. lose(number): whether the path loses a packet by chance; packets
    are numbered over all bursts.
    """

    def __init__(
        self,
        *,
        rate_bps: float = RATE_BPS,
        rtt_s: float = RTT_S,
        queue_bytes: float = BDP,
        lose: Callable[[int], bool] = lambda number: False,
    ) -> None:
        self.rate_bps, self.rtt_s, self.queue_bytes, self.lose = rate_bps, rtt_s, queue_bytes, lose
        self.occupied_s = 0.0
        self.now = 0.0
        self.sent = self.dropped = 0
        self.longest_queue_s = 0.0
        self.first_round_bytes = 0
        self._free_s = 0.0

    def submit(self, at_s: float) -> float | None:
        """Return when the acknowledgement of a full segment sent at `at_s` comes, None when it never does."""
        number, self.sent = self.sent, self.sent + 1
        wait_s = max(self._free_s - at_s, 0.0)
        if wait_s * self.rate_bps / 8 > self.queue_bytes:
            self.dropped += 1
            return None
        self.longest_queue_s = max(self.longest_queue_s, wait_s)
        self._free_s = max(self._free_s, at_s) + 8 * MSS * WIRE / self.rate_bps
        return None if self.lose(number) else self._free_s + self.rtt_s + self.occupied_s

    def burst(self, congestion: Adaptive, segments: int, *, pause_s: float = 1.0) -> float:
        """Send a burst; return how long it took until the last acknowledgement. Then wait for `pause_s`."""
        self.longest_queue_s = self.first_round_bytes = 0
        begin_s = self.now
        congestion.restart_after_idle(self.now, pause_s, 0.3, policy="decay")
        congestion.on_burst(self.now, segments * MSS)
        acks: list[tuple[float, int, float, bool]] = []
        flying: deque[tuple[int, float]] = deque()  # place in the order of sending, when
        gone: set[int] = set()
        fresh, lost, in_flight, delivered, next_s = segments, 0, 0, 0, self.now
        places = round_stop = 0
        while delivered < segments:
            pace = congestion.pacing_rate_bps
            may_send = (fresh or lost) and (not in_flight or (in_flight + 1) * MSS <= congestion.cwnd_bytes)
            departs_s = max(self.now, next_s if pace else 0.0)
            if may_send and (not acks or departs_s <= acks[0][0]):
                self.now = departs_s
                if pace:
                    next_s = departs_s + 8 * MSS / pace
                place, places = places, places + 1
                limited = (in_flight + 2) * MSS > congestion.cwnd_bytes
                comes_s = self.submit(self.now)
                if comes_s is None:
                    gone.add(place)
                else:
                    heappush(acks, (comes_s, place, self.now, limited))
                flying.append((place, self.now))
                lost, fresh = (lost - 1, fresh) if lost else (lost, fresh - 1)
                in_flight += 1
                if self.now < begin_s + self.rtt_s:
                    self.first_round_bytes += MSS
                continue
            if not acks:  # all that is left of this burst was lost: the repair timeout tells
                timeout = congestion.repair_timeout()
                assert timeout is not None
                self.now = max(self.now, flying[-1][1] + timeout.expected_s + timeout.margin_s)
                found = len(flying)
                flying.clear()
            else:
                self.now, acked, sent_s, limited = heappop(acks)
                found = 0
                while flying and flying[0][0] <= acked:
                    found += flying.popleft()[0] in gone
                in_flight -= 1
                delivered += 1
                new_round = acked >= round_stop
                if new_round:
                    round_stop = places
                tell(
                    congestion,
                    Ack(
                        now=self.now,
                        acked_bytes=MSS,
                        delivered_bytes=MSS,
                        lost_bytes=0,
                        in_flight_bytes=in_flight * MSS,
                        rtt_s=self.now - sent_s,
                        round_started=new_round,
                        cwnd_limited=limited or congestion.mode is Mode.STARTUP,
                        in_recovery=False,
                        newest_sent_s=sent_s,
                    ),
                )
            if found:
                congestion.on_loss(self.now, found * MSS, in_flight * MSS, self.now - self.rtt_s)
                congestion.on_congestion(self.now, in_flight * MSS)
                congestion.on_recovery_end(self.now)
                lost += found
                in_flight -= found
        took_s = self.now - begin_s
        self.now += pause_s
        return took_s

    def bound_s(self, segments: int) -> float:
        """Return the least time until the last acknowledgement of a burst."""
        return self.rtt_s + segments * 8 * MSS * WIRE / self.rate_bps


SEGMENTS = 2 * BDP // MSS


def learned(path: Bottleneck, bursts: int = 3) -> Adaptive:
    """Return a controller that has sent some bursts over a path."""
    congestion = Adaptive(mss_bytes=MSS)
    for _ in range(bursts):
        path.burst(congestion, SEGMENTS)
    return congestion


# -- opening -----------------------------------------------------------------------------------------------------------


def test_without_a_learned_rate_it_opens_as_any_tcp_does() -> None:
    congestion = Adaptive(mss_bytes=MSS)
    congestion.on_burst(0.0, 10**8)
    assert (congestion.cwnd_bytes, congestion.pacing_rate_bps) == (10 * MSS, None)  # RFC 6928
    assert congestion.repair_timeout() is None
    assert congestion.learned_rate_bps is None


def test_the_first_burst_shows_the_rate_of_the_bottleneck() -> None:
    path = Bottleneck()
    congestion = learned(path, 1)
    congestion.on_burst(path.now, SEGMENTS * MSS)
    assert congestion.learned_rate_bps == pytest.approx(RATE_BPS / WIRE, rel=0.05)


def test_from_the_second_burst_on_a_whole_bdp_leaves_in_the_first_round_trip_and_hardly_queues() -> None:
    path = Bottleneck()
    congestion = learned(path, 1)
    for _ in range(5):
        took_s = path.burst(congestion, SEGMENTS)
        assert path.first_round_bytes > 0.95 * BDP
        assert took_s < 1.03 * path.bound_s(SEGMENTS)
        assert path.longest_queue_s < 0.06 * RTT_S
    assert path.dropped == 0
    assert congestion.mode is Mode.CRUISE


def test_idle_time_changes_no_window() -> None:
    path = Bottleneck()
    congestion = learned(path)
    before = congestion.cwnd_bytes, congestion.pacing_rate_bps
    congestion.restart_after_idle(path.now + 100, 100.0, 0.3, policy="restart")
    assert (congestion.cwnd_bytes, congestion.pacing_rate_bps) == before


def test_it_keeps_a_shallow_queue_from_overflowing() -> None:
    path = Bottleneck(queue_bytes=0.05 * BDP)
    congestion = learned(path, 2)
    dropped = path.dropped
    took_s = [path.burst(congestion, 5 * BDP // MSS) for _ in range(4)]
    assert path.dropped == dropped
    assert max(took_s) < 1.1 * path.bound_s(5 * BDP // MSS)


@pytest.mark.parametrize("segments", [1, 5, 30])
def test_bursts_of_a_few_segments_are_not_delayed(segments: int) -> None:
    path = Bottleneck()
    congestion = Adaptive(mss_bytes=MSS)
    took_s = [path.burst(congestion, segments) for _ in range(20)]
    assert max(took_s[3:]) < 2.2 * RTT_S
    assert path.dropped == 0


# -- loss --------------------------------------------------------------------------------------------------------------


def test_loss_without_a_queue_is_repaired_and_reduces_nothing() -> None:
    path = Bottleneck(lose=lambda number: number % 700 == 500)
    congestion = learned(path, 2)
    for _ in range(6):
        assert path.burst(congestion, SEGMENTS) < 1.03 * path.bound_s(SEGMENTS) + RTT_S * 1.1
        assert congestion.mode is Mode.CRUISE
        assert congestion.learned_rate_bps == pytest.approx(RATE_BPS / WIRE, rel=0.1)


def test_how_much_a_path_loses_by_chance_is_learned() -> None:
    path = Bottleneck(lose=lambda number: number % 100 == 50)
    congestion = learned(path, 12)
    assert 0.004 < congestion.learned_loss < 0.02
    assert congestion.mode is Mode.CRUISE


def test_a_rare_loss_is_repaired_twice_soon_after_one_another() -> None:
    path = Bottleneck()
    congestion = learned(path)
    congestion.on_burst(path.now, 10**7)
    congestion.on_loss(path.now + RTT_S, MSS, BDP, path.now)
    after_s = congestion.duplicate_repair_after_s
    assert after_s is not None
    assert 0 < after_s < RTT_S / 4


def test_an_overflowing_queue_reduces_the_rate_and_stops_second_copies() -> None:
    path = Bottleneck(queue_bytes=0.5 * BDP)
    congestion = learned(path)
    rate_bps = congestion.learned_rate_bps
    assert rate_bps is not None
    path.rate_bps = RATE_BPS / 4
    path.burst(congestion, SEGMENTS)
    assert path.dropped > 0
    assert congestion.learned_rate_bps is not None
    assert congestion.learned_rate_bps < 0.5 * rate_bps
    congestion.on_loss(path.now, 200 * MSS, BDP, path.now)
    assert congestion.duplicate_repair_after_s is None


@pytest.mark.parametrize("queue", [0.1, 0.5, 2.0])
def test_half_the_capacity_costs_one_bad_burst(queue: float) -> None:
    path = Bottleneck(queue_bytes=queue * BDP)
    congestion = learned(path, 4)
    path.rate_bps /= 2
    path.burst(congestion, SEGMENTS)
    dropped = path.dropped
    for _ in range(3):
        assert path.burst(congestion, SEGMENTS) < 1.15 * path.bound_s(SEGMENTS)
    assert path.dropped - dropped <= 0.01 * 3 * SEGMENTS


def test_the_senders_loss_episodes_change_no_window() -> None:
    path = Bottleneck()
    congestion = learned(path)
    assert congestion.governs_recovery
    before = congestion.cwnd_bytes, congestion.pacing_rate_bps
    congestion.on_congestion(path.now, BDP)
    congestion.on_recovery_end(path.now)
    assert (congestion.cwnd_bytes, congestion.pacing_rate_bps) == before


# -- the path changes --------------------------------------------------------------------------------------------------


def test_twice_the_capacity_is_found_within_a_few_bursts() -> None:
    path = Bottleneck()
    congestion = learned(path)
    path.rate_bps *= 2
    took_s = [path.burst(congestion, 5 * BDP // MSS) for _ in range(8)]
    assert took_s[-1] < 1.1 * path.bound_s(5 * BDP // MSS)
    assert congestion.learned_rate_bps == pytest.approx(2 * RATE_BPS / WIRE, rel=0.1)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_another_round_trip_time_is_learned_within_a_few_bursts(factor: float) -> None:
    path = Bottleneck(queue_bytes=2 * BDP)
    congestion = learned(path)
    path.rtt_s *= factor
    took_s = [path.burst(congestion, 5 * BDP // MSS) for _ in range(10)]
    assert max(took_s) < 3 * path.bound_s(5 * BDP // MSS)
    assert max(took_s[-2:]) < 1.15 * path.bound_s(5 * BDP // MSS)


def test_a_queue_of_another_sender_makes_it_compete_until_the_queue_has_drained() -> None:
    path = Bottleneck(queue_bytes=2 * BDP)
    congestion = learned(path)
    path.occupied_s = 0.4 * RTT_S
    path.burst(congestion, 10 * BDP // MSS, pause_s=0.0)
    modes = [congestion.mode]
    path.occupied_s = 0.0
    path.burst(congestion, 20 * BDP // MSS)
    assert [*modes, congestion.mode] == [Mode.COMPETE, Mode.CRUISE]


# -- timeouts ----------------------------------------------------------------------------------------------------------


def test_a_missing_acknowledgement_means_loss_after_a_round_trip_and_before_the_tail_loss_probe() -> None:
    path = Bottleneck()
    timeout = learned(path).repair_timeout()
    assert timeout is not None
    assert RTT_S <= timeout.expected_s < timeout.expected_s + timeout.margin_s < 2 * RTT_S  # RFC 8985 §7.2: 2 SRTT


def test_needless_repairs_widen_the_margin_and_bursts_without_them_narrow_it() -> None:
    path = Bottleneck()
    congestion = learned(path)
    before = congestion.repair_timeout()
    congestion.undo()
    wider = congestion.repair_timeout()
    assert before is not None
    assert wider is not None
    assert wider.margin_s > 1.5 * before.margin_s
    for _ in range(20):
        congestion.undo()
    widest = congestion.repair_timeout()
    assert widest is not None
    assert widest.margin_s < 100 * before.margin_s  # there is a limit
    for _ in range(60):
        path.burst(congestion, 30)
    after = congestion.repair_timeout()
    assert after is not None
    assert after.margin_s < 1.5 * before.margin_s


def test_after_a_timeout_it_sends_one_segment_and_then_at_half_the_learned_rate() -> None:
    path = Bottleneck()
    congestion = learned(path)
    rate_bps = congestion.learned_rate_bps
    assert rate_bps is not None
    congestion.on_timeout(path.now, BDP, first=True)
    assert congestion.cwnd_bytes == MSS
    congestion.on_timeout(path.now + 1, MSS, first=False)
    assert congestion.cwnd_bytes == MSS
    path.now += 2
    now = path.now
    tell(congestion, Ack(now, MSS, MSS, 0, 0, RTT_S, True, True, False, now - RTT_S))
    assert congestion.learned_rate_bps == pytest.approx(rate_bps / 2, rel=0.05)
    assert congestion.cwnd_bytes < 0.85 * BDP
    assert path.burst(congestion, SEGMENTS) < 2.2 * path.bound_s(SEGMENTS)
    assert path.burst(congestion, SEGMENTS) < 1.2 * path.bound_s(SEGMENTS)


def test_a_spurious_timeout_costs_no_rate() -> None:
    path = Bottleneck()
    congestion = learned(path)
    rate_bps = congestion.learned_rate_bps
    congestion.on_timeout(path.now, BDP, first=True)
    now = path.now + 0.5
    tell(congestion, Ack(now, MSS, MSS, 0, 0, RTT_S, True, True, False, now - RTT_S))
    congestion.undo()
    assert congestion.learned_rate_bps == rate_bps


def test_a_timeout_before_a_rate_is_known_restarts_with_one_segment() -> None:
    congestion = Adaptive(mss_bytes=MSS)
    congestion.on_burst(0.0, 10**8)
    congestion.on_timeout(1.0, 10 * MSS, first=True)
    assert (congestion.cwnd_bytes, congestion.pacing_rate_bps) == (MSS, None)
    path = Bottleneck()
    path.now = 2.0
    took_s = [path.burst(congestion, SEGMENTS) for _ in range(3)]
    assert took_s[-1] < 1.1 * path.bound_s(SEGMENTS)
