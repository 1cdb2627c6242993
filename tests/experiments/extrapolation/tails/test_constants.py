"""Each tail model follows its transport: when a constant of the transport changes, the model changes with it."""

import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

TRANSPORTS = "bicoastal.transports."
TAILS = "bicoastal.experiments.extrapolation.tails."


def read_again(name: str) -> ModuleType:
    """Return a second copy of the module `name`, made from its source now; the module itself stays as it is."""
    found = importlib.util.find_spec(TAILS + name)
    assert found is not None
    assert found.loader is not None
    copy = importlib.util.module_from_spec(found)
    found.loader.exec_module(copy)
    return copy


def default(of: Any, field: str) -> Any:
    """Return the default of a field of a dataclass whose fields are given by name only."""
    return of.__init__.__kwdefaults__[field]


@pytest.mark.parametrize(
    ("source", "constant", "module", "value_of"),
    [
        ("tcp.segment", "TIMESTAMPS_BYTES", "models", lambda models: models.ADAPTIVE.header_bytes),
        ("congestion.cubic", "BETA", "models", lambda models: models.CUBIC.rules.beta),
        ("congestion.repair_timing", "VARIATION_RTTS", "models", lambda models: models.ADAPTIVE.tail.rtts),
        ("congestion.own_queue", "PROBE_QUEUE_RTTS", "models", lambda models: models.ADAPTIVE.tail.rtts),
        ("recovery.copies", "TRANSMISSIONS", "models", lambda models: models.ADAPTIVE.copies),
        ("recovery.copies", "TRANSMISSIONS", "models", lambda models: models.ADAPTIVE.late_copies),
        ("recovery.rack", "SHOWN_BY", "models", lambda models: models.ADAPTIVE.tail_packets),
        ("paced.selective_sender", "COPIED_TRANSMISSIONS", "models", lambda models: models.B4.tail_copies),
        ("paced.selective_sender", "COPIED_TRANSMISSIONS", "models", lambda models: models.B4.late_copies),
        ("paced.packets", "DATA_OVERHEAD_BYTES", "models", lambda models: models.RDMA_SR.header_bytes),
        ("quic.path_connection", "HEADERS_BYTES", "models", lambda models: models.MPQUIC_FEC.header_bytes),
        ("quic.wire", "CONNECTION_ID_BYTES", "models", lambda models: models.MPQUIC_FEC.header_bytes),
        ("quic.wire", "NUMBER_BYTES", "models", lambda models: models.FEC.header_bytes),
        ("quic.wire", "TAG_BYTES", "models", lambda models: models.FEC.header_bytes),
        ("rdma.go_back_sender", "GAIN", "gobackn", lambda gobackn: default(gobackn.GoBackN, "gain")),
        (
            "rdma.go_back_sender",
            "LEAST_WINDOW",
            "gobackn",
            lambda gobackn: default(gobackn.GoBackN, "least_window"),
        ),
        (
            "rdma.go_back_sender",
            "MOST_WINDOW",
            "gobackn",
            lambda gobackn: default(gobackn.GoBackN, "most_window"),
        ),
        ("congestion.reno", "BETA", "tcp", lambda tcp: tcp.TcpRules().beta),
        ("congestion.base", "IDLE_SSTHRESH_SHARE", "tcp", lambda tcp: tcp.TcpRules().ssthresh_share),
        ("congestion.loss_based", "LEAST_WINDOW_SEGMENTS", "rounds", lambda rounds: rounds.LEAST_WINDOW_SEGMENTS),
        ("recovery.rack", "REORDERING_RTTS", "rounds", lambda rounds: rounds.REORDERING_RTTS),
        ("recovery.rack", "SHOWN_BY", "rounds", lambda rounds: rounds.SHOWN_BY),
    ],
)
def test_a_model_follows_a_constant_of_its_transport(
    monkeypatch: pytest.MonkeyPatch, source: str, constant: str, module: str, value_of: Callable[[Any], float]
) -> None:
    before = value_of(read_again(module))
    transport = importlib.import_module(TRANSPORTS + source)
    changed = getattr(transport, constant) + 1
    monkeypatch.setattr(transport, constant, changed)
    after = value_of(read_again(module))
    assert after == pytest.approx(before + 1)


@pytest.mark.parametrize(
    ("parameters", "field", "module", "value_of"),
    [
        ("multipath.fec_endpoint.FecParameters", "messages_per_step", "models", lambda m: m.MPQUIC_FEC.messages),
        ("multipath.fec_endpoint.FecParameters", "target", "models", lambda m: m.MPQUIC_FEC.target),
        ("multipath.fec_endpoint.FecParameters", "tail_losses", "models", lambda m: m.MPQUIC_FEC.least_repair),
        ("multipath.fec_endpoint.FecParameters", "max_overhead", "models", lambda m: m.MPQUIC_FEC.most_overhead),
        (
            "multipath.fec_registration.StripeFecParameters",
            "messages_per_step",
            "models",
            lambda m: m.QUIC_FEC.messages,
        ),
        ("b4.parameters.B4Parameters", "tail_copies", "models", lambda m: m.B4.tail_packets),
        ("b4.parameters.PacedParameters", "ack_delay_s", "models", lambda m: m.B4.tail.fixed_s),
        ("b4.parameters.PacedParameters", "headroom", "models", lambda m: m.RDMA_GBN.pace),
        ("b4.parameters.RdmaParameters", "rto_rtts", "models", lambda m: m.RDMA_SR.repair.rtts),
        ("b4.parameters.RdmaParameters", "rto_rtts", "models", lambda m: m.RDMA_SR.tail.rtts),
        ("b4.parameters.RdmaParameters", "rto_rtts", "gobackn", lambda m: default(m.GoBackN, "timeout_rtts")),
        ("b4.parameters.RdmaParameters", "ack_every", "gobackn", lambda m: default(m.GoBackN, "ack_every")),
        ("b4.parameters.RdmaParameters", "ack_delay_s", "gobackn", lambda m: default(m.GoBackN, "ack_delay_s")),
        ("tcp.registration.AdaptiveParameters", "headroom", "models", lambda m: m.ADAPTIVE.tail.rtts),
        ("tcp.parameters.TcpParameters", "min_rto_s", "tcp", lambda m: m.TcpRules().min_rto_s),
        ("tcp.parameters.TcpParameters", "delayed_ack_s", "tcp", lambda m: m.TcpRules().delayed_ack_s),
        ("tcp.parameters.TcpParameters", "quick_acks", "tcp", lambda m: m.TcpRules().quick_acks),
        (
            "tcp.parameters.TcpParameters",
            "initial_window_segments",
            "tcp",
            lambda m: m.TcpRules().initial_window_segments,
        ),
    ],
)
def test_a_model_follows_a_default_of_its_transport(
    monkeypatch: pytest.MonkeyPatch,
    parameters: str,
    field: str,
    module: str,
    value_of: Callable[[Any], float],
) -> None:
    source, _, name = parameters.rpartition(".")
    defaults = getattr(importlib.import_module(TRANSPORTS + source), name).__init__.__kwdefaults__
    old, new = defaults[field], 2 * defaults[field]
    before = value_of(read_again(module))
    monkeypatch.setitem(defaults, field, new)
    after = value_of(read_again(module))
    assert abs(after - before) == pytest.approx(new - old)
