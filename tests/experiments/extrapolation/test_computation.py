import pytest

from bicoastal.experiments.extrapolation.computation import (
    bubble_share,
    full_over_selective,
    scaled_time,
    time_to_train_s,
)
from bicoastal.wan.transformer import Transformer

GPT3 = Transformer(layers=96, hidden=12288, sequence=2048, vocabulary=51200, heads=96, embeddings=1, dropout=True)


@pytest.mark.parametrize(
    ("layers", "hidden", "full_s", "selective_s"),
    # arXiv 2205.05198, tables 3 and 5
    [(48, 6144, 1.42, 1.10), (96, 12288, 18.13, 13.75), (105, 20480, 49.05, 37.83), (128, 25600, 94.42, 71.49)],
)
def test_recomputing_everything_costs_what_was_measured(
    layers: int, hidden: int, full_s: float, selective_s: float
) -> None:
    model = Transformer(layers=layers, hidden=hidden, sequence=2048, vocabulary=51200)
    assert full_over_selective(model) == pytest.approx(full_s / selective_s, rel=0.03)


def test_mlperfs_larger_run_is_explained_within_ten_per_cent_by_the_number_of_gpus() -> None:
    assert scaled_time(10.94, gpus=3584, to_gpus=10752) == pytest.approx(3.9, rel=0.10)


def test_the_bubble_is_what_the_first_and_last_micro_batch_leave_idle() -> None:
    # arXiv 2104.04473 §2.2: idle over ideal time is (p - 1) / m, 3/8 here
    idle = bubble_share(pipeline=4, micro_batches=8)
    assert idle / (1 - idle) == pytest.approx(3 / 8)
    assert bubble_share(pipeline=1, micro_batches=8) == 0


def test_gpt3_takes_the_time_that_its_operations_take() -> None:
    # arXiv 2104.04473 §5.1: 300 billion tokens on 1,024 A100 at 140 Tflop/s each, 34 days by eq. 4, 8 T P / (n X),
    # which counts four passes; three and attention's core take a little more than three quarters of that
    time_s = time_to_train_s(GPT3, tokens=300e9, gpus=1024, flops=312e12, efficiency=140 / 312)
    assert time_s == pytest.approx(0.77 * 34 * 86400, rel=0.03)
