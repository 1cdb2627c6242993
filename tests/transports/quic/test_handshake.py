import hashlib
import os
from random import Random

import pytest
from aioquic import tls
from aioquic.quic import connection as aioquic_connection

from bicoastal.transports.base import EndpointContext, PathView
from bicoastal.transports.quic.credentials import make_credentials, public_credentials
from bicoastal.transports.quic.endpoint import QuicEndpoint, QuicParameters
from bicoastal.transports.quic.path_connection import HANDSHAKE_LIMIT_S
from bicoastal.transports.quic.seeding import with_globals
from helpers.quic_pair import RTT_S, QuicPair


def _octets(seed: int) -> str:
    pair = QuicPair(seed=seed)
    pair.carry(bytes(50_000))
    return hashlib.sha256(b"".join(departure.payload for departure in pair.departures)).hexdigest()


def test_every_octet_follows_from_the_seed() -> None:
    assert _octets(1) == _octets(1)
    assert _octets(1) != _octets(2)


def test_what_travels_is_encrypted() -> None:
    pair = QuicPair()
    pair.carry(b"a gradient " * 1000)
    assert len(pair.departures) > 10
    assert not any(b"gradient" in departure.payload for departure in pair.departures)


def test_aioquic_keeps_its_own_randomness() -> None:
    QuicPair()
    assert aioquic_connection.os is os
    assert tls.os is os
    assert tls.x25519.X25519PrivateKey.generate is not None
    assert tls.Context._client_send_hello.__globals__ is vars(tls)


def test_only_plain_functions_are_given_other_globals() -> None:
    captured = 1
    with pytest.raises(TypeError, match="no plain function"):
        with_globals(lambda: captured)
    with pytest.raises(TypeError, match="no plain function"):
        with_globals(len)


def test_the_handshake_takes_one_round_trip() -> None:
    pair = QuicPair()
    assert pair.connected["client"] == pytest.approx(RTT_S)
    assert pair.connected["server"] == pytest.approx(1.5 * RTT_S)  # which has to see the client's Finished


def test_a_server_with_another_certificate_is_refused() -> None:
    pair = QuicPair(connect=False)
    context = EndpointContext(
        role="server", flow="pair", paths=(PathView(path_id=0, name="path0", mtu_bytes=1500),), rng=Random(1)
    )
    pair.ends["server"] = QuicEndpoint(context, QuicParameters(), credentials=make_credentials(Random(7)))
    pair.run_until(lambda: "client" in pair.failed)
    assert "certificate is not the pinned one" in pair.failed["client"]
    assert not pair.connected


def test_a_server_needs_a_private_key() -> None:
    context = EndpointContext(
        role="server", flow="pair", paths=(PathView(path_id=0, name="path0", mtu_bytes=1500),), rng=Random(1)
    )
    with pytest.raises(ValueError, match="private key"):
        QuicEndpoint(context, QuicParameters(), credentials=public_credentials().public())


def test_a_path_too_narrow_for_quic_is_refused() -> None:
    with pytest.raises(ValueError, match="QUIC needs 1200"):
        QuicPair(mtu_bytes=1227)


def test_a_far_end_that_never_answers_is_given_up_and_time_does_not_stand_still_before() -> None:
    pair = QuicPair(lose=lambda departure: True, connect=False)
    pair.run_until(lambda: "client" in pair.failed)
    assert pair.failed["client"] == "the far end does not answer"
    assert pair.now == pytest.approx(HANDSHAKE_LIMIT_S)
    # doubled at every expiry, so a handful; a timer that rounding lets fire too early would be handled for ever
    assert pair.handled < 30


@pytest.mark.parametrize("lost", range(8))
def test_whatever_packet_of_the_handshake_is_lost_it_comes_about(lost: int) -> None:
    for role in ("client", "server"):
        pair = QuicPair(lose=lambda d, role=role: d.role == role and d.number == lost)
        assert pair.carry(bytes(10_000)) < 1.0
        assert pair.handled < 100


def test_two_probes_leave_for_each_expiry_so_that_losses_in_a_row_double_the_timer_half_as_often() -> None:
    pair = QuicPair(lose=lambda departure: departure.role == "client" and departure.number < 4)
    asked = [departure.at_s for departure in pair.sent("client")[:5]]
    assert asked == pytest.approx([0.0, 0.2, 0.2, 0.6, 0.6], abs=1e-3)  # RFC 9002 §6.2.4, from aioquic's first 100 ms
    assert pair.connected["client"] == pytest.approx(0.6 + RTT_S, abs=1e-3)


def test_one_flipped_bit_anywhere_in_the_handshake_is_only_a_loss() -> None:
    draw = Random(5)
    for number in range(3):
        for role in ("client", "server"):
            lost = role, number
            pair = QuicPair(connect=False, lose=lambda d, lost=lost: (d.role, d.number) == lost)
            while not [d for d in pair.departures if (d.role, d.number) == lost]:
                pair.step()
            genuine = next(d.payload for d in pair.departures if (d.role, d.number) == lost)
            other = "server" if role == "client" else "client"
            before = pair.ends[other].counters().rejected
            bits = sorted({*range(80), *(draw.randrange(8 * len(genuine)) for _ in range(40))})
            for bit in bits:
                flipped = bytearray(genuine)
                flipped[bit // 8] ^= 1 << bit % 8
                pair.deliver(other, bytes(flipped))
            assert pair.ends[other].counters().rejected == before + len(bits)
            pair.run_until(lambda pair=pair: len(pair.connected) == 2)
            pair.carry(b"after all")
