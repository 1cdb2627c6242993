from dataclasses import replace

import pytest

from bicoastal.experiments.extrapolation.memory import memory, verdict
from bicoastal.experiments.scenario.deployment import load_deployment
from bicoastal.wan.deployment import Deployment

GPT3 = load_deployment("gpt3-sakuraone", None)


def four_nodes(**changes: int) -> Deployment:
    """Return GPT-3 with one replica on four nodes of 8 GPUs: 32 times 80 GB."""
    return replace(GPT3, pipeline=4, data=1, **changes)


def test_175_billion_parameters_at_18_bytes_do_not_fit_four_nodes() -> None:
    need = memory(four_nodes())
    # 3.15 TB of state on 2.56 TB; the first stage has the embedding besides its quarter
    assert need.state_bytes * 32 == pytest.approx(3.15e12, rel=0.02)
    assert not need.state_fits
    assert verdict(four_nodes()) == (
        "does not fit: weights, gradients and optimizer alone take 99.26 GB, and a GPU has 80 GB"
    )
    assert verdict(GPT3).startswith("fits: 60.61 GB of 80 GB")


def test_dividing_the_optimizer_over_replicas_makes_room_and_is_named_where_it_would() -> None:
    two = replace(four_nodes(), data=2)
    assert verdict(two).endswith("; with its optimizer divided over the replicas (zero = 1) they would fit")
    alone, divided, more = (memory(replace(two, zero=zero)) for zero in (0, 1, 2))
    # ZeRO, SC '20, figure 1: (2 + 4 + K) P to (2 + 4 + K / N) P to (2 + (4 + K) / N) P, with 4 bytes of gradients
    assert divided.optimizer_bytes == alone.optimizer_bytes / 2
    assert divided.gradients_bytes == alone.gradients_bytes
    assert more.gradients_bytes == alone.gradients_bytes / 2
    assert more.weights_bytes == alone.weights_bytes


def test_the_published_deployment_holds_its_state_but_not_the_activations_in_flight() -> None:
    paper = load_deployment("hundred-trillion", None)
    need = memory(paper)
    # 384.14 TB over 18 * 134 GPUs are 159.3 GB; the first stage has the input's embedding, and no part of the output's
    assert need.state_bytes == pytest.approx((12 * 244224**2 + 256000 * 244224) / 18 * 4)
    assert need.state_fits
    assert not need.fits
    # Korthikanti et al.: 32 s h bytes for each layer at two bytes an element, a quarter of that at FP4
    assert need.activations_bytes == pytest.approx(134 * 32 / 4 * 32000 * 244224 / 18)
    assert "recomputing everything would keep 29.09 GB of them, which does not fit either" in verdict(paper)


def test_only_the_micro_batches_that_are_there_are_in_flight() -> None:
    assert memory(replace(GPT3, micro_batches=3)).in_flight == 3
    assert memory(GPT3).in_flight == 8


def test_experts_are_divided_over_the_replicas_that_have_them() -> None:
    experts = load_deployment("hundred-trillion-moe", None)
    alone, divided = memory(experts), memory(replace(experts, zero=1))
    shared = experts.parameters_per_gpu - experts.expert_parameters_per_gpu
    assert alone.optimizer_bytes == pytest.approx(2.0 * experts.parameters_per_gpu)
    assert divided.optimizer_bytes == pytest.approx(2.0 * (shared / 696 + experts.expert_parameters_per_gpu / 174))


def test_llama_fits_as_it_did() -> None:
    # arXiv 2407.21783 §3.3.2: 8,192 tokens without recomputing activations, on 80 GB
    assert memory(load_deployment("llama3-405b", None)).fits
