"""The tail model of each transport, under the transport's own name and with its default parameters."""

from collections.abc import Mapping
from dataclasses import replace

from bicoastal.experiments.extrapolation.tails.coded import Coded
from bicoastal.experiments.extrapolation.tails.gobackn import GoBackN
from bicoastal.experiments.extrapolation.tails.model import TailModel
from bicoastal.experiments.extrapolation.tails.paced import Delay, FecBlocks, SelectiveRepeat
from bicoastal.experiments.extrapolation.tails.tcp import TcpRules
from bicoastal.experiments.extrapolation.tails.window import Tcp
from bicoastal.transports.b4.parameters import PacedParameters
from bicoastal.transports.congestion import cubic
from bicoastal.transports.congestion.own_queue import PROBE_QUEUE_RTTS
from bicoastal.transports.paced.packets import DATA_OVERHEAD_BYTES
from bicoastal.transports.tcp.registration import AdaptiveParameters
from bicoastal.transports.tcp.segment import IP_HEADER_BYTES, TCP_HEADER_BYTES, TIMESTAMPS_BYTES

TCP_OVERHEAD_BYTES = IP_HEADER_BYTES + TCP_HEADER_BYTES + TIMESTAMPS_BYTES  # IPv4, TCP, timestamps (RFC 9293, RFC 7323)
CONTROLLER_SHARE = 1 - PacedParameters().headroom  # of a link that the controller grants
LEARNED_SHARE = 0.999  # of the payload rate that `transports.congestion.adaptive` learns
QUIC_HEADER_BYTES = 20 + 8 + 1 + 8 + 4 + 16  # IPv4, UDP, short header with an 8-byte ID and a 4-byte number, tag
SYMBOL_BYTES = 17  # what a DATAGRAM frame adds to a symbol, and the symbol's own header

SDR_RDMA = "arXiv 2505.05366, closed form of selective repeat"

RENO = Tcp(name="reno", source="RFC 5681, 6582, 8985, 9937; Cardwell et al., INFOCOM 2000", rules=TcpRules())
CUBIC = Tcp(
    name="cubic",
    source="RFC 9438, 8985, 9937, Linux's HyStart; Cardwell et al., INFOCOM 2000",
    rules=TcpRules(beta=cubic.BETA, cubic=True),
)

# A loss shows when three later packets are reported (RFC 8985 §6.2), and its repair waits behind up to a millisecond
# of packets that are handed out already; the end of a burst is watched by a timeout of SRTT, 1/32 of it, the window's
# headroom of 2 % and a probe's queue of 1/64.
ADAPTIVE = SelectiveRepeat(
    name="adaptive",
    source=f"{SDR_RDMA}, with RFC 8985's detection and each repair sent twice",
    header_bytes=TCP_OVERHEAD_BYTES,
    pace=LEARNED_SHARE,
    repair=Delay(rtts=1.0, packets=4.0, fixed_s=0.0003),
    copies=2,
    late_copies=2,
    tail_packets=3,
    tail=Delay(rtts=1.0 + 1 / 32 + AdaptiveParameters().headroom + PROBE_QUEUE_RTTS),
)

# The next packet shows a loss; the far end says so at once. The last two packets of a path go out twice.
B4 = SelectiveRepeat(
    name="b4",
    source=f"{SDR_RDMA}, with a NACK in the place of the RTO",
    header_bytes=DATA_OVERHEAD_BYTES,
    pace=CONTROLLER_SHARE,
    repair=Delay(rtts=1.0, packets=2.5),
    late_copies=2,
    tail_packets=2,
    tail_copies=2,
    tail=Delay(rtts=1.0, packets=1.0, fixed_s=0.004),
    spreads=True,
)

RDMA_SR = SelectiveRepeat(
    name="rdma-sr",
    source=SDR_RDMA,
    header_bytes=DATA_OVERHEAD_BYTES,
    pace=CONTROLLER_SHARE,
    repair=Delay(rtts=3.0, packets=4.0),
    tail=Delay(rtts=3.0),
)

RDMA_GBN = GoBackN(
    name="rdma-gbn",
    source="InfiniBand reliable connection: one NAK per gap, everything from there on again",
    header_bytes=DATA_OVERHEAD_BYTES,
    pace=CONTROLLER_SHARE,
    ack_every=PacedParameters().ack_every,
    ack_delay_s=PacedParameters().ack_delay_s,
)

FEC = FecBlocks(
    name="fec",
    source="failure of a block of an MDS code (RFC 5510), then a repair like selective repeat's",
    header_bytes=QUIC_HEADER_BYTES,
    repair=Delay(rtts=1.0, packets=1.0),
    tail=Delay(rtts=1.0),
    spreads=True,
)

# Of FEC-protected QUIC, as `transports.multipath.fec_endpoint.FecParameters` has it: it plans for 1,677,600 messages of
# which in 1 % of the steps one may need a second trip, and for 10 losses in a row at the end.
MPQUIC_FEC = Coded(
    name="mpquic-fec",
    source="redundancy for a whole step as bicoastal.transports.coding.redundancy chooses it; losses are binomial",
    header_bytes=QUIC_HEADER_BYTES + SYMBOL_BYTES,
    messages=1_677_600,
    target=0.01,
    least_repair=10,
    spreads=True,
)
QUIC_FEC = replace(MPQUIC_FEC, name="quic-fec", messages=4 * MPQUIC_FEC.messages, spreads=False)  # it plans by stripes

MODELS: Mapping[str, TailModel] = {
    model.name: model for model in (RENO, CUBIC, ADAPTIVE, B4, RDMA_SR, RDMA_GBN, FEC, QUIC_FEC, MPQUIC_FEC)
}


SAME_ALGORITHM: Mapping[str, Tcp] = {"kernel-reno": RENO, "kernel-cubic": CUBIC}
"""Transports whose model is another's: the kernel's own TCP is what `transports.tcp` follows, defaults and all."""

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
