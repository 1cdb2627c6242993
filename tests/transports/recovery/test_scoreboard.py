"""The scoreboard against a bookkeeper that writes every octet down, and against RFC 6675's definitions."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicoastal.transports.recovery.rack import SentPacket
from bicoastal.transports.recovery.scoreboard import COMPACT, Scoreboard

SIZE = 1000


def board_of(count: int, size: int = SIZE) -> tuple[Scoreboard, list[SentPacket]]:
    board = Scoreboard()
    packets = [SentPacket(n * size, (n + 1) * size) for n in range(count)]
    for packet in packets:
        packet.transmissions = 1
        board.add(packet)
    return board, packets


def lose(board: Scoreboard, *packets: SentPacket) -> int:
    for packet in packets:
        packet.lost = True
    return board.lose(packets)


def test_what_is_sent_is_in_flight_until_it_is_acknowledged() -> None:
    board, packets = board_of(4)
    assert board.in_flight == 4 * SIZE
    assert board.acknowledge(2 * SIZE) == packets[:2]
    assert (board.una, board.in_flight) == (2 * SIZE, 2 * SIZE)
    assert board.acknowledge(4 * SIZE) == packets[2:]
    assert (board.in_flight, board.delivered_bytes) == (0, 4 * SIZE)


def test_a_packet_that_is_acknowledged_in_part_is_not_delivered() -> None:
    board, packets = board_of(3)
    assert board.acknowledge(SIZE + 1) == packets[:1]
    assert board.in_flight == 2 * SIZE
    assert board.acknowledge(2 * SIZE) == packets[1:2]


def test_a_selected_packet_leaves_the_pipe_once_and_is_not_delivered_again() -> None:
    board, packets = board_of(6)
    assert board.select([(2 * SIZE, 4 * SIZE)], 6 * SIZE) == packets[2:4]
    assert board.select([(2 * SIZE, 5 * SIZE)], 6 * SIZE) == packets[4:5]
    assert (board.in_flight, board.sacked_segments) == (3 * SIZE, 3)
    assert board.acknowledge(5 * SIZE) == packets[:2]
    assert (board.in_flight, board.sacked_segments) == (SIZE, 0)


def test_a_packet_that_a_block_covers_in_part_is_not_delivered() -> None:
    board, packets = board_of(4)
    assert board.select([(SIZE + 1, 4 * SIZE - 1)], 4 * SIZE) == packets[2:3]
    assert (board.sacked_segments, board.in_flight) == (1, 3 * SIZE)


def test_a_packet_that_blocks_cover_bit_by_bit_is_delivered_with_the_last_bit() -> None:
    board, packets = board_of(4)
    assert board.select([(SIZE, SIZE + 400)], 4 * SIZE) == []
    assert board.select([(SIZE + 700, 2 * SIZE + 100)], 4 * SIZE) == []
    assert board.select([(SIZE + 400, SIZE + 700)], 4 * SIZE) == packets[1:2]
    assert (board.sacked_segments, board.in_flight) == (1, 3 * SIZE)


@pytest.mark.parametrize(
    "block",
    [(0, SIZE), (SIZE, 2 * SIZE), (3 * SIZE, 3 * SIZE), (4 * SIZE, 3 * SIZE), (4 * SIZE, 7 * SIZE), (-5, 2 * SIZE)],
)
def test_blocks_below_una_empty_ones_and_those_of_data_never_sent_change_nothing(block: tuple[int, int]) -> None:
    board, _ = board_of(6)
    board.acknowledge(2 * SIZE)
    assert board.select([block], 6 * SIZE) == []
    assert (board.in_flight, board.sacked_segments) == (4 * SIZE, 0)


def test_a_block_that_begins_below_una_counts_from_there() -> None:
    board, packets = board_of(6)
    board.acknowledge(2 * SIZE)
    assert board.select([(0, 4 * SIZE)], 6 * SIZE) == packets[2:4]


def test_lost_packets_are_sent_again_in_the_order_of_their_offsets() -> None:
    board, packets = board_of(6)
    assert lose(board, packets[4], packets[1], packets[3]) == 3 * SIZE
    assert board.in_flight == 3 * SIZE
    again = []
    while (packet := board.next_lost()) is not None:
        assert board.next_lost() is packet  # it stays until it is sent
        board.resent(packet)
        again.append(packet)
    assert again == [packets[1], packets[3], packets[4]]
    assert board.in_flight == 6 * SIZE
    assert not any(packet.lost for packet in packets)


def test_a_lost_packet_that_arrives_after_all_is_not_sent_again() -> None:
    board, packets = board_of(4)
    lose(board, packets[0], packets[2])
    assert board.acknowledge(SIZE) == packets[:1]
    assert board.select([(2 * SIZE, 3 * SIZE)], 4 * SIZE) == packets[2:3]
    assert board.next_lost() is None
    assert board.in_flight == 2 * SIZE  # it had left the pipe when it was marked


def test_a_repair_that_is_lost_too_is_queued_again() -> None:
    board, packets = board_of(2)
    lose(board, packets[0])
    board.resent(packets[0])
    lose(board, packets[0])
    assert board.next_lost() is packets[0]
    assert board.in_flight == SIZE


def test_what_was_marked_too_soon_is_put_back_in_flight_unless_it_was_sent_again() -> None:
    board, packets = board_of(5)
    lose(board, *packets)
    board.resent(packets[0])
    board.select([(4 * SIZE, 5 * SIZE)], 5 * SIZE)
    assert sorted(packet.start for packet in board.restore()) == [SIZE, 2 * SIZE, 3 * SIZE]
    assert board.in_flight == 4 * SIZE
    assert board.next_lost() is None


def test_the_last_packet_is_the_one_with_the_highest_offset() -> None:
    board, packets = board_of(3)
    assert board.last() is packets[2]
    with pytest.raises(IndexError):
        Scoreboard().last()


def test_long_connections_forget_what_is_acknowledged() -> None:
    board, _ = board_of(0)
    for number in range(5 * COMPACT):
        board.add(SentPacket(number, number + 1))
        board.acknowledge(number + 1)
    assert len(board._packets) <= 2 * COMPACT
    assert (board.in_flight, board.una) == (0, 5 * COMPACT)


@dataclass
class Plain:
    """A packet as the bookkeeper sees it."""

    start: int
    stop: int
    state: str = "flying"  # or "lost", "done"
    sacked: bool = False


@settings(max_examples=300)
@given(st.data())
def test_every_history_adds_up(data: st.DataObject) -> None:
    board, plain, packets = Scoreboard(), [], []
    sacked: set[int] = set()
    end = 0
    for _ in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(["send", "send", "ack", "sack", "lose", "resend", "restore"])):
            case "send":
                size = data.draw(st.integers(1, 3))
                packets.append(SentPacket(end, end + size))
                plain.append(Plain(end, end + size))
                board.add(packets[-1])
                end += size
            case "ack" if board.una < end:
                ack = data.draw(st.integers(board.una + 1, end))
                delivered = board.acknowledge(ack)
                fresh = [p for p in plain if p.stop <= ack and p.state != "done"]
                assert [(p.start, p.stop) for p in delivered] == [(p.start, p.stop) for p in fresh]
                for p in fresh:
                    p.state = "done"
            case "sack":
                left = data.draw(st.integers(-1, end + 1))
                right = data.draw(st.integers(left, end + 2))
                delivered = board.select([(left, right)], end)
                news = set(range(max(left, board.una), right)) - sacked if right <= end else set()
                sacked |= news
                # octets acknowledged cumulatively count too where an ACK ends inside of a packet
                known = sacked | set(range(board.una))
                octets = [set(range(p.start, p.stop)) for p in plain]
                fresh = [
                    p for p, of in zip(plain, octets, strict=True) if p.state != "done" and of <= known and of & news
                ]
                assert {p.start for p in delivered} == {p.start for p in fresh}
                for p in fresh:
                    p.state, p.sacked = "done", True
            case "lose":
                chosen = [n for n, p in enumerate(plain) if p.state == "flying" and data.draw(st.booleans())]
                for n in chosen:
                    plain[n].state, packets[n].lost = "lost", True
                assert board.lose([packets[n] for n in chosen]) == sum(plain[n].stop - plain[n].start for n in chosen)
            case "resend":
                packet = board.next_lost()
                first = next((p for p in plain if p.state == "lost"), None)
                assert (packet and packet.start) == (first and first.start)
                if packet is not None and first is not None:
                    board.resent(packet)
                    first.state = "flying"
            case "restore":
                late = {packet.start for packet in board.restore()}
                assert late == {p.start for p in plain if p.state == "lost"}
                for p in plain:
                    if p.state == "lost":
                        p.state = "flying"
        assert board.in_flight == sum(p.stop - p.start for p in plain if p.state == "flying")
        assert board.delivered_bytes == sum(p.stop - p.start for p in plain if p.state == "done")
        assert board.sacked_segments == sum(p.sacked and p.stop > board.una for p in plain)
