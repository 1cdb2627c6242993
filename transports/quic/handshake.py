"""aioquic's connection with every random octet drawn from a generator of ours, and certificates pinned.

aioquic takes its randomness where it needs it: `os.urandom` for connection identifiers and nonces, `generate()` for the
key exchange. Nothing of that can be passed in, and replacing it in aioquic's modules would do so for every other user
of aioquic in the process. So the few methods that draw are run, unchanged, with other globals (`with_globals`).
"""

import ssl
from collections.abc import Callable
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

from aioquic import tls
from aioquic._buffer import Buffer as AioquicBuffer
from aioquic.quic import connection as quic
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.packet import QuicHeader, QuicProtocolVersion
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import x25519

from bicoastal.transports.base import Rng
from bicoastal.transports.quic.credentials import Credentials

ALPN = "bicoastal"
CONNECTION_ID_BYTES = 8
FLIGHT_WINDOW_BYTES = 1 << 32  # flow control must not be what limits a burst: twice the BDP of 200 Gbit/s over 80 ms
IDLE_TIMEOUT_S = 86400.0  # connections outlive the computation between two bursts


def with_globals(function: Callable[..., Any], **replacements: object) -> FunctionType:
    """Return `function` with some of the names of its module standing for something else."""
    if not isinstance(function, FunctionType) or function.__closure__:
        raise TypeError(f"{function!r} is no plain function")
    bound = FunctionType(function.__code__, {**function.__globals__, **replacements}, function.__name__)
    bound.__defaults__, bound.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return bound


def make_configuration(
    *, is_client: bool, credentials: Credentials, max_datagram_bytes: int, alpn: str = ALPN, name: str = "bicoastal"
) -> QuicConfiguration:
    """Return the configuration of one end. max_datagram_bytes: of UDP payload, what the path's MTU leaves.

    credentials: a server shows its own; a client the ones under `client`, if any.

    AES-128-GCM alone, the cheapest of TLS 1.3's (RFC 8446 §9.1 makes it mandatory), and version 1 alone (RFC 9000).
    Raises ValueError for a path too narrow for QUIC: RFC 9000 §14 wants 1200 octets.
    """
    if max_datagram_bytes < 1200:
        raise ValueError(f"mtu_bytes: {max_datagram_bytes} octets of UDP payload; QUIC needs 1200 (RFC 9000 §14)")
    own = credentials.client if is_client else credentials
    return QuicConfiguration(
        is_client=is_client,
        alpn_protocols=[alpn],
        certificate=own.certificate if own is not None else None,
        private_key=own.private_key if own is not None else None,
        cipher_suites=[tls.CipherSuite.AES_128_GCM_SHA256],
        connection_id_length=CONNECTION_ID_BYTES,
        idle_timeout=IDLE_TIMEOUT_S,
        max_data=FLIGHT_WINDOW_BYTES,
        max_stream_data=FLIGHT_WINDOW_BYTES,
        max_datagram_size=max_datagram_bytes,
        max_datagram_frame_size=65535,
        server_name=name if is_client else None,
        supported_versions=[QuicProtocolVersion.VERSION_1],
        verify_mode=ssl.CERT_REQUIRED if is_client else ssl.CERT_NONE,
    )


class SeededConnection(quic.QuicConnection):
    """A `QuicConnection` whose octets are a function of `rng` and of what it is told.

    rng: draws connection identifiers, hello randoms and key shares. pinned: the only certificate that is accepted of
    the far end; None for a server that serves clients without one.
    """

    def __init__(
        self,
        *,
        configuration: QuicConfiguration,
        rng: Rng,
        pinned: x509.Certificate | None,
        original_destination_connection_id: bytes | None = None,
    ) -> None:
        def urandom(size: int) -> bytes:
            return rng.getrandbits(8 * size).to_bytes(size, "big") if size else b""

        def generate() -> x25519.X25519PrivateKey:
            return x25519.X25519PrivateKey.from_private_bytes(urandom(32))

        self._urandom = urandom
        self._os = SimpleNamespace(urandom=urandom)
        self._x25519 = SimpleNamespace(
            X25519PrivateKey=SimpleNamespace(generate=generate), X25519PublicKey=x25519.X25519PublicKey
        )
        self._pinned = pinned
        with_globals(quic.QuicConnection.__init__, os=self._os)(
            self,
            configuration=configuration,
            original_destination_connection_id=original_destination_connection_id,
        )
        for name in ("_replenish_connection_ids", "_write_path_challenge_frame"):
            method = with_globals(getattr(quic.QuicConnection, name), os=self._os)
            setattr(self, name, MethodType(method, self))

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        context = self.tls
        if self._is_client:
            context.client_random = self._urandom(32)
        context._supported_groups = [tls.Group.X25519]
        for name in ("_client_send_hello", "_server_handle_hello", "_client_handle_certificate_verify"):
            method = with_globals(
                getattr(tls.Context, name), os=self._os, x25519=self._x25519, verify_certificate=self._verify
            )
            setattr(context, name, MethodType(method, context))
        if not self._is_client and self._pinned is not None:
            context._request_client_certificate = True
            setattr(context, "_server_handle_certificate", self._server_handle_certificate)  # noqa: B010 (a method)

    def _server_handle_certificate(self, octets: AioquicBuffer) -> None:
        """Take the client's certificate; aioquic would go on without one, and with any. It checks the signature."""
        tls.Context._server_handle_certificate(self.tls, octets)
        self._verify(certificate=self.tls._peer_certificate)

    def _verify(self, *, certificate: x509.Certificate | None, **_: object) -> None:
        if certificate != self._pinned:
            peer = "server" if self._is_client else "client"
            raise tls.AlertBadCertificate(f"the {peer}'s certificate is not the pinned one")

    def _receive_version_negotiation_packet(self, header: QuicHeader, now: float) -> None:
        """Ignore it: one version is spoken, and nothing authenticates such a packet (RFC 9000 §6.2 would close)."""
