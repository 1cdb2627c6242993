"""Only the ends of one run, which share a secret, can connect to each other."""

from random import Random

import pytest

from bicoastal.transports.base import EndpointContext, PathView
from bicoastal.transports.quic.credentials import Credentials, credentials_of, make_credentials, public_credentials
from bicoastal.transports.quic.endpoint import QuicEndpoint, QuicParameters
from bicoastal.wan.flow_id import FlowId
from helpers.quic_pair import SPECS, QuicPair

OURS, THEIRS = b"drawn for this run", b"drawn for another run"


def context(role: str, secret: bytes | None = OURS, owner: str = "pair") -> EndpointContext:
    path = PathView(path_id=0, name="path0", mtu_bytes=1500)
    flow = FlowId(owner=owner, source="west", destination="east", paths=(path.name,))  # of a QuicPair, by default
    return EndpointContext(role=role, flow=flow, paths=(path,), rng=Random(1), secret=secret)


def test_certificates_are_the_same_for_the_same_seed_and_only_then() -> None:
    assert make_credentials(Random(1)).certificate == make_credentials(Random(1)).certificate
    assert make_credentials(Random(1)).certificate != make_credentials(Random(2)).certificate
    assert "private_key" not in repr(make_credentials(Random(1)))
    assert public_credentials().public().private_key is None


def test_every_secret_and_every_flow_has_keys_of_its_own() -> None:
    contexts = [context("server"), context("server", THEIRS), context("server", owner="another")]
    servers = [credentials_of(each) for each in contexts]
    clients = [server.client for server in servers if server.client is not None]
    keys = {each.certificate.public_key().public_bytes_raw() for each in (*servers, *clients, public_credentials())}  # type: ignore[union-attr]
    assert len(keys) == 7
    assert credentials_of(context("server")).certificate == servers[0].certificate
    assert credentials_of(context("server", None)) is public_credentials()


def test_each_end_has_its_own_key_alone() -> None:
    server, client = credentials_of(context("server")), credentials_of(context("client"))
    assert server.client is not None
    assert client.client is not None
    assert server.certificate == client.certificate
    assert server.client.certificate == client.client.certificate
    assert server.private_key is not None
    assert client.client.private_key is not None
    assert client.private_key is None
    assert server.client.private_key is None


def test_a_secret_is_long_enough_and_shown_to_nobody() -> None:
    assert "drawn" not in repr(context("client"))
    with pytest.raises(ValueError, match="secret: 15 octets; 16 are the least"):
        credentials_of(context("client", bytes(15)))


@pytest.mark.parametrize("transport", SPECS)
def test_ends_that_share_a_secret_talk(transport: str) -> None:
    pair = QuicPair(transport, secrets={"client": OURS, "server": OURS})
    pair.carry(b"a gradient " * 1000)


@pytest.mark.parametrize("transport", SPECS)
@pytest.mark.parametrize("secrets", [{"client": OURS, "server": THEIRS}, {"client": OURS}, {"server": OURS}])
def test_a_client_refuses_a_server_with_another_secret_or_none(transport: str, secrets: dict[str, bytes]) -> None:
    pair = QuicPair(transport, secrets=secrets, connect=False)
    pair.run_until(lambda: len(pair.failed) == 2)
    assert "server's certificate is not the pinned one" in pair.failed["client"]
    assert not pair.connected


@pytest.mark.parametrize("shown", [None, credentials_of(context("client", THEIRS)).client, public_credentials()])
def test_a_server_refuses_a_client_without_the_certificate(shown: Credentials | None) -> None:
    pair = QuicPair(secrets={"client": OURS, "server": OURS}, lose=lambda departure: True, connect=False)
    stranger = Credentials(certificate=credentials_of(context("client")).certificate, client=shown)
    pair.lose = lambda departure: False
    pair.ends["client"] = QuicEndpoint(context("client", None), QuicParameters(), credentials=stranger)
    pair.pump("client")
    pair.run_until(lambda: len(pair.failed) == 2)
    assert "client's certificate is not the pinned one" in pair.failed["server"]
    assert "server" not in pair.connected


def test_a_server_refuses_a_certificate_whose_key_the_client_does_not_have() -> None:
    pair = QuicPair(secrets={"client": OURS, "server": OURS}, lose=lambda departure: True, connect=False)
    ours, key = credentials_of(context("client")), public_credentials().private_key
    assert ours.client is not None
    forged = Credentials(certificate=ours.client.certificate, private_key=key)
    pair.lose = lambda departure: False
    pair.ends["client"] = QuicEndpoint(
        context("client", None),
        QuicParameters(),
        credentials=Credentials(certificate=ours.certificate, client=forged),
    )
    pair.pump("client")
    pair.run_until(lambda: len(pair.failed) == 2)
    assert "server" not in pair.connected


@pytest.mark.parametrize("lost", range(8))
def test_whatever_packet_of_the_handshake_is_lost_it_comes_about(lost: int) -> None:
    for role in ("client", "server"):
        pair = QuicPair(
            secrets={"client": OURS, "server": OURS}, lose=lambda d, role=role: (d.role, d.number) == (role, lost)
        )
        assert pair.carry(bytes(10_000)) < 1.0
