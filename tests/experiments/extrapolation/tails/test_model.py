"""The closed forms against published figures, against trials that draw every loss, and those against the simulator."""

from dataclasses import replace
from math import comb, exp, log

import numpy as np
import pytest

from bicoastal.experiments.extrapolation.tails.coded import losses
from bicoastal.experiments.extrapolation.tails.model import Crossing
from bicoastal.experiments.extrapolation.tails.models import (
    ADAPTIVE,
    B4,
    CUBIC,
    FEC,
    MODELS,
    MPQUIC_FEC,
    NO_TRANSPORT,
    RDMA_GBN,
    RDMA_SR,
    RENO,
    SAME_ALGORITHM,
    WITHOUT_MODEL,
    NoModelError,
    model_of,
)
from bicoastal.experiments.extrapolation.tails.paced import Delay, SelectiveRepeat, block_failure
from bicoastal.experiments.extrapolation.tails.pointwise import compound
from bicoastal.experiments.extrapolation.tails.rounds import send
from bicoastal.experiments.extrapolation.tails.tcp import TcpFlows
from bicoastal.experiments.extrapolation.tails.trials import agrees, quantile
from bicoastal.experiments.extrapolation.tails.window import Tcp, no_losses
from bicoastal.transports.registry import Registry
from bicoastal.wan.loss import TailOfBurst
from helpers.simulated_messages import SHARES, simulated, trials

PACED = ("adaptive", "b4", "rdma-sr", "rdma-gbn", "fec", "quic-fec")
FRESH = {"reno": replace(RENO, settled=False), "cubic": replace(CUBIC, settled=False)}
COAST = Crossing(payload_bytes=14.28e6, rate_bps=5e9, rtt_s=0.06, loss=1e-4)
METRO = Crossing(payload_bytes=1e6, rate_bps=5e9, rtt_s=0.002, loss=1e-2)
SDR = Crossing(payload_bytes=134217728, rate_bps=400e9, rtt_s=0.025, loss=1e-4, mtu_bytes=4096, framing_bytes=0)


@pytest.mark.parametrize(("loss", "slowdown"), [(1e-4, 3.58), (1e-3, 3.79)])
def test_selective_repeat_by_timeout_has_the_published_mean(loss: float, slowdown: float) -> None:
    # arXiv 2505.05366: RTO of 3 RTT behind a chunk's injection; completion at the sender, half a round trip later
    model = SelectiveRepeat(
        name="sdr", source="", header_bytes=0, repair=Delay(rtts=3.0, packets=1.0), tail=Delay(rtts=3.0)
    )
    ideal_s = 134217728 * 8 / 400e9 + 0.025
    mean_s = float(model.mean_s(replace(SDR, loss=loss))) + 0.025 / 2
    assert mean_s / ideal_s == pytest.approx(slowdown, rel=0.01)


@pytest.mark.parametrize("name", PACED)
@pytest.mark.parametrize("loss", [1e-5, 1e-3, 1e-2])
def test_a_paced_transports_closed_form_agrees_with_trials(name: str, loss: float) -> None:
    for crossing in (COAST, METRO):
        point = replace(crossing, loss=loss)
        drawn = trials(MODELS[name], point, 20_000)
        assert all(agrees(MODELS[name], point, drawn, share) for share in SHARES)
        assert float(MODELS[name].mean_s(point)) == pytest.approx(drawn.mean(), rel=0.03)


@pytest.mark.parametrize("model", [RENO, CUBIC, *FRESH.values()])
@pytest.mark.parametrize("loss", [1e-4, 1e-3])
def test_tcps_form_agrees_with_trials(model: Tcp, loss: float) -> None:
    point = replace(COAST, payload_bytes=2e6, loss=loss)
    drawn = trials(model, point, 20_000)
    assert all(agrees(model, point, drawn, share) for share in SHARES)
    assert float(model.mean_s(point)) == pytest.approx(drawn.mean(), rel=0.03)


# The ends of the grid and its middle; all of it is `benchmarks/tails.py`.
GRID = (
    (1e6, 0.002, 1e-2), (1e6, 0.06, 1e-4), (1e6, 0.12, 1e-3), (14.28e6, 0.002, 1e-3), (14.28e6, 0.06, 1e-6),
    (14.28e6, 0.06, 1e-2), (1e8, 0.12, 1e-5), (1e8, 0.03, 1e-3), (1e9, 0.002, 1e-6), (1e9, 0.06, 1e-4),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PACED, *FRESH])
@pytest.mark.parametrize(("payload_bytes", "rtt_s", "loss"), GRID)
def test_closed_forms_agree_with_many_trials(name: str, payload_bytes: float, rtt_s: float, loss: float) -> None:
    point = Crossing(payload_bytes=payload_bytes, rate_bps=5e9, rtt_s=rtt_s, loss=loss)
    drawn = trials(MODELS[name], point, 100_000 if payload_bytes < 1e9 else 20_000)
    for share in SHARES:
        assert agrees(MODELS[name], point, drawn, share), share


