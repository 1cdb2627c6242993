"""What acknowledgements show of a path: its rate of delivery, its queueing delay, and whether it has more capacity.

Rates are bit/s of payload, times seconds, sizes bytes.
"""

from collections import deque
from typing import NamedTuple

from bicoastal.transports.recovery.round_trips import RoundTrips
from bicoastal.wan.units import INFINITY

MIN_POINTS = 8
"""Fewer acknowledgements, or pairs of segments, show a rate only by chance."""

HEAVY_LOSS_SHARE = 0.02  # of a round, beyond the share that the path loses by chance
HEAVY_LOSS_SEGMENTS = 32
OVERLOAD_SHARE = 0.2  # of a round lost

SPREAD = 1.2
"""How many times as long as its sending a burst's arrival takes, at least, if the path is slower than the sender."""


class Point(NamedTuple):
    """An acknowledgement: its time, the bytes delivered in all by then, and when its newest packet was sent."""

    at_s: float
    delivered_bytes: int
    sent_s: float


def rate_between(first: Point, last: Point) -> float:
    """Return the rate at which a path delivered between two acknowledgements, 0 if they came and left at once.

    It is over the longer of the two times, that of sending and that of acknowledging. So acknowledgements that were
    delayed and came together do not make it too high (draft-ietf-ccwg-bbr §4.1).
    """
    took_s = max(last.at_s - first.at_s, last.sent_s - first.sent_s)
    return 8 * (last.delivered_bytes - first.delivered_bytes) / took_s if took_s > 0 else 0.0


class Round:
    """What one round trip has delivered and lost. begun_s is None until a burst's first acknowledgement."""

    __slots__ = ("begun_s", "best_bps", "delivered_bytes", "lost_bytes")

    def __init__(self, begun_s: float | None) -> None:
        self.begun_s = begun_s
        self.delivered_bytes = 0
        self.lost_bytes = 0
        self.best_bps = 0.0

    @property
    def total_bytes(self) -> int:
        """The bytes delivered and lost together."""
        return self.delivered_bytes + self.lost_bytes

    @property
    def overloaded(self) -> bool:
        """Whether so much is lost that the rate must have been far too high."""
        return self.lost_bytes > OVERLOAD_SHARE * self.total_bytes

    def lost_by_chance_bytes(self, loss: float, mss_bytes: int) -> float:
        """Return the most that a path may have lost without being congested; loss: the share it loses by chance."""
        return max(HEAVY_LOSS_SEGMENTS * mss_bytes, (HEAVY_LOSS_SHARE + 4 * loss) * self.total_bytes)


class AckTrain:
    """The rate that the latest acknowledgements show, over a sliding window of time.

    The window is as long as `span_s` and holds at least MIN_POINTS acknowledgements.
    """

    __slots__ = ("_points", "span_s")

    def __init__(self) -> None:
        self.span_s = 0.001
        self._points: deque[Point] = deque()

    def clear(self) -> None:
        """Drop all acknowledgements: the next one does not continue the train."""
        self._points.clear()

    def add(self, point: Point) -> float:
        """Take an acknowledgement; return the rate, 0 as long as the window is not full."""
        points = self._points
        points.append(point)
        while len(points) > MIN_POINTS and point.at_s - points[1].at_s >= self.span_s:
            points.popleft()
        if len(points) < MIN_POINTS or point.at_s - points[0].at_s < self.span_s:
            return 0.0
        return rate_between(points[0], point)


class BurstRate:
    """The rate at which a burst has arrived since its first acknowledgement, if it arrived more slowly than it left.

    An acknowledgement can be late, but never early. So over a good part of a burst, acknowledgements that queued and
    then came together do not make the rate too high, even with few packets. burst_bytes: the burst's size; only
    acknowledgements of its latter half count. rate_bps: None until they show that the path, not the sender, has spread
    the burst.
    """

    __slots__ = ("_fastest_bps", "_first", "_half_bytes", "rate_bps")

    def __init__(self, burst_bytes: float) -> None:
        self.rate_bps: float | None = None
        self._half_bytes = burst_bytes / 2
        self._first: Point | None = None
        self._fastest_bps = 0.0

    def add(self, point: Point) -> None:
        """Take an acknowledgement."""
        first = self._first
        if first is None:
            self._first = point
            return
        arrived_bytes, took_s = point.delivered_bytes - first.delivered_bytes, point.at_s - first.at_s
        if arrived_bytes < self._half_bytes or took_s <= 0:
            return
        fastest_bps = 8 * arrived_bytes / took_s
        if fastest_bps > self._fastest_bps:
            self._fastest_bps = fastest_bps
            self.rate_bps = fastest_bps if took_s > SPREAD * (point.sent_s - first.sent_s) else None


