"""The specifications of the transports `rdma-gbn` and `rdma-sr`."""

from bicoastal.transports.b4.controller import make_controller
from bicoastal.transports.b4.parameters import RdmaParameters
from bicoastal.transports.b4.registration import make_endpoint, make_selective_receiver
from bicoastal.transports.base import Endpoint, EndpointContext
from bicoastal.transports.rdma.go_back_sender import GoBackSender
from bicoastal.transports.rdma.in_order_receiver import InOrderReceiver
from bicoastal.transports.rdma.timeout_sender import TimeoutSender
from bicoastal.transports.registry import TransportSpec


def _rdma_sr(context: EndpointContext) -> Endpoint:
    parameters = context.parameters_as(RdmaParameters, "rdma-sr")
    sender = TimeoutSender(context.paths, rto_rtts=parameters.rto_rtts, give_up_s=parameters.give_up_s)
    return make_endpoint(context, parameters, sender, make_selective_receiver(context, parameters))


def _rdma_gbn(context: EndpointContext) -> Endpoint:
    parameters = context.parameters_as(RdmaParameters, "rdma-gbn")
    sender = GoBackSender(context.paths, rto_rtts=parameters.rto_rtts, give_up_s=parameters.give_up_s)
    receiver = InOrderReceiver(ack_every=parameters.ack_every, ack_delay_s=parameters.ack_delay_s)
    return make_endpoint(context, parameters, sender, receiver)


RDMA_SR = TransportSpec(
    name="rdma-sr",
    kind="sans-io",
    paths="one",
    description="paced at a controller's rates; selective repeat driven by a timeout of 3 RTT alone",
    over="udp",
    parameters=RdmaParameters,
    make_endpoint=_rdma_sr,
    make_services=make_controller,
    colour="#56b4e9",
    marker="v",
)

RDMA_GBN = TransportSpec(
    name="rdma-gbn",
    kind="sans-io",
    paths="one",
    description="paced at a controller's rates; go-back-N, as RDMA NICs do",
    over="udp",
    parameters=RdmaParameters,
    make_endpoint=_rdma_gbn,
    make_services=make_controller,
    colour="#e69f00",
    marker="X",
)
