"""The tail model of each transport, under the transport's own name and with its default parameters."""

from collections.abc import Mapping
from dataclasses import replace

from bicoastal.experiments.extrapolation.tails.coded import Coded
from bicoastal.experiments.extrapolation.tails.gobackn import GoBackN
from bicoastal.experiments.extrapolation.tails.model import TailModel
from bicoastal.experiments.extrapolation.tails.paced import Delay, FecBlocks, SelectiveRepeat
from bicoastal.experiments.extrapolation.tails.tcp import TcpRules
from bicoastal.experiments.extrapolation.tails.window import Tcp
from bicoastal.transports.b4.parameters import B4Parameters, PacedParameters, RdmaParameters
from bicoastal.transports.congestion import cubic
from bicoastal.transports.congestion.own_queue import PROBE_QUEUE_RTTS
from bicoastal.transports.congestion.repair_timing import VARIATION_RTTS
from bicoastal.transports.multipath.fec_endpoint import FecParameters
from bicoastal.transports.multipath.fec_registration import StripeFecParameters
from bicoastal.transports.paced.health_policy import PACED_HEALTH
from bicoastal.transports.paced.packets import DATA_OVERHEAD_BYTES
from bicoastal.transports.paced.selective_sender import COPIED_TRANSMISSIONS
from bicoastal.transports.quic.path_connection import HEADERS_BYTES
from bicoastal.transports.quic.wire import CONNECTION_ID_BYTES, NUMBER_BYTES, TAG_BYTES
from bicoastal.transports.recovery.copies import TRANSMISSIONS
from bicoastal.transports.recovery.rack import SHOWN_BY
from bicoastal.transports.tcp.registration import AdaptiveParameters
from bicoastal.transports.tcp.segment import IP_HEADER_BYTES, TCP_HEADER_BYTES, TIMESTAMPS_BYTES

TCP_OVERHEAD_BYTES = IP_HEADER_BYTES + TCP_HEADER_BYTES + TIMESTAMPS_BYTES  # IPv4, TCP, timestamps (RFC 9293, RFC 7323)
CONTROLLER_SHARE = 1 - PacedParameters().headroom  # of a link that the controller grants
LEARNED_SHARE = 0.999  # of the payload rate that `transports.congestion.adaptive` learns
QUIC_HEADER_BYTES = HEADERS_BYTES + 1 + CONNECTION_ID_BYTES + NUMBER_BYTES + TAG_BYTES  # IPv4, UDP, short header, tag
SYMBOL_BYTES = 17  # an allowance for the headers of a frame and its symbol, of which mpquic-fec uses 1 + 10

SDR_RDMA = "arXiv 2505.05366, closed form of selective repeat"

RENO = Tcp(name="reno", source="RFC 5681, 6582, 8985, 9937; Cardwell et al., INFOCOM 2000", rules=TcpRules())
CUBIC = Tcp(
    name="cubic",
    source="RFC 9438, 8985, 9937, Linux's HyStart; Cardwell et al., INFOCOM 2000",
    rules=TcpRules(beta=cubic.BETA, cubic=True),
)

# The sender detects a loss when three later packets are reported (RFC 8985 §6.2). The repair waits behind up to a
# millisecond of packets that were handed out before. At the end of a burst a timeout detects the loss. It is the sum of
# SRTT, the variation that is allowed for, the headroom of the window and the queue of a probe.
ADAPTIVE = SelectiveRepeat(
    name="adaptive",
    source=f"{SDR_RDMA}, with RFC 8985's detection and each repair sent twice",
    header_bytes=TCP_OVERHEAD_BYTES,
    pace=LEARNED_SHARE,
    repair=Delay(rtts=1.0, packets=4.0, fixed_s=0.0003),
    copies=TRANSMISSIONS,
    late_copies=TRANSMISSIONS,
    tail_packets=SHOWN_BY,
    tail=Delay(rtts=1.0 + VARIATION_RTTS + AdaptiveParameters().headroom + PROBE_QUEUE_RTTS),
)

