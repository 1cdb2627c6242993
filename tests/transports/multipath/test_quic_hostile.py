"""Datagrams of somebody who has no keys: dropped and counted, whatever they hold, and nothing is kept of them."""

import gc
import tracemalloc
from random import Random

import pytest

from quic_pair import QuicPair

MESSAGE = Random(1).randbytes(100_000)


def _hostile(draw: Random, genuine: list[bytes]) -> bytes:
    kind = draw.randrange(6)
    if kind == 0:
        return draw.randbytes(draw.choice((0, 1, 8, 20, 21, 22, 60, 1200, 1472)))
    octets = bytearray(draw.choice(genuine))
    if kind == 1:
        octets[draw.randrange(len(octets))] ^= 1 << draw.randrange(8)
    elif kind == 2:
        return bytes(octets[: draw.randrange(len(octets))])
    elif kind == 3:
        at = draw.randrange(len(octets))
        octets[at : at + 16] = draw.randbytes(16)
    elif kind == 4:
        return bytes(octets[:9]) + draw.randbytes(draw.randrange(1400))  # the right connection, nothing else
    else:
        octets[0] = draw.randrange(256)
        octets += draw.randbytes(draw.randrange(40))
    return bytes(octets)


def bombard(transport: str, count: int, *, connect: bool) -> None:
    draw = Random(9)
    pair = QuicPair(transport, paths=2 if transport == "mpquic" else 1)
    pair.carry(MESSAGE)
    genuine = [departure.payload for departure in pair.departures[:200]]
    if not connect:
        pair = QuicPair(transport, paths=2 if transport == "mpquic" else 1, connect=False, lose=lambda d: True)
        pair.client.datagrams_to_send(pair.now)
    known = {octets.rstrip(b"\0") for octets in genuine}  # zeros behind the last packet are padding (RFC 9000 §14.1)
    thrown = 0
    tracemalloc.start()
    for number in range(count):
        role = "client" if number % 2 else "server"
        octets = _hostile(draw, genuine)
        if octets.rstrip(b"\0") in known:
            continue
        before = pair.ends[role].counters().rejected
        pair.deliver(role, octets)
        thrown += 1
        assert pair.ends[role].counters().rejected == before + 1
        if number == count // 10:
            gc.collect()
            early, _ = tracemalloc.get_traced_memory()
    gc.collect()
    late, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert thrown > 0.9 * count
    assert late - early < 200_000
    assert not pair.failed
    if connect:
        pair.carry(MESSAGE, 2)


@pytest.mark.parametrize("connect", [True, False])
@pytest.mark.parametrize("transport", ["quic", "mpquic"])
def test_hostile_datagrams_are_dropped_and_counted(transport: str, connect: bool) -> None:
    bombard(transport, 4_000, connect=connect)


@pytest.mark.slow
@pytest.mark.parametrize("connect", [True, False])
@pytest.mark.parametrize("transport", ["quic", "mpquic"])
def test_a_million_hostile_datagrams_are_dropped_and_counted(transport: str, connect: bool) -> None:
    bombard(transport, 250_000, connect=connect)
