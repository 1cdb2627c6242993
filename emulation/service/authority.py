"""The certificate authority of a run: it certifies every process of the run and exists only while it does so.

Certificates are valid for two days. They are files in the run's private directory, which is removed with the run. The
authority's private key is never written to a file.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bicoastal.emulation.processes.credentials import Credentials

VALIDITY = timedelta(days=2)
_BACKDATED = timedelta(minutes=5)  # the clock may be set back during the run
_USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def issue(directory: Path, identities: Sequence[str]) -> Mapping[str, Credentials]:
    """Make an authority and a certificate for each identity; write them to `directory`, readable by this user alone.

    Raises OSError when they cannot be written or already exist.
    """
    key = Ed25519PrivateKey.generate()
    name = _name("bicoastal run")
    authority = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_only("key_cert_sign"), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, None)
    )
    authority_path = directory / "authority.pem"
    _write(authority_path, authority.public_bytes(Encoding.PEM))
    issued: dict[str, Credentials] = {}
    for number, identity in enumerate(identities):
        own_key = Ed25519PrivateKey.generate()
        certificate = (
            _builder(_name(f"participant {number}"), name, own_key)
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_only("digital_signature"), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]),
                critical=False,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(own_key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
            .sign(key, None)
        )
        path = directory / f"participant-{number}.pem"
        private = own_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _write(path, private + certificate.public_bytes(Encoding.PEM))
        issued[identity] = Credentials(authority=str(authority_path), certificate=str(path))
    return issued


def _only(use: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{each: each == use for each in _USES})


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: x509.Name, issuer: x509.Name, key: Ed25519PrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + VALIDITY)
    )


def _write(path: Path, octets: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        file.write(octets)
