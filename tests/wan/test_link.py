from collections.abc import Callable, Sequence
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bicoastal.transports.base import Datagram
from bicoastal.wan.link import Arrival, Link
from bicoastal.wan.loss import Bernoulli, Combined, NoLoss, Periodic
from bicoastal.wan.recorded_loss import Listed
from bicoastal.wan.schedule import CapacityTrace, Outage, RateStep
from bicoastal.wan.topology import LinkSpec

RATE_BPS = 8e6  # one byte per microsecond
DELAY_S = 0.030


def spec(**values) -> LinkSpec:
    defaults = {"name": "l", "a": "west", "b": "east", "rate_bps": RATE_BPS, "delay_s": DELAY_S, "framing_bytes": 0}
    return LinkSpec(**(defaults | values))


def streams(seed: int = 1) -> Callable[[str], Random]:
    return lambda name: Random(f"{seed}/{name}")


def make(*, back: bool = False, seed: int = 1, **values) -> Link:
    return Link(spec(**values), back=back, stream=streams(seed))


def packet(size: int = 1000) -> Datagram:
    return Datagram(0, b"", size, 0.0)


def times(link: Link, count: int, *, now: float = 0.0, gap: float = 0.0, size: int = 1000) -> list[float]:
    return [arrival.at_s for index in range(count) for arrival in link.submit(packet(size), now + index * gap)]


def test_a_packet_takes_its_transmission_and_the_propagation() -> None:
    link = make()
    assert link.submit(packet(), 1.0) == (Arrival(pytest.approx(1.0 + 0.001 + DELAY_S), None),)


def test_packets_submitted_at_once_leave_at_the_links_rate() -> None:
    link = make()
    expected = [DELAY_S + 0.001 * (index + 1) for index in range(50)]
    assert times(link, 50) == pytest.approx(expected, abs=1e-12)
    assert link.backlog_bytes(0.0) == pytest.approx(50_000)
    assert link.backlog_bytes(0.0125) == pytest.approx(37_500)
    assert link.backlog_bytes(0.060) == 0


def test_framing_takes_its_time_and_its_room() -> None:
    link = make(framing_bytes=38, queue_bytes=2 * 1038)
    assert times(link, 3) == pytest.approx([DELAY_S + 0.001038, DELAY_S + 0.002076])
    assert link.dropped_queue == 1
    assert link.bytes == 2 * 1038


def test_the_queue_holds_one_bandwidth_delay_product_by_default() -> None:
    link = make()
    assert len(times(link, 100)) == 60  # 8 Mbit/s * 60 ms = 60,000 bytes
    assert (link.packets, link.delivered, link.dropped_queue) == (100, 60, 40)


def test_a_packet_fits_again_as_soon_as_enough_has_left() -> None:
    link = make(queue_bytes=10_000)
    assert len(times(link, 10)) == 10
    assert link.submit(packet(), 0.0009) == ()
    assert len(link.submit(packet(), 0.001)) == 1
    assert link.submit(packet(), 0.001) == ()


def test_an_idle_link_takes_a_packet_larger_than_its_queue() -> None:
    link = make(queue_bytes=1)
    assert times(link, 3, gap=0.002) == pytest.approx([DELAY_S + 0.001, DELAY_S + 0.003, DELAY_S + 0.005])
    assert link.submit(packet(), 0.0045) == ()


def test_a_lost_packet_has_used_the_transmitter() -> None:
    link = make(loss=Listed(indices=(0, 1)))
    assert times(link, 3) == pytest.approx([DELAY_S + 0.003])
    assert (link.lost, link.delivered, link.bytes) == (2, 1, 3000)


def test_each_direction_has_the_loss_that_was_given_for_it() -> None:
    values = {"loss": Periodic(every=2), "loss_back": NoLoss()}
    assert len(times(make(**values), 10)) == 5
    assert len(times(make(back=True, **values), 10)) == 10
    assert len(times(make(back=True, loss=Periodic(every=2)), 10)) == 5


