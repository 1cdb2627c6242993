"""The transports on FEC-protected QUIC, as the registry sees them."""

from dataclasses import dataclass

from bicoastal.transports.base import Endpoint, EndpointContext
from bicoastal.transports.coding.redundancy import MESSAGES_PER_STEP
from bicoastal.transports.multipath.fec_endpoint import FecEndpoint, FecParameters
from bicoastal.transports.quic.path_connection import MIN_MTU_BYTES
from bicoastal.transports.registry import TransportSpec

PLANES = 4  # of the published deployment: over one path each, a message goes in as many stripes


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeFecParameters(FecParameters):
    """`FecParameters` of a connection that carries one stripe of each message: messages_per_step counts stripes."""

    messages_per_step: float = PLANES * MESSAGES_PER_STEP


def _fec(context: EndpointContext) -> Endpoint:
    parameters = context.parameters_as(FecParameters, "FEC-protected QUIC")
    return FecEndpoint(context, parameters)


MPQUIC_FEC = TransportSpec(
    name="mpquic-fec",
    kind="sans-io",
    paths="many",
    description=(
        "erasure-coded blocks over all paths, planned so that in 99 of 100 steps none of 1.68 million messages needs a "
        "second trip; multipath by one QUIC connection per path, not the IETF extension"
    ),
    over="udp",
    min_mtu_bytes=MIN_MTU_BYTES,
    parameters=FecParameters,
    make_endpoint=_fec,
    colour="#000000",
    marker="*",
)

QUIC_FEC = TransportSpec(
    name="quic-fec",
    kind="sans-io",
    paths="one",
    description=(
        "erasure-coded blocks over one QUIC connection, planned so that in 99 of 100 steps none of 1.68 million "
        "messages, in four stripes each, needs a second trip"
    ),
    over="udp",
    min_mtu_bytes=MIN_MTU_BYTES,
    parameters=StripeFecParameters,
    make_endpoint=_fec,
    colour="#999999",
    marker="h",
)