class FlightDispersion:
    """The bottleneck's rate, from the flights of a slow start: each arrives as a train that the bottleneck has spread.

    Packet-train dispersion (Dovrolis, Ramanathan and Moore, "Packet-dispersion techniques and a capacity-estimation
    methodology", IEEE/ACM ToN 2004). rate_bps is None until a flight was long enough, or a short one slow enough.
    """

    __slots__ = (
        "_acks", "_first_bytes", "_first_s", "_last_s", "_longest_bytes", "_short", "_short_bps", "rate_bps",
    )  # fmt: skip

    def __init__(self) -> None:
        self.rate_bps: float | None = None
        self._short: list[Point] = []
        self._short_bps: float | None = None
        self._longest_bytes = 0
        self._acks = 0
        self._first_s = self._last_s = 0.0
        self._first_bytes = 0

    def add(self, now: float, delivered_bytes: int, *, min_rtt_s: float, mss_bytes: int) -> None:
        """Take an acknowledgement; `delivered_bytes` in all."""
        if self._acks < MIN_POINTS:
            pause_s = min_rtt_s / 4  # the usual gap between two acknowledgements is not known yet
        else:
            pause_s = max(min_rtt_s / 64, 8 * (self._last_s - self._first_s) / self._acks)
        if self._acks == 0 or now - self._last_s > pause_s:  # the first of another flight
            self._first_s, self._first_bytes, self._acks = now, delivered_bytes, 0
        self._acks += 1
        self._last_s = now
        train_bytes = delivered_bytes - self._first_bytes
        # a flight of slow start is twice its predecessor: a much shorter train is a fragment, and shows little
        if now > self._first_s and train_bytes >= max(2 * MIN_POINTS * mss_bytes, self._longest_bytes / 2):
            self._longest_bytes = max(self._longest_bytes, train_bytes)
            self.rate_bps = 8 * train_bytes / (now - self._first_s)

    def add_short(self, point: Point, *, new_flight: bool, min_rtt_s: float) -> None:
        """Take an acknowledgement as one of a flight that may be too short for `add`.

        It shows a rate under two conditions. The path is so slow that a few segments take a good part of a round trip
        to arrive: errors of timing are small beside that. And the segments arrive more slowly than they left: so the
        path has spread them, not the sender. As soon as `add` has shown a rate, short flights no longer count.
        """
        if self.rate_bps != self._short_bps:
            return
        train = self._short
        if new_flight or (train and point.at_s - train[-1].at_s > min_rtt_s / 2):  # or an acknowledgement was delayed
            train.clear()
        train.append(point)
        took_s, leaving_s = point.at_s - train[0].at_s, point.sent_s - train[0].sent_s
        if len(train) >= MIN_POINTS // 2 and took_s >= max(min_rtt_s / 4, 1.25 * leaving_s):
            self.rate_bps = self._short_bps = 8 * (point.delivered_bytes - train[0].delivered_bytes) / took_s


class QueueDelay:
    """The queueing delay on a path: by how much round trips exceed the least one of the latest bursts.

    rtt: the connection's round trips. now_s: the queueing delay of the latest acknowledgements. low_s: the least
    queueing delay of this round (None before its first sample).
    """

    __slots__ = ("_latest_s", "low_s", "now_s", "rtt")

    def __init__(self, rtt: RoundTrips) -> None:
        self.rtt = rtt
        self.now_s = 0.0
        self.low_s: float | None = None
        self._latest_s: deque[float] = deque(maxlen=4)

    def add(self, rtt_s: float) -> None:
        """Take a round-trip sample that `rtt` contains already."""
        # an acknowledgement that the receiver delayed looks like a queue: only a delay of several samples counts
        self._latest_s.append(rtt_s - (self.rtt.min_rtt_s or 0.0))
        self.now_s = min(self._latest_s)
        if self.low_s is None or self.now_s < self.low_s:
            self.low_s = self.now_s


class RateProbe:
    """A short time at a little more than the learned rate, and the verdict whether the path delivered it.

    gain: by how much more, doubled while the path delivers it, up to a half. next_s: when the next probe may begin.
    """

    __slots__ = ("_first", "_from_s", "_last", "_to_s", "gain", "next_s")

    FIRST_GAIN = 0.05
    MAX_GAIN = 0.5

    def __init__(self) -> None:
        self.gain = self.FIRST_GAIN
        self.next_s = 0.0
        self._from_s = self._to_s = INFINITY
        self._first: Point | None = None
        self._last: Point | None = None

    def start(self, now: float, length_s: float) -> None:
        """Begin a probe of `length_s`."""
        self._from_s, self._to_s = now, now + length_s
        self._first = self._last = None
        self.next_s = INFINITY

    def cancel(self) -> None:
        """End a probe without a verdict."""
        self._from_s = self._to_s = INFINITY

    def running(self, now: float) -> bool:
        """Tell whether packets sent now belong to the probe."""
        return self._from_s <= now < self._to_s

    def judge(self, point: Point, learned_bps: float, pause_s: float) -> float | None:
        """Take an acknowledgement; at the probe's end return a higher rate that it found, None without one.

        The rate between the first and the last acknowledgement of the probe is compared with the rate tried. The next
        probe follows at once if all of that was delivered, otherwise after `pause_s`.
        """
        if point.sent_s < self._from_s:
            return None
        if point.sent_s <= self._to_s:
            self._first = self._first or point
            self._last = point
            return None
        self.cancel()
        found_bps = rate_between(self._first, self._last) if self._first and self._last else 0.0
        self.next_s = point.at_s + pause_s
        share = (found_bps / learned_bps - 1) / self.gain
        if share >= 0.7:
            self.gain = min(2 * self.gain, self.MAX_GAIN)
            self.next_s = point.at_s
        else:
            self.gain = self.FIRST_GAIN
        return found_bps if share >= 0.5 else None
