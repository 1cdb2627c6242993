"""Which evidence takes back which mark of loss."""

from bicoastal.transports.recovery.rack import SentPacket
from bicoastal.transports.recovery.undo import LossMarks


def packets(*starts: int) -> list[SentPacket]:
    return [SentPacket(start, start + 100) for start in starts]


def test_the_last_mark_that_falls_tells_that_nothing_was_lost() -> None:
    marks = LossMarks()
    marks.add(packets(0, 100))
    assert not marks.disprove(0)
    assert marks.disprove(100)


def test_one_packet_is_evidence_of_itself_only_however_often_it_comes() -> None:
    """First the echo of its original, then the DSACK that its repair provokes."""
    marks = LossMarks()
    marks.add(packets(0, 100))
    assert not marks.disprove(0)
    assert not marks.disprove(0, once=True)
    assert not marks.disprove(0, once=True)
    assert marks.disprove(100)


def test_a_dsack_excuses_one_of_two_repairs_an_old_echo_both() -> None:
    marks = LossMarks()
    marks.add(packets(0))
    marks.add(packets(0))
    assert not marks.disprove(0, once=True)  # the original was lost, and its first repair only late
    assert marks.disprove(0, once=True)
    marks.add(packets(0))
    marks.add(packets(0))
    assert marks.disprove(0)


def test_where_nothing_is_marked_nothing_can_be_taken_back() -> None:
    marks = LossMarks()
    assert not marks.disprove(0)
    assert not marks.disprove(0, once=True)
    marks.add(packets(0))
    assert not marks.disprove(100)
    marks.clear()
    assert not marks.disprove(0)
