"""The specifications of the transports `b4` and `kernel-b4`, and the functions that `rdma` shares with them."""

from bicoastal.transports.b4.agent import Agent
from bicoastal.transports.b4.controller import make_controller
from bicoastal.transports.b4.endpoint import B4Endpoint
from bicoastal.transports.b4.pacer import AgentPacer
from bicoastal.transports.b4.parameters import (
    B4Parameters,
    ControlledParameters,
    PacedParameters,
)
from bicoastal.transports.base import Endpoint, EndpointContext, Pacer
from bicoastal.transports.paced.paced_sender import PacedSender
from bicoastal.transports.paced.receiver import Receiving, SelectiveReceiver
from bicoastal.transports.paced.selective_sender import SelectiveSender
from bicoastal.transports.registry import TransportSpec

INITIAL_BPS = 1e6  # per path, until the first answer of a controller


def _agent(context: EndpointContext, parameters: ControlledParameters) -> Agent | None:
    """Return the agent of a client's flow; None at a server, and if the rate is fixed."""
    if context.role != "client" or parameters.rate_bps is not None:
        return None
    return Agent(
        flow=str(context.flow),
        path_names=[view.name for view in context.paths],
        deadline_s=parameters.deadline_s_of.get(context.flow.owner),
        initial_bps=INITIAL_BPS,
        patience_s=parameters.patience_s,
        idle_hold_s=parameters.idle_hold_s,
        rng=context.rng,
    )


def make_endpoint(
    context: EndpointContext, parameters: PacedParameters, sender: PacedSender, receiver: Receiving
) -> Endpoint:
    """Return an endpoint that sends at a controller's rates."""
    agent = _agent(context, parameters)
    return B4Endpoint(
        context, sender=sender, receiver=receiver, agent=agent, rate_bps=parameters.rate_bps or INITIAL_BPS
    )


def make_selective_receiver(context: EndpointContext, parameters: PacedParameters) -> SelectiveReceiver:
    """Return a receiver that takes packets in any order over all paths of the context."""
    return SelectiveReceiver(
        paths=len(context.paths),
        mtu_bytes=min(view.mtu_bytes for view in context.paths),
        ack_every=parameters.ack_every,
        ack_delay_s=parameters.ack_delay_s,
    )


def _b4(context: EndpointContext) -> Endpoint:
    parameters = context.parameters_as(B4Parameters, "b4")
    sender = SelectiveSender(
        context.paths,
        ack_delay_s=parameters.ack_delay_s,
        tail_copies=parameters.tail_copies,
        give_up_s=parameters.give_up_s,
    )
    return make_endpoint(context, parameters, sender, make_selective_receiver(context, parameters))


def _pacer(context: EndpointContext) -> Pacer:
    parameters = context.parameters_as(ControlledParameters, "kernel-b4")
    return AgentPacer(_agent(context, parameters), rate_bps=parameters.rate_bps or INITIAL_BPS)


B4 = TransportSpec(
    name="b4",
    kind="sans-io",
    paths="many",
    description="paced at the rates that a B4-style controller grants; gaps repaired at once, over all paths",
    over="udp",
    parameters=B4Parameters,
    make_endpoint=_b4,
    make_services=make_controller,
    colour="#cc79a7",
    marker="D",
)

KERNEL_B4 = TransportSpec(
    name="kernel-b4",
    kind="native",
    paths="one",
    description="the kernel's TCP paced at a controller's rates, its window too wide to matter",
    requires=frozenset({"kernel cubic", "learned windows"}),
    parameters=ControlledParameters,
    program="bicoastal.emulation.ends.kernel_steered:cubic_end",
    make_pacer=_pacer,
    make_services=make_controller,
    colour="#e7b8d4",
    marker="d",
)
