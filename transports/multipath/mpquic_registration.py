"""The transport `mpquic`, as the registry sees it."""

from bicoastal.transports.base import Endpoint, EndpointContext
from bicoastal.transports.multipath.mpquic_endpoint import MpQuicEndpoint
from bicoastal.transports.quic.endpoint import QuicParameters
from bicoastal.transports.quic.path_connection import MIN_MTU_BYTES
from bicoastal.transports.registry import TransportSpec


def _mpquic(context: EndpointContext) -> Endpoint:
    return MpQuicEndpoint(context, context.parameters_as(QuicParameters, "mpquic"))


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
