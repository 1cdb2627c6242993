"""Who a QUIC server is: an Ed25519 key and a self-signed certificate, and what a client pins.

Ed25519 (RFC 8032) signs without randomness, so a certificate and a handshake made from a seed are the same every time.
A client trusts exactly one certificate; there is no clock in that check, hence none in the handshake.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from transports.base import Rng
from wan.randomness import SplitMix64

VALID_FROM, VALID_UNTIL = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
PUBLIC_SEED = 0x2B1C0A57A1


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A server's certificate, and its private key, which a client does not have (None)."""

    certificate: x509.Certificate
    private_key: Ed25519PrivateKey | None = field(default=None, repr=False)

    def public(self) -> "Credentials":
        """Return what a client is given."""
        return Credentials(certificate=self.certificate)


def make_credentials(rng: Rng, *, name: str = "bicoastal") -> Credentials:
    """Return a self-signed certificate for the DNS name `name`, valid from 2000 to 2100, with a key drawn from `rng`.

    The key is as secret as `rng` is unpredictable: in real time give it `random.SystemRandom()`, and keep the result
    for one run. Raises ValueError for a name that is no DNS name.
    """
    key = Ed25519PrivateKey.from_private_bytes(rng.getrandbits(256).to_bytes(32, "big"))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(rng.getrandbits(158) | 1)  # RFC 5280 §4.1.2.2: positive, at most 20 octets
        .not_valid_before(VALID_FROM)
        .not_valid_after(VALID_UNTIL)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, None)
    )
    return Credentials(certificate=certificate, private_key=key)


@cache
def public_credentials() -> Credentials:
    """Return credentials that anybody can compute, for the simulator and for loopback: they keep nobody out."""
    return make_credentials(SplitMix64(PUBLIC_SEED))
