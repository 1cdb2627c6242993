"""Datagrams of somebody who has no keys: dropped and counted, whatever they hold, and nothing is kept of them."""

import gc
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from helpers.quic_pair import SPECS, QuicPair

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


def traced_bytes() -> int:
    """Return what Python holds, exactly; while this is traced everything takes five times as long."""
    return tracemalloc.get_traced_memory()[0]


def resident_bytes() -> int:
    """Return what the process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def bombard(transport: str, count: int, *, connect: bool, held_bytes: Callable[[], int], growth_bytes: int) -> None:
    """Throw `count` datagrams at both ends in turn; after a tenth of them no more than `growth_bytes` may be added."""
    draw = Random(9)
    paths = 2 if transport.startswith("mp") else 1
    pair = QuicPair(transport, paths=paths)
    pair.carry(MESSAGE)
    genuine = [departure.payload for departure in pair.departures[:200]]
    if not connect:
        pair = QuicPair(transport, paths=paths, connect=False, lose=lambda d: True)
        pair.client.datagrams_to_send(pair.now)
    known = {octets.rstrip(b"\0") for octets in genuine}  # zeros behind the last packet are padding (RFC 9000 §14.1)
    thrown = 0
    for number in range(count):
        role = "client" if number % 2 else "server"
        octets = _hostile(draw, genuine)
        if octets.rstrip(b"\0") in known:
            continue
        before = pair.ends[role].counters().rejected
        pair.deliver(role, octets, path_id=number // 2 % paths)
        thrown += 1
        assert pair.ends[role].counters().rejected == before + 1
        if number == count // 10:
            gc.collect()
            early_bytes = held_bytes()
    gc.collect()
    assert held_bytes() - early_bytes < growth_bytes
    assert thrown > 0.97 * count
    assert not pair.failed
    if connect:
        pair.carry(MESSAGE, 2)


@pytest.mark.parametrize("connect", [True, False])
@pytest.mark.parametrize("transport", SPECS)
def test_hostile_datagrams_are_dropped_and_counted(transport: str, connect: bool) -> None:
    tracemalloc.start()
    try:
        bombard(transport, 4_000, connect=connect, held_bytes=traced_bytes, growth_bytes=200_000)
    finally:
        tracemalloc.stop()


@pytest.mark.long
@pytest.mark.parametrize("connect", [True, False])
@pytest.mark.parametrize("transport", SPECS)
def test_a_million_hostile_datagrams_are_dropped_and_counted(transport: str, connect: bool) -> None:
    """A million for each transport, half of them while nobody is connected; not ten octets of each may stay."""
    bombard(transport, 520_000, connect=connect, held_bytes=resident_bytes, growth_bytes=4_000_000)


BROKEN = {
    "acknowledges what was never sent": "02 8fffffff 00 00 00",
    "acknowledges numbers below zero": "02 05 00 00 06",
    "an ACK cut short": "02 05",
    "a frame that does not exist": "21",
    "a DATAGRAM cut short": "31 20 00",
    "a STREAM cut short": "0e 02 00 20 00",
    "a stream that only we may open": "0c 03 00 00",
    "a stream too far": "0c 8fffffff 00 00",
    "more than flow control permits": "0c 06 d000000000000000 00",
    "two ends of one stream": "0f 06 10 01 00 0f 06 20 01 00",
    "a message shorter than an identifier": "0f 06 00 03 616263",
    "a connection identifier of no octets": "18 01 00 00",
    "a reset of what we may not send on": "04 03 00 00",
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.parametrize("other_phase", [False, True])
def test_a_far_end_with_keys_that_breaks_the_rules_is_told_so_and_fails(what: str, other_phase: bool) -> None:
    pair = QuicPair()
    pair.carry(MESSAGE)
    connection = pair.client._link._connection  # type: ignore[attr-defined]
    if other_phase:
        connection.request_key_update()  # so that aioquic, not we, reads the packet
    pair.deliver("server", connection._seal(bytes.fromhex(BROKEN[what]))[1])
    pair.run_until(lambda: "server" in pair.failed and "client" in pair.failed)
    assert pair.server.counters().rejected == 0


@pytest.mark.parametrize("symbol", ["", "00" * 11, "0100000005" + "00" * 22 + "616263"])
def test_a_symbol_that_makes_no_sense_ends_the_bundle(symbol: str) -> None:
    pair = QuicPair("mpquic", paths=2)
    pair.carry(MESSAGE)
    connection = pair.client._links[1]._connection  # type: ignore[attr-defined]
    pair.deliver("server", connection._seal(bytes.fromhex("30" + symbol))[1], path_id=1)
    pair.run_until(lambda: "server" in pair.failed)
    assert pair.failed["server"].startswith("the far end sent")
