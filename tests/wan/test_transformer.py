from dataclasses import replace

import pytest

from bicoastal.wan.transformer import Transformer

# GPT-3 175B, and the four models of arXiv 2205.05198 table 3 (heads, hidden, layers; 2,048 tokens, vocabulary 51,200)
GPT3 = Transformer(layers=96, hidden=12288, sequence=2048, vocabulary=51200, heads=96, embeddings=1, dropout=True)
KORTHIKANTI = {
    22e9: replace(GPT3, heads=64, hidden=6144, layers=48),
    175e9: GPT3,
    530e9: replace(GPT3, heads=128, hidden=20480, layers=105),
    1e12: replace(GPT3, heads=160, hidden=25600, layers=128),
}


def test_parameters_are_those_in_the_models_names() -> None:
    for size, model in KORTHIKANTI.items():
        assert model.parameters == pytest.approx(size, rel=0.015)


def test_arithmetic_of_a_sequence_is_the_published_closed_form() -> None:
    # arXiv 2104.04473 eq. 3: 96 s l h^2 (1 + s / 6h + V / 16 l h) with everything computed again
    for model in KORTHIKANTI.values():
        s, length, h, vocabulary = model.sequence, model.layers, model.hidden, model.vocabulary
        published = 96 * s * length * h**2 * (1 + s / (6 * h) + vocabulary / (16 * length * h))
        assert model.training_flops("full") == pytest.approx(published)
        # arXiv 2205.05198, appendix A: 72 s L h^2 (1 + s / 6h + V / 12 h L)
        model_flops = 72 * s * length * h**2 * (1 + s / (6 * h) + vocabulary / (12 * h * length))
        assert model.training_flops("none") == pytest.approx(model_flops)


def test_what_selective_recomputation_computes_again_is_one_forward_pass_of_attentions_core() -> None:
    # 2 s^2 h for Q K^T and 2 s^2 h for what it weighs (arXiv 2205.05198, appendix A)
    again = GPT3.training_flops("selective") - GPT3.training_flops("none")
    assert again == pytest.approx(96 * 4 * 2048**2 * 12288)


def test_activations_are_34_bytes_for_each_token_and_width_and_attention_is_most_of_the_rest() -> None:
    # arXiv 2205.05198 §4.1 and §5: 34 s b h, 5 a s / h more for attention's core, which is 80 for GPT-3; 2 when full
    tokens = GPT3.sequence * GPT3.hidden
    assert GPT3.activation_bytes("selective", 2.0) / tokens == pytest.approx(34)
    assert GPT3.activation_bytes("none", 2.0) / tokens == pytest.approx(34 + 80)
    assert GPT3.activation_bytes("full", 2.0) / tokens == pytest.approx(2)


def test_recomputing_attention_saves_70_percent_of_gpt3s_activations_and_65_of_mt_nlgs() -> None:
    # arXiv 2205.05198, §5
    for size, saved in ((175e9, 0.70), (530e9, 0.65)):
        model = KORTHIKANTI[size]
        without = model.activation_bytes("selective", 2.0) / model.activation_bytes("none", 2.0)
        assert 1 - without == pytest.approx(saved, abs=0.005)


def test_a_token_uses_only_its_experts() -> None:
    sparse = replace(GPT3, experts=16, experts_per_token=2)
    assert sparse.layer_parameters == pytest.approx((4 + 16 * 8) * GPT3.hidden**2)
    assert sparse.active_layer_parameters == pytest.approx((4 + 2 * 8) * GPT3.hidden**2)
    # and carries what it needs for each: 15 h of attention, and 19 h of each network
    kept = sparse.activation_bytes("selective", 2.0) / (GPT3.sequence * GPT3.hidden)
    assert kept == pytest.approx(15 + 2 * 19)
