from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bicoastal.transports.paced.packets import (
    DATA_OVERHEAD_BYTES,
    MAX_U32,
    MAX_U64,
    Data,
    Frame,
    Hello,
    MalformedFrameError,
    Report,
    Welcome,
    decode,
    most_gaps,
)

U16, U32, U64 = st.integers(0, 2**16 - 1), st.integers(0, MAX_U32), st.integers(0, MAX_U64)
TOKEN = 0x1122334455667788


@st.composite
def reports(draw: st.DrawFn) -> Report:
    edges = sorted(
        draw(st.lists(st.integers(0, 10_000), min_size=2, max_size=20).filter(lambda edges: len(edges) % 2 == 0))
    )
    start = draw(st.integers(0, 2**60))
    gaps = tuple((start + low, start + high) for low, high in zip(edges[::2], edges[1::2], strict=True))
    stop = start + edges[-1] + draw(st.integers(0, 100))
    return Report(
        draw(U64), draw(st.integers(0, 255)), draw(st.integers(0, 255)), draw(U64), draw(U32), start, stop, draw(U32),
        draw(U16), gaps,
    )  # fmt: skip


def data() -> st.SearchStrategy[Data]:
    return st.builds(
        lambda token, flags, number, behind, offset, payload: Data(
            token, flags, number, min(behind, number), offset, payload
        ),
        U64, st.integers(0, 255), U64, U32, U64, st.binary(max_size=200),
    )  # fmt: skip


FRAMES = st.one_of(st.builds(Hello, U64, U64, U32, U16), st.builds(Welcome, U64, U64), data(), reports())


@given(FRAMES)
def test_a_frame_survives_its_octets(frame: Frame) -> None:
    assert decode(bytes(frame)) == frame


@given(FRAMES, st.data())
def test_one_flipped_bit_is_noticed(frame: Frame, data: st.DataObject) -> None:
    octets = bytearray(bytes(frame))
    bit = data.draw(st.integers(0, 8 * len(octets) - 1))
    octets[bit // 8] ^= 1 << bit % 8
    with pytest.raises(MalformedFrameError):
        decode(bytes(octets))


@given(st.binary(max_size=300))
def test_noise_is_no_frame(octets: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        decode(octets)


def test_data_is_laid_out_as_the_module_says() -> None:
    octets = bytes(Data(TOKEN, 1, 7, 5, 1000, b"abc"))
    body = bytes.fromhex("03 1122334455667788 01 0000000000000007 00000005 00000000000003e8") + b"abc"
    assert octets == crc32(body).to_bytes(4, "big") + body
    assert 20 + 8 + len(octets) - 3 == DATA_OVERHEAD_BYTES


def test_a_report_is_laid_out_as_the_module_says() -> None:
    octets = bytes(Report(TOKEN, 2, 0, 9, 250, 4, 10, 1000, 38, ((5, 6), (8, 9))))
    body = bytes.fromhex(
        "04 1122334455667788 02 00 0000000000000009 000000fa 0000000000000004 000000000000000a 000003e8 0026 0002"
        "00000001 00000001 00000004 00000001"
    )
    assert octets == crc32(body).to_bytes(4, "big") + body


@given(st.integers(576, 9000))
def test_as_many_gaps_as_fit_fit(mtu_bytes: int) -> None:
    count = most_gaps(mtu_bytes)
    report = Report(0, 0, 0, 0, 0, 0, 2 * count, 0, 0, tuple((2 * i, 2 * i + 1) for i in range(count)))
    assert mtu_bytes - 8 < report.wire_bytes <= mtu_bytes
    assert report.wire_bytes == 28 + len(bytes(report))


@pytest.mark.parametrize(
    "body",
    [
        "",
        "09",
        "04 1122334455667788",
        "03 1122334455667788 00 0000000000000007 00000008 0000000000000000",  # behind more than number
        "02 1122334455667788 0000000000000000 00",  # one octet too many
        "04 1122334455667788 00 00 0000000000000000 00000000 0000000000000004 0000000000000003 00000000 0000 0000",
        "04 1122334455667788 00 00 0000000000000000 00000000 0000000000000000 0000000000000003 00000000 0000 0001",
        "04 1122334455667788 00 00 0000000000000000 00000000 0000000000000000 0000000000000003 00000000 0000 0001"
        "00000002 00000002",  # a gap beyond the end
    ],
)
def test_sealed_nonsense_is_refused(body: str) -> None:
    octets = bytes.fromhex(body)
    with pytest.raises(MalformedFrameError):
        decode(crc32(octets).to_bytes(4, "big") + octets)