@pytest.mark.parametrize("probability", [1e-3, 0.05])
def test_the_share_of_lost_packets_is_binomial(probability: float) -> None:
    link = make(loss=Bernoulli(probability=probability))
    times(link, 50_000, gap=0.001)
    assert stats.binomtest(link.lost, 50_000, probability).pvalue > 1e-4
    assert link.lost + link.delivered == link.packets == 50_000


# -- capacity steps ---------------------------------------------------------------------------------------------------


def test_a_capacity_step_changes_the_rate_of_what_is_still_queued() -> None:
    # 10 packets at once; after 3.5 ms the rate halves, so 6,500 bytes need 13 ms more.
    link = make(events=(RateStep(at_s=0.0035, rate_bps=RATE_BPS / 2),))
    leave = [0.001, 0.002, 0.003, 0.0045, 0.0065, 0.0085, 0.0105, 0.0125, 0.0145, 0.0165]
    assert times(link, 10) == pytest.approx([DELAY_S + at_s for at_s in leave], abs=1e-12)
    assert link.backlog_bytes(0.0) == pytest.approx(10_000)
    assert link.backlog_bytes(0.0025) == pytest.approx(7_500)
    assert link.backlog_bytes(0.0035) == pytest.approx(6_500)
    assert link.backlog_bytes(0.0155) == pytest.approx(500)
    assert times(link, 1, now=1.0) == pytest.approx([1.0 + 0.002 + DELAY_S])


def test_a_step_of_an_iteration_counts_from_its_beginning() -> None:
    link = make(events=(RateStep(at_s=0.5, rate_bps=RATE_BPS / 4, iteration=2),))
    link.begin_iteration(1, 0.0)
    assert times(link, 1, now=0.6) == pytest.approx([0.601 + DELAY_S])
    link.begin_iteration(2, 10.0)
    assert times(link, 1, now=10.4) == pytest.approx([10.401 + DELAY_S])
    assert times(link, 1, now=10.5) == pytest.approx([10.504 + DELAY_S])


def test_a_step_announced_late_leaves_the_queue_its_times_and_the_order_of_packets() -> None:
    link = make(events=(RateStep(at_s=0.0, rate_bps=RATE_BPS * 1000, iteration=0),))
    before = times(link, 10)
    link.begin_iteration(0, 0.002)
    after = times(link, 10, now=0.002)
    assert before == pytest.approx([DELAY_S + 0.001 * (index + 1) for index in range(10)])
    assert after == pytest.approx([DELAY_S + 0.010 + 1e-6 * (index + 1) for index in range(10)])


class ReferenceLink:
    """An independent account of drop-tail and rate, in exact fractions, from the cumulative service of a busy link."""

    def __init__(self, rate: Fraction, limit: int, steps: Sequence[tuple[Fraction, Fraction]]) -> None:
        self.edges = [(Fraction(0), rate), *steps]
        self.limit = limit
        self.free_at = Fraction(0)

    def service(self, at: Fraction) -> Fraction:
        total = Fraction(0)
        ends = [edge for edge, _ in self.edges[1:]] + [at]
        for (begin, rate), end in zip(self.edges, ends, strict=True):
            total += max(Fraction(0), min(end, at) - begin) * rate
        return total

    def when(self, service: Fraction) -> Fraction:
        for begin, rate in reversed(self.edges):
            if self.service(begin) <= service:
                return begin + (service - self.service(begin)) / rate
        raise AssertionError

    def submit(self, size: int, now: Fraction) -> Fraction | None:
        backlog = max(Fraction(0), self.service(self.free_at) - self.service(now))
        if backlog and backlog + size > self.limit:
            return None
        self.free_at = self.when(self.service(max(now, self.free_at)) + size)
        return self.free_at


