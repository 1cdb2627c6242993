"""The transports on plain QUIC, as the registry sees them."""

from transports.base import Endpoint, EndpointContext
from transports.multipath.mpquic import MpQuicEndpoint
from transports.multipath.quic import QuicEndpoint, QuicParameters
from transports.multipath.quic_link import MIN_MTU_BYTES
from transports.registry import TransportSpec


def _quic(context: EndpointContext) -> Endpoint:
    parameters = context.parameters_as(QuicParameters, "quic")
    return QuicEndpoint(context, parameters)


def _mpquic(context: EndpointContext) -> Endpoint:
    parameters = context.parameters_as(QuicParameters, "mpquic")
    return MpQuicEndpoint(context, parameters)


QUIC = TransportSpec(
    name="quic",
    kind="sans-io",
    paths="one",
    description="QUIC (RFC 9000, 9002) by aioquic: TLS 1.3, a stream per message, CUBIC with HyStart++, paced",
    over="udp",
    min_mtu_bytes=MIN_MTU_BYTES,
    parameters=QuicParameters,
    make_endpoint=_quic,
    colour="#f0e442",
    marker="P",
)

MPQUIC = TransportSpec(
    name="mpquic",
    kind="sans-io",
    paths="many",
    description="parallel QUIC connections, one per path (not the IETF's multipath extension); losses repaired on any",
    over="udp",
    min_mtu_bytes=MIN_MTU_BYTES,
    parameters=QuicParameters,
    make_endpoint=_mpquic,
    colour="#999933",
    marker="X",
)