def compare_with_simulator(name: str, crossing: Crossing, runs: int, iterations: int) -> None:
    """Messages after a connection's first one, as it has learned nothing, or has a first receive window, before."""
    model = MODELS[name]
    seen = simulated(name, crossing, runs=runs, iterations=iterations + 1, first=1)
    independent = len(seen)
    if isinstance(model, Tcp):
        model = replace(model, settled=False, history=iterations)
        independent //= 4  # what a connection has lost shows in its next few messages
    drawn = trials(model, crossing, 50_000)
    for share in (0.5, 0.9, 0.99):
        ours, theirs = quantile(drawn, share), quantile(seen, share)
        between = (ours + theirs) / 2
        noise = 3 * np.sqrt(share * (1 - share) / independent)
        near = abs(float(np.mean(drawn > between)) - float(np.mean(seen > between)))
        assert abs(ours / theirs - 1) < 0.05 or near < 0.25 * (1 - share) + noise, (share, ours, theirs)
    assert drawn.mean() == pytest.approx(seen.mean(), rel=0.05, abs=4 * seen.std() / np.sqrt(independent))


@pytest.mark.parametrize("name", ["adaptive", "b4", "rdma-sr", "rdma-gbn", "quic-fec", "reno", "cubic"])
def test_trials_agree_with_the_simulator(name: str) -> None:
    compare_with_simulator(name, replace(COAST, payload_bytes=1e6, loss=1e-2), runs=2, iterations=10)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reno", "cubic"])
def test_trials_agree_with_the_simulator_where_windows_fill_the_path(name: str) -> None:
    compare_with_simulator(name, replace(COAST, payload_bytes=4e6, rtt_s=0.004, loss=1e-3), runs=2, iterations=10)


# Where packets are lost `adaptive` learns less than the rate, which its model leaves out: near by that shows.
FAR = [(name, 0.06) for name in ("adaptive", "b4", "rdma-sr", "rdma-gbn", "reno", "cubic")]
NEAR = [(name, rtt_s) for name in ("b4", "rdma-sr", "rdma-gbn", "reno", "cubic") for rtt_s in (0.004, 0.01)]


@pytest.mark.long
@pytest.mark.parametrize(("name", "rtt_s"), [*FAR, *NEAR])
@pytest.mark.parametrize("loss", [1e-4, 1e-3, 1e-2])
def test_trials_agree_with_two_thousand_messages_of_the_simulator(name: str, rtt_s: float, loss: float) -> None:
    compare_with_simulator(name, replace(COAST, payload_bytes=14e6, rtt_s=rtt_s, loss=loss), runs=5, iterations=25)


@pytest.mark.parametrize("name", ["reno", "cubic"])
def test_a_fresh_tcp_takes_as_long_as_in_the_simulator(name: str) -> None:
    fresh = FRESH[name]
    for payload_bytes in (1e6, 14.28e6):
        clean = replace(COAST, payload_bytes=payload_bytes, loss=0.0)
        seen = simulated(name, clean, runs=1, iterations=1, paths=1)
        assert float(fresh.quantile_s(clean, 0.0)) == pytest.approx(seen[0], rel=0.001)
    lossy = replace(COAST, payload_bytes=1e6, loss=1e-3)
    seen = simulated(name, lossy, runs=20, iterations=1)
    assert trials(fresh, lossy, 20_000).mean() == pytest.approx(seen.mean(), rel=0.08)


@pytest.mark.parametrize("name", ["reno", "cubic"])
@pytest.mark.parametrize(("rtt_s", "kept_back"), [(0.06, False), (0.01, True)])
def test_a_probe_costs_a_tcp_its_wait_and_the_next_window(name: str, rtt_s: float, kept_back: bool) -> None:
    # 40 packets, always without the last one; on the short path the 39th's acknowledgement is kept back
    model = FRESH[name]
    point = replace(COAST, payload_bytes=40 * 8948 - 2000.0, rtt_s=rtt_s, loss=0.0)
    clean_s = simulated(name, point, runs=1, iterations=2, paths=1)[::2]
    seen_s = simulated(name, point, runs=1, iterations=2, paths=1, lost=TailOfBurst())[::2]
    wait_s = model.rules.probe_s(rtt_s)[kept_back]
    assert seen_s[0] - clean_s[0] == pytest.approx(wait_s, abs=0.002)
    flows = TcpFlows(model.rules, model.path(point), 1)
    send(flows, no_losses)
    flows.probed[:] = True
    flows.rest(point.idle_s)
    next_s = float(send(flows, no_losses)[0])
    assert seen_s[1] - wait_s == pytest.approx(next_s, abs=1.1 * rtt_s)
    assert seen_s[1] - wait_s > clean_s[1] + 0.9 * rtt_s


def test_a_window_that_a_probe_has_cost_shows_in_a_far_tail() -> None:
    # one message in 10,000 follows one whose end was probed, and takes longer than any loss of its own would
    for model in (RENO, CUBIC):
        point = replace(COAST, payload_bytes=1e6, loss=1e-4)
        drawn = trials(model, point, 100_000)
        late = np.array([0.33, 0.45, 0.63])
        ours = -np.expm1(model.log_cdf(point, late))
        theirs = np.array([np.mean(drawn > each) for each in late])
        assert np.all(np.abs(ours - theirs) < 0.25 * theirs + 3 * np.sqrt(theirs / len(drawn)))


