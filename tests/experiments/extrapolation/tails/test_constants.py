"""The tail models follow the transports: what both need is written in the transport alone."""

from bicoastal.experiments.extrapolation.tails.models import ADAPTIVE, B4, CONTROLLER_SHARE, CUBIC, RDMA_GBN, RENO
from bicoastal.transports.b4.parameters import PacedParameters
from bicoastal.transports.congestion import cubic, reno
from bicoastal.transports.tcp.parameters import TcpParameters
from bicoastal.transports.tcp.registration import AdaptiveParameters


def test_the_rules_of_tcp_are_the_defaults_of_the_transport() -> None:
    defaults = TcpParameters()
    for rules in (RENO.rules, CUBIC.rules):
        assert rules.initial_window_segments == defaults.initial_window_segments
        assert rules.first_window_bytes == defaults.receive_window_bytes
        assert rules.min_rto_s == defaults.min_rto_s
        assert rules.delayed_ack_s == defaults.delayed_ack_s
        assert rules.quick_acks == defaults.quick_acks
    assert (RENO.rules.beta, CUBIC.rules.beta) == (reno.BETA, cubic.BETA)


def test_the_share_of_a_link_and_the_reports_are_the_paced_transports_own() -> None:
    defaults = PacedParameters()
    assert B4.pace == RDMA_GBN.pace == CONTROLLER_SHARE == 1 - defaults.headroom
    assert (RDMA_GBN.ack_every, RDMA_GBN.ack_delay_s) == (defaults.ack_every, defaults.ack_delay_s)


def test_the_end_of_an_adaptive_burst_waits_for_the_controller_s_headroom() -> None:
    assert ADAPTIVE.tail.rtts == 1 + 1 / 32 + AdaptiveParameters().headroom + 1 / 64
