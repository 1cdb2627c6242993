"""RFC 9002's rules, each by its section, and the cost of an acknowledgement."""

from random import Random

import pytest

from bicoastal.transports.congestion.base import Ack, CongestionControl
from bicoastal.transports.congestion.cubic import Cubic
from bicoastal.transports.quic.received_packets import ACK_RANGES, QUICK_ACKS, ReceivedPackets
from bicoastal.transports.quic.sent_packets import SentPacket, SentPackets
from bicoastal.transports.quic.wire import read_ack
from bicoastal.transports.recovery.rtt import RttEstimator
from bicoastal.wan.units import INFINITY

RTT_S = 0.060
SIZE = 1200


class Cargo:
    def __init__(self) -> None:
        self.acked: list[int] = []
        self.lost: list[int] = []

    def on_acked(self, packet: SentPacket) -> None:
        self.acked.append(packet.number)

    def on_lost(self, packet: SentPacket) -> None:
        self.lost.append(packet.number)


class Recording(CongestionControl):
    """A window that never changes, and what it was told."""

    def __init__(self) -> None:
        super().__init__(mss_bytes=SIZE)
        self.cwnd_bytes = 1e12
        self.acks: list[Ack] = []
        self.said: list[str] = []

    def on_ack(self, ack: Ack) -> None:
        self.acks.append(ack)

    def on_congestion(self, now: float, in_flight_bytes: int) -> None:
        self.said.append("congestion")

    def on_recovery_end(self, now: float) -> None:
        pass

    def on_timeout(self, now: float, in_flight_bytes: int, *, first: bool) -> None:
        self.said.append("timeout")

    def undo(self) -> None:
        self.said.append("undo")


class Rig:
    """A flight with a steady round trip behind it, so that srtt is RTT_S and its variation nothing."""

    def __init__(self, congestion: CongestionControl | None = None) -> None:
        self.cargo = Cargo()
        self.recorded = Recording()
        self.congestion = congestion or self.recorded
        self.rtt = RttEstimator()
        for _ in range(100):
            self.rtt.sample(RTT_S, 0.0)
        self.sent = SentPackets(congestion=self.congestion, rtt=self.rtt, peer_ack_delay_s=0.005)
        self.sent.confirmed = True

    def send(self, number: int, at_s: float) -> None:
        self.sent.add(SentPacket(number, at_s, SIZE, self.cargo))

    def send_all(self, count: int, spacing_s: float = 0.001) -> None:
        for number in range(count):
            self.send(number, number * spacing_s)

    def ack(self, *numbers: int, now: float) -> None:
        self.sent.on_ack([(n, n + 1) for n in sorted(numbers, reverse=True)], 0.0, now)


def test_a_packet_is_lost_when_the_third_after_it_is_acknowledged() -> None:
    rig = Rig()
    rig.send_all(4)
    rig.ack(1, now=0.061)
    rig.ack(2, now=0.062)
    assert rig.cargo.lost == []
    rig.ack(3, now=0.063)
    assert rig.cargo.lost == [0]  # RFC 9002 §6.1.1: kPacketThreshold is 3
    assert rig.sent.in_flight == 0


def test_a_packet_is_lost_nine_eighths_of_a_round_trip_after_it_left() -> None:
    rig = Rig()
    rig.send_all(2)
    rig.ack(1, now=0.061)
    assert rig.sent.timer() == pytest.approx(9 / 8 * RTT_S)  # RFC 9002 §6.1.2
    rig.sent.on_timer(rig.sent.timer())
    assert rig.cargo.lost == [0]
    assert rig.sent.timer() == INFINITY


def test_one_loss_of_a_window_is_one_congestion_event() -> None:
    rig = Rig()
    rig.send_all(20)
    rig.ack(5, 6, 7, now=0.067)
    rig.ack(12, 13, 14, now=0.074)
    assert rig.cargo.lost == [0, 1, 2, 3, 4, 8, 9, 10, 11]
    assert rig.recorded.said == ["congestion"]  # RFC 9002 §7.3.2: all were sent before the first was noticed
    rig.send(20, 0.100)
    for number in range(21, 25):
        rig.send(number, 0.101)
    rig.ack(24, now=0.161)
    assert rig.cargo.lost[-2:] == [20, 21]
    assert rig.recorded.said == ["congestion", "congestion"]


