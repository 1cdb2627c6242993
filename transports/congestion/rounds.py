"""What the latest round trips have delivered and lost, and whether other senders occupied the queue in them."""

from bicoastal.transports.congestion.measurement import AckTrain, Point, Round


class Rounds:
    """The present round trip and what counts of those before it. Times are seconds, sizes bytes, rates bit/s.

    delivered_bytes: all that was acknowledged so far. occupied: how many rounds in a row other senders occupied the
    queue. free: how many rounds in a row they did not.
    """

    __slots__ = ("_last_average_bps", "_last_best_bps", "current", "delivered_bytes", "free", "occupied", "train")

    def __init__(self) -> None:
        self.train = AckTrain()
        self.delivered_bytes = 0
        self.occupied = self.free = 0
        self.begin_burst()

    def begin_burst(self) -> None:
        """Begin a new round; nothing of earlier bursts counts."""
        self.current = Round(None)
        self._last_best_bps = self._last_average_bps = 0.0

    def on_ack(self, now: float, delivered_bytes: int) -> None:
        """Count what an acknowledgement delivered. A burst's first acknowledgement only begins the round."""
        self.delivered_bytes += delivered_bytes
        if self.current.begun_s is None:
            self.current.begun_s = now
        else:
            self.current.delivered_bytes += delivered_bytes

    def on_point(self, point: Point) -> None:
        """Take the rate that the latest acknowledgements show."""
        self.current.best_bps = max(self.current.best_bps, self.train.add(point))

    @property
    def best_bps(self) -> float:
        """The highest rate that acknowledgements have shown in this round and the last; 0 if none was shown."""
        return max(self.current.best_bps, self._last_best_bps)

    def average_bps(self, now: float, srtt_s: float) -> float:
        """Return the rate of delivery over this round, or over the last in this one's first half; 0: not known."""
        begun_s = self.current.begun_s
        if begun_s is not None and now - begun_s > 0.5 * srtt_s:
            return 8 * self.current.delivered_bytes / (now - begun_s)
        return self._last_average_bps

    def count(self, *, occupied: bool) -> None:
        """Count the round that ends as one in which others occupied the queue, or did not."""
        self.occupied = self.occupied + 1 if occupied else 0
        self.free = 0 if occupied else self.free + 1

    def end(self, now: float, srtt_s: float) -> None:
        """End the present round and begin the next."""
        self._last_average_bps = self.average_bps(now, srtt_s)
        self._last_best_bps = self.current.best_bps
        self.current = Round(now)
