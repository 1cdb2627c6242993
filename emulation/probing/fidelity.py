"""Measures how well a path keeps to its specification under load: round trips, rate and losses.

A load of full packets is sent in one direction. Meanwhile the system's ping, an independent program, measures round
trips.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from bicoastal.emulation.base import RunFailedError
from bicoastal.emulation.closing import Closing
from bicoastal.emulation.ground.coasts import Coasts
from bicoastal.emulation.ground.namespaces import find_tool, require_tools
from bicoastal.emulation.probing.judgement import binomial_tail, expect, wire_rate_factor
from bicoastal.emulation.probing.trains import Line, PacketTrain, arrival_rate, quantile, send_trains

_PING_INTERVAL_S = 0.01
_PING_BYTES = 84  # an IP packet with ping's 56 bytes of data: ping(8)
_PING_SHARE = 0.9  # of the load's time
_PATIENCE_S = 30.0
_ROUND_TRIP = re.compile(r"time=([\d.]+) ms")
_MEAN = re.compile(r"= [\d.]+/([\d.]+)/")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrips:
    """The round trips of ping, in seconds. wanted_s: according to the specification."""

    count: int
    mean_s: float
    p99_s: float
    wanted_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A path under a load of `load` times its rate, one way.

    rate_bps: at which the load arrived, in bits on the link's wire. wanted_bps: according to the specification. sent,
    lost: full packets. expected_loss: share that the link loses by chance; below a load of 1 no other loss is allowed.
    From a load of 1 on, the wanted round trip includes a full queue.
    """

    load: float
    round_trips: RoundTrips
    rate_bps: float
    wanted_bps: float
    sent: int
    lost: int
    expected_loss: float

    @property
    def expected_lost(self) -> float:
        """The mean of the binomial distribution."""
        return self.sent * self.expected_loss

    @property
    def deviation(self) -> float:
        """The standard deviation of the binomial distribution."""
        return sqrt(self.sent * self.expected_loss * (1.0 - self.expected_loss))

    @property
    def improbability(self) -> float:
        """The probability of a count at least as extreme on its side: `judgement.binomial_tail`."""
        return binomial_tail(self.lost, self.sent, self.expected_loss)


def measure_loaded(coasts: Coasts, path: str, *, load: float, duration_s: float, packet_bytes: int) -> Loaded:
    """Send full IP packets of `packet_bytes` from the first site of `path` to its last, at `load` times its rate.

    With a load of 0 only ping runs. A load above 1 fills the queue; only then is the measured rate that of the link and
    not that of the sender. duration_s: of the load. No other traffic may be sent meanwhile. Raises RunFailedError when
    no reply arrives, and UnsupportedError without ping, or where losses cannot be predicted (`judgement.expect`).
    """
    require_tools("ping")
    topology = coasts.wiring.topology
    forth = expect(
        topology, path, back=False, delay_bytes=_PING_BYTES, rate_bytes=packet_bytes, loss_bytes=packet_bytes
    )
    back = expect(topology, path, back=True, delay_bytes=_PING_BYTES, rate_bytes=packet_bytes, loss_bytes=packet_bytes)
    slowest = min(topology.path_links(path), key=lambda link: link.rate_bps)
    wire_bits = wire_rate_factor(topology, path, packet_bytes) * packet_bytes
    queue_s = slowest.queue_limit_bytes * 8 / slowest.rate_bps if load > 1.0 else 0.0
    with _Ping(coasts, path, count=max(1, round(duration_s * _PING_SHARE / _PING_INTERVAL_S))) as ping:
        sent = lost = 0
        rate_bps = 0.0
        if load > 0.0:
            line = Line(coasts, path, back=False)
            try:
                packets_per_s = load * slowest.rate_bps / wire_bits
                train = PacketTrain(
                    line=line,
                    packet_bytes=packet_bytes,
                    count=round(duration_s * packets_per_s),
                    interval_s=1.0 / packets_per_s,
                    catches_up=load > 1.0,
                )
                send_trains([train])
            finally:
                line.close()
            sent, lost = train.count, train.count - len(train.arrived_s)
            rate_bps = arrival_rate(train, wire_bits, 8 * slowest.queue_limit_bytes)
        mean_s, times_s = ping.result()
    return Loaded(
        load=load,
        round_trips=RoundTrips(
            count=len(times_s),
            mean_s=mean_s,
            p99_s=quantile(sorted(times_s), 0.99),
            wanted_s=forth.delay_s + back.delay_s + queue_s,
        ),
        rate_bps=rate_bps,
        wanted_bps=min(1.0, load) * forth.rate_bps,
        sent=sent,
        lost=lost,
        expected_loss=forth.loss or 0.0,
    )


class _Ping(Closing):
    """A ping process from the first site of a path to its last. A context manager, which ends it."""

    def __init__(self, coasts: Coasts, path: str, *, count: int) -> None:
        near, far = coasts.wiring.ports_of(path)
        argv = [find_tool("ping") or "ping", "-n", "-c", str(count), "-i", str(_PING_INTERVAL_S)]
        argv += ["-I", near.address, far.address]
        self._process = subprocess.Popen(
            coasts.enter(near.site, argv),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "LC_ALL": "C"},
        )
        coasts.record(self._process.pid)
        self._longest_s = count * _PING_INTERVAL_S + _PATIENCE_S

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def result(self) -> tuple[float, Sequence[float]]:
        """Wait for its end; return the mean round trip and all round trips, in seconds. Raises RunFailedError."""
        try:
            said, _ = self._process.communicate(timeout=self._longest_s)
        except subprocess.TimeoutExpired:
            raise RunFailedError(f"ping did not end within {self._longest_s:.0f} s") from None
        mean = _MEAN.search(said)
        if mean is None:
            raise RunFailedError(f"ping measured no round trip: {' '.join(said.split())[-200:]}")
        return float(mean[1]) * 1e-3, [float(each) * 1e-3 for each in _ROUND_TRIP.findall(said)]
