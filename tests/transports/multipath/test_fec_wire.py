"""Frames of the FEC protocol: what is encoded comes back, in whatever pieces, and nothing else is taken."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.transports.coding.raptor import RAPTORQ
from bicoastal.transports.coding.reed_solomon import REED_SOLOMON
from bicoastal.transports.coding.xor import PARITY
from bicoastal.transports.multipath.fec_wire import (
    Announcement,
    ControlFrame,
    ControlReader,
    Done,
    FecProtocolError,
    MissingSymbols,
    Spread,
    announcement_bytes,
    decode_announcement,
    encode_control,
)

U32 = st.integers(0, 2**32 - 1)


@st.composite
def announcements(draw: st.DrawFn) -> Announcement:
    code = draw(st.sampled_from([PARITY, REED_SOLOMON, RAPTORQ]))
    blocks = draw(st.integers(1, 20))
    symbols = draw(st.integers(blocks, blocks * 200))
    symbol_bytes = 16 * draw(st.integers(4, 80))
    length_bytes = symbols * symbol_bytes - draw(st.integers(0, symbol_bytes - 1))
    checksums = tuple(draw(st.lists(U32, min_size=blocks, max_size=blocks)))
    return Announcement(draw(U32), draw(st.integers(0, 2**64 - 1)), length_bytes, symbol_bytes, blocks, code, checksums)


frames = st.one_of(
    announcements(),
    st.builds(Done, U32),
    st.builds(MissingSymbols, U32, U32, st.dictionaries(st.integers(0, 65534), U32, max_size=20)),
)


@given(st.lists(frames, max_size=5), st.integers(1, 50))
def test_frames_come_back_from_a_stream_cut_anywhere(sent: list[ControlFrame], piece: int):
    octets = b"".join(encode_control(frame) for frame in sent)
    reader = ControlReader()
    found = [frame for at in range(0, len(octets), piece) for frame in reader.feed(octets[at : at + piece])]
    assert found == sent


@given(announcements())
def test_an_announcement_is_as_long_as_it_says(announcement):
    octets = announcement.encode()
    assert len(octets) == announcement_bytes(announcement.blocks)
    assert decode_announcement(octets) == announcement
    for wrong in (octets[:-1], octets + b"\0", octets[:10]):
        with pytest.raises(FecProtocolError):
            decode_announcement(wrong)


def test_an_announcement_of_what_cannot_be_is_refused():
    sound = Announcement(1, 2, 6400, 64, 2, REED_SOLOMON, (3, 4))
    assert decode_announcement(sound.encode()) == sound
    for changes in (
        {"length_bytes": 64},  # two blocks of one symbol
        {"length_bytes": 64 * 600},  # blocks of 300 symbols, of which Reed-Solomon has none
        {"symbol_bytes": 0},
        {"blocks": 0, "checksums": ()},
        {"length_bytes": 0},
    ):
        with pytest.raises(FecProtocolError):
            decode_announcement(sound._replace(**changes).encode())
    with pytest.raises(FecProtocolError):
        decode_announcement(sound.encode()[:24] + b"\x09" + sound.encode()[25:])  # a code there is not
    empty = Announcement(1, 2, 0, 64, 0, PARITY, ())
    assert decode_announcement(empty.encode()) == empty


def test_a_spread_comes_back_as_it_was_and_packets_all_at_once_are_refused() -> None:
    octets = encode_control(Spread(14_400_000))
    assert list(ControlReader().feed(octets)) == [Spread(14_400_000)]
    with pytest.raises(FecProtocolError):
        list(ControlReader().feed(octets[:5] + bytes(8)))


def test_noise_on_a_control_stream_raises_nothing_but_what_it_should():
    rng = Random(4)
    for _ in range(5000):
        reader = ControlReader()
        octets = bytearray(encode_control(MissingSymbols(1, 2, {3: 4})) + rng.randbytes(rng.randrange(40)))
        octets[rng.randrange(len(octets))] ^= 1 << rng.randrange(8)
        try:
            for frame in reader.feed(bytes(octets)):
                assert isinstance(frame, Announcement | Done | MissingSymbols | Spread)
        except FecProtocolError:
            continue