@pytest.mark.parametrize("name", MODELS)
def test_quantile_and_distribution_are_each_others_inverse(name: str) -> None:
    model = MODELS[name]
    point = replace(COAST, payload_bytes=1e6, loss=1e-3)
    for share in (0.3, 0.9, 0.999, 1 - 1e-7):
        at_s = model.quantile_s(point, log(share))
        assert model.log_cdf(point, at_s + 1e-9) >= log(share) - 1e-12
        assert model.log_cdf(point, at_s * (1 - 1e-6)) <= log(share)
    assert model.log_cdf(point, 0.029) == -np.inf


@pytest.mark.parametrize("name", MODELS)
def test_more_loss_distance_or_bytes_take_longer(name: str) -> None:
    model, point = MODELS[name], replace(COAST, payload_bytes=2e6, loss=1e-3)
    usual = model.mean_s(point)
    for change in ({"loss": 1e-2}, {"rtt_s": 0.08}, {"payload_bytes": 4e6}, {"rate_bps": 1e9}, {"tail_loss": 0.5}):
        assert model.mean_s(replace(point, **change)) > usual  # type: ignore[arg-type]


def test_losing_the_last_packet_costs_what_each_transport_needs_to_notice() -> None:
    lost = replace(COAST, loss=0.0, tail_loss=0.999999)
    late = {
        name: float(model.quantile_s(lost, log(0.5)) - model.quantile_s(replace(lost, tail_loss=0.0), log(0.5)))
        for name, model in MODELS.items()
        if name not in FRESH
    }
    assert late["b4"] < 0.001  # its copy
    assert late["adaptive"] == pytest.approx(0.064, abs=0.001)
    assert late["rdma-sr"] == pytest.approx(0.180, abs=0.001)
    assert late["rdma-gbn"] == pytest.approx(0.180, abs=0.001)


def test_redundancy_lets_one_step_in_a_hundred_have_a_second_trip() -> None:
    for loss in (1e-5, 1e-3, 1e-2):
        # 57.13 MB over four planes in packets of 9,000 bytes; the chance that a message loses more than its repair
        count = 6402
        repair = MPQUIC_FEC.repair(count, loss)
        later = losses(count, loss)[repair + 1 :].sum() * 1_677_600
        assert later < 0.01
        if repair > MPQUIC_FEC.least_repair:
            assert losses(count, loss)[max(repair - 3, 0) :].sum() * 1_677_600 > 0.01
    mean = np.arange(len(losses(500, 0.1))) @ losses(500, 0.1)
    assert mean == pytest.approx(500 * 0.1 / 0.9)  # negative binomial


def test_blocks_fail_as_a_binomial_says() -> None:
    loss, packets, repairs = 0.02, 34, 2
    tail = sum(comb(packets, k) * loss**k * (1 - loss) ** (packets - k) for k in range(repairs + 1, packets + 1))
    assert float(block_failure(np.asarray(loss), packets, repairs)) == pytest.approx(tail, rel=1e-12)


def test_a_compound_sum_of_one_kind_is_a_poisson_distribution() -> None:
    found = compound(1.0, [(3.0, 0.5)], last=(0.0, 0.0))
    below = 0.0
    for count in range(12):
        below += exp(-3) * 3**count / exp(sum(log(k) for k in range(1, count + 1)))
        assert found.log_cdf(1.0 + 0.5 * count + 1e-9) == pytest.approx(log(below), rel=1e-9)
    assert found.mean_s() == pytest.approx(2.5)


def test_arrays_give_what_their_elements_give() -> None:
    losses = np.array([1e-5, 1e-3, 1e-2])
    for model in (B4, RDMA_GBN, FEC, ADAPTIVE, RDMA_SR):
        together = model.quantile_s(replace(COAST, loss=losses), log(0.9))
        assert together == pytest.approx([float(model.quantile_s(replace(COAST, loss=p), log(0.9))) for p in losses])


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^loss: "):
        replace(COAST, loss=1.0)
    with pytest.raises(ValueError, match=r"^rate_bps: "):
        replace(COAST, rate_bps=np.array([1e9, 0.0]))


def test_every_registered_transport_has_a_model_or_a_reason_why_not() -> None:
    names = Registry.installed().names()
    assert {*MODELS, *SAME_ALGORITHM, *WITHOUT_MODEL} == {*names, *NO_TRANSPORT}
    kernel = model_of("kernel-cubic")
    assert kernel == replace(CUBIC, name="kernel-cubic")
    with pytest.raises(NoModelError, match=r"^it has no model of its tail: BBR's rate"):
        model_of("kernel-bbr")
    with pytest.raises(ValueError, match=r"^'udp' has no model of its tail; there are reno, cubic, .*, kernel-cubic"):
        model_of("udp")