@settings(max_examples=150)
@given(
    steps=st.lists(st.tuples(st.integers(1, 3000), st.sampled_from([125, 250, 500, 1000, 2000, 4000])), max_size=5),
    packets=st.lists(st.tuples(st.integers(0, 400), st.integers(40, 1500)), min_size=1, max_size=60),
    limit=st.integers(1000, 20_000),
    traced=st.booleans(),
)
def test_queue_and_rate_agree_with_an_exact_account(
    steps: list[tuple[int, int]], packets: list[tuple[int, int]], limit: int, traced: bool
) -> None:
    scale = 1 << 16  # times are multiples of 2^-16 s, rates of bytes per 2^-16 s: floats that are exact
    edges = sorted(dict(steps).items())
    reference = ReferenceLink(Fraction(1000), limit, [(Fraction(at), Fraction(rate)) for at, rate in edges])
    whole = tuple((at / scale, rate * 8.0 * scale) for at, rate in edges)
    single = tuple(RateStep(at_s=at_s, rate_bps=rate_bps) for at_s, rate_bps in whole)
    events = (CapacityTrace(steps=whole),) if traced and whole else single
    link = make(rate_bps=1000 * 8.0 * scale, delay_s=0.0, queue_bytes=limit, events=events)
    now = 0
    for gap, size in packets:
        now += gap
        expected = reference.submit(size, Fraction(now))
        got = link.submit(packet(size), now / scale)
        if expected is None:
            assert got == ()
        else:
            assert [arrival.at_s for arrival in got] == [pytest.approx(float(expected / scale), rel=1e-12)]
        backlog = max(Fraction(0), reference.service(reference.free_at) - reference.service(Fraction(now)))
        assert link.backlog_bytes(now / scale) == pytest.approx(float(backlog), abs=1e-6)


