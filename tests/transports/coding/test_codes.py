"""Erasure codes: byte-exact whatever is lost, against independent arithmetic, and never garbage."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bicoastal.transports.coding.codes import CorruptBlockError, ErasureCode, block_checksum
from bicoastal.transports.coding.raptor import MAX_BLOCK_BYTES, RAPTORQ
from bicoastal.transports.coding.reed_solomon import REED_SOLOMON
from bicoastal.transports.coding.xor import PARITY

CODES = {code.name: code for code in (PARITY, REED_SOLOMON, RAPTORQ)}


@st.composite
def blocks(draw: st.DrawFn) -> tuple[ErasureCode, int, int, int, random.Random]:
    """A code, a shape it has, and how many source symbols are lost."""
    code = CODES[draw(st.sampled_from(sorted(CODES)))]
    k = draw(st.integers(1, 254 if code is REED_SOLOMON else 300))
    symbol_bytes = draw(st.sampled_from([1, 2, 7, 16, 24, 63, 64, 72, 120, 1000]))
    r = min(draw(st.integers(1, 40)), code.max_repair(k))
    return code, k, r, symbol_bytes, random.Random(draw(st.integers(0, 2**32)))


@settings(max_examples=150)
@given(blocks(), st.booleans())
def test_every_block_comes_back_byte_exact_whatever_is_lost(shape, in_place):
    code, k, r, symbol_bytes, rng = shape
    block = rng.randbytes(k * symbol_bytes)
    encoder = code.encoder(block, symbol_bytes)
    symbols = [*(bytes(encoder.source(at)) for at in range(k)), *encoder.repair(0, r)]
    into = memoryview(bytearray(len(block)))
    decoder = code.decoder(k, symbol_bytes, into if in_place else None)
    order = list(range(k + r))
    rng.shuffle(order)
    used = 0
    while decoder.missing and order:
        index = order.pop()
        owed = decoder.missing
        assert decoder.add(index, symbols[index])
        assert not decoder.add(index, symbols[index]), "the same symbol twice is of no use"
        used += 1
        assert decoder.missing == owed - 1 or (code is RAPTORQ and used >= k)
    if code is not RAPTORQ:
        assert used == k
    elif decoder.missing:  # k + r did not suffice: more on demand does
        for number, symbol in enumerate(encoder.repair(r, 8), start=r):
            decoder.add(k + number, symbol)
    assert bytes(decoder.finish(block_checksum(block))) == block
    if in_place:
        assert bytes(into) == block


@settings(max_examples=50)
@given(st.sampled_from(sorted(CODES)), st.integers(0, 2**32))
def test_a_damaged_symbol_is_caught_and_sound_ones_mend_it(name, seed):
    code, rng = CODES[name], random.Random(seed)
    k, symbol_bytes = rng.randint(2, 60), 64
    block = rng.randbytes(k * symbol_bytes)
    encoder = code.encoder(block, symbol_bytes)
    lost = rng.randrange(k)
    sound = {at: bytes(encoder.source(at)) for at in range(k) if at != lost}
    sound[k] = encoder.repair(0, 1)[0]
    damaged = rng.choice(sorted(sound))
    decoder = code.decoder(k, symbol_bytes)
    for at, symbol in sound.items():
        octets = bytearray(symbol)
        octets[rng.randrange(symbol_bytes)] ^= (at == damaged) << rng.randrange(8)
        decoder.add(at, octets)
    if decoder.missing:  # RaptorQ needs one more now and then
        decoder.add(lost, encoder.source(lost))
    with pytest.raises(CorruptBlockError):
        decoder.finish(block_checksum(block))
    decoder.reset()
    assert decoder.missing == k
    for at in range(k):
        decoder.add(at, encoder.source(at))
    assert bytes(decoder.finish(block_checksum(block))) == block


def carryless_product(a: int, b: int) -> int:
    """Multiply in GF(2^8) modulo x^8+x^4+x^3+x^2+1, bit by bit: knows nothing of the tables under test."""
    product = 0
    while b:
        product ^= a * (b & 1)
        a = (a << 1) ^ (0x11D if a & 0x80 else 0)
        b >>= 1
    return product


def test_reed_solomon_repair_is_the_cauchy_matrix_whatever_else_is_asked_for():
    rng = random.Random(5)
    inverse = {a: b for a in range(1, 256) for b in range(1, 256) if carryless_product(a, b) == 1}
    for k, symbol_bytes in ((1, 3), (10, 16), (100, 5), (230, 2)):
        block = rng.randbytes(k * symbol_bytes)
        encoder = REED_SOLOMON.encoder(block, symbol_bytes)
        for number in (0, 1, 7, 24):
            expected = [0] * symbol_bytes
            for at in range(k):
                factor = inverse[(k + number) ^ at]
                for octet in range(symbol_bytes):
                    expected[octet] ^= carryless_product(factor, block[at * symbol_bytes + octet])
            assert encoder.repair(number, 1) == [bytes(expected)]
            assert encoder.repair(0, number + 1)[-1] == bytes(expected)


def test_reed_solomon_recovers_from_repair_alone_up_to_the_end_of_its_field():
    rng = random.Random(6)
    for k in (1, 2, 100, 127):
        block = rng.randbytes(k * 20)
        repairs = REED_SOLOMON.encoder(block, 20).repair(0, 255 - k)
        decoder = REED_SOLOMON.decoder(k, 20)
        for number in rng.sample(range(255 - k), k):
            decoder.add(k + number, repairs[number])
        assert bytes(decoder.finish(block_checksum(block))) == block


@pytest.mark.parametrize("symbol_bytes", [64, 1200, 1432, 8904])
def test_raptorq_stays_systematic_up_to_its_largest_block(symbol_bytes):
    k = min(MAX_BLOCK_BYTES // symbol_bytes, 56_403)
    for fewer in (0, 1, k // 50, k // 20):  # K' of RFC 6330 table 2 come in steps of a few percent at most
        block = bytes((k - fewer) * symbol_bytes)
        RAPTORQ.encoder(block, symbol_bytes).repair(0, 1)  # raises if the library has cut the block into sub-blocks


def test_raptorq_fails_no_more_often_than_said():
    trials, rng = 4000, random.Random(7)
    for k, absent in ((10, 4), (30, 6), (100, 10)):
        block = rng.randbytes(k * 8)
        encoder = RAPTORQ.encoder(block, 8)
        repairs = encoder.repair(0, 200)
        failures = 0
        for _ in range(trials):
            body = memoryview(bytearray(block))
            lost = sorted(rng.sample(range(k), absent))
            chosen = {number: repairs[number] for number in rng.sample(range(200), absent)}
            failures += not RAPTORQ.recover(body, 8, lost, chosen)
        assert failures / trials < 0.0135, "RFC 6330 §5.8: 1 in 100, and 2.2 standard errors"
        if k >= 20:
            assert RAPTORQ.failure(k, 0) / 2 < failures / trials < RAPTORQ.failure(k, 0) * 2


@pytest.mark.parametrize(
    ("name", "k", "symbol_bytes", "said"),
    [
        ("reed-solomon", 255, 100, "k: 255"),
        ("reed-solomon", 0, 100, "k: 0"),
        ("raptorq", 56_404, 8, "k: 56404"),
        ("raptorq", 10, 1201, "symbol_bytes: 1201"),
        ("raptorq", 1112, 8904, "k: 1112"),
        ("xor", 1, 0, "symbol_bytes: 0"),
    ],
)
def test_a_shape_that_a_code_has_not_is_refused(name, k, symbol_bytes, said):
    with pytest.raises(ValueError, match=said):
        CODES[name].decoder(k, symbol_bytes)


@pytest.mark.parametrize("name", sorted(CODES))
def test_what_is_no_symbol_of_the_block_is_refused(name):
    code = CODES[name]
    decoder = code.decoder(5, 8)
    for index in (-1, 5 + code.max_repair(5)):
        with pytest.raises(ValueError, match="index"):
            decoder.add(index, bytes(8))
    with pytest.raises(ValueError, match="symbol: 9 bytes"):
        decoder.add(0, bytes(9))
    with pytest.raises(ValueError, match="missing"):
        decoder.finish(0)
    with pytest.raises(ValueError, match="count"):
        code.encoder(bytes(40), 8).repair(code.max_repair(5), 1)
    with pytest.raises(ValueError, match="no whole number"):
        code.encoder(bytes(41), 8)
    with pytest.raises(ValueError, match="into"):
        code.decoder(5, 8, memoryview(bytearray(39)))
