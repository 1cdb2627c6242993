from random import Random

import pytest
from aioquic.quic.stream import FinalSizeError
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.transports.multipath.mpquic_messages import Assembler, Outbox
from bicoastal.transports.quic.sent_packets import SentPacket
from bicoastal.transports.quic.streams import Incoming, OutgoingControl, OutgoingMessage
from bicoastal.transports.quic.symbols import SymbolOutcome
from bicoastal.transports.quic.wire import read_varint

PACKET = 200


def _parse(frame: bytes) -> tuple[int, int, bytes, bool]:
    """Return (stream, offset, data, fin) of a STREAM frame that extends to the end of its packet."""
    kind = frame[0]
    assert kind & 0xFE == 0x0C  # RFC 9000 §19.8: offset present, length absent
    stream, at = read_varint(frame, 1)
    offset, at = read_varint(frame, at)
    return stream, offset, frame[at:], bool(kind & 1)


@given(st.integers(0, 3000), st.integers(0, 2**32), st.floats(0, 0.6))
def test_a_message_arrives_whole_whatever_is_lost_repeated_and_reordered(size: int, seed: int, loss: float) -> None:
    draw = Random(seed)
    data = draw.randbytes(size)
    outgoing = OutgoingMessage(6, 99, data, packet_bytes=PACKET)
    incoming = Incoming(6, continuous=False)
    on_the_way: list[tuple[SentPacket, bytes]] = []
    events = []
    number = 0
    while not outgoing.is_finished:
        start, stop = outgoing.next_range(1 << 40)
        if stop > start and draw.random() < 0.7:
            frame = outgoing.frame(start, stop)
            assert len(frame) <= PACKET
            on_the_way.append((SentPacket(number, 0.0, len(frame), outgoing, span=(start, stop)), frame))
            number += 1
        elif on_the_way:
            packet, frame = on_the_way.pop(draw.randrange(len(on_the_way)))
            if draw.random() < loss:
                outgoing.on_lost(packet)
                if draw.random() < 0.8:
                    continue  # else it was only late
            _, offset, octets, fin = _parse(frame)
            for _ in range(1 + (draw.random() < 0.1)):
                events += [incoming.take(offset, octets, fin=fin)]
            outgoing.on_acked(packet)
    whole = [event for event in events if event is not None]
    assert len(whole) == 1
    assert whole[0].data == (99).to_bytes(8, "big") + data
    assert whole[0].end_stream
    assert not outgoing.has_data


def test_a_control_stream_is_handed_on_as_it_comes_in_order() -> None:
    outgoing = OutgoingControl(2, packet_bytes=PACKET)
    incoming = Incoming(2, continuous=True)
    got = b""
    for number in range(50):
        outgoing.append(bytes([number]) * 100)
        start, stop = outgoing.next_range(1 << 40)
        frame = outgoing.frame(start, stop)
        _, offset, octets, fin = _parse(frame)
        event = incoming.take(offset, octets, fin=fin)
        assert event is not None
        got += event.data
        outgoing.on_acked(SentPacket(number, 0.0, len(frame), outgoing, span=(start, stop)))
    assert got == b"".join(bytes([number]) * 100 for number in range(50))
    assert not outgoing._octets  # what is acknowledged is not kept
    late, early = (outgoing.append(b"a" * 150), outgoing.append(b"b" * 300), outgoing.next_range(1 << 40))[2], None
    first = outgoing.frame(*late)
    early = outgoing.frame(*outgoing.next_range(1 << 40))
    assert incoming.take(_parse(early)[1], _parse(early)[2], fin=False) is None
    event = incoming.take(_parse(first)[1], _parse(first)[2], fin=False)
    assert event is not None
    assert len(event.data) == len(_parse(first)[2]) + len(_parse(early)[2])


def test_a_stream_has_one_end() -> None:
    incoming = Incoming(2, continuous=False)
    incoming.take(10, b"end", fin=True)
    with pytest.raises(FinalSizeError):
        incoming.take(12, b"further", fin=False)
    with pytest.raises(FinalSizeError):
        incoming.take(5, b"e", fin=True)
    other = Incoming(2, continuous=False)
    other.take(10, b"data", fin=False)
    with pytest.raises(FinalSizeError):
        other.take(0, b"data", fin=True)


@given(
    st.lists(st.integers(0, 2000), min_size=1, max_size=5),
    st.integers(0, 2**32),
    st.floats(0, 0.6),
    st.lists(st.integers(60, 400), min_size=1, max_size=3),
)
def test_messages_as_symbols_arrive_whole_whatever_path_they_take(
    sizes: list[int], seed: int, loss: float, symbol_sizes: list[int]
) -> None:
    draw = Random(seed)
    messages = {(1 << 63) + number: draw.randbytes(size) for number, size in enumerate(sizes)}
    outbox, assembler = Outbox(), Assembler()
    for message_id, data in messages.items():
        outbox.add(message_id, data)
    on_the_way: list[tuple[int, bytes]] = []
    late: list[tuple[int, bytes]] = []
    received = {}

    def arrive(tag: int, octets: bytes) -> None:
        message = assembler.take(octets)
        if message is not None:
            assert message[0] not in received
            received[message[0]] = bytes(message[1])
        outbox.report(SymbolOutcome(tag, True, 0.0))

    while len(received) < len(messages) or on_the_way:
        limit = draw.choice(symbol_sizes)
        assert outbox.waiting_bytes >= 0
        symbol = outbox.next_symbol(limit, share=0.5) if outbox.waiting_bytes and draw.random() < 0.6 else None
        if symbol is not None:
            assert len(symbol.data) <= limit
            on_the_way.append((symbol.tag, bytes(symbol.data)))
        elif on_the_way:
            tag, octets = on_the_way.pop(draw.randrange(len(on_the_way)))
            if draw.random() < loss:
                outbox.report(SymbolOutcome(tag, False, 0.0))
                late.append((tag, octets))
            else:
                arrive(tag, octets)
        if late and draw.random() < 0.05:
            arrive(*late.pop(draw.randrange(len(late))))
    assert received == messages
    assert not assembler.failure


def test_an_outbox_is_idle_once_all_has_arrived_and_forgets_it() -> None:
    outbox, assembler = Outbox(), Assembler()
    for number in range(100):
        outbox.add(number, bytes(1000))
        assert not outbox.idle
        while outbox.waiting_bytes:
            symbol = outbox.next_symbol(300, share=1.0)
            assert symbol is not None
            if symbol.tag % 7 == 0 and not symbol.repair:
                outbox.report(SymbolOutcome(symbol.tag, False, 0.0))
            else:
                assembler.take(bytes(symbol.data))
                outbox.report(SymbolOutcome(symbol.tag, True, 0.0))
        outbox.next_symbol(300, share=1.0)
        assert outbox.idle
    assert not assembler._open
    assert len(assembler._begun) == 1


@pytest.mark.parametrize("symbol", [b"", b"\0" * 11, b"\1" + bytes(11) + bytes(8) + bytes(7) + b"more than nothing"])
def test_a_symbol_that_makes_no_sense_ends_it(symbol: bytes) -> None:
    assembler = Assembler()
    assert assembler.take(symbol) is None
    assert assembler.failure