@settings(max_examples=100)
@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    rates=st.lists(st.sampled_from([125, 250, 500, 1000, 2000, 4000]), min_size=5, max_size=5),
    packets=st.lists(st.tuples(st.integers(0, 400), st.integers(40, 1500)), min_size=1, max_size=60),
)
def test_a_trace_that_repeats_is_followed_from_period_to_period(
    lengths: list[int], rates: list[int], packets: list[tuple[int, int]]
) -> None:
    scale = 1 << 16
    starts = [sum(lengths[:index]) for index in range(len(lengths))]
    period = sum(lengths)
    last = sum(gap for gap, _ in packets) + 12 * sum(size for _, size in packets) // 125 + period
    edges = [
        (number * period + start, rate)
        for number in range(last // period + 2)
        for start, rate in zip(starts, rates, strict=False)
    ]
    reference = ReferenceLink(Fraction(1000), 20_000, [(Fraction(at), Fraction(rate)) for at, rate in edges])
    steps = tuple((start / scale, rate * 8.0 * scale) for start, rate in zip(starts, rates, strict=False))
    link = make(
        rate_bps=1000 * 8.0 * scale,
        delay_s=0.0,
        queue_bytes=20_000,
        events=(CapacityTrace(steps=steps, period_s=period / scale),),
    )
    now = 0
    for gap, size in packets:
        now += gap
        expected = reference.submit(size, Fraction(now))
        got = link.submit(packet(size), now / scale)
        assert [arrival.at_s * scale for arrival in got] == (
            [] if expected is None else [pytest.approx(float(expected), rel=1e-9)]
        )


# -- outages ----------------------------------------------------------------------------------------------------------


def offer(link: Link, submissions: Sequence[float]) -> list[float]:
    """Submit packets, ask at each arrival whether it is real, and return when those that made it were submitted."""
    kept = []
    for now in submissions:
        for arrival in link.submit(packet(), now):
            if link.survives(now, arrival.at_s):
                kept.append(now)
    return kept


def test_an_outage_takes_all_that_is_on_the_wire_and_all_that_is_offered_meanwhile() -> None:
    link = make(events=(Outage(at_s=1.0, duration_s=0.5),))
    submissions = [0.01 * index for index in range(200)]
    kept = offer(link, submissions)
    # Gone: submitted after 1 s - 1 ms - 30 ms, and before 1.5 s.
    assert kept == [now for now in submissions if now + 0.031 < 1.0 or now >= 1.5]
    assert link.dropped_outage == 200 - len(kept)
    assert link.delivered == len(kept)


def test_the_queue_is_empty_after_an_outage() -> None:
    link = make(events=(Outage(at_s=0.005, duration_s=0.001),))
    arrivals = times(link, 50)  # 50 ms of queue, all of it flushed
    assert not any(link.survives(0.0, at_s) for at_s in arrivals)
    assert link.backlog_bytes(0.0055) == 0
    assert link.submit(packet(), 0.0055) == ()
    assert times(link, 1, now=0.006) == pytest.approx([0.006 + 0.001 + DELAY_S])
    assert link.survives(0.006, 0.037)
    assert link.dropped_outage == 51


def test_an_outage_announced_with_an_iteration_takes_what_was_already_on_its_way() -> None:
    link = make(events=(Outage(at_s=0.0, duration_s=0.010, iteration=1),))
    (arrival,) = link.submit(packet(), 4.990)
    link.begin_iteration(1, 5.0)
    assert not link.survives(4.990, arrival.at_s)
    assert link.submit(packet(), 5.0) == ()
    (later,) = link.submit(packet(), 5.010)
    assert link.survives(5.010, later.at_s)
    assert link.dropped_outage == 2


def test_overlapping_outages_with_different_anchors_keep_the_link_dark_until_the_last_ends() -> None:
    link = make(events=(Outage(at_s=1.0, duration_s=1.0), Outage(at_s=0.0, duration_s=0.2, iteration=0)))
    link.begin_iteration(0, 1.5)
    assert offer(link, [0.5, 1.1, 1.6, 1.75, 1.99, 2.0]) == [0.5, 2.0]


def test_the_rate_that_changed_during_an_outage_holds_after_it() -> None:
    link = make(events=(Outage(at_s=1.0, duration_s=1.0), RateStep(at_s=1.5, rate_bps=RATE_BPS / 2)))
    assert times(link, 1, now=2.0) == pytest.approx([2.002 + DELAY_S])


class Scripted:
    def __init__(self, *values: float) -> None:
        self.values = iter(values)

    def random(self) -> float:
        return next(self.values)

    def getrandbits(self, k: int) -> int:
        raise AssertionError("nothing here asks for bits")


def test_what_an_outage_took_holds_nothing_back_afterwards() -> None:
    late, punctual = 0.9, 0.0
    outage = spec(jitter_s=0.5, events=(Outage(at_s=0.1, duration_s=0.001),))
    link = Link(outage, back=False, stream=lambda _: Scripted(late, punctual))
    assert times(link, 1, now=0.090) == pytest.approx([0.090 + 0.001 + DELAY_S + 0.9 * 0.5])
    assert times(link, 1, now=0.101) == pytest.approx([0.101 + 0.001 + DELAY_S])


# -- what the wire does to packets ------------------------------------------------------------------------------------


def test_jitter_is_uniform_and_never_reorders() -> None:
    gap = 0.010
    link = make(jitter_s=0.004)  # less than the gap, so that nothing is held back by the packet before
    late = np.array(times(link, 4000, gap=gap)) - np.arange(4000) * gap - DELAY_S - 0.001
    assert stats.kstest(late, stats.uniform(0, 0.004).cdf).pvalue > 1e-4
    dense = times(make(jitter_s=0.020), 50, gap=0.001)
    assert dense == sorted(dense)
    assert np.ptp(np.diff(dense)) > 0


def test_a_packet_picked_for_reordering_is_overtaken_and_delays_no_other() -> None:
    link = make(reorder=0.1, reorder_delay_s=0.005)
    arrivals = np.array(times(link, 5000, gap=0.001))
    late = arrivals - np.arange(5000) * 0.001 - DELAY_S - 0.001
    held = np.flatnonzero(late > 0.0049)
    assert late[held] == pytest.approx(np.full(held.size, 0.005), abs=1e-9)
    assert np.delete(late, held) == pytest.approx(np.zeros(5000 - held.size), abs=1e-9)
    assert link.reordered == held.size
    assert stats.binomtest(held.size, 5000, 0.1).pvalue > 1e-4


def test_duplicates_arrive_with_their_originals_and_are_counted() -> None:
    link = make(duplicate=0.2, loss=Bernoulli(probability=0.1))
    arrived = [link.submit(packet(), index * 0.001) for index in range(5000)]
    assert {len(arrivals) for arrivals in arrived} == {0, 1, 2}
    assert all(arrivals[0] == arrivals[1] for arrivals in arrived if len(arrivals) == 2)
    copies = sum(len(arrivals) for arrivals in arrived)
    assert link.delivered == copies == link.packets + link.duplicated - link.lost
    assert stats.binomtest(link.duplicated, 5000 - link.lost, 0.2).pvalue > 1e-4


def test_corruption_flips_a_bit_anywhere() -> None:
    link = make(corrupt=0.2)
    arrived = [link.submit(packet(), index * 0.001)[0] for index in range(10_000)]
    where = [arrival.corrupt for arrival in arrived if arrival.corrupt is not None]
    assert link.corrupted == len(where)
    assert stats.binomtest(len(where), 10_000, 0.2).pvalue > 1e-4
    assert stats.kstest(where, stats.uniform.cdf).pvalue > 1e-4
    assert min(where) >= 0
    assert max(where) < 1


def test_every_packet_is_accounted_for_when_everything_happens_at_once() -> None:
    link = make(
        loss=Bernoulli(probability=0.05),
        queue_bytes=5000,
        jitter_s=0.001,
        reorder=0.05,
        reorder_delay_s=0.003,
        duplicate=0.05,
        corrupt=0.05,
        events=(Outage(at_s=0.5, duration_s=0.2), RateStep(at_s=0.8, rate_bps=RATE_BPS / 3)),
    )
    delivered = 0
    for index in range(3000):
        now = index * 0.0007
        delivered += sum(link.survives(now, arrival.at_s) for arrival in link.submit(packet(), now))
    counters = (link.lost, link.dropped_queue, link.dropped_outage, link.duplicated, link.corrupted, link.reordered)
    assert all(counters)
    assert link.delivered == delivered


# -- randomness -------------------------------------------------------------------------------------------------------

EVERYTHING = {
    "loss": Bernoulli(probability=0.05),
    "jitter_s": 0.0001,
    "reorder": 0.05,
    "reorder_delay_s": 0.003,
    "duplicate": 0.05,
    "corrupt": 0.05,
}


def fates(**values) -> list[Sequence[Arrival]]:
    link = make(**values)
    return [link.submit(packet(), index * 0.002) for index in range(3000)]


def test_the_same_streams_give_the_same_losses_and_others_give_others() -> None:
    assert fates(**EVERYTHING) == fates(**EVERYTHING)
    assert fates(**EVERYTHING, seed=2) != fates(**EVERYTHING)


def test_adding_one_process_changes_no_other() -> None:
    everything = fates(**EVERYTHING)
    plain = fates(loss=EVERYTHING["loss"])
    assert [bool(arrivals) for arrivals in plain] == [bool(arrivals) for arrivals in everything]
    lossless = fates(**(EVERYTHING | {"loss": NoLoss()}))
    for arrivals, spared in zip(everything, lossless, strict=True):
        assert not arrivals or arrivals == spared
    corrupt = fates(corrupt=EVERYTHING["corrupt"])
    for arrivals, only in zip(lossless, corrupt, strict=True):
        assert arrivals[0].corrupt == only[0].corrupt


def test_a_part_added_to_the_loss_only_adds_losses() -> None:
    one = fates(loss=Combined(parts=(Bernoulli(probability=0.05),)))
    two = fates(loss=Combined(parts=(Bernoulli(probability=0.05), Periodic(every=7))))
    assert all(less or not more for less, more in zip(one, two, strict=True))
    assert sum(map(bool, two)) < sum(map(bool, one))
