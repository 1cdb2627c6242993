import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.transports.stream import FRAME_BYTES, MessageAssembler, OutgoingStream, StreamError

MESSAGES = st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=50)), max_size=6)


def framed(messages: list[tuple[int, bytes]]) -> bytes:
    """Return the octets that the module's text promises."""
    return b"".join(
        identifier.to_bytes(8, "big") + len(data).to_bytes(8, "big") + data for identifier, data in messages
    )


def stream_of(messages: list[tuple[int, bytes]]) -> OutgoingStream:
    stream = OutgoingStream()
    for message_id, data in messages:
        stream.append_message(message_id, data)
    return stream


@given(MESSAGES, st.data())
def test_any_piece_of_what_is_not_released_can_be_read_in_any_order(
    messages: list[tuple[int, bytes]], draw: st.DataObject
) -> None:
    octets = framed(messages)
    stream = stream_of(messages)
    assert stream.end == len(octets)
    released = 0
    for _ in range(8):
        released = draw.draw(st.integers(released, stream.end))
        stream.release(released)
        assert stream.released == released
        offset = draw.draw(st.integers(released, stream.end))
        length = draw.draw(st.integers(0, 120))
        assert bytes(stream.read(offset, length)) == octets[offset : offset + length]


def test_sequential_reads_give_the_stream_after_messages_were_added_and_released() -> None:
    stream, got, octets = OutgoingStream(), b"", b""
    for number in range(20):
        stream.append_message(number, bytes([number]) * (number * 7 % 23))
        octets += framed([(number, bytes([number]) * (number * 7 % 23))])
        while len(got) < stream.end - 5:
            got += stream.read(len(got), 11)
        stream.release(max(0, len(got) - 9))
    got += stream.read(len(got), 100)
    assert got == octets


def test_a_piece_within_one_chunk_is_a_view_of_the_callers_memory() -> None:
    data = bytearray(b"0123456789")
    stream = OutgoingStream()
    assert stream.append_message(1, data) == FRAME_BYTES + 10
    piece = stream.read(FRAME_BYTES + 2, 4)
    data[2:6] = b"abcd"
    assert bytes(piece) == b"abcd"


def test_a_view_of_wider_items_is_sent_as_octets() -> None:
    stream = OutgoingStream()
    stream.append_message(1, memoryview(bytes(range(16))).cast("I"))
    assert bytes(stream.read(0, 99))[8:] == (16).to_bytes(8, "big") + bytes(range(16))


def test_memory_is_given_back_when_a_message_is_acknowledged() -> None:
    data = bytearray(100)
    stream = OutgoingStream()
    end = stream.append_message(1, data)
    with pytest.raises(BufferError):
        data.append(0)  # a view holds it
    stream.release(end)
    data.append(0)
    assert stream.append_message(2, b"more") == end + FRAME_BYTES + 4
    assert bytes(stream.read(end + FRAME_BYTES, 9)) == b"more"


def test_releasing_less_than_before_changes_nothing() -> None:
    stream = stream_of([(1, b"abc")])
    stream.release(10)
    stream.release(3)
    assert stream.released == 10


@pytest.mark.parametrize("message_id", [-1, 2**64])
def test_message_id_must_be_an_unsigned_64_bit_integer(message_id: int) -> None:
    with pytest.raises(ValueError, match=r"^message_id"):
        OutgoingStream().append_message(message_id, b"")


def test_what_is_not_there_is_refused() -> None:
    stream = stream_of([(1, b"abc"), (2, b"")])
    stream.release(5)
    for offset, length in ((4, 1), (stream.end + 1, 1), (-1, 2), (6, -1)):
        with pytest.raises(ValueError, match=r"^offset"):
            stream.read(offset, length)
    with pytest.raises(ValueError, match=r"^offset"):
        stream.release(stream.end + 1)
    assert stream.read(stream.end, 10) == b""


@given(MESSAGES, st.lists(st.integers(1, 40), min_size=1))
def test_messages_come_back_whatever_the_pieces(messages: list[tuple[int, bytes]], sizes: list[int]) -> None:
    octets = framed(messages)
    assembler = MessageAssembler()
    got: list[tuple[int, bytes]] = []
    position = turn = 0
    while position < len(octets):
        size = sizes[turn % len(sizes)]
        turn += 1
        complete = assembler.feed(memoryview(octets)[position : position + size])
        position += size
        fresh = [(message_id, bytes(data)) for message_id, data in assembler.messages()]
        assert complete == bool(fresh)
        got += fresh
        whole = [count for count in range(len(messages) + 1) if len(framed(messages[:count])) <= position]
        assert got == messages[: max(whole)]  # neither early nor late
    assert got == messages


def test_octet_by_octet_feeding_works() -> None:
    assembler = MessageAssembler()
    octets = framed([(7, b"hello"), (8, b""), (2**64 - 1, b"x")])
    for index in range(len(octets)):
        assembler.feed(octets[index : index + 1])
    assert [(message_id, bytes(data)) for message_id, data in assembler.messages()] == [
        (7, b"hello"),
        (8, b""),
        (2**64 - 1, b"x"),
    ]
    assert assembler.messages() == []


def test_an_empty_piece_changes_nothing() -> None:
    assembler = MessageAssembler()
    assert not assembler.feed(b"")
    assembler.feed(framed([(1, b"ab")])[:17])
    assert not assembler.feed(b"")
    assert assembler.feed(b"b")
    assert assembler.messages() == [(1, b"ab")]


def test_a_message_within_one_piece_is_a_view_of_it() -> None:
    piece = bytearray(framed([(1, b"abc")]))
    assembler = MessageAssembler()
    assembler.feed(piece)
    ((_, data),) = assembler.messages()
    piece[-1:] = b"z"
    assert data == b"abz"


def test_an_absurd_length_is_refused_now_and_later() -> None:
    assembler = MessageAssembler(max_message_bytes=10)
    assembler.feed(framed([(1, bytes(10))]))
    with pytest.raises(StreamError, match="11 bytes"):
        assembler.feed((2).to_bytes(8, "big") + (11).to_bytes(8, "big"))
    with pytest.raises(StreamError, match="11 bytes"):
        assembler.feed(framed([(3, b"fine")]))
    assert [message_id for message_id, _ in assembler.messages()] == [1]


def test_default_limit_is_a_tebibyte() -> None:
    MessageAssembler().feed(bytes(8) + (2**40).to_bytes(8, "big"))
    with pytest.raises(StreamError):
        MessageAssembler().feed(bytes(8) + (2**40 + 1).to_bytes(8, "big"))


def test_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^max_message_bytes"):
        MessageAssembler(max_message_bytes=-1)
