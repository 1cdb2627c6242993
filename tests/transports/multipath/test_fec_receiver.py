"""The receiving half: whatever order symbols come in, messages come out whole and once, and gaps are told."""

from itertools import pairwise
from random import Random

import pytest

from bicoastal.transports.coding.codes import ErasureCode, block_checksum
from bicoastal.transports.coding.interleaving import block_sizes
from bicoastal.transports.coding.raptor import RAPTORQ
from bicoastal.transports.coding.reed_solomon import REED_SOLOMON
from bicoastal.transports.multipath.fec_receiver import FIRST_PATIENCE_S, PARKED_BYTES, FecReceiver
from bicoastal.transports.multipath.fec_wire import (
    ANNOUNCEMENT_BLOCK,
    SYMBOL_HEADER,
    Announcement,
    Done,
    FecProtocolError,
    MissingSymbols,
)

T = 64


class Cut:
    """A message cut by hand: what a sender would put on the wire."""

    def __init__(self, size: int, blocks: int, repair: int, code: ErasureCode = REED_SOLOMON, number: int = 0) -> None:
        self.data = Random(size).randbytes(size)
        symbols = -(-size // T)
        padded = self.data + bytes(symbols * T - size)
        self.symbols: list[bytes] = []
        checksums = []
        at = 0
        for block, k in enumerate(block_sizes(symbols, blocks)):
            part = padded[at : at + k * T]
            at += k * T
            checksums.append(block_checksum(part))
            encoder = code.encoder(part, T)
            for index, symbol in enumerate([*map(encoder.source, range(k)), *encoder.repair(0, repair)]):
                self.symbols.append(SYMBOL_HEADER.pack(number, block, index) + bytes(symbol))
        self.announcement = Announcement(number, 1000 + number, size, T, blocks, code, tuple(checksums))

    @property
    def announced(self) -> bytes:
        return SYMBOL_HEADER.pack(self.announcement.number, ANNOUNCEMENT_BLOCK, 0) + self.announcement.encode()


def received(receiver: FecReceiver) -> list[tuple[int, bytes]]:
    return [(message_id, bytes(data)) for message_id, data in receiver.messages]


@pytest.mark.parametrize("announced_first", [True, False])
@pytest.mark.parametrize("code", [REED_SOLOMON, RAPTORQ])
def test_a_message_comes_out_once_in_whatever_order_its_symbols_come(code, announced_first):
    rng = Random(1)
    cut = Cut(9_990, 4, 6, code)
    arriving = [*rng.sample(cut.symbols, len(cut.symbols)), *rng.sample(cut.symbols, 50)]
    arriving.insert(0 if announced_first else 100, cut.announced)
    receiver = FecReceiver(max_message_bytes=10**6)
    for number, octets in enumerate(arriving):
        receiver.on_symbol(octets, number * 1e-3)
    receiver.on_announcement(cut.announcement, 1.0)  # the control stream's copy comes last
    assert received(receiver) == [(1000, cut.data)]
    assert receiver.control.count(Done(0)) == 1
    assert receiver.needless > 50
    assert receiver.rejected == 0
    assert receiver.timer() == float("inf")


def test_an_empty_message_needs_no_symbol():
    receiver = FecReceiver(max_message_bytes=10**6)
    receiver.on_announcement(Announcement(0, 7, 0, T, 0, REED_SOLOMON, ()), 0.0)
    assert received(receiver) == [(7, b"")]


def test_what_is_missing_is_told_when_nothing_useful_comes_and_ever_less_often():
    cut = Cut(40 * T, 2, 0)
    receiver = FecReceiver(max_message_bytes=10**6)
    receiver.on_announcement(cut.announcement, 0.0)
    for octets in cut.symbols[3:-1]:
        receiver.on_symbol(octets, 0.001)
    assert receiver.timer() == pytest.approx(0.001 + FIRST_PATIENCE_S)
    times: list[float] = []
    while len(times) < 4:
        times.append(receiver.timer())
        receiver.on_timer(times[-1])
    assert receiver.control == [MissingSymbols(0, serial, {0: 3, 1: 1}) for serial in (1, 2, 3, 4)]
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses == pytest.approx([2 * FIRST_PATIENCE_S, 4 * FIRST_PATIENCE_S, 8 * FIRST_PATIENCE_S])
    for octets in (*cut.symbols[:3], cut.symbols[-1]):
        receiver.on_symbol(octets, 1.0)
    assert received(receiver) == [(1000, cut.data)]


def test_a_corrupt_block_is_told_thrown_away_and_mended():
    """What QUIC's authentication cannot see: octets that changed before they were protected, or after."""
    cut = Cut(20 * T, 2, 4)
    receiver = FecReceiver(max_message_bytes=10**6)
    receiver.on_announcement(cut.announcement, 0.0)
    bad = bytearray(cut.symbols[1])
    bad[-1] ^= 1
    for octets in (cut.symbols[0], bytes(bad), *cut.symbols[2:10]):
        receiver.on_symbol(octets, 0.0)
    assert receiver.corrupt == 1
    assert receiver.control == [MissingSymbols(0, 1, {0: 10})]
    for octets in cut.symbols:
        receiver.on_symbol(octets, 0.0)
    assert received(receiver) == [(1000, cut.data)]


def test_a_code_that_fails_with_enough_symbols_asks_for_one_more():
    """RaptorQ needs k + 1 in one of 256 cases: find some, and see that they are told at once."""
    rng = Random(2)
    told = 0
    for number in range(1500):
        cut = Cut(30 * T, 1, 40, RAPTORQ)
        receiver = FecReceiver(max_message_bytes=10**6)
        receiver.on_announcement(cut.announcement, 0.0)
        for octets in rng.sample(cut.symbols, 30):
            receiver.on_symbol(octets, 0.0)
        if not receiver.messages:
            told += 1
            assert receiver.control == [MissingSymbols(0, 1, {0: 1})], number
            for octets in cut.symbols:
                receiver.on_symbol(octets, 0.0)
        assert received(receiver) == [(1000, cut.data)]
        if told == 2:
            return
    pytest.fail("RaptorQ never failed")


def test_memory_for_unannounced_messages_is_bounded_and_what_did_not_fit_is_asked_for_again():
    receiver = FecReceiver(max_message_bytes=10**9)
    octets = SYMBOL_HEADER.pack(5, 0, 0) + bytes(60_000)
    for _ in range(PARKED_BYTES // 60_000 + 100):
        receiver.on_symbol(octets, 0.0)
    assert receiver._parked_bytes <= PARKED_BYTES
    assert receiver.needless >= 99


def test_symbols_that_fit_nowhere_are_counted_and_dropped():
    cut = Cut(20 * T, 2, 2)
    receiver = FecReceiver(max_message_bytes=10**6)
    receiver.on_announcement(cut.announcement, 0.0)
    for octets in (
        b"",
        bytes(9),
        SYMBOL_HEADER.pack(0, 2, 0) + bytes(T),  # a block there is not
        SYMBOL_HEADER.pack(0, 0, 255) + bytes(T),  # a symbol the code has not
        SYMBOL_HEADER.pack(0, 0, 0) + bytes(T - 1),
    ):
        receiver.on_symbol(octets, 0.0)
    assert receiver.rejected == 5


def test_a_message_beyond_the_limit_ends_the_connection():
    receiver = FecReceiver(max_message_bytes=1000)
    with pytest.raises(FecProtocolError, match="at most 1000"):
        receiver.on_announcement(Cut(20 * T, 1, 0).announcement, 0.0)
