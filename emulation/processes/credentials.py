"""Credentials and TLS settings for the connections to the services of a run."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """PEM files of one participant: the authority's certificate, and its own certificate with its key."""

    authority: str
    certificate: str


def site_identity(site: str) -> str:
    """Return the name in the certificate of a site's process."""
    return f"bicoastal://site/{quote(site, safe='')}"


def service_identity(transport: str) -> str:
    """Return the name in the certificate of the process that hosts the services of a transport."""
    return f"bicoastal://service/{quote(transport, safe='')}"


def tls_context(credentials: Credentials, *, server: bool) -> ssl.SSLContext:
    """Return the TLS settings: TLS 1.3 (RFC 8446), and both ends need certificates of this run's authority.

    Raises OSError (ssl.SSLError is one) when the files do not exist or are not certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # no process has a host name; `identities` returns the names
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_verify_locations(credentials.authority)
    context.load_cert_chain(credentials.certificate)
    if server:
        context.num_tickets = 0  # sessions are not resumed
    return context


def identities(peer: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the names in a verified certificate, as `ssl.SSLObject.getpeercert` gives it; none for None."""
    names = (peer or {}).get("subjectAltName", ())
    return frozenset(value for kind, value in names if kind == "URI")