def test_cubic_keeps_seven_tenths_of_its_window() -> None:
    cubic = Cubic(mss_bytes=SIZE, hystart=False)
    cubic.cwnd_bytes = 100.0 * SIZE
    rig = Rig(cubic)
    rig.send_all(50)
    rig.ack(1, 2, 3, now=0.063)
    assert rig.cargo.lost == [0]
    assert cubic.cwnd_bytes == pytest.approx(0.7 * 100 * SIZE)  # RFC 9438 §4.6, of the window as RFC 9002 §B.6 has it


def test_packets_sent_before_a_reduction_do_not_open_the_window() -> None:
    rig = Rig()
    rig.send_all(10)
    rig.ack(1, 2, 3, now=0.063)
    rig.ack(9, now=0.069)
    rig.send(10, 0.07)
    rig.ack(10, now=0.130)
    assert [ack.in_recovery for ack in rig.recorded.acks] == [True, True, False]  # RFC 9002 §7.3.2


def test_silence_for_a_pto_lets_two_probes_leave_and_the_next_waits_twice_as_long() -> None:
    rig = Rig()
    rig.send_all(6)
    pto_s = RTT_S + 0.001 + 0.005  # RFC 9002 §6.2.1: srtt + max(4 rttvar, granularity) + max_ack_delay
    assert rig.sent.timer() == pytest.approx(0.005 + pto_s, abs=1e-4)
    rig.sent.on_timer(rig.sent.timer())
    assert rig.cargo.lost == [0, 1]
    assert rig.sent.probes == 2
    assert rig.recorded.said == []  # RFC 9002 §6.2.4: a PTO is no congestion
    assert rig.sent.timer() == pytest.approx(0.005 + 2 * pto_s, abs=1e-3)
    rig.sent.congestion.cwnd_bytes = 1.0
    assert rig.sent.room(SIZE, limits=True)  # RFC 9002 §7.5: probes are not held back by the window


def test_before_the_handshake_is_confirmed_nothing_is_probed() -> None:
    rig = Rig()
    rig.sent.confirmed = False
    rig.send_all(3)
    assert rig.sent.timer() == INFINITY  # RFC 9002 §6.2.1


def test_losses_over_three_ptos_are_persistent_congestion() -> None:
    rig = Rig()
    for number in range(10):
        rig.send(number, number * 0.030)
    rig.ack(9, now=0.330)
    assert rig.recorded.said == ["congestion", "timeout"]  # RFC 9002 §7.6: 0.18 s, and 0.24 s are lost
    rig = Rig()
    for number in range(6):
        rig.send(number, number * 0.030)
    rig.ack(5, now=0.210)
    assert rig.recorded.said == ["congestion"]


def test_a_loss_that_was_none_is_taken_back_and_makes_patient() -> None:
    rig = Rig()
    rig.send_all(30)
    rig.ack(1, 2, 3, now=0.063)
    assert rig.cargo.lost == [0]
    rig.ack(0, 1, 2, 3, now=0.064)
    assert rig.cargo.acked == [3, 2, 1, 0]
    assert rig.sent.spurious == 1
    assert rig.recorded.said == ["congestion", "undo"]
    rig.ack(5, 6, 7, 8, 9, 10, now=0.070)
    assert rig.cargo.lost == [0]  # no longer by counting
    patience_s = RTT_S + 2 * RTT_S / 4  # RFC 8985 §6.2 step 4, widened once
    assert rig.sent.timer() == pytest.approx(0.004 + patience_s, abs=1e-4)


def test_what_the_peer_cannot_have_received_is_an_error() -> None:
    rig = Rig()
    rig.send_all(3)
    with pytest.raises(ValueError, match="never sent"):
        rig.ack(3, now=0.1)


def test_the_delay_that_the_peer_reports_is_taken_off_but_never_more_than_it_promised() -> None:
    rig = Rig()
    rig.send_all(3)
    rig.sent.on_ack([(0, 1)], 0.003, 0.063)
    assert rig.recorded.acks[-1].rtt_s == pytest.approx(RTT_S)  # RFC 9002 §5.3
    rig.sent.on_ack([(1, 2)], 0.5, 0.001 + 0.080)
    assert rig.recorded.acks[-1].rtt_s == pytest.approx(0.080 - 0.005)
    rig.sent.on_ack([(2, 3)], 0.003, 0.002 + 0.0605)
    assert rig.recorded.acks[-1].rtt_s == pytest.approx(0.0605)  # would be less than the least round trip


