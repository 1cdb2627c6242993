"""The transport `quic`, as the registry sees it."""

from bicoastal.transports.base import Endpoint, EndpointContext
from bicoastal.transports.quic.endpoint import QuicEndpoint, QuicParameters
from bicoastal.transports.quic.path_connection import MIN_MTU_BYTES
from bicoastal.transports.registry import TransportSpec


def _quic(context: EndpointContext) -> Endpoint:
    return QuicEndpoint(context, context.parameters_as(QuicParameters, "quic"))


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
