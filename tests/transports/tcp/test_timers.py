"""The timers behind a flight's tail, with packets, controller and clock in the hand."""

import pytest

from bicoastal.transports.congestion.base import RepairTimeout
from bicoastal.transports.congestion.reno import Reno
from bicoastal.transports.recovery.rack import Rack, SentPacket
from bicoastal.transports.recovery.rtt import RttEstimator
from bicoastal.transports.recovery.scoreboard import Scoreboard
from bicoastal.transports.tcp.timers import TailTimers
from bicoastal.wan.units import INFINITY

MSS = 1000
RTT_S = 0.06
TIMEOUT = RepairTimeout(0.06, 0.01)


class Expecting(Reno):
    """A controller that knows when to expect an acknowledgement."""

    def repair_timeout(self) -> RepairTimeout:
        return TIMEOUT


class Flight:
    """Packets of one burst, and the timers that watch over them."""

    def __init__(self, count: int) -> None:
        self.rack, self.board, rtt = Rack(), Scoreboard(), RttEstimator()
        rtt.sample(RTT_S, 0.0)
        self.timers = TailTimers(
            mss_bytes=MSS,
            max_ack_delay_s=0.04,
            congestion=Expecting(mss_bytes=MSS),
            rtt=rtt,
            rack=self.rack,
            board=self.board,
        )
        self.packets = [SentPacket(number * MSS, (number + 1) * MSS) for number in range(count)]
        for packet in self.packets:
            self.board.add(packet)
            self.send(packet, 1.0)
        self.timers.arm(1.0, 1.0, may_probe=True, answered=True)

    def send(self, packet: SentPacket, at_s: float) -> None:
        packet.sent_s = at_s
        packet.transmissions += 1
        self.rack.sent(packet)


def test_a_repair_timeout_stands_in_the_place_of_the_probe() -> None:
    timers = Flight(3).timers
    assert timers.expiry_at == pytest.approx(1.0 + 0.06 + 0.01)
    assert timers.probe_at == INFINITY


def test_what_was_sent_again_since_the_timeout_was_set_is_given_its_time() -> None:
    flight = Flight(1)
    (packet,) = flight.packets
    flight.send(packet, 1.05)
    assert flight.timers.expire(1.07, 0.9) == []
    assert flight.timers.expiry_at == pytest.approx(1.05 + 0.06 + 0.01)
    assert flight.timers.expire(flight.timers.expiry_at, 0.9) == [packet]


def test_a_silent_burst_waits_half_a_round_trip_more_and_then_everything_counts_as_lost() -> None:
    flight = Flight(20)  # more than an initial window
    assert flight.timers.expire(1.07, 1.0) == []
    assert flight.timers.expiry_at == pytest.approx(1.0 + 1.5 * 0.06)
    assert flight.timers.expire(1.0 + 1.5 * 0.06, 1.0) is None


def test_a_transmission_starts_a_retransmission_timeout_but_never_puts_it_off() -> None:
    timers = Flight(1).timers
    due_s = timers.rto_at
    assert due_s == pytest.approx(1.0 + RTT_S + 0.2)
    timers.arm(1.1, 1.1, may_probe=True, answered=False)
    assert timers.rto_at == due_s  # RFC 6298 §5.1
    timers.arm(1.1, 1.1, may_probe=True, answered=True)
    assert timers.rto_at == pytest.approx(due_s + 0.1)  # §5.3