def test_declaring_a_path_silent_frees_all_it_carries_and_asks_for_a_probe() -> None:
    rig = Rig()
    rig.send_all(100)
    rig.sent.declare_lost(0.2)
    assert rig.cargo.lost == list(range(100))
    assert (rig.sent.in_flight, rig.sent.probes, rig.recorded.said) == (0, 1, [])


class Touchy(dict[int, SentPacket]):
    """Counts look-ups."""

    def __init__(self) -> None:
        super().__init__()
        self.touched = 0

    def pop(self, *arguments: object) -> object:  # type: ignore[override]
        self.touched += 1
        return super().pop(*arguments)  # type: ignore[call-overload]


@pytest.mark.parametrize("in_flight", [100, 10_000])
def test_an_acknowledgement_costs_what_is_new_in_it_whatever_is_in_flight(in_flight: int) -> None:
    rig = Rig()
    packets = rig.sent._packets = Touchy()
    rig.send_all(in_flight, spacing_s=1e-6)
    for first in range(0, 100, 10):
        rig.sent.on_ack([(0, first + 10)], 0.0, RTT_S + first * 1e-6)
    assert packets.touched == 100
    assert rig.cargo.acked == [n + 9 - 2 * (n % 10) for n in range(100)]


def test_with_a_hundred_gaps_every_loss_is_found_once_and_nothing_else() -> None:
    draw = Random(3)
    rig = Rig()
    received = ReceivedPackets(ack_every=16, ack_delay_s=0.001)
    count, lost = 5000, set()
    rig.send_all(count, spacing_s=1e-5)
    acks: list[tuple[float, bytes]] = []
    for number in range(count):
        at_s = number * 1e-5 + RTT_S / 2
        if number < count - 100 and draw.random() < 0.1:
            lost.add(number)
            continue
        assert received.add(number, at_s)
        received.owe(at_s)
        if received.ack_at <= at_s and draw.random() < 0.5:  # every other acknowledgement is lost too
            acks.append((at_s + RTT_S / 2, received.frame(at_s)[0]))
    assert len(received._numbers) > 400
    for at_s, frame in acks:
        ranges, _, stop = read_ack(frame, 1, ecn=False)
        assert stop == len(frame)
        assert len(ranges) <= ACK_RANGES
        rig.sent.on_ack(ranges, 0.0, at_s)
    assert rig.cargo.lost == sorted(lost)
    assert rig.sent.spurious == 0


def test_a_very_late_packet_is_told_of_although_its_range_is_not_among_the_highest() -> None:
    received = ReceivedPackets(ack_every=2, ack_delay_s=0.001)
    for number in range(0, 400, 2):
        received.add(number, 0.0)
    received.frame(0.0)
    assert received.add(11, 0.1)
    received.owe(0.1)
    assert received.ack_at == 0.1  # RFC 9000 §13.2.1: at once, since it is out of order
    ranges, _, _ = read_ack(received.frame(0.1)[0], 1, ecn=False)
    assert ranges[-1] == (10, 13)
    assert not received.add(11, 0.2)


def test_acknowledgements_are_counted_out_and_never_owed_for_acknowledgements() -> None:
    received = ReceivedPackets(ack_every=16, ack_delay_s=0.001)
    for number in range(QUICK_ACKS):
        received.add(number, 0.0)
        received.owe(0.0)
        assert (received.ack_at <= 0.0) == (number % 2 == 1)
        if received.ack_at <= 0.0:
            received.frame(0.0)
    for number in range(QUICK_ACKS, QUICK_ACKS + 16):
        received.add(number, 0.0)
        received.owe(0.0)
        assert received.ack_at == (0.0 if number == QUICK_ACKS + 15 else 0.001)
    received.frame(0.0)
    received.add(500, 0.0)  # a gap, but it asks for nothing: RFC 9000 §13.2.1
    assert received.ack_at == INFINITY


def test_what_the_peer_knows_is_told_no_more_and_counts_as_received() -> None:
    received = ReceivedPackets(ack_every=2, ack_delay_s=0.001)
    for number in (0, 1, 5, 6, 9, 12):
        received.add(number, 0.0)
    received.settle(9)
    assert read_ack(received.frame(0.0)[0], 1, ecn=False)[0] == [(12, 13), (9, 10)]
    assert not received.add(3, 0.0)
    assert not received.add(9, 0.0)
    assert received.add(10, 0.0)
