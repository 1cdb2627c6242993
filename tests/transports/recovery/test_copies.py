"""Second copies of repairs: when they go, when they need not, and which duplicates they explain."""

from bicoastal.transports.recovery.copies import RepairCopies
from bicoastal.transports.recovery.rack import SentPacket
from bicoastal.wan.units import INFINITY


def repair(start: int) -> SentPacket:
    packet = SentPacket(start, start + 100)
    packet.transmissions = 2
    return packet


def test_copies_go_when_they_are_due_in_the_order_of_their_times() -> None:
    copies = RepairCopies()
    assert copies.due_s == INFINITY
    late, early = repair(0), repair(100)
    copies.plan(late, 2.0)
    copies.plan(early, 1.0)
    assert copies.due_s == 1.0
    assert copies.take(0.5) == []
    assert copies.take(1.0) == [early]
    assert copies.due_s == 2.0
    assert copies.take(3.0) == [late]
    assert copies.due_s == INFINITY
    assert copies.take(9.0) == []


def test_of_repairs_due_together_the_lowest_goes_first() -> None:
    copies = RepairCopies()
    packets = [repair(start) for start in (300, 100, 200)]
    for packet in packets:
        copies.plan(packet, 1.0)
    assert [packet.start for packet in copies.take(1.0)] == [100, 200, 300]


def test_what_has_arrived_or_is_to_be_sent_again_anyway_needs_no_copy() -> None:
    copies = RepairCopies()
    arrived, lost = repair(0), repair(100)
    copies.plan(arrived, 1.0)
    copies.plan(lost, 1.0)
    arrived.done = True
    lost.lost = True
    assert copies.take(1.0) == []
    assert copies.due_s == INFINITY
    assert not copies.expected(0)
    assert not copies.expected(100)


def test_a_duplicate_is_expected_of_a_copy_that_went_and_once_for_each() -> None:
    copies = RepairCopies()
    copies.plan(repair(0), 1.0)
    copies.plan(repair(100), 2.0)
    assert not copies.expected(0)  # not yet sent
    copies.take(1.5)
    assert not copies.expected(100)
    assert copies.expected(0)
    assert not copies.expected(0)


def test_nothing_is_left_after_everything_is_acknowledged() -> None:
    copies = RepairCopies()
    copies.plan(repair(0), 1.0)
    copies.take(1.0)
    copies.plan(repair(100), 2.0)
    copies.cancel()
    assert copies.due_s == INFINITY
    assert copies.take(5.0) == []


def test_reports_of_duplicates_are_expected_until_they_are_forgotten() -> None:
    copies = RepairCopies()
    for start in (0, 100):
        copies.plan(repair(start), 1.0)
    copies.take(1.0)
    copies.cancel()
    assert copies.expected(0)  # the copy arrives, and is reported, after everything has been acknowledged
    copies.forget()
    assert not copies.expected(100)
