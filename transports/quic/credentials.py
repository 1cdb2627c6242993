"""The identities of the two ends of a QUIC connection, the certificate each end trusts, and their configuration.

Keys are Ed25519 and certificates are self-signed. Ed25519 (RFC 8032) signs without randomness, so that a certificate
and a handshake made from a seed are always the same. An end trusts exactly one certificate. That check needs no clock.
"""

import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache

from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import CipherSuite
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509.oid import NameOID

from bicoastal.transports.base import EndpointContext, Rng
from bicoastal.transports.quic.wire import CONNECTION_ID_BYTES
from bicoastal.wan.checks import FieldError
from bicoastal.wan.randomness import SplitMix64

VALID_FROM, VALID_UNTIL = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
NAME = "bicoastal"
ALPN = "bicoastal"
WINDOW_BYTES = 1 << 32  # flow control must not limit a burst: twice the BDP of 200 Gbit/s over 80 ms
IDLE_TIMEOUT_S = 86400.0  # connections outlive the computation between two bursts
PUBLIC_SEED = 0x2B1C0A57A1
LEAST_SECRET_BYTES = 16
_KEY_BYTES, _SERIAL_BITS = 32, 158


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A server's certificate and private key. A client has no key of the server (None).

    client: the same for the only client that is served; the server does not have its key. None: every client is served.
    """

    certificate: x509.Certificate
    private_key: Ed25519PrivateKey | None = field(default=None, repr=False)
    client: "Credentials | None" = None

    def public(self) -> "Credentials":
        """Return the server's certificate alone."""
        return Credentials(certificate=self.certificate)


def make_credentials(rng: Rng, *, name: str = NAME) -> Credentials:
    """Return a self-signed certificate for the DNS name `name`, valid from 2000 to 2100, with a key drawn from `rng`.

    The key is as secret as `rng` is unpredictable: in real time give it `random.SystemRandom()`, and keep the result
    for one run. Raises ValueError for a name that is no DNS name.
    """
    octets = rng.getrandbits(8 * _KEY_BYTES).to_bytes(_KEY_BYTES, "big")
    return _certify(octets, rng.getrandbits(_SERIAL_BITS), name)


def _certify(key_octets: bytes, serial: int, name: str) -> Credentials:
    key = Ed25519PrivateKey.from_private_bytes(key_octets)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(serial | 1)  # RFC 5280 §4.1.2.2: positive, at most 20 octets
        .not_valid_before(VALID_FROM)
        .not_valid_after(VALID_UNTIL)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, None)
    )
    return Credentials(certificate=certificate, private_key=key)


@cache
def public_credentials() -> Credentials:
    """Return credentials that everyone can compute, for the simulator and for loopback: they protect against no one."""
    return make_credentials(SplitMix64(PUBLIC_SEED))


def credentials_of(context: EndpointContext) -> Credentials:
    """Return what an end shows and trusts: what only the run's ends can compute, or without a secret what everyone can.

    With a secret each end has a key of its own for the flow, and each end talks only to one that shows the expected
    certificate. Raises FieldError for a secret of less than 16 octets.
    """
    secret = context.secret
    if secret is None:
        return public_credentials()
    if len(secret) < LEAST_SECRET_BYTES:
        raise FieldError("secret", f"{len(secret)} octets; {LEAST_SECRET_BYTES} are the least that cannot be guessed")
    server, client = (_derive(secret, f"{context.flow}/{role}") for role in ("server", "client"))
    if context.role == "client":
        return Credentials(certificate=server.certificate, client=client)
    return Credentials(certificate=server.certificate, private_key=server.private_key, client=client.public())


def _derive(secret: bytes, label: str) -> Credentials:
    """Return the credentials that belong to `label`: RFC 5869, with SHA-256."""
    length = _KEY_BYTES + _SERIAL_BITS // 8
    octets = HKDF(algorithm=SHA256(), length=length, salt=None, info=f"bicoastal/{label}".encode()).derive(secret)
    return _certify(octets[:_KEY_BYTES], int.from_bytes(octets[_KEY_BYTES:], "big"), NAME)


def make_configuration(
    *, is_client: bool, credentials: Credentials, max_datagram_bytes: int, alpn: str = ALPN, name: str = "bicoastal"
) -> QuicConfiguration:
    """Return the configuration of one end. max_datagram_bytes: UDP payload that the path's MTU leaves.

    credentials: a server shows its own. A client shows those under `client`, if there are any.

    The only cipher suite is AES-128-GCM, the cheapest of TLS 1.3's (RFC 8446 §9.1 makes it mandatory), and the only
    version is 1 (RFC 9000). Raises FieldError for a path too narrow for QUIC: RFC 9000 §14 requires 1200 octets.
    """
    if max_datagram_bytes < 1200:
        raise FieldError("mtu_bytes", f"{max_datagram_bytes} octets of UDP payload; QUIC needs 1200 (RFC 9000 §14)")
    own = credentials.client if is_client else credentials
    return QuicConfiguration(
        is_client=is_client,
        alpn_protocols=[alpn],
        certificate=own.certificate if own is not None else None,
        private_key=own.private_key if own is not None else None,
        cipher_suites=[CipherSuite.AES_128_GCM_SHA256],
        connection_id_length=CONNECTION_ID_BYTES,
        idle_timeout=IDLE_TIMEOUT_S,
        max_data=WINDOW_BYTES,
        max_stream_data=WINDOW_BYTES,
        max_datagram_size=max_datagram_bytes,
        max_datagram_frame_size=65535,
        server_name=name if is_client else None,
        supported_versions=[QuicProtocolVersion.VERSION_1],
        verify_mode=ssl.CERT_REQUIRED if is_client else ssl.CERT_NONE,
    )