# The next packet shows a loss, and the receiver reports it at once. The last packets of a path are sent twice.
B4 = SelectiveRepeat(
    name="b4",
    source=f"{SDR_RDMA}, with a NACK in the place of the RTO",
    header_bytes=DATA_OVERHEAD_BYTES,
    pace=CONTROLLER_SHARE,
    repair=Delay(rtts=1.0, packets=2.5),
    late_copies=COPIED_TRANSMISSIONS,
    tail_packets=B4Parameters().tail_copies,
    tail_copies=COPIED_TRANSMISSIONS,
    tail=Delay(rtts=1.0, packets=1.0, fixed_s=PacedParameters().ack_delay_s + PACED_HEALTH.lateness.least_margin_s),
    spreads=True,
)

RDMA_SR = SelectiveRepeat(
    name="rdma-sr",
    source=SDR_RDMA,
    header_bytes=DATA_OVERHEAD_BYTES,
    pace=CONTROLLER_SHARE,
    repair=Delay(rtts=RdmaParameters().rto_rtts, packets=4.0),
    tail=Delay(rtts=RdmaParameters().rto_rtts),
)

RDMA_GBN = GoBackN(
    name="rdma-gbn",
    source="InfiniBand reliable connection: one NAK per gap, everything from there on again",
    header_bytes=DATA_OVERHEAD_BYTES,
    pace=CONTROLLER_SHARE,
)

FEC = FecBlocks(
    name="fec",
    source="failure of a block of an MDS code (RFC 5510), then a repair like selective repeat's",
    header_bytes=QUIC_HEADER_BYTES,
    repair=Delay(rtts=1.0, packets=1.0),
    tail=Delay(rtts=1.0),
    spreads=True,
)

# The plan has the defaults of `FecParameters`: the messages of a step, the share of steps that may have a second trip,
# and the losses in a row at the end of a path that are always covered.
MPQUIC_FEC = Coded(
    name="mpquic-fec",
    source="redundancy for a whole step as bicoastal.transports.coding.redundancy chooses it; losses are binomial",
    header_bytes=QUIC_HEADER_BYTES + SYMBOL_BYTES,
    messages=FecParameters().messages_per_step,
    target=FecParameters().target,
    least_repair=FecParameters().tail_losses,
    most_overhead=FecParameters().max_overhead,
    spreads=True,
)
QUIC_FEC = replace(MPQUIC_FEC, name="quic-fec", messages=StripeFecParameters().messages_per_step, spreads=False)

MODELS: Mapping[str, TailModel] = {
    model.name: model for model in (RENO, CUBIC, ADAPTIVE, B4, RDMA_SR, RDMA_GBN, FEC, QUIC_FEC, MPQUIC_FEC)
}


SAME_ALGORITHM: Mapping[str, Tcp] = {"kernel-reno": RENO, "kernel-cubic": CUBIC}
"""Transports that use another's model. `transports.tcp` follows the kernel's own TCP and its defaults."""

NO_TRANSPORT: Mapping[str, str] = {
    "fec": f"no transport here: a model of QUIC whose blocks of {FEC.source_packets} packets have "
    f"{FEC.repair_packets} for repair, whatever the loss; quic-fec and mpquic-fec plan theirs for a whole step"
}
"""Models of what no registered transport does, in words."""

WITHOUT_MODEL: Mapping[str, str] = {
    "quic": "its window, its pace and its loss recovery are QUIC's (RFC 9002), not TCP's; no model of them was made",
    "mpquic": "it repairs on any of its paths what one of them loses; no model of that was made",
    "kernel-adaptive": "its window opens by what the kernel remembers and yields to loss as CUBIC's; no model was made",
    "kernel-b4": "the kernel paces it and repairs what is lost with its own TCP; no model of the two was made",
    "kernel-bbr": "BBR's rate follows its own measurements, for which no closed form is known",
    "kernel-mptcp": "a scheduler spreads a message over subflows whose windows differ; no model of that was made",
}
"""Transports that no tail model is right for, and why."""


class NoModelError(ValueError):
    """A transport has no model of its tail; the message is one sentence, without the transport's name."""


def model_of(name: str) -> TailModel:
    """Return the tail model of a transport, under its name.

    Raises NoModelError for one that is known to have none, ValueError for an unknown one, both in one sentence.
    """
    if name in MODELS:
        return MODELS[name]
    if name in SAME_ALGORITHM:
        return replace(SAME_ALGORITHM[name], name=name)
    if name in WITHOUT_MODEL:
        raise NoModelError(f"it has no model of its tail: {WITHOUT_MODEL[name]}")
    known = ", ".join([*MODELS, *SAME_ALGORITHM])
    raise ValueError(f"{name!r} has no model of its tail; there are {known}")
