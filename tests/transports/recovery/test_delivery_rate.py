"""Delivery-rate samples, against hand-computed flights."""

import pytest

from transports.recovery.delivery_rate import DeliveryRate
from transports.recovery.rack import SentPacket


def send(rate: DeliveryRate, number: int, sent_s: float, in_flight_bytes: int) -> SentPacket:
    packet = SentPacket(number * 1000, (number + 1) * 1000)
    packet.sent_s, packet.transmissions = sent_s, 1
    rate.sent(packet, in_flight_bytes)
    return packet


def acknowledge(rate: DeliveryRate, packet: SentPacket, now: float) -> float | None:
    rate.delivered += packet.stop - packet.start
    return rate.sample(packet, now)


def test_a_paced_flight_shows_its_bottleneck_after_a_round_trip() -> None:
    # one packet per millisecond, acknowledged 50 ms later: 1000 bytes per ms are 8 Mbit/s
    rate = DeliveryRate()
    packets, sample = [], None
    for millisecond in range(200):
        now = millisecond / 1000
        if millisecond >= 50:
            sample = acknowledge(rate, packets[millisecond - 50], now)
        packets.append(send(rate, millisecond, now, 1000 * min(millisecond, 50)))
    assert sample == pytest.approx(8e6, rel=0.02)


def test_acknowledgements_that_come_compressed_do_not_raise_the_rate_above_that_of_sending() -> None:
    rate = DeliveryRate()
    packets = [send(rate, n, n / 1000, 1000 * n) for n in range(100)]
    samples = [acknowledge(rate, packet, 0.2) for packet in packets]  # all at one instant
    assert max(sample for sample in samples if sample is not None) <= 8 * 1000 * 100 / 0.099 + 1


def test_samples_taken_while_the_application_had_nothing_to_send_are_marked() -> None:
    rate = DeliveryRate()
    first = send(rate, 0, 0.0, 0)
    rate.application_limited(1000)
    second = send(rate, 1, 0.001, 1000)
    acknowledge(rate, first, 0.05)
    third = send(rate, 2, 0.05, 1000)
    assert (first.app_limited, second.app_limited, third.app_limited) == (False, True, False)
