"""Connections need a certificate of the run's authority and TLS 1.3, and no key is left in a readable file."""

import ssl
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from bicoastal.emulation.processes.credentials import (
    Credentials,
    identities,
    service_identity,
    site_identity,
    tls_context,
)
from bicoastal.emulation.service.authority import VALIDITY, issue

SITE, SERVICE = site_identity("east"), service_identity("b4")


@pytest.fixture
def issued(tmp_path: Path) -> Mapping[str, Credentials]:
    return issue(tmp_path, [SITE, SERVICE])


@contextmanager
def shaken(client: ssl.SSLContext, server: ssl.SSLContext) -> Iterator[tuple[ssl.SSLObject, ssl.SSLObject]]:
    """Two ends after their handshake, octets shuttled by hand. Raises ssl.SSLError as either end does."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    done = [False, False]
    for _ in range(6):
        for index, end in enumerate(ends):
            if not done[index]:
                try:
                    end.do_handshake()
                    done[index] = True
                except ssl.SSLWantReadError:
                    pass
    assert done == [True, True]
    yield ends[0], ends[1]


def test_both_ends_learn_who_the_other_is_over_tls_1_3(issued: Mapping[str, Credentials]) -> None:
    client, server = tls_context(issued[SITE], server=False), tls_context(issued[SERVICE], server=True)
    with shaken(client, server) as (ours, theirs):
        assert ours.version() == theirs.version() == "TLSv1.3"
        assert identities(ours.getpeercert()) == {SERVICE}
        assert identities(theirs.getpeercert()) == {SITE}


def test_names_that_are_no_urls_are_told_apart() -> None:
    names = [site_identity(name) for name in ("reeve's", "a/b", "a%2Fb", "é", " ")]
    assert len(set(names)) == len(names)
    assert all(name.isascii() and " " not in name for name in names)


def strangers(tmp_path: Path) -> dict[str, ssl.SSLContext]:
    other = tmp_path / "other"
    other.mkdir()
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.check_hostname = False
    bare.load_verify_locations(tmp_path / "authority.pem")
    foreign = tls_context(issue(other, [SITE])[SITE], server=False)
    foreign.load_verify_locations(tmp_path / "authority.pem")  # it trusts us; we do not trust it
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.load_verify_locations(tmp_path / "authority.pem")
    old.load_cert_chain(tmp_path / "participant-0.pem")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    return {"no certificate": bare, "another authority's": foreign, "TLS 1.2": old}


@pytest.mark.parametrize("stranger", ["no certificate", "another authority's", "TLS 1.2"])
def test_ends_without_a_certificate_of_the_run_are_refused(
    issued: Mapping[str, Credentials], tmp_path: Path, stranger: str
) -> None:
    with pytest.raises(ssl.SSLError), shaken(strangers(tmp_path)[stranger], tls_context(issued[SERVICE], server=True)):
        pass


def test_a_server_of_another_authority_is_refused(issued: Mapping[str, Credentials], tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    server = tls_context(issue(other, [SERVICE])[SERVICE], server=True)
    with pytest.raises(ssl.SSLCertVerificationError), shaken(tls_context(issued[SITE], server=False), server):
        pass


def test_files_are_for_this_user_alone_and_the_authoritys_key_is_not_among_them(
    issued: Mapping[str, Credentials], tmp_path: Path
) -> None:
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["authority.pem", "participant-0.pem", "participant-1.pem"]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert b"PRIVATE" not in files[0].read_bytes()


def test_openssl_finds_the_certificates_in_order_until_they_expire(
    issued: Mapping[str, Credentials], tmp_path: Path
) -> None:
    for credentials in issued.values():
        for at, fine in ((datetime.now(UTC), True), (datetime.now(UTC) + VALIDITY + timedelta(minutes=1), False)):
            done = subprocess.run(
                [
                    *("openssl", "verify", "-x509_strict", "-attime", str(int(at.timestamp()))),
                    *("-CAfile", credentials.authority, credentials.certificate),
                ],
                capture_output=True,
                check=False,
            )
            assert (done.returncode == 0) is fine, done.stderr
    certificate = x509.load_pem_x509_certificate(Path(issued[SITE].certificate).read_bytes())
    assert certificate.not_valid_after_utc - datetime.now(UTC) <= timedelta(days=2)


def test_existing_files_are_not_overwritten(issued: Mapping[str, Credentials], tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        issue(tmp_path, [SITE])
