"""Who may speak to the services of a run: what its participants hold, and on what terms they speak."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What one participant has: the authority's certificate, and its own with its key, as PEM files."""

    authority: str
    certificate: str


def site_identity(site: str) -> str:
    """Return the name by which a certificate says that its owner speaks for a site."""
    return f"bicoastal://site/{quote(site, safe='')}"


def service_identity(transport: str) -> str:
    """Return the name by which a certificate says that its owner hosts the services of a transport."""
    return f"bicoastal://service/{quote(transport, safe='')}"


def tls_context(credentials: Credentials, *, server: bool) -> ssl.SSLContext:
    """Return the terms on which a participant speaks: TLS 1.3 (RFC 8446), both ends certified by this run's authority.

    Raises OSError (ssl.SSLError is one) when the files are not there or not certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # nobody has a host name; `identities` tells who it is
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(credentials.authority)
    context.load_cert_chain(credentials.certificate)
    if server:
        context.num_tickets = 0  # nothing is resumed
    return context


def identities(peer: Mapping[str, Any] | None) -> frozenset[str]:
    """Return for whom a verified certificate speaks, as `ssl.SSLObject.getpeercert` gives it; nobody for None."""
    names = (peer or {}).get("subjectAltName", ())
    return frozenset(value for kind, value in names if kind == "URI")
