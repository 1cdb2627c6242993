"""Messages arrive whole and in order; a closed end, a slow end and foreign octets give different errors."""

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from bicoastal.emulation.processes.channel import LARGEST_MESSAGE_BYTES, Channel, ChannelClosedError
from bicoastal.emulation.processes.wire_format import WireFormat, WireFormatError

Words = tuple[str, ...]
WORDS = WireFormat[Words](Words)
Ends = tuple[Channel[Words, Words], socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    one, other = socket.socketpair()
    channel = Channel(one, sends=WORDS, receives=WORDS)
    with other:
        yield channel, other
        channel.close()


def test_messages_longer_than_any_buffer_arrive_whole_and_in_order(ends: Ends) -> None:
    channel, end = ends
    far = Channel(end, sends=WORDS, receives=WORDS)
    messages = [("x" * size,) for size in (0, 1, 3_000_000, 7)]
    sending = threading.Thread(target=lambda: [channel.send(message) for message in messages])
    sending.start()
    assert [far.receive(10) for _ in messages] == messages
    sending.join()


def test_a_message_in_pieces_is_waited_for(ends: Ends) -> None:
    channel, end = ends
    octets = WORDS.encode(("in", "pieces"))
    framed = struct.pack("!I", len(octets)) + octets

    def trickle() -> None:
        for at in range(len(framed)):
            end.sendall(framed[at : at + 1])

    sending = threading.Thread(target=trickle)
    sending.start()
    assert channel.receive(10) == ("in", "pieces")
    sending.join()


def test_silence_ends_with_the_time_limit_also_in_the_middle_of_a_message(ends: Ends) -> None:
    channel, end = ends
    with pytest.raises(TimeoutError):
        channel.receive(0.01)
    end.sendall(struct.pack("!I", 5) + b"[")
    with pytest.raises(TimeoutError):
        channel.receive(0.01)


@pytest.mark.parametrize("before", [b"", b"\0\0", struct.pack("!I", 5) + b"["], ids=["clean", "length", "message"])
def test_a_closed_end_is_reported(ends: Ends, before: bytes) -> None:
    channel, end = ends
    end.sendall(before)
    end.close()
    with pytest.raises(ChannelClosedError):
        channel.receive()
    with pytest.raises(ChannelClosedError, match=r"^Broken pipe$"):
        channel.send(("anybody?",))


@pytest.mark.parametrize("framed", [struct.pack("!I", LARGEST_MESSAGE_BYTES + 1), struct.pack("!I", 2) + b"{}"])
def test_what_is_no_message_is_refused(ends: Ends, framed: bytes) -> None:
    channel, end = ends
    end.sendall(framed)
    with pytest.raises(WireFormatError):
        channel.receive(10)


def test_a_message_that_is_too_long_is_not_sent(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, end = ends
    monkeypatch.setattr("bicoastal.emulation.processes.channel.LARGEST_MESSAGE_BYTES", 20)
    with pytest.raises(WireFormatError, match=r"^a message of 29 bytes is longer than 20$"):
        channel.send(("twenty-five characters ..",))
    end.setblocking(False)
    with pytest.raises(BlockingIOError):
        end.recv(1)
